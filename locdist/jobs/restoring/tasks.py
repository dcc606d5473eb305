"""The tasks of `restore`.

measure  every partition: how large its images are, and where to cut it
restore  every cut, of about so many numbers: an output row for each image
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from locdist.data.encoding import Rejected
from locdist.data.pictures import Counts, Picture, Pictures, amounts
from locdist.data.source import BATCH_BYTES, Source
from locdist.jobs.asking.block import STATUS, Block, statuses
from locdist.jobs.asking.partition import write_partition
from locdist.jobs.asking.questions import check_kept
from locdist.jobs.asking.spread import spread
from locdist.jobs.asking.tally import Tally
from locdist.jobs.request import rows_per_task, rows_told
from locdist.local.answers import Status
from locdist.methods.restored import ImageMethod
from locdist.plan.cost import MEASURED, Estimate
from locdist.plan.plan import Attempt, Resources, Stage, Task, holding
from locdist.plan.records import Record

MEASURE, RESTORE = "measure", "restore"
SPAN_NUMBERS = 1 << 22  # of the images of a task, about
LOOK = 2.5e-8  # seconds for each number of an image and each pixel that it is compared with
_SHIFT = 5e-5  # for all pixels at once, whatever their number
_ROWS = 4  # images that are read at once to be measured
_SMALL = "smaller than the method's window"


@dataclass(frozen=True)
class MeasureImages:
    """How large the images of a partition are, and where to cut it: about every so many numbers."""

    source: Source
    column: str
    size: int

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """No output: the record has the rows where to cut, the numbers of all images, and of the largest."""
        start, stop = task.inputs
        tables = self.source.read(start, stop, [self.column], _ROWS)
        counts = np.concatenate([np.zeros(0, np.int64), *(amounts(table.column(0)) for table in tables)])
        told = {"numbers": int(counts.sum()), "largest": int(counts.max(initial=0))}
        return Record(rows=stop - start, data=told | {"cuts": cut(start, counts, self.size).tolist()})


def cut(start: int, counts: Counts, size: int) -> Counts:
    """Rows from `start` on, and the end, between which images [n] have about `size` numbers."""
    ends = np.append(0, np.cumsum(counts))
    wanted = np.searchsorted(ends, np.arange(0, ends[-1], size))
    return start + (np.unique(np.append(wanted, [0, len(counts)])) if len(counts) else np.zeros(2, np.int64))


@dataclass(frozen=True)
class RestoreRows:
    """What a method makes of the images of some rows.

    Parameters
    ----------
    source : Source
    pictures : Pictures
    method : ImageMethod
    keep : tuple of str
        Columns that go along; without any, the address of each row.
    """

    source: Source
    pictures: Pictures
    method: ImageMethod
    keep: tuple[str, ...]

    def __post_init__(self) -> None:
        self.source.check(self.columns)
        check_kept(self.keep, self.answers)

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return list(dict.fromkeys([self.pictures.column, *self.keep]))

    @property
    def answers(self) -> pa.Schema:
        """The columns besides those that go along."""
        return pa.schema([(f"restored_{self.pictures.column}", self.pictures.kind), ("status", STATUS)])

    @property
    def schema(self) -> pa.Schema:
        """Of the output."""
        own = [self.source.schema.field(name) for name in self.keep]
        address = [pa.field("file", pa.string()), pa.field("row", pa.int64())]
        return pa.schema([*(own or address), *self.answers])

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.source, *task.inputs)

    def tables(self, start: int, stop: int) -> Iterator[tuple[pa.Table, Tally]]:
        """Output rows [start, stop), an image at a time, with what is counted."""
        return itertools.starmap(self._told, self._images(start, stop))

    def here(self, rows: int) -> tuple[pa.Table, Tally]:
        """All of them, in memory, on all cores."""
        found = spread(lambda each: self._told(*each), list(self._images(0, rows)))
        tally = Tally()
        for _, counted in found:
            tally = tally.add(counted)
        whole = pa.concat_tables([self.schema.empty_table(), *(table for table, _ in found)])
        return whole.combine_chunks(), tally

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Write one output partition."""
        return write_partition(self.schema, self.tables(*task.inputs), task, attempt)

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, pa.Table]]:
        """Rows one by one, with their numbers."""
        return enumerate(self.source.read(start, stop, self.columns, 1), start)

    def _told(self, first: int, table: pa.Table) -> tuple[pa.Table, Tally]:
        image, status, reason = self._restored(table)
        bad = torch.tensor([status == Status.BAD_QUERY])
        rejected = (Rejected(self.pictures.column, reason, np.zeros(1, np.int64)),) if reason else ()
        block = Block(table, first, torch.zeros(1, 0), None, bad, rejected)
        columns = [self.pictures.written([image]), statuses(torch.tensor([int(status)]))]
        told = pa.Table.from_arrays(columns, schema=self.answers)
        own = table.select(self.keep) if self.keep else self.source.addresses(first, first + 1)
        whole = pa.Table.from_arrays([*own.columns, *told.columns], schema=self.schema)
        return whole, Tally.of(self.source, block, told, {})

    def _restored(self, table: pa.Table) -> tuple[Picture | None, Status, str]:
        """What is made of one image, its status, and why it is none."""
        image = self.pictures.at(table, 0)
        if isinstance(image, str):
            return None, Status.BAD_QUERY, image
        if min(image.shape[:2]) < self.method.side:
            return None, Status.BAD_QUERY, _SMALL
        found = self.method(image)
        return (found, Status.OK, "") if np.isfinite(found).all() else (None, Status.NOT_FINITE, "")


