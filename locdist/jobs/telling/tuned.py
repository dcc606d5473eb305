"""What `tune` found, for people, for programs, and for the jobs that use it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locdist.data.keymap import KeyMap
from locdist.jobs.chosen import write_method
from locdist.jobs.telling.text import aligned, to_json
from locdist.local.calibration import Calibration
from locdist.methods.method import Method

_SHOWN = 12  # columns whose scale is told


@dataclass(frozen=True)
class Trial:
    """A candidate and its leave-one-out error.

    Parameters
    ----------
    options : dict
        By name: "covariance", "rank", "steps".
    error : float
        Root mean squared error in units of the target, or log-loss.
    seconds : float
    """

    options: Mapping[str, Any]
    error: float
    seconds: float

    @property
    def told(self) -> str:
        """The options on one line."""
        return " ".join(f"{name}={value}" for name, value in self.options.items())


def smallest(trials: Sequence[Trial]) -> Trial:
    """The one of the smallest error, of equal ones the first; an error that is no number is the largest."""
    return min(trials, key=lambda trial: trial.error if math.isfinite(trial.error) else math.inf)


@dataclass(frozen=True)
class Tuned:
    """A method, the map of the key that it was learned with, and how it was chosen.

    Parameters
    ----------
    method : Method
        With its intervals.
    map : KeyMap
        For `ld.dataset(..., map=tuned.map)`: the index has to use the same.
    trials : tuple of Trial
        In the order of the candidates.
    criterion : str
        What an error of a trial is: "LOO RMSE" or "LOO log-loss".
    calibration : Calibration or None
        Of the spread of a Gaussian process.
    rows, sample, asked : int
        Good rows of the support, those that were learned from, and those whose error was computed.
    """

    method: Method
    map: KeyMap
    trials: tuple[Trial, ...]
    criterion: str
    calibration: Calibration | None
    rows: int
    sample: int
    asked: int

    @property
    def best(self) -> Trial:
        """The candidate with the smallest error; of equal ones the first."""
        return smallest(self.trials)

    @property
    def scales(self) -> dict[str, float]:
        """How much each column of the key, as it is scaled, counts in a distance; the largest first."""
        lengths = np.linalg.norm(self.map.matrix, axis=0)
        names = self.map.names or tuple(map(str, range(self.map.inputs)))
        return dict(sorted(zip(names, lengths.tolist(), strict=True), key=lambda pair: -pair[1]))

    @property
    def why(self) -> dict[str, Any]:
        """What is told beside the method in its file."""
        calibration = None if self.calibration is None else asdict(self.calibration)
        told = {name: getattr(self, name) for name in ("criterion", "rows", "sample", "asked")}
        trials = [{"options": dict(trial.options), "error": trial.error} for trial in self.trials]
        return told | {"trials": trials, "calibration": calibration, "scales": self.scales}

    def write(self, place: str | Path) -> None:
        """Write method, map and why to a file that `--method` and `--map` read."""
        write_method(self.method, place, self.why, self.map)

    def to_json(self) -> bytes:
        """All of it as JSON."""
        trials = [asdict(trial) for trial in self.trials]
        return to_json({"method": self.method.spec, "map": asdict(self.map), **self.why, "trials": trials})

    def __str__(self) -> str:
        sample = "" if self.sample == self.rows else f", learned from {self.sample:,} of them"
        lines = [f"{self.method.name} on {self.rows:,} rows{sample}; {self.criterion} of {self.asked:,}:"]
        lines += aligned([self._row(trial) for trial in self.trials])
        told = [f"{name} {scale:.3g}" for name, scale in list(self.scales.items())[:_SHOWN]]
        lines.append(f"scales: {', '.join(told)}{', ...' if len(self.scales) > _SHOWN else ''}")
        if self.method.intervals:
            reach = ", ".join(f"{level:.0%} {multiple:.3g}" for level, multiple in self.method.intervals)
            lines.append(f"intervals, in spreads: {reach}")
        return "\n".join(lines)

    def _row(self, trial: Trial) -> tuple[str, ...]:
        mark = "best" if trial is self.best else ""
        return trial.told, f"{trial.error:.6g}", f"{trial.seconds:.1f} s", mark
