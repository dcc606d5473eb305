"""Profiles of rows by the lengths of their vectors.

Which length is right is known only when all rows have been seen, and moments of the rows with the right one
must not contain any others. So each combination of lengths has a profile of its own; they are merged in any
order and grouping, and the most frequent one decides at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from locdist.data.columns import REASONS, WRONG_LENGTH, lengths
from locdist.data.dataset import Dataset
from locdist.data.profile import BadRows, Example, Profile, examples
from locdist.data.schema import is_vector, plain
from locdist.errors import DataError

MAX_LENGTHS = 8
Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """The rows whose vectors have the same lengths.

    Parameters
    ----------
    lengths : tuple of int
        Of the vectors of a row, a column each; -1 where there is no vector.
    profile : Profile
    first : tuple of (str, tuple of Example)
        The columns of these vectors, and the first rows.
    """

    lengths: Lengths
    profile: Profile
    first: tuple[tuple[str, tuple[Example, ...]], ...]

    @property
    def found(self) -> list[BadRows]:
        """The rows of each column, as if they were bad."""
        rows = self.profile.rows
        return [BadRows(name, REASONS[WRONG_LENGTH], rows, first) for name, first in self.first]

    def merge(self, other: "Part") -> "Part":
        """The rows of both, which are of the same lengths."""
        both = [one.merge(two).examples for one, two in zip(self.found, other.found, strict=True)]
        first = tuple((name, each) for (name, _), each in zip(self.first, both, strict=True))
        return Part(self.lengths, self.profile.merge(other.profile), first)


@dataclass(frozen=True)
class Profiles:
    """What one pass learns about rows whose vectors may differ in length; `settled` makes one profile of it.

    Parameters
    ----------
    parts : tuple of Part
        Sorted by length. Columns whose type fixes the length are not told apart.
    """

    parts: tuple[Part, ...]

    @staticmethod
    def of(table: pa.Table, dataset: Dataset, start: int = 0) -> "Profiles":
        """The profiles of a table that holds rows of `dataset.source` from number `start` on."""
        names = [name for name in dataset.roles.columns if _varies(table.schema.field(name).type)]
        numbers = np.arange(start, start + table.num_rows)
        told = np.zeros((table.num_rows, len(names)), np.int64)
        for place, name in enumerate(names):
            told[:, place] = lengths(table.column(name))
        if (told == told[:1]).all():
            return Profiles((_part(table, dataset, numbers, names, told),))
        kinds, kind = np.unique(told, axis=0, return_inverse=True)
        parts = []
        for place in range(len(kinds)):
            rows = np.flatnonzero(kind.reshape(-1) == place)
            parts.append(_part(table.take(pa.array(rows)), dataset, numbers[rows], names, kinds[place:]))
        return Profiles(tuple(parts)).bounded()

    def merge(self, other: "Profiles") -> "Profiles":
        """The profiles of the rows of both."""
        parts = {part.lengths: part for part in self.parts}
        for part in other.parts:
            parts[part.lengths] = parts[part.lengths].merge(part) if part.lengths in parts else part
        return Profiles(tuple(parts[each] for each in sorted(parts))).bounded()

    def bounded(self) -> "Profiles":
        """The same, refused when there are more lengths than anybody means."""
        if len(self.parts) > MAX_LENGTHS + 1:
            names = ", ".join(repr(name) for name, _ in self.parts[0].first)
            raise DataError(
                f"vectors of one length in {names} (at most {MAX_LENGTHS} are told apart)",
                f"lengths {', '.join(str(part.lengths) for part in self.parts)}",
                "Write all vectors with one length.",
            )
        return self

    def settled(self) -> Profile:
        """One profile: of the combination of lengths that most good rows have, of equally frequent ones the
        smallest. All other rows are bad.
        """
        right = max(
            self.parts, key=lambda part: (part.profile.good, part.profile.rows, _negative(part.lengths))
        )
        whole = right.profile
        for part in self.parts:
            if part is not right:
                whole = whole.with_bad(part.profile, _wrong(part, right))
        return whole


def _varies(kind: pa.DataType) -> bool:
    return is_vector(kind) and not pa.types.is_fixed_size_list(plain(kind))


def _part(
    table: pa.Table,
    dataset: Dataset,
    numbers: npt.NDArray[np.int64],
    names: Sequence[str],
    kinds: npt.NDArray[np.int64],
) -> Part:
    rows = np.arange(table.num_rows)
    first = tuple((name, examples(table, name, rows, dataset, numbers)) for name in names)
    told = tuple(kinds[0].tolist()) if len(kinds) else (-1,) * len(names)
    return Part(told, Profile.of(table, dataset, numbers), first)


def _negative(told: Lengths) -> Lengths:
    return tuple(-each for each in told)


def _wrong(part: Part, right: Part) -> list[BadRows]:
    """The rows of a part, by each column whose vectors have another length; a row without a vector is
    counted for that alone.
    """
    pairs = zip(part.lengths, right.lengths, part.found, strict=True)
    return [found for one, two, found in pairs if one >= 0 and one != two and part.profile.rows]
