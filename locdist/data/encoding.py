"""Rows as points: how the columns of a role become one matrix, fitted once and stored with the index.

Columns are found by name, scaled with the same numbers everywhere, and the same encoding turns queries into
points, so training and prediction cannot drift apart. Means and scales are rounded to 24 bits: their last
bits depend on the order in which partitions were summed, and a stored encoding must not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from locdist.data.blocks import (
    LISTS_AS_TEXT,
    UNSEEN_CATEGORY,
    ColumnEncoding,
    deviation,
    fit_column,
)
from locdist.data.columns import directions
from locdist.data.dataset import Roles
from locdist.data.keymap import KeyMap
from locdist.data.profile import NO_LATITUDE, ZERO_VECTOR, Profile, kind_of
from locdist.data.schema import is_text, plain, promote
from locdist.errors import DataError, each_meant
from locdist.local.sphere import points as sphere

__all__ = ["UNSEEN_CATEGORY", "ColumnEncoding", "Encoding", "Rejected", "spread_warning"]

Matrix = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
_FLOAT32 = {"halffloat", "float", "int8", "uint8", "int16", "uint16"}  # what float32 holds exactly


class Rejected(NamedTuple):
    """Rows of a table that have a reason: the column, the reason, and the numbers of the rows int64 [r]."""

    column: str
    reason: str
    rows: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Encoding:
    """The columns of one role as a matrix.

    Parameters
    ----------
    columns : tuple of ColumnEncoding
    dtype : {"float32", "float64"}
        float32 when all columns are vectors of numbers that float32 holds.
    normalize : bool
        Whether rows are brought to length 1, for the cosine metric.
    role : str
        "key" or "features", for messages.
    map : KeyMap, optional
        What the columns, encoded and scaled, are mapped by; before they are brought to length 1.
    sphere : bool
        Whether they are longitude and latitude, and rows points of a sphere.
    """

    columns: tuple[ColumnEncoding, ...]
    dtype: str
    normalize: bool = False
    role: str = "key"
    map: KeyMap | None = None
    sphere: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"numbers of type {self.dtype!r}")
        if self.map is not None:
            self.map.check(self.names)

    @staticmethod
    def fit(profile: Profile, roles: Roles, role: Literal["key", "features"] = "key") -> "Encoding":
        """The encoding of a role, from the profile of all the support.

        Raises
        ------
        UsageError
            When a category has too many values to be one, or the map is for other columns.
        DataError
            When no row is good, so that there is nothing to fit.
        """
        if not profile.good:
            reasons = (
                ", ".join(f"{bad.count} {bad.reason} in {bad.column!r}" for bad in profile.bad) or "no rows"
            )
            raise DataError(
                "at least one good row of the support", reasons, "Check the columns of the roles."
            )
        scaled = role if roles.features else "key"
        columns = tuple(
            fit_column(column, multiplier, roles.scaling_of(scaled, column.kind))
            for column, multiplier in ((profile.column(name), each) for name, each in roles.parts(role))
        )
        small = all(column.kind == "vector" and column.type in _FLOAT32 for column in columns)
        dtype, unit = "float32" if small else "float64", roles.metric == "cosine" and role == "key"
        mapped = roles.map if role == "key" else None
        return Encoding(columns, dtype, unit, role, mapped, roles.metric == "haversine" and role == "key")

    @property
    def width(self) -> int:
        """Columns of the matrix."""
        return self.map.width if self.map else 3 if self.sphere else len(self.names)

    @property
    def late(self) -> bool:
        """Whether a zero vector is known only once it is encoded, because columns are centred or mapped
        before.
        """
        changed = any(column.scale or column.kind == "category" for column in self.columns)
        return self.normalize and (changed or self.map is not None)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the matrix."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column of the matrix, as it is before the map."""
        return tuple(name for column in self.columns for name in column.names)

    def check(self, schema: pa.Schema) -> None:
        """Refuse a schema whose rows cannot be encoded: before any work, from the footers.

        Raises
        ------
        DataError
            When columns are missing (with the closest names), one is of another kind, or of another width.
        """
        lost = [column.name for column in self.columns if schema.get_field_index(column.name) < 0]
        if lost:
            there = ", ".join(repr(name) for name in schema.names) or "no columns"
            wanted = f"column{'s' * (len(lost) > 1)} {', '.join(map(repr, lost))} of the {self.role}"
            raise DataError(wanted, f"the columns {there}", each_meant(lost, schema.names))
        for column in self.columns:
            _check_kind(column, schema.field(column.name).type, self.role)

    def encode(self, table: pa.Table) -> tuple[Matrix, Flags, list[Rejected]]:
        """The rows of a table as points.

        Returns
        -------
        matrix : array [n, width] of `dtype`
            C-contiguous, never the caller's memory; zero where the row is bad.
        bad : bool [n]
            Rows that are no points.
        rejected : list of Rejected
            Why. An unseen category is listed too, but its row is not bad: it is as far from every known
            category.
        """
        self.check(table.schema)
        values = np.empty((table.num_rows, len(self.names)), "float64" if self.map else self.dtype)
        bad = np.zeros(table.num_rows, np.bool_)
        rejected, begin = [], 0
        for column in self.columns:
            block = slice(begin, begin + column.width)
            values[:, block], found = column.block(table.column(column.name), values.dtype)
            rejected += _listed(column.name, found, bad)
            begin += column.width
        if self.map:
            values = self.map.points(values).astype(self.dtype, copy=False)
        if self.sphere:
            rejected += _listed(self.columns[1].name, [(NO_LATITUDE, (abs(values[:, 1]) > 90) & ~bad)], bad)
            values = sphere(torch.from_numpy(values)).numpy()
        if self.normalize:
            values, zero = directions(values)
            rejected += _listed(self.columns[0].name, [(ZERO_VECTOR, zero & ~bad)], bad)
        values[bad] = 0
        return values, bad, rejected

    @property
    def units(self) -> Matrix:
        """What coefficients in the units of the matrix are multiplied by [1 + m], the first of the value."""
        units: Matrix = np.concatenate([[1.0], *(column.slopes for column in self.columns)])
        return units

    @property
    def origin(self) -> Matrix:
        """The row of the matrix of somebody whose numbers are all 0 [m]."""
        zeros = [
            np.asarray(column.mean or np.zeros(column.width)) * -column.slopes for column in self.columns
        ]
        origin: Matrix = np.concatenate(zeros)
        return origin

    def unscale(self, coefficients: Matrix, errors: bool = False) -> Matrix:
        """Coefficients, or their standard errors, in the user's units.

        Parameters
        ----------
        coefficients : array [q, 1 + m, p]
            The value at the query, which has the units of the target already, and the slopes by the columns
            of the matrix.
        errors : bool
            Whether they are standard errors, which a map that mixes columns leaves unknown: nan.

        Returns
        -------
        array [q, 1 + columns before the map, p]
        """
        values = np.asarray(coefficients)
        if self.map:
            back = self.map.errors if errors else self.map.slopes
            values = np.concatenate([values[:, :1], back(values[:, 1:])], axis=1)
        scaled: Matrix = values * self.units[:, None]
        return scaled

    def restore(self, points: Matrix) -> Matrix:
        """Points [n, width] in the user's units, as far as that can be undone: not a map, nor a length of
        1.
        """
        if self.map or self.normalize or self.sphere:
            return points
        slopes = np.concatenate([column.slopes for column in self.columns])
        zeros = [column.mean or np.zeros(column.width) for column in self.columns]
        restored: Matrix = points / slopes + np.concatenate(zeros)
        return restored


