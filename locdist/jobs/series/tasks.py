"""The tasks of `forecast`.

find      every partition: where runs of one series begin
cut       one task: the series, which must be together, as spans of whole ones
forecast  every span: what follows its series
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from locdist.data.source import Source
from locdist.errors import DataError
from locdist.jobs.request import read_batches, rows_told, write_ipc
from locdist.jobs.series.answers import follow, told
from locdist.jobs.series.read import TOGETHER, Columns, gathered, runs
from locdist.local.answers import Status
from locdist.methods.series import SeriesMethod
from locdist.plan.cost import MEASURED, Estimate
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record

FIND, CUT, FORECAST = "find", "cut", "forecast"
SPAN_ROWS = 1 << 18  # of a span of whole series, about


@dataclass(frozen=True)
class FindRuns:
    """Where the series of one partition begin."""

    source: Source
    columns: Columns

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output has the id of each run of equal ones, and its first row."""
        start, stop = task.inputs
        assert self.columns.id is not None
        column = pa.concat_tables(self.source.read(start, stop, [self.columns.id])).column(0)
        names, begins = runs(column)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, pa.RecordBatch.from_pydict({"id": names, "first": begins[:-1] + start}))
        return Record(rows=stop - start, data={"runs": len(names)})


@dataclass(frozen=True)
class CutSpans:
    """The spans of rows that hold whole series, and how many series there are."""

    rows: int
    runs: tuple[str, ...]
    size: int

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """No output: the record has the first row of each span, and the number of rows."""
        parts = []
        for name in self.runs:
            with attempt.folder.open(name) as stream:
                parts += read_batches(stream, name)
        table = pa.Table.from_batches(parts).combine_chunks()
        names, begins = runs(table.column("id"))  # a run that goes over the border of partitions is one
        if pc.count_distinct(names).as_py() < len(names):
            counted = names.value_counts()
            twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
            raise DataError(TOGETHER, f"{len(twice):,} apart, as {twice[0]}", "Sort the data by the id.")
        firsts = np.append(table.column("first").to_numpy()[begins[:-1]], self.rows)
        wanted = np.searchsorted(firsts, np.arange(0, self.rows, self.size))
        cuts = np.unique(np.append(firsts[wanted], self.rows))
        return Record(rows=self.rows, data={"cuts": cuts.tolist(), "series": len(names)})


@dataclass(frozen=True)
class ForecastSpan:
    """What follows the series of one span."""

    source: Source
    columns: Columns
    method: SeriesMethod
    steps: int

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output: a row for each series and step."""
        start, stop = task.inputs
        schema = self.source.schema
        empty = pa.schema([schema.field(name) for name in self.columns.names]).empty_table()
        table = pa.concat_tables([empty, *self.source.read(start, stop, self.columns.names)])
        series = gathered(table, self.columns)
        path = follow(self.method.loop, series, self.steps)
        rows = told(self.columns, schema, series, path)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            pq.write_table(rows, sink, compression="zstd", write_page_checksum=True, row_group_size=1 << 16)
        counts = np.bincount(path.status.flatten().numpy(), minlength=len(Status)).tolist()
        status = {each.name.lower(): counts[each] for each in Status if counts[each]}
        return Record(rows=rows.num_rows, data={"status": status})


def cut_cost(found: Iterable[Record]) -> Estimate:
    """The task that cuts, after the records of those that found runs.

    memory = base + 3 x bytes of the ids and first rows of all runs
    """
    size = sum(sum(record.bytes.values()) for record in found)
    formula = f"base {MEASURED.base:,} + 3 x {size:,} bytes of ids"
    return Estimate(MEASURED.base + 3 * size, 0, MEASURED.task, formula, size)


def forecast_cost(method: SeriesMethod, rows: int, steps: int) -> Estimate:
    """A task of a span.

    memory = base + 8 bytes x rows x (3 x order + 2 x targets + 8), targets of a window: one, or all steps
    """
    order, k = method.loop.order, method.loop.layer.neighbors
    asked, targets = (1, steps) if method.loop.direct else (steps, 1)
    memory = MEASURED.base + 8 * rows * (3 * order + 2 * targets + 8)
    formula = f"base {MEASURED.base:,} + 8 x {rows:,} rows x (3 x {order} + 2 x {targets} + 8)"
    seconds = MEASURED.task + asked * (
        rows * (MEASURED.pair + order / MEASURED.exact) + k * MEASURED.neighbor
    )
    return Estimate(memory, asked * rows, seconds, formula, 24 * rows, 32 * steps)
