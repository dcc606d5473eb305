"""A linear map of encoded keys: what a learned metric is, as plain numbers that are stored with an index."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locdist.errors import UsageError

Matrix = NDArray[Any]


@dataclass(frozen=True)
class KeyMap:
    """Keys [n, d], as they are encoded and scaled, become points [n, e] = keys rows'.

    Parameters
    ----------
    rows : tuple of tuple of float [e, d]
    names : tuple of str
        Of the d columns that it was made for ("rooms", "carrier=AA", "embedding[3]"); empty: of any.
    """

    rows: tuple[tuple[float, ...], ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows} | ({len(self.names)} if self.names else set())
        finite = all(math.isfinite(number) for row in self.rows for number in row)
        if len(widths) != 1 or 0 in widths or not finite:
            given = f"{len(self.rows)} rows of {sorted(widths)} numbers"
            raise UsageError(
                "a map as a matrix [e, d] of finite numbers", given, "Give a row for each point."
            )

    @staticmethod
    def of(given: "KeyMap | Sequence[Sequence[float]] | Matrix") -> "KeyMap":
        """The map of a matrix [e, d]: nested lists, or an array."""
        if isinstance(given, KeyMap):
            return given
        rows = [list(row) for row in given] if isinstance(given, list | tuple) else given
        widths = {len(row) for row in rows} if isinstance(rows, list) else {0}
        matrix = np.asarray(rows if len(widths) == 1 else None)
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
            told = f"{type(given).__name__} of shape {list(matrix.shape)}"
            raise UsageError("a map as a matrix [e, d] of numbers", told, "Give nested lists, or an array.")
        return KeyMap(tuple(map(tuple, matrix.astype(np.float64).tolist())))

    @property
    def width(self) -> int:
        """Columns e of the points."""
        return len(self.rows)

    @property
    def inputs(self) -> int:
        """Columns d of the keys."""
        return len(self.rows[0])

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The rows [e, d]."""
        return np.array(self.rows)

    @property
    def fingerprint(self) -> str:
        """A hash of the numbers and the names."""
        return hashlib.blake2b(repr((self.rows, self.names)).encode(), digest_size=8).hexdigest()

    @property
    def separate(self) -> bool:
        """Whether it scales each column and does nothing else."""
        matrix = self.matrix
        return self.width == self.inputs and not np.any(matrix[~np.eye(self.width, dtype=bool)])

    def check(self, names: Sequence[str]) -> None:
        """UsageError unless it fits the columns of an encoded key, by number and by name."""
        if len(names) != self.inputs:
            raise UsageError(
                f"a map of {len(names)} columns, as the key has once it is encoded",
                f"one of {self.inputs}",
                "A vector has as many columns as numbers, a category one for each value.",
            )
        if self.names and tuple(names) != self.names:
            one, other = next(pair for pair in zip(names, self.names, strict=True) if pair[0] != pair[1])
            remedy = "Name the key as it was tuned, in the same order, or tune again."
            raise UsageError(f"a map of column {one!r}", f"one that was learned for {other!r}", remedy)

    def points(self, keys: Matrix) -> NDArray[np.float64]:
        """Keys [n, d] mapped to points [n, e].

        Not by a matrix product, whose rounding depends on the number of rows: an answer must not.
        """
        keys = np.ascontiguousarray(keys, dtype=np.float64)
        if self.separate:
            return np.asarray(keys * np.diagonal(self.matrix))
        return np.asarray(np.einsum("nd,ed->ne", keys, self.matrix))

    def slopes(self, slopes: Matrix) -> NDArray[np.float64]:
        """Slopes [q, e, p] by the columns of points as slopes [q, d, p] by those of keys."""
        return np.asarray(np.einsum("qep,ed->qdp", slopes, self.matrix))

    def errors(self, errors: Matrix) -> NDArray[np.float64]:
        """Standard errors of slopes likewise; nan where the map mixes columns: that takes correlations."""
        if not self.separate:
            return np.full((len(errors), self.inputs, errors.shape[2]), np.nan)
        return np.asarray(errors * np.abs(np.diagonal(self.matrix))[:, None])
