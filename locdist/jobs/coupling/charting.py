"""What the tasks of a logifold do: rows are sorted by charts, and each chart is a task."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.artefacts import packed, unpacked
from locdist.data.columns import codes, decoded, distinct, numbers, vectors
from locdist.data.dataset import Dataset
from locdist.data.encoding import Encoding
from locdist.data.source import Span
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.jobs.asking.block import statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.coupling.gather import read_table, row_weights
from locdist.jobs.coupling.relaxing import kept_files
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.request import read_batches, rows_told, write_ipc
from locdist.jobs.spreading.whole import tensor
from locdist.local.answers import Status
from locdist.local.charts import Judged
from locdist.local.losses import Rows
from locdist.methods.atlas import Atlas
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record

Name = int | str
MOST = 4096  # charts: every one of them is asked about every query
_CHARTS = b"charts"


@dataclass(frozen=True)
class Charts:
    """The charts that have batches in a file, behind a first one."""

    names: tuple[Name, ...]


@dataclass(frozen=True)
class SortCharts:
    """The rows of a span, encoded: a batch of those held out, and one for each chart.

    Parameters
    ----------
    support : Dataset
        Its id, if it has one, names the chart of a row.
    encoding : Encoding
        Of the features.
    classes : tuple
        Sorted values of the target.
    method : Atlas
    """

    support: Dataset
    encoding: Encoding
    classes: pa.Array
    method: Atlas

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.support.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The record's data are the names of the charts, and how many rows each has, and who is held out."""
        span, holdout = Span(*task.inputs), self.method.holdout
        more = (holdout,) if isinstance(holdout, str) else ()
        named, rows, held = self._good(read_table(self.support, span, more))
        used, there = len(rows.nodes), rows.weights > 0
        named, rows, held = named.filter(pa.array(there.numpy())), rows.there, held[there]
        names = distinct(named)
        check_count(len(names), least=0)
        place = torch.from_numpy(codes(named, names)).masked_fill(held, -1)
        told = Charts(tuple(names.to_pylist()))
        batches = [_batch(rows.some(place == each), told) for each in range(-1, len(names))]
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, *batches)
        counts = [batch.num_rows for batch in batches]
        data = {"charts": names.to_pylist(), "rows": counts[1:], "held": counts[0]}
        return Record(rows=span.rows, bad_rows=span.rows - used, data=data)

    def _good(self, table: pa.Table) -> tuple[pa.ChunkedArray, Rows, Tensor]:
        """The charts of rows that can be used, these rows, and who is held out."""
        roles, method = self.support.roles, self.method
        features, bad, _ = self.encoding.encode(table)
        labels = codes(table.column(roles.target[0]), self.classes)
        weights, wrong = row_weights(table, roles.weight)
        good = ~(bad | wrong | (labels < 0))
        if roles.id is not None:
            good &= table.column(roles.id).is_valid().to_numpy()
        x, y, v = (torch.from_numpy(each[good]).double() for each in (features, labels, weights))
        rows = Rows(torch.zeros(len(y), dtype=torch.int64), x, y, v)
        drawn = method.drawn(rows)
        named = pa.array(method.parts(drawn).numpy()) if roles.id is None else table.column(roles.id)
        named = decoded(named if roles.id is None else named.filter(pa.array(good)))
        if not isinstance(method.holdout, str):
            return named, rows, method.held(drawn)
        told, lost = numbers(table.column(method.holdout))
        if lost.any():
            given = f"{int(lost.sum()):,} of {len(lost):,} rows that say neither"
            raise DataError(f"0 or 1 in {method.holdout!r}, whether a row is held out", given, "Fill them.")
        return named, rows, torch.from_numpy(told[good] > 0)


