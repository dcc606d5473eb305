"""What one pass over the support learns: counts, bad rows, moments, categories and classes.

Every task profiles its own rows and the results are merged, in any order and grouping: counts, extremes and
sets exactly, means and sums of squares by Chan's update, whose last bits depend on the order (`encoding`
rounds them away).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from locdist.data.columns import (
    REASONS,
    decoded,
    inspect_numbers,
    inspect_vectors,
    is_category,
    is_class,
)
from locdist.data.dataset import Dataset
from locdist.data.moments import Distinct, Moments
from locdist.data.schema import is_number, is_vector, plain

MAX_CATEGORIES = 1_000
MAX_CLASSES = 10_000
MAX_EXAMPLES = 10
ZERO_VECTOR = "zero vector"
NEGATIVE = "negative"
NO_LATITUDE = "beyond 90 degrees"
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """A bad row: its number in the source, its file, its number in the file, and the value as text."""

    row: int
    file: str
    file_row: int
    value: str


@dataclass(frozen=True)
class BadRows:
    """Rows that are bad in one column for one reason: how many, and the first ten."""

    column: str
    reason: str
    count: int
    examples: tuple[Example, ...]

    def merge(self, other: "BadRows") -> "BadRows":
        """The rows of both."""
        first = sorted(self.examples + other.examples, key=lambda example: example.row)[:MAX_EXAMPLES]
        return BadRows(self.column, self.reason, self.count + other.count, tuple(first))


@dataclass(frozen=True)
class ColumnProfile:
    """What is known about one column over the good rows.

    Parameters
    ----------
    name : str
    kind : {"vector", "number", "category"}
    type : str
        Of its numbers or names, in Arrow's words (of the numbers inside the vectors).
    moments : Moments
        Of vectors and numbers.
    categories, classes : Distinct or None
        Names in the key or the features; values of a target that can be classes.
    """

    name: str
    kind: str
    type: str
    moments: Moments
    categories: Distinct | None = None
    classes: Distinct | None = None

    def merge(self, other: "ColumnProfile") -> "ColumnProfile":
        """What is known from both."""
        categories, classes = _merged(self.categories, other.categories), _merged(self.classes, other.classes)
        return ColumnProfile(
            self.name, self.kind, self.type, self.moments.merge(other.moments), categories, classes
        )


@dataclass(frozen=True)
class Profile:
    """What one pass over rows learns.

    Parameters
    ----------
    rows, good : int
        All rows, and those that are bad in no column.
    columns : tuple of ColumnProfile
        Of every column with a role, in the order of the roles.
    bad : tuple of BadRows
        Sorted by column and reason. A row that is bad in two columns is counted in both.
    """

    rows: int
    good: int
    columns: tuple[ColumnProfile, ...]
    bad: tuple[BadRows, ...]

    @staticmethod
    def of(table: pa.Table, dataset: Dataset, rows: Rows | None = None) -> "Profile":
        """The profile of a table that holds `rows` [n] of `dataset.source`, by default its first ones. Its
        vectors are of one length (`locdist.data.lengths` tells others apart).
        """
        numbers = np.arange(table.num_rows) if rows is None else rows
        looks = [_look(table, name, dataset) for name in dataset.roles.columns]
        if dataset.roles.metric == "cosine":
            looks = _with_zero_vectors(looks, dataset)
        good = np.ones(table.num_rows, np.bool_)
        for look in looks:
            good &= look.reasons == 0
        columns = tuple(look.column_profile(table, dataset, good) for look in looks)
        bad = [found for look in looks for found in look.bad_rows(table, dataset, numbers)]
        return Profile(table.num_rows, int(good.sum()), columns, tuple(sorted(bad, key=_place)))

    def merge(self, other: "Profile") -> "Profile":
        """The profile of the rows of both."""
        columns = tuple(one.merge(two) for one, two in zip(self.columns, other.columns, strict=True))
        bad: dict[tuple[str, str], BadRows] = {}
        for found in self.bad + other.bad:
            bad[_place(found)] = bad[_place(found)].merge(found) if _place(found) in bad else found
        return Profile(
            self.rows + other.rows, self.good + other.good, columns, tuple(sorted(bad.values(), key=_place))
        )

    def with_bad(self, other: "Profile", bad: Sequence[BadRows]) -> "Profile":
        """With the rows of another profile, none of which is good, for these reasons besides its own."""
        merged = Profile(self.rows, self.good, (), self.bad)
        for each in (Profile(other.rows, 0, (), other.bad), *(Profile(0, 0, (), (one,)) for one in bad)):
            merged = merged.merge(each)
        return replace(merged, columns=self.columns)

    def column(self, name: str) -> ColumnProfile:
        """What is known about a column."""
        return next(column for column in self.columns if column.name == name)


def kind_of(kind: pa.DataType) -> str:
    """How a column of a type enters a matrix: "vector", "category" or "number"."""
    return (
        "vector" if is_vector(kind) else "category" if is_category(kind) or not is_number(kind) else "number"
    )


def number_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a column, or of the numbers inside its vectors."""
    kind = plain(kind)
    return plain(kind.value_type) if is_vector(kind) else kind


