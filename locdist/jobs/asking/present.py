"""Answers as the columns that people read: predictions, labels and probabilities, and on demand what explains
them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUS, statuses
from locdist.jobs.asking.intervals import bounds, fields, is_interval, reaches
from locdist.local.answers import NEGLECTED, Answers
from locdist.local.models import LocalModel
from locdist.search.generation import Generation

WIDE = 20  # classes beyond which probabilities are one list column
EXTRAS = ("spread", "effective", "neglected", "coefficients", "parameters")


@dataclass(frozen=True)
class Presentation:
    """Which columns an output has.

    Parameters
    ----------
    outputs : tuple of str
        Names of the values; not used where they are probabilities of classes.
    classes : pa.Array or None
        The vocabulary when the answers are probabilities.
    extras : tuple of {"spread", "effective", "neglected", "coefficients", "parameters"}
        Parameters are the coefficients, each in a column of its own. Also "interval" and "interval=LEVEL".
    explain : int
        Neighbors listed for each query, 0 for none.
    id_type : pa.DataType
        Of the neighbors' ids.
    parameters : tuple of str
        Names of the coefficients of one value.
    slopes : bool
        Whether those after the first are slopes by feature, told in the user's units.
    averages : bool
        Whether neighbors contribute their targets, and not only their weights.
    places : bool
        Whether the last values are a point in the space of the features, told in the user's units.
    intervals : tuple of (level, multiple)
        Of the method: the multiple of the spread that holds a share of new targets.
    """

    outputs: tuple[str, ...]
    classes: pa.Array | None
    extras: tuple[str, ...]
    explain: int
    id_type: pa.DataType = field(default_factory=pa.int64)
    parameters: tuple[str, ...] = ("value",)
    slopes: bool = False
    averages: bool = True
    places: bool = False
    intervals: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for name in self.extras:
            if name not in EXTRAS and not is_interval(name):
                known = ", ".join((*EXTRAS, "interval"))
                raise UsageError(f"extras among {known}", repr(name), "Correct the name.")
        reaches(self.extras, () if self.classes is not None else self.intervals)
        if self.explain < 0:
            raise UsageError(
                "explain, the neighbors listed for each query, of 0 or more", str(self.explain), "Use 5, say."
            )

    @staticmethod
    def of(
        model: LocalModel,
        targets: Sequence[str],
        features: Sequence[str],
        points: Sequence[str],
        classes: pa.Array | None,
        extras: Sequence[str],
        explain: int,
        id_type: pa.DataType,
        intervals: tuple[tuple[float, float], ...] = (),
    ) -> "Presentation":
        """The columns of a model's answers, by what it says of them, given the names of targets, of features
        and of the columns of their matrix; UsageError for extras that it does not tell.
        """
        shown = Presentation(
            outputs=model.outputs(targets, points), classes=classes, extras=tuple(extras),
            explain=explain, id_type=id_type, parameters=model.parameters(features), slopes=model.slopes,
            averages="targets" in model.needs and "shapes" not in model.needs, places=model.places,
            intervals=intervals,
        )  # fmt: skip
        missing = sorted(shown.want - model.tells - {NEGLECTED})  # which is the layer's to tell
        if missing:
            told = f"extras that {type(model).__name__} has ({', '.join(sorted(model.tells)) or 'none'})"
            raise UsageError(told, ", ".join(missing), "Leave these out.")
        return shown

    @property
    def want(self) -> frozenset[str]:
        """What a layer has to compute."""
        other = {"parameters": "coefficients"} | dict.fromkeys(filter(is_interval, self.extras), "spread")
        asked = {other.get(name, name) for name in self.extras}
        return frozenset(asked) | ({"neighbors"} if self.explain else frozenset())

    def schema(self) -> pa.Schema:
        """Fields in the order of `table`."""
        number = pa.float64()
        if self.classes is None:
            told = [pa.field(name, number) for name in self.outputs]
        else:
            told = [pa.field("label", self.classes.type), *chances(self.classes.to_pylist())]
        told.append(pa.field("status", STATUS))
        if "spread" in self.extras:
            told += [pa.field(f"spread{each}", number) for each in self._endings]
        told += fields(self._reaches, self._endings)
        if "effective" in self.extras:
            told.append(pa.field("effective", number))
        if "neglected" in self.extras:
            told.append(pa.field("neglected", number))
        if "coefficients" in self.extras:
            told += [pa.field(f"coefficients{each}", pa.list_(number)) for each in self._endings]
        if "parameters" in self.extras:
            names = [f"parameter_{name}{each}" for each in self._endings for name in self.parameters]
            told += [pa.field(name, number) for name in names]
        if self.explain:
            told.append(pa.field("neighbors", self._neighbor_type))
        return pa.schema(told)

    def table(self, answers: Answers, index: Generation) -> pa.Table:
        """The columns of `schema` for answers [q]."""
        columns = [*self.values(self._placed(answers.values, index)), statuses(answers.status)]
        if answers.spread is not None and "spread" in self.extras:
            columns += [nullable(column) for column in answers.spread.T]
        if answers.spread is not None:
            columns += map(nullable, bounds(self._reaches, answers.values, answers.spread))
        if "effective" in self.extras and answers.effective is not None:
            columns.append(nullable(answers.effective))
        if answers.neglected is not None:
            columns.append(nullable(answers.neglected))
        if answers.coefficients is not None:
            columns += self._coefficients(self.own_units(answers.coefficients, index))
        if self.explain:
            columns.append(self._neighbors(answers, index))
        return pa.Table.from_arrays(columns, schema=self.schema())

    def own_units(self, coefficients: Tensor, index: Generation, errors: bool = False) -> Tensor:
        """Coefficients, or their errors, [q, c, p] in the user's units."""
        if not self.slopes:
            return coefficients
        return torch.from_numpy((index.features or index.key).unscale(coefficients.numpy(), errors))

    def _placed(self, values: Tensor, index: Generation) -> Tensor:
        if not self.places:
            return values
        encoding = index.features or index.key
        first = values.shape[1] - encoding.width
        points = torch.from_numpy(encoding.restore(values[:, first:].numpy()))
        return torch.cat([values[:, :first], points], 1)

    @property
    def _reaches(self) -> list[tuple[str, float]]:
        return reaches(self.extras, self.intervals)

    @property
    def _endings(self) -> list[str]:
        """What is added to the name of something that there is of each value."""
        if self.classes is not None:
            return [f"_{value}" for value in self.classes.to_pylist()]
        return [
            name.removeprefix("prediction") if name.startswith("prediction") else f"_{name}"
            for name in self.outputs
        ]

    def values(self, values: Tensor) -> list[pa.Array]:
        """The first columns, those of the values [q, p]."""
        if self.classes is None:
            return [nullable(column) for column in values.T]
        known = ~values.isnan().any(dim=1)
        best = pa.array(values.nan_to_num(-1.0).argmax(dim=1).numpy(), mask=~known.numpy())
        if len(self.classes) <= WIDE:
            return [self.classes.take(best), *(nullable(column) for column in values.T)]
        return [self.classes.take(best), lists(values, ~known)]

    def _coefficients(self, own: Tensor) -> list[pa.Array]:
        values = own.unbind(2)
        listed = [lists(each, each.isnan().all(dim=1)) for each in values]
        flat = [nullable(column) for each in values for column in each.T]
        return (listed if "coefficients" in self.extras else []) + (
            flat if "parameters" in self.extras else []
        )

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
        prediction; of models without targets its row of the smoother.
        """
        parts = (answers.ids, answers.distances, answers.weights, answers.smoother)
        ids, distances, weights, smoother = (part[:, : self.explain] for part in parts if part is not None)
        shares = smoother * index.outcomes(ids) if self.averages else smoother
        return _structs(index, ids, distances, {"weight": weights, "contribution": shares})


def chances(classes: list[Any]) -> list[pa.Field]:
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
