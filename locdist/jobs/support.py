"""What a support stores of each row: the roles of a dataset as the columns of a shard, and how they are
fitted to all of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from locdist.data.columns import codes, decoded, numbers, targets, vectors
from locdist.data.dataset import Dataset, Roles
from locdist.data.encoding import Encoding, spread_warning
from locdist.data.moments import Moments
from locdist.data.profile import ZERO_VECTOR, Profile
from locdist.data.source import Source
from locdist.errors import DataError
from locdist.search.build import content
from locdist.search.layout import Dropped, Indexed, Vocabulary

LARGEST_KEY = 1e17  # the sum of 10,000 such squares, four times over for a difference, is a float32
SMALLEST_SPREAD = 1e-17  # its square keeps all digits of a float32
LARGEST_INTEGER = 2.0**53  # beyond, neighboring integers are one float64


@dataclass(frozen=True)
class Recipe:
    """How rows become stored columns; fitted once over all partitions, the same in every task.

    Parameters
    ----------
    roles : Roles
    key : Encoding
    features : Encoding or None
        None when the local model uses the key.
    vocabulary : pa.Array or None
        Sorted classes of a target that can be voted on.
    """

    roles: Roles
    key: Encoding
    features: Encoding | None
    vocabulary: pa.Array | None

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row, codes not counted."""
        features = self.features.row_bytes if self.features else 0
        return self.key.row_bytes + features + 8 * (len(self.roles.target) + len(self.roles.shape) + 4)

    @property
    def labels(self) -> Vocabulary | None:
        """The vocabulary as the manifest holds it."""
        if self.vocabulary is None:
            return None
        return Vocabulary(str(self.vocabulary.type), tuple(self.vocabulary.to_pylist()))

    def columns(self, table: pa.Table, first: int) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
        """Stored columns of the good rows of `table`, whose first row is source row `first`; and the source
        rows that no profile could call bad: their keys are zero vectors only once they are centred.
        """
        keys, bad, rejected = self.key.encode(table)
        zero = [each.rows for each in rejected if self.key.late and each.reason == ZERO_VECTOR]
        matrices: dict[str, NDArray[Any]] = {"key": keys}
        others = np.zeros(len(bad), np.bool_)
        for name, (values, wrong) in self._numbers(table).items():
            matrices[name], others = values, others | wrong
        ids = None if self.roles.id is None else decoded(table.column(self.roles.id))
        if ids is not None:
            others = others | ids.is_null().to_numpy()
        late = np.concatenate([np.zeros(0, np.int64), *zero])
        good = np.flatnonzero(~(bad | others))
        return self._stored(matrices, ids, good, first), late[~others[late]] + first

    def _stored(
        self,
        matrices: dict[str, NDArray[Any]],
        ids: pa.ChunkedArray | None,
        good: NDArray[np.int64],
        first: int,
    ) -> dict[str, pa.Array]:
        """The good rows as columns, with what orders them: their id, else their content."""
        rows = {name: values[good] for name, values in matrices.items()}
        stored = {
            name: vectors(values) if values.ndim == 2 else pa.array(values) for name, values in rows.items()
        }
        stored["row"] = pa.array(good + first)
        if ids is not None:
            stored["id"] = ids.take(pa.array(good)).combine_chunks()
            return stored | {"tie": stored["id"]}
        flat = [values[:, None] if values.ndim == 1 else values for values in rows.values()]
        return stored | {"tie": pa.array(content(flat))}

    def _numbers(self, table: pa.Table) -> dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]:
        """Every column of numbers besides the key, and which of its rows are bad."""
        found: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {}
        if self.features is not None:
            found["feature"] = self.features.encode(table)[:2]
        if self.roles.weight is not None:
            weights, bad = numbers(table.column(self.roles.weight))
            found["weight"] = weights, bad | (weights < 0)
        if self.roles.offset is not None:
            found["offset"] = numbers(table.column(self.roles.offset))
        if self.roles.shape:
            found["shape"] = targets(table, self.roles.shape)
        if self.vocabulary is not None:
            labels = codes(table.column(self.roles.target[0]), self.vocabulary)
            found["label"] = labels[:, None], labels < 0
        if self.roles.target and all(numeric(table.schema.field(name).type) for name in self.roles.target):
            found["target"] = targets(table, self.roles.target)
        return found


