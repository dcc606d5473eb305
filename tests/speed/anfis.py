"""Mackey-Glass by fuzzy rules: `python -m tests.speed.anfis` prints the error that was .007 in Jang (1993).

The series is x' = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x with x(0) = 1.2 and nothing before, by
Runge-Kutta steps of 0.1. From x(t - 18), x(t - 12), x(t - 6) and x(t) follows x(t + 6): 500 pairs from
t = 118 on teach, the next 500 check. How many rules, steps and how large a penalty is chosen on the first
500: a fifth of them judges rules that the others taught.
"""

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import locdist as ld
from locdist.jobs.telling.rules import LearnedRules
from tests.speed.timing import Time, timed

Numbers = npt.NDArray[np.float64]
LAGS, AHEAD, FIRST, PAIRS = (18, 12, 6, 0), 6, 118, 500
STEP, DELAY = 0.1, 17
PUBLISHED = {"ANFIS": 0.007, "back-propagation": 0.02, "polynomial of degree 6": 0.04, "linear": 0.55}
REACH = PUBLISHED["ANFIS"]


def series(length: int) -> Numbers:
    """x(0), x(1), ..., x(length - 1)."""
    every, back = round(1 / STEP), round(DELAY / STEP)
    found = np.zeros(every * length)
    found[0] = 1.2
    for place in range(len(found) - 1):
        late = found[place - back] if place >= back else 0.0
        gain, here = 0.2 * late / (1 + late**10), found[place]
        one = STEP * (gain - 0.1 * here)
        two = STEP * (gain - 0.1 * (here + one / 2))
        three = STEP * (gain - 0.1 * (here + two / 2))
        four = STEP * (gain - 0.1 * (here + three))
        found[place + 1] = here + one / 6 + two / 3 + three / 3 + four / 6
    return found[::every]


def pairs() -> tuple[Numbers, Numbers]:
    """Inputs [1000, 4] and targets [1000]."""
    values, times = series(FIRST + 2 * PAIRS + AHEAD), FIRST + np.arange(2 * PAIRS)
    return np.column_stack([values[times - lag] for lag in LAGS]), values[times + AHEAD]


@dataclass(frozen=True)
class Measured:
    """NDEI (root mean squared error over the deviation of the series) of both halves, and how it came."""

    taught: float
    checked: float
    rules: LearnedRules
    time: Time

    def __str__(self) -> str:
        others = ", ".join(f"{name} {error:g}" for name, error in PUBLISHED.items())
        return "\n".join(
            [
                f"Mackey-Glass, {PAIRS} / {PAIRS}, 6 ahead: NDEI {self.checked:.4f}",
                f"of those that taught {self.taught:.4f}; {self.time.told} to choose and learn",
                f"published: {others}",
                str(self.rules),
            ]
        )


def measured(rules: list[int], steps: list[int], ridge: list[float]) -> Measured:
    """What rules that the first half taught, and chose, make of the second."""
    inputs, targets = pairs()
    names = [f"back_{lag}" for lag in LAGS]
    rows = dict(zip(names, inputs[:PAIRS].T, strict=True)) | {"ahead": targets[:PAIRS]}
    found = list[LearnedRules]()
    support = ld.dataset(rows, key=names, target="ahead")
    time = timed(lambda: found.append(ld.learn_rules(support, rules=rules, steps=steps, ridge=ridge)))
    (best,) = found
    index = ld.Exact(
        *(best.table.select(each).to_pandas().to_numpy() for each in (names, ["ahead"])),
        shapes=(best.table.select(best.shape).to_pandas().to_numpy()),
    )
    missed = best.method(index, inputs).values[:, 0].numpy() - targets
    halves = (slice(None, PAIRS), slice(PAIRS, None))
    taught, checked = (
        float(np.sqrt(np.square(missed[half]).mean()) / targets[half].std()) for half in halves
    )
    return Measured(taught, checked, best, time)


if __name__ == "__main__":
    told = measured([16, 24], [100, 200], [1e-9, 1e-8, 1e-7])
    sys.stdout.write(f"{told}\n")
    sys.exit(told.checked > REACH)
