"""What a support stores of each row: the roles of a dataset as the columns of a shard, and how they are
fitted to all of it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from locdist.data.columns import codes, numbers, targets, vectors
from locdist.data.dataset import Roles
from locdist.data.encoding import Encoding, spread_warning
from locdist.data.profile import Profile, scaling_of
from locdist.errors import DataError
from locdist.search.build import content

LARGEST_KEY = 1e17  # the sum of 10,000 such squares, four times over for a difference, is a float32


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
        return self.key.row_bytes + features + 8 * (len(self.roles.target) + 4)

    @property
    def labels(self) -> dict[str, Any] | None:
        """The vocabulary as JSON."""
        if self.vocabulary is None:
            return None
        return {"type": str(self.vocabulary.type), "values": self.vocabulary.to_pylist()}

    def columns(self, table: pa.Table, first: int) -> dict[str, pa.Array]:
        """Stored columns of the good rows of `table`, whose first row is source row `first`."""
        keys, bad = self.key.encode(table)[:2]
        matrices: dict[str, NDArray[Any]] = {"key": keys}
        for name, (values, wrong) in self._numbers(table).items():
            matrices[name], bad = values, bad | wrong
        if self.roles.id is not None:
            bad = bad | table.column(self.roles.id).is_null().to_numpy()
        good = np.flatnonzero(~bad)
        rows = {name: values[good] for name, values in matrices.items()}
        stored = {
            name: vectors(values) if values.ndim == 2 else pa.array(values) for name, values in rows.items()
        }
        stored["row"] = pa.array(good + first)
        if self.roles.id is not None:
            stored["id"] = table.column(self.roles.id).take(pa.array(good)).combine_chunks()
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
                "a support whose keys, features, targets and weights are all present and finite",
                _told(profile),
                "Repair these rows, or leave them out with bad='drop' (--bad drop).",
            )
        _check_range(profile, roles)
        features = Encoding.fit(profile, roles, "features") if roles.features else None
        recipe = Recipe(roles, Encoding.fit(profile, roles), features, _vocabulary(profile, roles))
        return Fitted(profile, recipe)

    def source(self, roles: Roles) -> dict[str, Any]:
        """What an index tells of its data: rows, bad ones dropped, and notes for the user."""
        note = spread_warning(self.profile, roles)
        return {
            "rows": self.profile.rows,
            "dropped": [
                {"column": bad.column, "reason": bad.reason, "rows": bad.count} for bad in self.profile.bad
            ],
            "notes": [] if note is None else [note],
        }


def _vocabulary(profile: Profile, roles: Roles) -> pa.Array | None:
    """Classes of a single target that has few distinct values."""
    if len(roles.target) != 1:
        return None
    classes = profile.column(roles.target[0]).classes
    return None if classes is None or classes.overflow else classes.array()


def _check_range(profile: Profile, roles: Roles) -> None:
    """Keys whose squared distances overflow single precision are refused: FAISS ends the process on them."""
    for name, multiplier in roles.key:
        column = profile.column(name)
        largest = multiplier * max(map(abs, column.moments.low + column.moments.high), default=0.0)
        if scaling_of(roles.scaling, column.kind) == "none" and largest > LARGEST_KEY:
            raise DataError(
                f"keys up to {LARGEST_KEY:g} in column {name!r}", f"{largest:g}", "Change their unit."
            )


def _told(profile: Profile) -> str:
    """What is bad, where, with the first examples."""
    firsts = [(bad, bad.examples[0]) for bad in profile.bad]
    found = [
        f"{bad.count:,} {bad.reason} in {bad.column!r} (first: row {first.file_row} of {first.file})"
        for bad, first in firsts
    ]
    return f"{profile.rows - profile.good:,} of {profile.rows:,} rows that are not: {'; '.join(found[:5])}"
