"""Series by their own past: `python -m tests.speed.series` prints the two published figures.

Santa Fe A, the intensity of a laser: 100 steps of a free run after 1,000 that teach, mean squared error over
the variance of these 100. Settings are those that forecast hidden stretches of the 1,000 best (`backtest`);
the 100 are looked at once. Mackey-Glass: x(t + 6) from x(t), x(t - 6), x(t - 12), x(t - 18), of 500 pairs
that teach and 500 that check, root mean squared error over the deviation; settings by leave-one-out on the
first 500.
"""

import lzma
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import locdist as ld
from locdist.jobs.telling.backtest import Backtest
from locdist.jobs.telling.selection import Selection
from tests.speed.anfis import PAIRS, pairs
from tests.speed.timing import Time, timed

Numbers = npt.NDArray[np.float64]
DATA = Path(__file__).parents[2].parent / "shared/data/timeseries"
STEPS, REACH = 100, 0.077
PUBLISHED = "published: network with delays .023 (Wan), local linear .077 (Sauer)"
VECTOR = b"\0\0\3\x13\0\0\0\1\0\0\0"  # what stands before the one vector of these files of R: its class
PLANES = {"order": [16, 24, 32], "k": [6, 8, 12], "ridge": [1e-3, 1e-2], "decay": [0.9, 1.0]}
PROCESSES = {
    "order": [16, 24, 32],
    "model": [
        {"name": "local-gp", "k": 64, "covariance": "matern52", "scales": scale, "nugget": nugget}
        for scale in (2.0, 4.0, 8.0)
        for nugget in (1e-5, 1e-3)
    ],
}


def laser(name: str) -> Numbers:
    """The numbers of a file of R that holds one vector."""
    content = lzma.decompress((DATA / name).read_bytes())
    at = content.index(VECTOR) + len(VECTOR)
    kind, count = content[at], int.from_bytes(content[at + 1 : at + 5], "big")
    return np.frombuffer(content, {13: ">i4", 14: ">f8"}[kind], count, at + 5).astype(np.float64)


@dataclass(frozen=True)
class FreeRun:
    """The error of a free run, of the settings that backtests chose."""

    error: float
    tried: Backtest
    time: Time

    def __str__(self) -> str:
        told = f"Santa Fe A, {STEPS} steps: NMSE {self.error:.4f}, {self.time.told} to choose; {PUBLISHED}"
        return f"{told}\n{self.tried}"


def free_run(origins: int) -> FreeRun:
    """Santa Fe A; settings by backtests from so many times."""
    taught, after = laser("SantaFe.A.rda"), laser("SantaFe.A.cont.rda")
    found = list[Backtest]()

    def tried() -> None:
        for grid in (PLANES, PROCESSES):
            found.append(ld.backtest("local-ar", taught, steps=STEPS, grid=grid, origins=origins))

    time = timed(tried)
    both = Backtest(tuple(trial for each in found for trial in each.trials), STEPS, found[0].origins)
    missed = ld.forecast(both.best, taught, steps=STEPS).values.numpy() - after
    return FreeRun(float(np.square(missed).mean() / after.var()), both, time)


@dataclass(frozen=True)
class SixAhead:
    """The error on pairs that check."""

    error: float
    tried: Selection
    time: Time

    def __str__(self) -> str:
        how = self.tried.best.spec
        return f"Mackey-Glass, {PAIRS} / {PAIRS}, 6 ahead: NDEI {self.error:.5f}, {self.time.told}, {how}"


def six_ahead(method: str, grid: dict[str, list[object]]) -> SixAhead:
    """Mackey-Glass by a local model."""
    inputs, targets = pairs()
    known = ld.Exact(inputs[:PAIRS], targets[:PAIRS])
    found = list[Selection]()
    time = timed(lambda: found.append(ld.select(method, known, grid=grid)))
    missed = found[0].best(known, inputs[PAIRS:]).values[:, 0].numpy() - targets[PAIRS:]
    return SixAhead(float(np.sqrt(np.square(missed).mean()) / targets[PAIRS:].std()), found[0], time)


if __name__ == "__main__":
    ridge: list[object] = [0.0, 1e-8, 1e-6, 1e-4]
    for name, ks in (("local-linear", [6, 8, 12, 16, 24]), ("local-polynomial", [24, 32, 48, 64])):
        sys.stdout.write(f"{six_ahead(name, {'k': ks, 'ridge': ridge})}\n")
    run = free_run(origins=100)
    sys.stdout.write(f"{run}\n")
    sys.exit(run.error > REACH)
