"""`backtest`: how well methods would have forecast stretches of series that they were not told."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from locdist.errors import DataError, UsageError
from locdist.jobs.asking.spread import spread
from locdist.jobs.forecast import matrix, requested
from locdist.jobs.grid import Between, listed
from locdist.jobs.request import is_whole
from locdist.jobs.series.answers import followed, standardized
from locdist.jobs.series.read import gathered
from locdist.jobs.telling.backtest import Backtest
from locdist.local.select import Score
from locdist.methods.series import SeriesMethod, series_method

Choice = SeriesMethod | str | Mapping[str, Any]
TOLD = 1 << 18  # values of series that are asked at once


def backtest(
    methods: Choice | Sequence[Choice],
    series: Any,
    *,
    steps: int,
    grid: Mapping[str, Any] | None = None,
    origins: int = 24,
    past: bool = False,
    target: str | None = None,
    time: str | None = None,
    id: str | None = None,
) -> Backtest:
    """How well methods would have forecast: from some times of each series on, over stretches that are
    hidden from them. All values are held in memory.

    Parameters
    ----------
    methods : SeriesMethod, name, spec, or a list of these
    series : path, table or mapping of names to arrays; or array [n] or [s, n]
        As in `forecast`.
    steps : int
        How far; 1 is leave-one-out.
    grid : mapping of str to values, optional
        Values to try by parameter, {"order": [4, 8, 16], "k": [8, 16]}, in all combinations.
    origins : int
        Times of each series from which is forecast, evenly spread between its first and its last known value,
        as far as it is long enough.
    past : bool
        Whether only what was before is known; the times are then in the second half. Otherwise what came
        after the hidden stretch is known too. Series are standardized by what is known, each time anew.
    target, time, id : str, optional
        As in `forecast`.

    Returns
    -------
    Backtest
        `best` is a method for `forecast`, `table` has a row for each setting. A step without an answer is
        judged as the mean of the series.
    """
    chosen = _settings(methods, grid)
    if not (is_whole(steps) and steps >= 1 and is_whole(origins) and origins >= 1):
        raise UsageError("steps and origins of at least 1", f"{steps!r}, {origins!r}", "Correct them.")
    if target is None:
        blocks = [matrix(series)]
    else:
        given = requested(chosen[0], series, steps, target, time, id)
        found = gathered(pa.concat_tables(given.source.read(columns=given.columns.names)), given.columns)
        blocks = [found.padded(some) for some in found.batches()]
    width = max(each.loop.delays(1).width for each in chosen)
    every = (Origins.of(values, width, steps, origins, past) for values in blocks)
    asked = [each for each in every if len(each.ends)]
    if not asked:
        keys = f"none, for keys of {width} and {steps} steps"
        raise DataError("series that are long enough", keys, "Forecast fewer steps.")
    scores = spread(lambda method: _score(method, asked), chosen)
    return Backtest(tuple(zip(chosen, scores, strict=True)), steps, sum(len(each.ends) for each in asked))


@dataclass(frozen=True, eq=False)
class Origins:
    """Times of series from which is forecast.

    Attributes
    ----------
    values : Tensor [s, n]
    numbers, ends : Tensor [o] int64
        A series, and the last time that is told of it.
    steps : int
    past : bool
        Whether nothing after the steps is told.
    """

    values: Tensor
    numbers: Tensor
    ends: Tensor
    steps: int
    past: bool

    @staticmethod
    def of(values: Tensor, width: int, steps: int, most: int, past: bool) -> "Origins":
        """Up to so many of each series, behind the first key and where something that followed is known."""
        known, reach = values.isfinite(), values.shape[1]
        first, last = known.int().argmax(1), reach - 1 - known.flip(1).int().argmax(1)
        least = ((last + 1 - first) // 2).clamp(min=width) if past else width
        begin, end = first + least, last - steps
        count = (end - begin + 1).clamp(0, most) * known.any(1)
        number = torch.arange(min(most, reach), dtype=torch.float64)
        places = begin[:, None] + number * ((end - begin).double() / (count - 1).clamp(min=1))[:, None]
        numbers, at = (number < count[:, None]).nonzero(as_tuple=True)
        found = Origins(values, numbers, places[numbers, at].round().long(), steps, past)
        judged = found.truth.isfinite().any(1)
        return Origins(values, numbers[judged], found.ends[judged], steps, past)

    @property
    def truth(self) -> Tensor:
        """What followed [o, steps]."""
        return self.values[self.numbers[:, None], self.ends[:, None] + torch.arange(1, self.steps + 1)]

    def parts(self) -> Iterator["Origins"]:
        """Some at a time, as each is told a series of its own."""
        size = max(1, TOLD // self.values.shape[1])
        for start in range(0, len(self.ends), size):
            some = slice(start, start + size)
            yield Origins(self.values, self.numbers[some], self.ends[some], self.steps, self.past)

    def told(self) -> Tensor:
        """The series [o, n], nan where they are hidden."""
        times, ends = torch.arange(self.values.shape[1]), self.ends[:, None]
        hidden = (times > ends) & (self.past | (times <= ends + self.steps))
        return self.values[self.numbers].masked_fill(hidden, torch.nan)


def _settings(methods: Choice | Sequence[Choice], grid: Mapping[str, Any] | None) -> list[SeriesMethod]:
    given = [methods] if isinstance(methods, SeriesMethod | str | Mapping) else list(methods)
    values = {name: listed(each) for name, each in (grid or {}).items()}
    if not given or not all(values.values()):
        raise UsageError("methods, and values to try", f"{methods!r}, {grid!r}", "Name at least one of each.")
    for name, each in values.items():
        if any(isinstance(value, Between) for value in each):
            raise UsageError(f"values of {name}", "a range", "Name them: errors of forecasts leap about.")
    combined = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    return [series_method(_spec(choice) | each) for choice in given for each in combined]


def _spec(choice: Choice) -> dict[str, Any]:
    if isinstance(choice, SeriesMethod):
        return choice.spec
    return {"name": choice} if isinstance(choice, str) else dict(choice)


def _score(method: SeriesMethod, asked: Sequence[Origins]) -> Score:
    found = [_missed(method, part) for each in asked for part in each.parts()]
    each, silent = torch.cat([miss for miss, _ in found]), sum(silent for _, silent in found)
    error = float(each.std()) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    return Score(float(each.mean()), error, float(method.loop.layer.neighbors), silent)


def _missed(method: SeriesMethod, asked: Origins) -> tuple[Tensor, int]:
    """Mean squares [o], in variances of the series, and the steps without an answer."""
    _, level, size = standardized(asked.values[asked.numbers])
    guess, truth = followed(method.loop, asked.told(), asked.steps, asked.ends).values, asked.truth
    known, silent = truth.isfinite(), guess.isnan()
    miss = ((guess.where(~silent, level) - truth) / size).square().masked_fill(~known, 0.0)
    return miss.sum(1) / known.sum(1), int((silent & known).sum())
