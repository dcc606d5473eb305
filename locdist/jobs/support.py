"""What a support stores of each row: the roles of a dataset as the columns of a shard."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from locdist.data.columns import codes, numbers, targets, vectors
from locdist.data.dataset import Roles
from locdist.data.encoding import Encoding
from locdist.search.build import content


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
        numbers = len(self.roles.target) + (self.features.width if self.features else 0) + 4
        return self.key.width * (4 if self.key.dtype == "float32" else 8) + 8 * numbers

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