def measuring(source: Source, column: str, rows: int, given: Resources | None) -> Stage:
    """The tasks over partitions; images are larger than their files say, but not by much."""
    each = max(1, sum(file.size for file in source.files) // max(1, source.rows))
    spans = source.partitions(rows_per_task(rows, each, least=1))
    tasks = tuple(
        Task(f"part-{number:05}", (), (span.start, min(span.stop, rows)), min(span.stop, rows) - span.start)
        for number, span in enumerate(spans)
        if span.start < rows or not rows
    )
    cost, function = measure_cost(0), MeasureImages(source, column, SPAN_NUMBERS)
    return Stage(MEASURE, tasks, function, holding(given, cost.memory), cost.formula)


def restoring(question: RestoreRows, measured: Mapping[str, Record], given: Resources | None) -> Stage:
    """The tasks over images, once these are measured."""
    told = [record.data for _, record in sorted(measured.items())]
    spans = [pair for each in told for pair in itertools.pairwise(each["cuts"])]
    tasks = tuple(
        Task(f"part-{number:05}", (f"part-{number:05}.parquet",), (start, stop), stop - start)
        for number, (start, stop) in enumerate(spans)
    )
    cost = restore_cost(question.method, 0, 0, max(each["largest"] for each in told))
    return Stage(RESTORE, tasks, question, holding(given, cost.memory), cost.formula)


def measure_cost(numbers: int) -> Estimate:
    """A task that measures images of so many numbers.

    memory = base + 3 batches
    """
    memory, formula = (
        MEASURED.base + 3 * BATCH_BYTES,
        f"base {MEASURED.base:,} + 3 x {BATCH_BYTES:,} of a batch",
    )
    return Estimate(memory, 0, MEASURED.task + 8 * numbers / MEASURED.read, formula, 8 * numbers, 0)


def restore_cost(method: ImageMethod, images: int, numbers: int, largest: int) -> Estimate:
    """A task that restores images, of so many numbers together, one at a time.

    memory = base + what the method takes for the largest image
    """
    own = method.memory(largest)
    formula = f"base {MEASURED.base:,} + {own:,} of the method, for {largest:,} numbers of the largest image"
    looks = numbers * method.looks
    seconds = MEASURED.task + LOOK * looks + _SHIFT * images * method.looks
    return Estimate(MEASURED.base + own, looks, seconds, formula, 8 * numbers, 8 * numbers)
