"""Queries of a job: read in blocks, encoded, answered, written as one output partition for each task.

`PredictRows` and `FindRows` differ in what they ask of the index; everything else is here: one row out for
each row in, in the same order, bad rows kept as nulls with a status and told in a quarantine file.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from locdist.data.columns import NULL, REASONS, inspect_numbers
from locdist.data.encoding import UNSEEN_CATEGORY, Encoding, Rejected
from locdist.data.moments import Moments
from locdist.data.source import Source
from locdist.errors import UsageError
from locdist.jobs.asking.block import Block
from locdist.jobs.asking.partition import GROUP_BYTES as GROUP_BYTES
from locdist.jobs.asking.partition import QUARANTINE as QUARANTINE
from locdist.jobs.asking.partition import write_partition
from locdist.jobs.asking.tally import Tally
from locdist.jobs.request import rows_told
from locdist.plan.cost import Solve
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record
from locdist.search.generation import Generation

BLOCK_ROWS = 8192  # queries searched together: fewer lose locality, more cost memory
BLOCK_PAIRS = 4 << 20  # neighbors held at once: many neighbors take smaller blocks


def check_device(device: str) -> None:
    """UsageError when torch cannot compute on a device."""
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            f"a device {device} that torch can use, for tasks with gpus",
            f"torch {torch.__version__}, which sees none here",
            "Install a build of torch for the devices of the workers, or leave gpus out.",
        )


def check_kept(keep: Sequence[str], answers: pa.Schema) -> None:
    """UsageError for kept columns with the names of answers."""
    twice = set(keep) & set(answers.names)
    if twice:
        raise UsageError(
            f"kept columns besides those of the output ({', '.join(answers.names)})",
            ", ".join(sorted(twice)),
            "Rename them in the queries, or keep others.",
        )


def block_rows(k: int) -> int:
    """Queries of k neighbors that are searched together; with 0 all rows are summed, in one pass for each."""
    return max(1, min(BLOCK_ROWS, BLOCK_PAIRS // k)) if k else BLOCK_ROWS


@dataclass(frozen=True, kw_only=True)
class Ask(ABC):
    """What a job asks of an index for each row of a source.

    Parameters
    ----------
    source : Source
        The queries.
    index : Generation
        Opened in each worker when first used.
    keep : tuple of str
        Input columns that go to the output as they are; without any, the address of each row (file and row in
        it).
    own : bool
        Whether the queries are the rows of the support themselves, in the same source.
    """

    source: Source
    index: Generation
    keep: tuple[str, ...]

    own: bool = False

    def __post_init__(self) -> None:
        for encoding in (self.index.key, self.index.features):
            if encoding is not None:
                encoding.check(self.source.schema)  # a missing column or another width: before any work
        self.source.check(self.read_columns)
        check_kept(self.keep, self.columns())

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.source, *task.inputs)

    @abstractmethod
    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Output columns [q] besides the kept ones (with a `status`), and moments to merge over blocks."""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """The schema of what `answer` returns."""

    @property
    @abstractmethod
    def work(self) -> Solve:
        """What is solved for each query, for predicting memory and time."""

    @property
    def block_rows(self) -> int:
        """Queries searched together."""
        return block_rows(self.work.k)

    @property
    def schema(self) -> pa.Schema:
        """The output's schema: kept columns, then answers."""
        kept = [self.source.schema.field(name) for name in self.keep]
        address = [pa.field("file", pa.string()), pa.field("row", pa.int64())]
        return pa.schema([*(kept or address), *self.columns()])

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """Columns that a job reads besides key, features and what is kept."""
        return ()

    @property
    def read_columns(self) -> list[str]:
        """Columns of the source that are read."""
        encodings = [self.index.key, self.index.features]
        needed = [
            column.name for encoding in encodings if encoding is not None for column in encoding.columns
        ]
        return list(dict.fromkeys([*needed, *self._offset, *self.keep, *self.extra_columns]))

    def tables(self, start: int, stop: int, device: str = "cpu") -> Iterator[tuple[pa.Table, "Tally"]]:
        """Output rows [start, stop), a block at a time, with what is counted."""
        check_device(device)
        tables = self.source.read(start, stop, self.read_columns, batch_rows=self.block_rows)
        for table in tables:
            block = replace(self.encoded(table, start), device=device)
            answers, sums = self.answer(block)
            kept = (
                table.select(self.keep) if self.keep else self.source.addresses(start, start + table.num_rows)
            )
            whole = pa.Table.from_arrays([*kept.columns, *answers.columns], schema=self.schema)
            yield whole, Tally.of(self.source, block, answers, sums)
            start += table.num_rows

    def encoded(self, table: pa.Table, first: int) -> Block:
        """Queries [q, d] and features [q, m] of a table."""
        keys, bad, rejected = self.index.key.encode(table)
        features, spoiled = _features(self.index.features, table)
        rejected = [*rejected, *spoiled, *self._nameless(table)]
        offsets, lost = self._offsets(table)
        rejected += lost
        for found in rejected:
            bad[found.rows] |= found.reason != UNSEEN_CATEGORY
        at = None if features is None else torch.from_numpy(features)
        asked, wrong = torch.from_numpy(keys), torch.from_numpy(bad)
        return Block(table, first, asked, at, wrong, tuple(rejected), offsets)

    @property
    def _offset(self) -> tuple[str, ...]:
        """The column of the offset, if there is one."""
        return () if (name := self.index.layout.roles.offset) is None else (name,)

    def _offsets(self, table: pa.Table) -> tuple[torch.Tensor | None, list[Rejected]]:
        """Offsets of the queries [q], 0 where they are bad, and why."""
        for name in self._offset:
            values, reasons = inspect_numbers(table.column(name))
            found = np.unique(reasons[reasons != 0]).tolist()
            lost = [Rejected(name, REASONS[each], np.flatnonzero(reasons == each)) for each in found]
            return torch.from_numpy(np.where(reasons == 0, values, 0.0)), lost
        return None, []

    def _nameless(self, table: pa.Table) -> list[Rejected]:
        """Rows whose answer nobody could join to them: those without the id that is kept of them."""
        id = self.index.layout.roles.id
        if id not in self.keep or not table.column(id).null_count:
            return []
        return [Rejected(id, REASONS[NULL], np.flatnonzero(table.column(id).is_null()))]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Write one output partition, atomically; rows out are checked against rows in."""
        start, stop = task.inputs
        return write_partition(self.schema, self.tables(start, stop, attempt.device), task, attempt)


def _features(encoding: Encoding | None, table: pa.Table) -> tuple[Any, list[Rejected]]:
    if encoding is None:
        return None, []
    features, _, rejected = encoding.encode(table)
    return features, rejected
