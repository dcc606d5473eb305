"""What is counted of answers: over blocks in a task, over tasks in a job."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from locdist.data.artefacts import typed
from locdist.data.encoding import UNSEEN_CATEGORY, Rejected
from locdist.data.moments import Moments
from locdist.data.source import Source
from locdist.jobs.asking.block import STATUSES, Block
from locdist.local.answers import Status
from locdist.plan.records import Record


@dataclass(frozen=True)
class Tally:
    """What is counted over blocks: rows, rows without an answer for a fault of their own, statuses, reasons,
    and a job's own sums.
    """

    rows: int = 0
    bad: int = 0
    status: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    sums: dict[str, Moments] = field(default_factory=dict)
    quarantine: tuple[pa.Table, ...] = ()

    @staticmethod
    def of(source: Source, block: Block, answers: pa.Table, sums: dict[str, Moments]) -> "Tally":
        """The tally of one block."""
        codes = answers.column("status").combine_chunks().indices.to_numpy()
        counts = np.bincount(codes, minlength=len(Status))
        status = {STATUSES[code].as_py(): int(count) for code, count in enumerate(counts) if count}
        reasons = {f"{found.reason} in {found.column!r}": len(found.rows) for found in block.rejected}
        listed = tuple(
            _listed(source, block, found) for found in block.rejected if found.reason != UNSEEN_CATEGORY
        )
        return Tally(block.table.num_rows, int(counts[Status.BAD_QUERY]), status, reasons, sums, listed)

    @property
    def data(self) -> dict[str, Any]:
        """What a record keeps, JSON-able."""
        return asdict(Counted(self.status, self.reasons, self.sums))

    def add(self, other: "Tally") -> "Tally":
        """The sum of both; quarantined rows are not carried along."""
        return Tally(
            self.rows + other.rows,
            self.bad + other.bad,
            added(self.status, other.status),
            added(self.reasons, other.reasons),
            merged(self.sums, other.sums),
        )


def added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The sum of two mappings of numbers."""
    return {
        name: one.get(name, 0) + other.get(name, 0)
        for name in [*one, *(name for name in other if name not in one)]
    }


def merged(one: Mapping[str, Moments], other: Mapping[str, Moments]) -> dict[str, Moments]:
    """The moments of the rows of both."""
    names = dict.fromkeys([*one, *other])
    return {name: one.get(name, Moments()).merge(other.get(name, Moments())) for name in names}


@dataclass(frozen=True)
class Counted:
    """What a record keeps of a tally."""

    status: dict[str, int]
    reasons: dict[str, int]
    sums: dict[str, Moments]

    @staticmethod
    def of(record: Record) -> "Counted":
        """What a record counts."""
        return typed(Counted, json.dumps(record.data), "counts of answers", record.task, "Use --overwrite.")


def _listed(source: Source, block: Block, found: Rejected) -> pa.Table:
    """Quarantined rows: where they are (file, row in it, and row of all queries), and why they are bad."""
    numbers = pa.array(found.rows + block.first)
    rows = source.addresses(block.first, block.first + block.table.num_rows).take(pa.array(found.rows))
    values = block.table.column(found.column).take(pa.array(found.rows))
    told = {"query": numbers, "column": found.column, "reason": found.reason, "value": _text(values)}
    for name, value in told.items():
        rows = rows.append_column(name, pa.repeat(value, len(numbers)) if isinstance(value, str) else value)
    return rows


def _text(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Single values as text; a vector is too long to tell."""
    nested = pa.types.is_nested(values.type)
    return pa.nulls(len(values), pa.string()) if nested else values.cast(pa.string())