def numeric(kind: pa.DataType) -> bool:
    """Whether a column of this type can be averaged."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


@dataclass(frozen=True)
class Fitted:
    """What the whole support says: its profile, and the recipe of its rows."""

    profile: Profile
    recipe: Recipe

    @staticmethod
    def of(profile: Profile, roles: Roles, bad: str) -> "Fitted":
        """How rows are stored; refuses bad rows unless they are to be dropped."""
        if profile.good < profile.rows and bad == "raise":
            raise DataError(
                "a support whose keys, features, targets, weights and offsets are all present and finite",
                _told(profile),
                "Repair these rows, or leave them out with bad='drop' (--bad drop).",
            )
        _check_range(profile, roles)
        features = Encoding.fit(profile, roles, "features") if roles.features else None
        recipe = Recipe(roles, Encoding.fit(profile, roles), features, _vocabulary(profile, roles))
        return Fitted(profile, recipe)

    def indexed(self, source: Source, late: int, more: Iterable[str | None]) -> Indexed:
        """What an index tells of its data: rows, bad ones dropped (`late` of them found after the profile),
        and notes for the user, `more` among them.
        """
        roles = self.recipe.roles
        told = [(bad.column, bad.reason, bad.count) for bad in self.profile.bad]
        if late:
            told.append((roles.key[0][0], ZERO_VECTOR, late))
        categories = [
            f"key: {column.name} is one-hot of {column.width} categories"
            for column in self.recipe.key.columns
            if column.kind == "category"
        ]
        notes = (spread_warning(self.profile, roles), *categories, *more)
        return Indexed(
            source.fingerprint,
            len(source.files),
            self.profile.rows,
            tuple(Dropped(*each) for each in told),
            tuple(each for each in notes if each is not None),
        )


def damaged(source: Source) -> str | None:
    """A note for the user when damaged files were skipped."""
    names = ", ".join(source.damaged[:5]) + (", ..." if source.damaged[5:] else "")
    return f"{len(source.damaged)} damaged files were skipped: {names}" if names else None


def switched(chosen: str, packed: str) -> str | None:
    """A note for the user where the sample changed the kind of the codes."""
    if chosen == packed:
        return None
    return f"codes are {packed}, not {chosen}: some keys lie very far out, and the others would lose digits"


def late_error(rows: int, support: Dataset, first: int) -> DataError:
    """Rows that turned out bad only after the profile, the first of them source row `first`."""
    file, row = support.source.locate(first)
    return DataError(
        "keys that have a direction once they are centred, for metric 'cosine'",
        f"{rows:,} of {support.rows:,} rows at the mean (first: row {row} of {file})",
        "Use scaling='none' for the key, repair the rows, or leave them out with bad='drop' (--bad drop).",
    )


def _vocabulary(profile: Profile, roles: Roles) -> pa.Array | None:
    """Classes of a single target that has few distinct values."""
    if len(roles.target) != 1:
        return None
    classes = profile.column(roles.target[0]).classes
    return None if classes is None or classes.overflow else classes.array()


def _check_range(profile: Profile, roles: Roles) -> None:
    """Unscaled keys that arithmetic cannot tell apart are refused. Squared distances that overflow single
    precision end FAISS's process; those that underflow, and integers that are no float64, make rows equal.
    """
    columns = [(profile.column(name), multiplier) for name, multiplier in roles.key]
    plain = [each for each in columns if roles.scaling_of("key", each[0].kind) == "none"]
    spreads = {}
    for column, multiplier in plain:
        largest = max(map(abs, column.moments.low + column.moments.high), default=0.0)
        spreads[column.name] = multiplier * _extent(column.moments)
        if "int" in column.type and largest > LARGEST_INTEGER:
            raise DataError(
                f"integers up to 2^53 in column {column.name!r}, a key that is not scaled",
                f"{largest:g}, which loses its last digits as a float64",
                "Subtract a constant from them, or change their unit.",
            )
        if roles.metric != "cosine" and multiplier * largest > LARGEST_KEY:
            wanted = f"keys up to {LARGEST_KEY:g} in column {column.name!r}"
            raise DataError(wanted, f"{multiplier * largest:g}", "Change their unit.")
    if len(plain) == len(columns) and roles.metric == "l2":
        _check_spread(spreads)


def _check_spread(spreads: dict[str, float]) -> None:
    widest = max(spreads, key=spreads.__getitem__)
    if 0 < spreads[widest] < SMALLEST_SPREAD:
        raise DataError(
            f"keys that spread over at least {SMALLEST_SPREAD:g} in column {widest!r}",
            f"{spreads[widest]:g}, whose square is nothing",
            "Change their unit, or use scaling='standard'.",
        )


def _extent(moments: Moments) -> float:
    """From the smallest to the largest value, in the column [d] where that is most."""
    return max((high - low for low, high in zip(moments.low, moments.high, strict=True)), default=0.0)


def _told(profile: Profile) -> str:
    """What is bad, where, with the first examples."""
    firsts = [(bad, bad.examples[0]) for bad in profile.bad]
    found = [
        f"{bad.count:,} {bad.reason} in {bad.column!r} (first: row {first.file_row} of {first.file})"
        for bad, first in firsts
    ]
    return f"{profile.rows - profile.good:,} of {profile.rows:,} rows that are not: {'; '.join(found[:5])}"
