"""Series out of tables: rows that have the same id, one after the other in the order of time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.columns import decoded, numbers
from locdist.data.schema import is_number, plain
from locdist.data.source import Source
from locdist.errors import DataError, UsageError

NUMBERS = 1 << 22  # of series of different lengths that are padded to one
TOGETHER = "the rows of a series one after the other"
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """What the columns of a table of series are for.

    Parameters
    ----------
    target : str
        The values.
    time : str, optional
        Their order in a series: numbers, dates or times; without it that of the rows.
    id : str, optional
        The series; without it there is one.
    """

    target: str
    time: str | None = None
    id: str | None = None

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [name for name in (self.id, self.time, self.target) if name is not None]

    def check(self, source: Source) -> None:
        """UsageError for columns that a source does not have, or of other types."""
        source.check(self.names)
        kinds = {name: plain(source.schema.field(name).type) for name in self.names}
        if not is_number(kinds[self.target]):
            given = f"{self.target!r} of type {kinds[self.target]}"
            raise UsageError("a target of numbers", given, "Name another column.")
        if self.time is not None and not is_time(kinds[self.time]):
            given = f"{self.time!r} of type {kinds[self.time]}"
            raise UsageError("a time of numbers, dates or times", given, "Name another column.")


def is_time(kind: pa.DataType) -> bool:
    """Whether values of a type have an order and differences."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_timestamp(kind) or pt.is_date(kind))


@dataclass(frozen=True, eq=False)
class Gathered:
    """Series [s] of a table, sorted by time.

    Attributes
    ----------
    names : pa.Array, optional
        The id of each.
    starts : array [s + 1]
        The first row of each, and the number of rows.
    values : array [n] float64
        nan where nothing is known.
    times : pa.Array [n], optional
    """

    names: pa.Array | None
    starts: Integers
    values: NDArray[np.float64]
    times: pa.Array | None

    @property
    def lengths(self) -> Integers:
        """Rows of each series [s]."""
        return np.diff(self.starts)

    def padded(self, some: Integers) -> Tensor:
        """Some series as rows that end together [s, longest], nan before the first value of each."""
        lengths = self.lengths[some]
        longest = int(lengths.max(initial=0))
        at = self.starts[some + 1][:, None] - longest + np.arange(longest)
        early = at < self.starts[some][:, None]
        return torch.from_numpy(np.where(early, np.nan, self.values[np.where(early, 0, at)]))

    def batches(self) -> Iterator[Integers]:
        """The numbers of series of about equal lengths, a few million values together."""
        order, lengths = np.argsort(-self.lengths, kind="stable"), -np.sort(-self.lengths)
        begin = 0
        while begin < len(order):
            count = max(1, NUMBERS // max(int(lengths[begin]), 1))
            yield order[begin : begin + count]
            begin += count


def gathered(table: pa.Table, columns: Columns) -> Gathered:
    """The series of a table; DataError unless the rows of each are together, with different times."""
    names, starts = runs(table.column(columns.id)) if columns.id else (None, np.array([0, table.num_rows]))
    if names is not None and pc.count_distinct(names).as_py() < len(names):
        raise DataError(TOGETHER, "some that are apart", f"Sort the data by {columns.id!r}.")
    values, bad = numbers(table.column(columns.target))
    values = np.where(bad, np.nan, values)
    if columns.time is None:
        return Gathered(names, starts, values, None)
    times = decoded(table.column(columns.time)).combine_chunks()
    if times.null_count:
        raise DataError("a time of each row", f"{times.null_count} null", "Repair or leave out these rows.")
    place, series = as_numbers(times), np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    lost = int((~np.isfinite(place)).sum())
    if lost:
        raise DataError("a time of each row", f"{lost} nan or inf", "Repair or leave out these rows.")
    order = np.lexsort((place, series))
    same = (np.diff(place[order]) == 0) & (np.diff(series) == 0)
    if same.any():
        given = f"{int(same.sum())} times twice, the first {times[int(order[np.argmax(same)])]}"
        raise DataError("different times in a series", given, "Name the column of the series, as the id.")
    return Gathered(names, starts, values[order], times.take(pa.array(order)))


def runs(column: pa.ChunkedArray) -> tuple[pa.Array, Integers]:
    """The value of each run of equal ones [s], and where they begin, and the last one ends [s + 1]."""
    plainly = decoded(column).combine_chunks()
    if plainly.null_count:
        raise DataError("an id of each row", f"{plainly.null_count} null", "Repair or leave out these rows.")
    codes = plainly.dictionary_encode().indices.to_numpy()
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    return plainly.take(pa.array(begins)), np.append(begins, len(codes))


def as_numbers(times: pa.Array) -> NDArray[np.int64] | NDArray[np.float64]:
    """Times as numbers of one unit."""
    if pt.is_date32(times.type):
        times = times.cast(pa.int32())
    floats = pt.is_floating(times.type)
    found: NDArray[np.float64] = times.cast(pa.float64() if floats else pa.int64()).to_numpy()
    return found


def following(times: pa.Array, ends: Integers, lengths: Integers, steps: int) -> pa.Array:
    """The times that follow the last ones of series [s steps], at the distance of the last two; null where a
    series has a single one.
    """
    place = as_numbers(times)
    last, before = place[ends], place[np.maximum(ends - 1, 0)]
    after = last[:, None] + (last - before)[:, None] * np.arange(1, steps + 1)
    alone = np.repeat(lengths < 2, steps)
    found = pa.array(after.reshape(-1), mask=alone)
    return (found.cast(pa.int32()) if pt.is_date32(times.type) else found).cast(times.type)