def spread_warning(profile: Profile, roles: Roles) -> str | None:
    """One line when unscaled columns of the key differ in spread by more than 1,000, so that one decides all
    neighbors.
    """
    spreads = {
        name: multiplier * float(deviation(profile.column(name)).max(initial=0.0))
        for name, multiplier in roles.key
        if profile.column(name).kind != "category"
        and roles.scaling_of("key", profile.column(name).kind) == "none"
    }
    positive = {name: spread for name, spread in spreads.items() if spread > 0}
    wide, narrow = (pick(positive, key=positive.__getitem__, default="") for pick in (max, min))
    ratio = positive[wide] / positive[narrow] if positive else 1.0
    if ratio <= 1e3:
        return None
    return f"{wide!r} spreads {ratio:.0f} times as wide as {narrow!r}; scaling='standard' would level them"


def _listed(name: str, found: Sequence[tuple[str, Flags]], bad: Flags) -> list[Rejected]:
    """The reasons that occur; marks their rows as bad unless the reason leaves a point."""
    listed = [Rejected(name, reason, np.flatnonzero(flags)) for reason, flags in found if flags.any()]
    for reason, _, rows in ((each.reason, each.column, each.rows) for each in listed):
        if reason != UNSEEN_CATEGORY:
            bad[rows] = True
    return listed


def _check_kind(column: ColumnEncoding, given: pa.DataType, role: str) -> None:
    """Numbers may come in another precision and names in another layout, but a vector is not a number."""
    wanted = f"column {column.name!r} of the {role} as {column.kind} of {column.type}"
    fits = pa.types.is_null(given) or kind_of(given) == column.kind
    if column.kind == "category":
        fits = promote(plain(given), pa.type_for_alias(column.type)) is not None
    width = plain(given).list_size if pa.types.is_fixed_size_list(plain(given)) else column.width
    if not fits:
        remedy = "Write the queries with the types of the support."
        if column.kind == "vector" and is_text(plain(given)):
            remedy = LISTS_AS_TEXT
        raise DataError(wanted, f"type {given}", remedy)
    if column.kind == "vector" and width != column.width:
        raise DataError(
            f"{wanted}, with {column.width} numbers",
            f"{width} numbers",
            "Write the queries with the vectors of the support.",
        )
