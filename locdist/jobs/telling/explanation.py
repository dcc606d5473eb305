"""What `explain` returns: the figures behind one prediction, as text and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from locdist.jobs.telling.text import aligned, number, to_json

MANY, MOST = 20, 5  # beyond so many classes the text has the most probable


@dataclass(frozen=True)
class Neighbor:
    """One row of the support behind a prediction.

    Parameters
    ----------
    id : int or str
        The user's id, else the row of the support.
    distance, weight : float
        True distance in the scaled key; normalized weight.
    contribution : float
        What it adds to the (first) prediction; for classes its share in the probability of its own.
    target : float, str or None
        Its own (first) target, if rows have any.
    """

    id: Any
    distance: float
    weight: float
    contribution: float
    target: Any


@dataclass(frozen=True)
class Coefficient:
    """A local coefficient in the user's units and its standard error; `name` is a feature, or "value" for
    the value at the query.
    """

    name: str
    value: float | None
    error: float | None


@dataclass(frozen=True)
class Explanation:
    """What is behind one prediction.

    Parameters
    ----------
    folder : str
    row : int
        Of the whole input.
    query : dict
        What the output kept of the query.
    method : dict
        Its name and parameters.
    status : str
    prediction, spread : dict
        By output column, probabilities by class however the output holds them; spreads are standard errors of
        predictions and None where there is no freedom left.
    stored_equal : bool
        Whether the output holds the same, to a relative 1e-9.
    effective : float or None
        Effective number of neighbors.
    coefficients : dict
        Of linear models, by output column.
    neighbors : tuple of Neighbor
        Nearest first.
    """

    folder: str
    row: int
    query: dict[str, Any]
    method: dict[str, Any]
    status: str
    prediction: dict[str, Any]
    spread: dict[str, float | None]
    stored_equal: bool
    effective: float | None
    coefficients: dict[str, tuple[Coefficient, ...]]
    neighbors: tuple[Neighbor, ...]

    def to_json(self) -> bytes:
        """The explanation as JSON."""
        return to_json(asdict(self))

    def __str__(self) -> str:
        kept = ", ".join(f"{name} {value}" for name, value in self.query.items())
        method = ", ".join(f"{name}={value}" for name, value in self.method.items() if name != "name")
        equal = "equal to the stored one" if self.stored_equal else "NOT equal to the stored one"
        lines = [
            f"row {self.row:,} ({kept}) of {self.folder}",
            f"{self.method['name']} ({method}): status {self.status}, {len(self.neighbors)} neighbors, "
            f"effectively {number(self.effective)}; {equal}",
            *aligned([("", "value", "spread"), *self._predictions()]),
        ]
        for column, found in self.coefficients.items():
            lines.append(f"coefficients of {column}: the value at the query, then slopes")
            told = [(each.name, number(each.value), number(each.error)) for each in found]
            lines += aligned([("", "value", "std. error"), *told])
        return "\n".join([*lines, "neighbors", *aligned([_HEAD, *map(_cells, self.neighbors)])])

    def _predictions(self) -> list[tuple[str, str, str]]:
        spreads = list(self.spread.values())
        places = range(len(self.prediction))
        first = len(self.prediction) - len(spreads)  # a label has no spread; of some models nobody has
        told = [
            (name, number(value), number(spreads[place - first]) if place >= first else "")
            for place, (name, value) in zip(places, self.prediction.items(), strict=True)
        ]
        return self._most_probable(told) if "label" in self.prediction and len(told) > 1 + MANY else told

    def _most_probable(self, told: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """The label and a few of many classes."""
        chances = list(self.prediction.values())
        order = sorted(range(1, len(told)), key=lambda place: -(chances[place] or 0.0))
        left = f"... and {len(told) - 1 - MOST:,} other classes"
        return [told[0], *(told[place] for place in order[:MOST]), (left, "", "")]


_HEAD = ("id", "distance", "weight", "contribution", "target")


def _cells(neighbor: Neighbor) -> tuple[str, ...]:
    return str(neighbor.id), *(number(getattr(neighbor, name)) for name in _HEAD[1:])
