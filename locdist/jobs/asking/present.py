"""Answers as the columns that people read: predictions, labels and probabilities, and on demand what explains
them.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUS, statuses
from locdist.local.answers import Answers
from locdist.search.generation import Generation

WIDE = 20  # classes beyond which probabilities are one list column
EXTRAS = ("spread", "effective", "coefficients")


@dataclass(frozen=True)
class Presentation:
    """Which columns an output has.

    Parameters
    ----------
    targets : tuple of str
    classes : pa.Array or None
        The vocabulary when the answers are probabilities.
    extras : tuple of {"spread", "effective", "coefficients"}
    explain : int
        Neighbors listed for each query, 0 for none.
    id_type : pa.DataType
        Of the neighbors' ids.
    """

    targets: tuple[str, ...]
    classes: pa.Array | None
    extras: tuple[str, ...]
    explain: int
    id_type: pa.DataType = field(default_factory=pa.int64)

    def __post_init__(self) -> None:
        for name in self.extras:
            if name not in EXTRAS:
                raise UsageError(f"extras among {', '.join(EXTRAS)}", repr(name), "Correct the name.")
        if self.explain < 0:
            raise UsageError(
                "explain, the neighbors listed for each query, of 0 or more", str(self.explain), "Use 5, say."
            )

    @property
    def want(self) -> frozenset[str]:
        """What a layer has to compute."""
        return frozenset(self.extras) | ({"neighbors"} if self.explain else frozenset())

    def schema(self) -> pa.Schema:
        """Fields in the order of `table`."""
        if self.classes is None:
            fields = [pa.field(name, pa.float64()) for name in self._named("prediction")]
        else:
            fields = [pa.field("label", self.classes.type), *_chances(self.classes.to_pylist())]
        fields.append(pa.field("status", STATUS))
        if "spread" in self.extras:
            fields += [pa.field(name, pa.float64()) for name in self._named("spread", probabilities=True)]
        if "effective" in self.extras:
            fields.append(pa.field("effective", pa.float64()))
        if "coefficients" in self.extras:
            fields += [
                pa.field(name, pa.list_(pa.float64()))
                for name in self._named("coefficients", probabilities=True)
            ]
        if self.explain:
            fields.append(pa.field("neighbors", self._neighbor_type))
        return pa.schema(fields)

    def table(self, answers: Answers, index: Generation) -> pa.Table:
        """The columns of `schema` for answers [q]."""
        columns = [*self._values(answers.values), statuses(answers.status)]
        if answers.spread is not None and "spread" in self.extras:
            columns += [nullable(column) for column in answers.spread.T]
        if "effective" in self.extras and answers.effective is not None:
            columns.append(nullable(answers.effective))
        if answers.coefficients is not None:
            columns += self._coefficients(answers.coefficients, index)
        if self.explain:
            columns.append(self._neighbors(answers, index))
        return pa.Table.from_arrays(columns, schema=self.schema())

    def _named(self, stem: str, probabilities: bool = False) -> list[str]:
        if self.classes is not None and probabilities:
            return [f"{stem}_{value}" for value in self.classes.to_pylist()]
        return [stem] if len(self.targets) == 1 else [f"{stem}_{target}" for target in self.targets]

    def _values(self, values: Tensor) -> list[pa.Array]:
        if self.classes is None:
            return [nullable(column) for column in values.T]
        known = ~values.isnan().any(dim=1)
        best = pa.array(values.nan_to_num(-1.0).argmax(dim=1).numpy(), mask=~known.numpy())
        if len(self.classes) <= WIDE:
            return [self.classes.take(best), *(nullable(column) for column in values.T)]
        return [self.classes.take(best), lists(values, ~known)]

    def _coefficients(self, coefficients: Tensor, index: Generation) -> list[pa.Array]:
        own = coefficients
        if coefficients.shape[1] > 1:  # a mean and a vote have no slopes
            encoding = index.features or index.key
            own = torch.from_numpy(np.asarray(encoding.unscale(coefficients.numpy())))
        return [
            lists(own[:, :, target], own[:, :, target].isnan().all(dim=1)) for target in range(own.shape[2])
        ]

    @property
    def _neighbor_type(self) -> pa.DataType:
        parts = [
            ("id", self.id_type),
            ("distance", pa.float64()),
            ("weight", pa.float64()),
            ("contribution", pa.float64()),
        ]
        return pa.list_(pa.struct(parts))

    def _neighbors(self, answers: Answers, index: Generation) -> pa.Array:
        """For each query its nearest neighbors: id, true distance, weight, and what each adds to the (first)
        prediction.
        """
        parts = (answers.ids, answers.distances, answers.weights, answers.smoother)
        ids, distances, weights, smoother = (part[:, : self.explain] for part in parts if part is not None)
        shares = smoother if self.classes is not None else smoother * index.outcomes(ids)
        return _structs(index, ids, distances, {"weight": weights, "contribution": shares})


def _chances(classes: list[Any]) -> list[pa.Field]:
    """The fields of probabilities; one of lists says in its metadata which place is which class."""
    if len(classes) <= WIDE:
        return [pa.field(f"probability_{value}", pa.float64()) for value in classes]
    names = {"classes": json.dumps(classes, default=str)}
    return [pa.field("probability", pa.list_(pa.float64()), metadata=names)]


def id_distance(index: Generation, ids: Tensor, distances: Tensor) -> pa.Array:
    """Neighbors [q, k] as lists of (id, distance); missing ones are left out."""
    return _structs(index, ids, distances, {})


def _structs(index: Generation, ids: Tensor, distances: Tensor, more: dict[str, Tensor]) -> pa.Array:
    found = ids >= 0
    true = -distances.double() if index.layout.metric == "ip" else distances.double().clamp(min=0).sqrt()
    parts = {"distance": true} | more
    flat = [index.identify(ids[found]), *(pa.array(part[found].numpy()) for part in parts.values())]
    structs = pa.StructArray.from_arrays(flat, names=["id", *parts])
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), found.sum(dim=1).cumsum(0)]).to(torch.int32)
    return pa.ListArray.from_arrays(pa.array(ends.numpy()), structs)


def nullable(values: Tensor) -> pa.Array:
    """Numbers [q] with null where they are nan: a number without support is no number."""
    return pa.array(values.contiguous().numpy(), from_pandas=True)


def lists(values: Tensor, missing: Tensor) -> pa.Array:
    """Rows [q, m] as lists, null where missing."""
    width = values.shape[1]
    ends = np.arange(len(values) + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(
        pa.array(ends),
        pa.array(values.contiguous().numpy().reshape(-1), from_pandas=True),
        mask=pa.array(missing.numpy()),
    )
