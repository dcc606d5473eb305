"""One column as a block of a matrix: scaled numbers, a vector, or a category as one column for each value.

Means and scales lose the bits that depend on the order in which partitions were summed.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from locdist.data.columns import (
    MISSING,
    NOT_FINITE,
    NULL,
    REASONS,
    UNSEEN,
    WRONG_LENGTH,
    codes,
    inspect_numbers,
    inspect_vectors,
)
from locdist.data.profile import MAX_CATEGORIES, ColumnProfile
from locdist.errors import DataError, UsageError

Matrix = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
UNSEEN_CATEGORY = "unseen category"
LISTS_AS_TEXT = (
    "Write the lists themselves; Dask keeps them with dask.config.set({'dataframe.convert-string': False})."
)
_PRINTED = re.compile(r"\[\s*[-+]?[\d.][-+\d.,eE\s]*\]")  # of Python and of NumPy
_ROUNDING = 1e-12  # a spread of this part of the largest value is the noise of its arithmetic
_CATEGORY = 0.5**0.5  # two different categories are then at distance 1


@dataclass(frozen=True)
class ColumnEncoding:
    """One column as a block of a matrix.

    Parameters
    ----------
    name : str
    kind : {"vector", "number", "category"}
    width : int
        Columns of the matrix.
    type : str
        Of its numbers or names when it was fitted, in Arrow's words.
    mean, scale : tuple of float
        Subtracted and divided by; one a column of the matrix, or empty for none.
    multiplier : float
        What the user gave on top of the scaling.
    vocabulary : tuple
        The categories, sorted, of type `type`.
    """

    name: str
    kind: str
    width: int
    type: str
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    multiplier: float = 1.0
    vocabulary: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        parts, numbers = (self.mean, self.scale), (*self.mean, *self.scale, self.multiplier)
        names = len(self.vocabulary) if self.kind == "category" else self.width
        if self.kind not in ("vector", "number", "category") or names != self.width:
            raise ValueError(f"column {self.name!r} of kind {self.kind!r} and width {self.width}")
        if any(len(part) not in (0, self.width) for part in parts) or len(self.mean) != len(self.scale):
            raise ValueError(f"{len(self.mean)} means and {len(self.scale)} scales of column {self.name!r}")
        if not all(map(math.isfinite, numbers)) or 0 in (*self.scale, self.multiplier):
            raise ValueError(f"the scaling of column {self.name!r}")
        if self.kind == "category":  # only names need their type again
            pa.type_for_alias(self.type)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column of the matrix: "rooms", "carrier=AA", "embedding[3]"."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.vocabulary)
        return (
            (self.name,)
            if self.kind == "number"
            else tuple(f"{self.name}[{index}]" for index in range(self.width))
        )

    @property
    def slopes(self) -> npt.NDArray[np.float64]:
        """How fast each column of the matrix changes with the user's value [width]."""
        factor = self.multiplier * (_CATEGORY if self.kind == "category" else 1.0)
        return factor / np.asarray(self.scale) if self.scale else np.full(self.width, factor)

    def block(self, column: pa.ChunkedArray, dtype: npt.DTypeLike) -> tuple[Matrix, list[tuple[str, Flags]]]:
        """The columns of the matrix [n, width], and the rows [n] that have a reason; the unseen are not
        bad.
        """
        if self.kind == "category":
            return self._one_hot(column, dtype)
        plain_vector = self.kind == "vector" and not self.scale and self.multiplier == 1.0
        values, reasons = self._values(column, dtype if plain_vector else np.float64)
        if not plain_vector:
            values = self._scaled(values).astype(dtype, copy=False)
            values[reasons != 0] = 0
        found = [(REASONS[reason], reasons == reason) for reason in (NULL, NOT_FINITE, WRONG_LENGTH)]
        return values, found

    def _values(self, column: pa.ChunkedArray, dtype: npt.DTypeLike) -> tuple[Matrix, npt.NDArray[np.int8]]:
        if self.kind == "vector":
            return inspect_vectors(column, dtype, self.width)
        values, reasons = inspect_numbers(column)
        return values[:, None], reasons

    def _scaled(self, values: Matrix) -> Matrix:
        if self.scale:
            values = (values - np.asarray(self.mean)) / np.asarray(self.scale)
        return values * self.multiplier

    def _one_hot(
        self, column: pa.ChunkedArray, dtype: npt.DTypeLike
    ) -> tuple[Matrix, list[tuple[str, Flags]]]:
        positions = codes(column, pa.array(self.vocabulary, pa.type_for_alias(self.type)))
        block = np.zeros((len(positions), self.width), dtype)
        rows = np.flatnonzero(positions >= 0)
        block[rows, positions[rows]] = _CATEGORY * self.multiplier
        return block, [(REASONS[1], positions == MISSING), (UNSEEN_CATEGORY, positions == UNSEEN)]


def fit_column(column: ColumnProfile, multiplier: float, scaling: str) -> ColumnEncoding:
    """The encoding of a column from its profile; `scaling` is "standard" or "none"."""
    if column.categories is not None:
        return _category(column, multiplier)
    mean, scale = _standard(column) if scaling == "standard" else ((), ())
    return ColumnEncoding(
        column.name, column.kind, len(column.moments.mean), column.type, mean, scale, multiplier
    )


def _category(column: ColumnProfile, multiplier: float) -> ColumnEncoding:
    assert column.categories is not None
    if column.categories.overflow:
        given = f"more than {MAX_CATEGORIES:,} in column {column.name!r}"
        raise UsageError(
            f"at most {MAX_CATEGORIES:,} categories",
            given,
            "Use fewer categories, numbers, or a vector that embeds them.",
        )
    values = column.categories.values
    if values and all(isinstance(value, str) and _PRINTED.fullmatch(value.strip()) for value in values):
        raise DataError(
            f"categories or vectors in column {column.name!r}", f"lists as text: {values[0]!r}", LISTS_AS_TEXT
        )
    return ColumnEncoding(
        column.name, "category", len(values), column.categories.type, multiplier=multiplier, vocabulary=values
    )


def deviation(column: ColumnProfile) -> npt.NDArray[np.float64]:
    """The standard deviation of each number of a column [width]."""
    return np.sqrt(np.asarray(column.moments.m2) / max(1, column.moments.count))


def _standard(column: ColumnProfile) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation, without the bits that depend on the order of summation."""
    low, high = np.asarray(column.moments.low), np.asarray(column.moments.high)
    largest = np.maximum(np.abs(low), np.abs(high))
    spread = deviation(column)
    if not np.isfinite(spread).all():
        wanted = f"numbers in column {column.name!r} whose squares are finite"
        raise DataError(wanted, f"up to {largest.max():g}", "Change their unit.")
    # The error of a mean is relative to the values, not to the mean, which may cancel to almost nothing.
    mean = np.where(low == high, low, _on_grid(np.asarray(column.moments.mean), largest, 24))
    scale = _on_grid(_on_grid(spread, spread, 24), largest, 46)
    scale = np.where((spread <= _ROUNDING * largest) | (scale == 0), 1.0, scale)
    return tuple(mean.tolist()), tuple(scale.tolist())


def _on_grid(
    values: npt.NDArray[np.float64], magnitude: npt.NDArray[np.float64], bits: int
) -> npt.NDArray[np.float64]:
    """Values rounded to multiples of 2^-bits of the power of two above a magnitude."""
    step = np.ldexp(1.0, np.frexp(magnitude)[1] - bits)
    return np.where(step > 0, np.rint(values / np.where(step > 0, step, 1.0)) * step, values)
