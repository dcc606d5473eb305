"""What a selection found: a table of settings, the best, and a picture of the criterion."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.jobs.chosen import write_method
from locdist.jobs.telling.picture import Point, drawn
from locdist.local.bandwidths import Nearest
from locdist.local.select import Score
from locdist.methods.method import Method

_BAR, _SHOWN = 30, 60  # characters of the longest bar, settings in the text


@dataclass(frozen=True)
class Trial:
    """A setting and its score."""

    method: Method
    score: Score

    @property
    def told(self) -> str:
        """The method and its parameters on one line."""
        return " ".join(
            [self.method.name, *(f"{name}={_plain(value)}" for name, value in self.method.parameters)]
        )


@dataclass(frozen=True)
class Selection:
    """Settings that were tried, and how well each answered a sample of the support's rows.

    Attributes
    ----------
    trials : tuple of Trial
        At least one.
    criterion : str
    sample, rows : int
        Rows that were asked, and rows of the support.
    """

    trials: tuple[Trial, ...]
    criterion: str
    sample: int
    rows: int

    @property
    def best(self) -> Method:
        """The setting with the smallest criterion; of equal ones the smoothest."""
        return self._best.method

    @property
    def simplest(self) -> Method:
        """The smoothest setting within one standard error of the best: with most effective neighbors."""
        limit = self._best.score.value + self._best.score.error
        near = [trial for trial in self.trials if trial.score.value <= limit]
        return max(near or [self._best], key=lambda trial: trial.score.effective).method

    @cached_property
    def _best(self) -> Trial:
        return min(self.trials, key=lambda trial: (_order(trial.score.value), -trial.score.effective))

    @property
    def table(self) -> pa.Table:
        """A row for each setting: method, its parameters (as JSON where they are no plain values), criterion,
        standard error, mean effective neighbors, rows without an answer.
        """
        names = dict.fromkeys(name for trial in self.trials for name, _ in trial.method.parameters)
        columns: dict[str, list[Any]] = {"method": [trial.method.name for trial in self.trials]}
        given = [dict(trial.method.parameters) for trial in self.trials]
        for name in names:
            columns[name] = _column([parameters.get(name) for parameters in given])
        scores = [asdict(trial.score) for trial in self.trials]
        columns |= {self.criterion: [score["value"] for score in scores]}
        return pa.table(columns | {name: [score[name] for score in scores] for name in list(scores[0])[1:]})

    @property
    def why(self) -> dict[str, Any]:
        """What is told beside a chosen method: the criterion and what it was computed on."""
        score = asdict(self._best.score)
        return {
            "criterion": self.criterion,
            "sample": self.sample,
            "rows": self.rows,
            "settings": len(self.trials),
        } | score

    def to_json(self) -> bytes:
        """The selection as JSON."""
        trials = [{"method": trial.method.spec, **asdict(trial.score)} for trial in self.trials]
        told = {"best": self.best.spec, "simplest": self.simplest.spec, **self.why, "trials": trials}
        return json.dumps(told, indent=1).encode()

    def write(self, place: str | Path, simplest: bool = False) -> None:
        """Write the best setting, or the simplest, to a file that can stand for the name of a method."""
        write_method(self.simplest if simplest else self.best, place, self.why)

    def plot(self, place: str | Path) -> None:
        """Draw the criterion over k (or over what else varies) as an SVG, a line for each combination of the
        rest.
        """
        curves, axis = self._curves()
        Path(place).write_text(drawn(curves, axis, self.criterion))

    def _curves(self) -> tuple[dict[str, list[Point]], str]:
        """Points by the words of their line, and the parameter along the axis: the one with most numbers."""
        numbers = [{"k": trial.method.layer.neighbors} | _numbers(trial.method) for trial in self.trials]
        names = dict.fromkeys(name for each in numbers for name in each)
        axis = max(names, key=lambda name: len({each[name] for each in numbers if name in each}))
        curves: dict[str, list[Point]] = {}
        for trial, each in zip(self.trials, numbers, strict=True):
            if axis in each and math.isfinite(trial.score.value):
                rest = [f"{name}={_plain(value)}" for name, value in trial.method.parameters if name != axis]
                point = (each[axis], trial.score.value, trial.score.error)
                curves.setdefault(" ".join([trial.method.name, *rest]), []).append(point)
        return {name: sorted(points) for name, points in curves.items()}, axis

    def __str__(self) -> str:
        order = sorted(self.trials, key=lambda trial: _order(trial.score.value))
        kept = [trial for trial in self.trials if trial in order[:_SHOWN]]
        width = max(len(trial.told) for trial in kept)
        values = [trial.score.value for trial in kept if math.isfinite(trial.score.value)]
        lines = [f"{self.criterion} on {self.sample:,} of {self.rows:,} rows, {len(self.trials)} settings"]
        for trial in kept:
            score = trial.score
            bar = _bar(score.value, min(values, default=0.0), max(values, default=0.0))
            silent = f"  {score.unanswered} without an answer" if score.unanswered else ""
            best = "  <- best" if trial.method == self.best else ""
            told = f"{trial.told:<{width}}  {score.value:<11.6g} ± {score.error:<9.3g} {bar}"
            lines.append(f"{told}{silent}{best}")
        return "\n".join(lines)


def _order(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _bar(value: float, low: float, high: float) -> str:
    share = (value - low) / (high - low) if high > low else 0.0
    return "#" * round(1 + (_BAR - 1) * share) if math.isfinite(share) else "?"


def _numbers(method: Method) -> dict[str, float]:
    """Its parameters that are numbers."""
    given = dict(method.parameters).items()
    return {
        name: float(value)
        for name, value in given
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _plain(value: Any) -> str:
    if isinstance(value, Mapping) and set(value) == {"nearest"}:
        return "nearest" if value["nearest"] == Nearest().scale else f"nearest:{value['nearest']:g}"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _column(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    plain = (len(kinds) <= 1 and not kinds & {dict, list, tuple}) or kinds <= {int, float}
    return values if plain else [None if value is None else json.dumps(value) for value in values]
