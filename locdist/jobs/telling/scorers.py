"""Which columns of an output are scored, and how they meet the truth."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from locdist.data.columns import decoded, matrix, numbers
from locdist.data.schema import cast, is_number, is_text, plain
from locdist.errors import DataError, UsageError
from locdist.jobs.asking.tally import added
from locdist.jobs.telling.scores import ClassSums, Codes, Floats, NumberSums

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Scored:
    """Rows of some blocks: sums over those scored, and counts of those without a prediction or a truth."""

    sums: NumberSums | ClassSums
    n: int
    missing: dict[str, int]
    unknown: int

    def add(self, other: "Scored") -> "Scored":
        """The rows of both."""
        sums: Any = self.sums  # both are of one kind: they come from one scorer
        missing = added(self.missing, other.missing)
        return Scored(sums.add(other.sums), self.n + other.n, missing, self.unknown + other.unknown)


class Scorer(ABC):
    """How the columns of an output are compared with the truth."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Columns of the output that are read: the prediction first, then others."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""

    @abstractmethod
    def known(self, truth: pa.ChunkedArray) -> tuple[NDArray[Any], Flags]:
        """The truth [n] as numbers or codes, and where there is one [n]."""

    @abstractmethod
    def sums(self, table: pa.Table, truth: NDArray[Any]) -> NumberSums | ClassSums:
        """Sums over rows that all have a prediction and a truth."""

    def score(self, table: pa.Table, truth: pa.ChunkedArray) -> Scored:
        """One block of the output and its truth [n]."""
        values, known = self.known(truth)
        answered = table.column(self.columns[0]).is_valid().to_numpy()
        silent = table.column("status").filter(pa.array(known & ~answered)).cast(pa.string()).value_counts()
        missing = {each["values"]: each["counts"] for each in silent.to_pylist()}
        used = known & answered
        sums = self.sums(table.filter(pa.array(used)), values[used])
        return Scored(sums, int(used.sum()), missing, int((~known).sum()))


@dataclass(frozen=True)
class NumberScorer(Scorer):
    """Numbers in one column; as probabilities of 1 when the truth is 0 or 1."""

    column: str

    @property
    def columns(self) -> list[str]:
        return [self.column, "status"]

    @property
    def classes(self) -> tuple[str, ...]:
        return ("0", "1")

    def known(self, truth: pa.ChunkedArray) -> tuple[NDArray[Any], Flags]:
        values, bad = numbers(truth)
        return values, ~bad

    def sums(self, table: pa.Table, truth: NDArray[Any]) -> NumberSums:
        return NumberSums.of(numbers(table.column(self.column))[0], truth)


@dataclass(frozen=True)
class ClassScorer(Scorer):
    """Labels, and probabilities in one column each or in one of lists.

    Parameters
    ----------
    kind : pa.DataType
        Of the labels.
    names : tuple of str [c]
        The classes in the order of the probabilities.
    chances : tuple of str
        c columns, or one of lists [c].
    """

    kind: pa.DataType
    names: tuple[str, ...]
    chances: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return ["label", "status", *self.chances]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.names

    def known(self, truth: pa.ChunkedArray) -> tuple[NDArray[Any], Flags]:
        plain = cast(decoded(truth), self.kind, self._unfit)
        return self._codes(plain), plain.is_valid().to_numpy()

    def sums(self, table: pa.Table, truth: NDArray[Any]) -> ClassSums:
        return ClassSums.of(self._probabilities(table), truth, self._codes(table.column("label")))

    def _probabilities(self, table: pa.Table) -> Floats:
        if len(self.chances) < len(self.names):
            values: Floats = matrix(table.column(self.chances[0]), np.float64, len(self.names))[0]
            return values
        return np.stack([numbers(table.column(name))[0] for name in self.chances], axis=1)

    def _codes(self, column: pa.ChunkedArray) -> Codes:
        """[n] place of each value among the names; −1 for others."""
        values = column.combine_chunks().dictionary_encode(null_encoding="encode")
        place = {name: code for code, name in enumerate(self.names)}
        each = [place.get(str(value), -1) for value in values.dictionary.to_pylist()]
        codes: Codes = np.asarray(each, np.int64)[values.indices.to_numpy()]
        return codes

    def _unfit(self, error: Exception) -> DataError:
        return DataError(
            f"a truth of type {self.kind}, as the labels", str(error)[:200], "Convert the column."
        )


def scorer(output: pa.Schema, truth: pa.Field, vocabulary: Callable[[], pa.Array]) -> Scorer:
    """How an output of this schema is compared with the column `truth`.

    Parameters
    ----------
    output : pa.Schema
        Its columns besides the kept ones.
    truth : pa.Field
    vocabulary : callable
        The classes, asked when the output does not name them.

    Raises
    ------
    UsageError
        When the output has no prediction for the column, or its type is of another kind.
    """
    names = output.names
    if "label" in names and any(name.startswith("probability") for name in names):
        chances = tuple(names[names.index("label") + 1 : names.index("status")])
        listed = chances == ("probability",)
        classes = [str(value) for value in vocabulary().to_pylist()] if listed else []
        told = classes or [name.removeprefix("probability_") for name in chances]
        label = output.field("label").type
        _check_classes(truth, label)
        return ClassScorer(label, tuple(told), chances)
    wanted = [name for name in ("prediction", f"prediction_{truth.name}") if name in names]
    if not wanted:
        given = ", ".join(names)
        raise UsageError(f"a prediction of {truth.name!r} in the output", given, "Name another target.")
    if not is_number(truth.type):
        given = f"{truth.name!r} of type {truth.type}"
        raise UsageError("a truth of numbers, as the predictions", given, "Name the column of the truth.")
    return NumberScorer(wanted[0])


def _check_classes(truth: pa.Field, label: pa.DataType) -> None:
    """UsageError for measurements where names are predicted: as text they would be classes never seen."""
    kind = plain(truth.type)
    if is_text(plain(label)) and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise UsageError(
            f"a truth of classes, as the labels ({label})",
            f"{truth.name!r} of type {truth.type}",
            "Name the column of the truth (--target).",
        )