@dataclass(frozen=True)
class FitChart:
    """One chart: its classifier, and where it is certain enough.

    Parameters
    ----------
    method : Atlas
    rows : tuple of str
        What `SortCharts` wrote.
    names : tuple
        Of all charts, sorted.
    stored : Stored
    """

    method: Atlas
    rows: tuple[str, ...]
    names: tuple[Name, ...]
    stored: Stored

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Outputs: its row of the table, and the rows that it is fitted on, for `apply`."""
        (number,) = task.inputs
        part, kept = task.outputs
        own = self.method.ordered(_joined(list(self._read(attempt.folder, self.names[number]))))
        fitted, why = self.method.fit(own)
        judged = self._judged(attempt.folder, fitted)
        failed = Status.EMPTY if not len(own.nodes) else Status.NOT_FINITE
        status = torch.tensor([int(Status.OK if fitted is not None else failed)])
        failing, threshold = status != 0, self.method.threshold(judged)
        right = (judged.hits.sum(1) / judged.seen.sum(1)).masked_fill(failing, torch.nan)
        threshold = threshold.masked_fill(failing | threshold.isinf(), torch.nan)
        told = {"rows": [len(own.nodes)], "held_out": [judged.sure.shape[1]], "accuracy": nullable(right)}
        kind = pa.type_for_alias(self.stored.type)
        table = pa.table({
            self.stored.node: pa.array([self.names[number]], kind), **told, "threshold": nullable(threshold),
            "status": statuses(status),
        })  # fmt: skip
        with attempt.writer(part) as sink:
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        with attempt.writer(kept) as sink:
            write_ipc(sink, kept, _batch(own, Charts((self.names[number],))))
        if number == 0:
            self.stored.write(attempt.folder)
        return Record(rows=1, data={"status": {Status(int(status)).name.lower(): 1}, "why": why})

    def _judged(self, folder: Store, fitted: object) -> Judged:
        """What the chart says of rows that none was fitted on, a partition at a time."""
        classes = len(self.stored.labels)
        parts = [self.method.judge(fitted, held, classes) for held in self._read(folder, None)]
        return Judged.joined(parts)

    def _read(self, folder: Store, chart: Name | None) -> Iterator[Rows]:
        """The rows of a chart in each partition; of None those held out."""

        def numbers_of(schema: pa.Schema) -> range:
            what, remedy = "the charts of a partition", "Run the same command again with --overwrite."
            names = unpacked(Charts, schema.metadata[_CHARTS], what, folder.path(name), remedy).names
            place = 0 if chart is None else names.index(chart) + 1 if chart in names else -1
            return range(place, place + 1) if place >= 0 else range(0)

        for name in self.rows:
            with folder.open(name, mmap=True) as stream:
                for batch in read_batches(stream, name, numbers_of):
                    yield rows_of_chart(batch)


def check_count(charts: int, least: int = 1) -> None:
    """DataError for too many charts, or too few."""
    if not least <= charts <= MOST:
        remedy = "Name another column (--node), or check the rows."
        raise DataError(f"1 to {MOST:,} charts", f"{charts:,}", remedy)


def rows_of_chart(batch: pa.RecordBatch) -> Rows:
    """The rows that a file has of a chart."""
    parts = [tensor(batch, name) for name in ("features", "target", "weight")]
    return Rows(torch.zeros(batch.num_rows, dtype=torch.int64), *parts)


def chart_files(number: int) -> tuple[str, str]:
    """The row of a chart in the table of all, and the rows that it is fitted on."""
    return f"part-{number:05}.parquet", kept_files(number)[0]


def _joined(parts: list[Rows]) -> Rows:
    each = zip(*((part.nodes, part.features, part.targets, part.weights) for part in parts), strict=True)
    return Rows(*(torch.cat(some) for some in each))


def _batch(rows: Rows, charts: Charts) -> pa.RecordBatch:
    columns = {"target": rows.targets.numpy(), "weight": rows.weights.numpy()}
    batch = pa.RecordBatch.from_pydict({"features": vectors(rows.features.numpy()), **columns})
    return batch.replace_schema_metadata({_CHARTS: packed(asdict(charts))})
