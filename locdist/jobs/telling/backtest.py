"""How well methods would have forecast what a series did."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from locdist.jobs.telling.text import aligned
from locdist.local.select import Score
from locdist.methods.series import SeriesMethod

SHOWN = 40  # settings in the text


@dataclass(frozen=True)
class Backtest:
    """Settings that were tried, and the error of each.

    Attributes
    ----------
    trials : tuple of (SeriesMethod, Score)
        The value of a score is the mean over the origins of the mean squared error over the steps, in
        variances of the series; its error, the standard error of that mean.
    steps, origins : int
        How far, and from how many times of all series.
    """

    trials: tuple[tuple[SeriesMethod, Score], ...]
    steps: int
    origins: int

    @property
    def best(self) -> SeriesMethod:
        """The setting of the smallest error."""
        return min(self.trials, key=lambda trial: _order(trial[1].value))[0]

    @property
    def table(self) -> pa.Table:
        """A row for each setting: its parameters, error, standard error, steps without an answer."""
        rows = [flat(method) | _told(score) for method, score in self.trials]
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: _column([row.get(name) for row in rows]) for name in names})

    def to_json(self) -> bytes:
        """The trials as JSON."""
        trials = [{"method": method.spec, **asdict(score)} for method, score in self.trials]
        told = {"best": self.best.spec, "steps": self.steps, "origins": self.origins, "trials": trials}
        return json.dumps(told, indent=1).encode()

    def __str__(self) -> str:
        order = sorted(self.trials, key=lambda trial: _order(trial[1].value))
        told = [flat(method) for method, _ in order]
        names = dict.fromkeys(name for each in told for name in each)
        varied = [name for name in names if any(each.get(name) != told[0].get(name) for each in told)]
        rows = [("error", "standard error", "unanswered", *varied)]
        for (_, score), each in list(zip(order, told, strict=True))[:SHOWN]:
            counts = (f"{score.value:.6g}", f"{score.error:.3g}", f"{score.unanswered:,}")
            rows.append((*counts, *(str(each.get(name, "")) for name in varied)))
        same = " ".join(f"{name}={told[0][name]}" for name in names if name not in varied)
        times = f"{self.steps} steps from {self.origins} times, {len(self.trials)} settings"
        return "\n".join([f"{times} (errors in variances of the series)", *aligned(rows), f"all with {same}"])


def flat(method: SeriesMethod) -> dict[str, Any]:
    """The parameters of a method and of its model, as far as they say something."""
    given = dict(method.parameters)
    model = given.pop("model")
    told = {"model": model["name"]} | {name: each for name, each in model.items() if name != "name"}
    return {name: value for name, value in (given | told).items() if value is not None}


def _told(score: Score) -> dict[str, float | int]:
    return {"error": score.value, "standard_error": score.error, "unanswered": score.unanswered}


def _column(values: list[Any]) -> list[Any]:
    return [json.dumps(value) if isinstance(value, Mapping | list | tuple) else value for value in values]


def _order(value: float) -> float:
    return math.inf if math.isnan(value) else value
