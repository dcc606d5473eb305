"""Mergeable summaries of a column: moments of its numbers, and its different values while there are few.

Counts, extremes and sets merge exactly; means and sums of squares by Chan's update, whose last bits depend on
the order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from locdist.data.columns import distinct

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Mergeable moments of the columns of a matrix.

    Parameters
    ----------
    count : int
        Rows.
    mean, m2, low, high : tuple of float [d]
        Mean, sum of squared differences from it, smallest and largest value; empty when no row was seen.
    """

    count: int = 0
    mean: tuple[float, ...] = ()
    m2: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @staticmethod
    def of(values: Floats) -> "Moments":
        """The moments of a matrix [n, d]."""
        if not len(values):
            return Moments()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = values.mean(axis=0)
            m2 = np.square(values - mean).sum(axis=0)
        return Moments(
            len(values),
            *(tuple(each.tolist()) for each in (mean, m2, values.min(axis=0), values.max(axis=0))),
        )

    def merge(self, other: "Moments") -> "Moments":
        """The moments of the rows of both (Chan, Golub and LeVeque 1983)."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.subtract(other.mean, self.mean)
            mean = self.mean + step * (other.count / count)
            m2 = np.add(self.m2, other.m2) + step * step * (self.count * other.count / count)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Moments(count, *(tuple(each.tolist()) for each in (mean, m2, low, high)))


@dataclass(frozen=True)
class Distinct:
    """The different values of a column, while there are not too many.

    Parameters
    ----------
    type : str
        Of the values, in Arrow's words.
    values : tuple
        Sorted; empty when there are more than `limit`.
    limit : int
    overflow : bool
        Whether there are more than `limit`.
    """

    type: str
    values: tuple[Any, ...]
    limit: int
    overflow: bool = False

    @staticmethod
    def of(column: pa.ChunkedArray, limit: int) -> "Distinct":
        """The different values of a column; dictionaries are decoded."""
        values = distinct(column)
        return Distinct.bounded(
            str(values.type), tuple(values.to_pylist()) if len(values) <= limit else None, limit
        )

    @staticmethod
    def bounded(kind: str, values: tuple[Any, ...] | None, limit: int) -> "Distinct":
        """Values, or the fact that there are too many."""
        over = values is None or len(values) > limit
        return Distinct(kind, () if over or values is None else values, limit, over)

    def merge(self, other: "Distinct") -> "Distinct":
        """The values of both."""
        if self.overflow or other.overflow:
            return Distinct(self.type, (), self.limit, True)
        return Distinct.bounded(self.type, tuple(sorted({*self.values, *other.values})), self.limit)

    def array(self) -> pa.Array:
        """The values as an Arrow array of their type."""
        return pa.array(self.values, pa.type_for_alias(self.type))