@dataclass(frozen=True)
class _Look:
    """One column of one table: its numbers (None for names) and for each row a reason, 0 where it is good."""

    name: str
    kind: str
    type: str
    values: Floats | None
    reasons: npt.NDArray[np.int8]

    def column_profile(self, table: pa.Table, dataset: Dataset, good: Flags) -> ColumnProfile:
        roles, column = dataset.roles, table.column(self.name)
        moments = (
            Moments() if self.values is None else Moments.of(self.values if good.all() else self.values[good])
        )
        keyed = self.kind == "category" and self.name in {name for name, _ in roles.key + roles.features}
        voted = self.name in roles.target and is_class(column.type)
        kept = column if good.all() else column.filter(pa.array(good))
        categories = Distinct.of(kept, MAX_CATEGORIES) if keyed else None
        return ColumnProfile(
            self.name,
            self.kind,
            self.type,
            moments,
            categories,
            Distinct.of(kept, MAX_CLASSES) if voted else None,
        )

    def bad_rows(self, table: pa.Table, dataset: Dataset, numbers: Rows) -> list[BadRows]:
        found = []
        for reason in np.unique(self.reasons[self.reasons != 0]).tolist():
            rows = np.flatnonzero(self.reasons == reason)
            first = examples(table, self.name, rows, dataset, numbers)
            found.append(BadRows(self.name, _REASONS[reason], len(rows), first))
        return found


_REASONS = (*REASONS, NEGATIVE, ZERO_VECTOR, NO_LATITUDE)


def _look(table: pa.Table, name: str, dataset: Dataset) -> _Look:
    column = table.column(name)
    kind, inside = kind_of(column.type), str(number_type(column.type))
    if kind == "category":
        return _Look(name, kind, inside, None, pc.is_null(decoded(column)).to_numpy().astype(np.int8))
    if kind == "vector":
        values, reasons = inspect_vectors(column, np.float64)
        return _Look(name, kind, inside, values, reasons)
    scalars, reasons = inspect_numbers(column)
    if name == dataset.roles.weight:
        reasons[scalars < 0] = _REASONS.index(NEGATIVE)
    if dataset.roles.metric == "haversine" and name == dataset.roles.key[1][0]:
        reasons[np.abs(scalars) > 90] = _REASONS.index(NO_LATITUDE)
    return _Look(name, kind, inside, scalars[:, None], reasons)


def _with_zero_vectors(looks: list[_Look], dataset: Dataset) -> list[_Look]:
    """Rows without a direction, where it is known before scaling: no column of the key is centred, and none
    is a category.
    """
    names = [name for name, _ in dataset.roles.key]
    key = [look for look in looks if look.name in names]
    scaled = any(look.values is None or dataset.roles.scaling_of("key", look.kind) != "none" for look in key)
    if scaled:
        return looks
    zero = functools.reduce(
        np.logical_and, [~np.any(look.values, axis=1) & (look.reasons == 0) for look in key]
    )
    first = key[0]
    reasons = np.where(zero, np.int8(_REASONS.index(ZERO_VECTOR)), first.reasons)
    marked = _Look(first.name, first.kind, first.type, first.values, reasons)
    return [marked if look is first else look for look in looks]


def examples(table: pa.Table, name: str, rows: Rows, dataset: Dataset, numbers: Rows) -> tuple[Example, ...]:
    """The first of some rows of a table, which are rows `numbers` [n] of the source."""
    return tuple(
        Example(
            int(numbers[row]),
            *dataset.source.locate(int(numbers[row])),
            repr(table.column(name)[row].as_py())[:80],
        )
        for row in rows[:MAX_EXAMPLES].tolist()
    )


def _place(found: BadRows) -> tuple[str, str]:
    return found.column, found.reason


def _merged(one: Distinct | None, other: Distinct | None) -> Distinct | None:
    return one.merge(other) if one is not None and other is not None else one or other
