"""`backtest`: how well methods would have forecast stretches of series that they were not told."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from locdist.errors import DataError, UsageError
from locdist.jobs.asking.spread import spread
from locdist.jobs.forecast import matrix, requested
from locdist.jobs.grid import listed
from locdist.jobs.request import is_whole
from locdist.jobs.series.answers import standardized
from locdist.jobs.series.read import gathered
from locdist.jobs.telling.backtest import Backtest
from locdist.local.select import Score
from locdist.methods.series import SeriesMethod, series_method

Choice = SeriesMethod | str | Mapping[str, Any]


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
    hidden from them.

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
        Times of each series from which is forecast, evenly spread.
    past : bool
        Whether only what was before is known; the times are then in the second half. Otherwise what came
        after the hidden stretch is known too.
    target, time, id : str, optional
        As in `forecast`.

    Returns
    -------
    Backtest
        `best` is a method for `forecast`, `table` has a row for each setting. A step without an answer is
        judged as the mean of the series.
    """
    chosen = _settings(methods, grid)
    if target is None:
        values = matrix(series)
    else:
        asked = requested(chosen[0], series, steps, target, time, id)
        found = gathered(pa.concat_tables(asked.source.read(columns=asked.columns.names)), asked.columns)
        values = found.padded(torch.arange(len(found.lengths)).numpy())
    scaled, _, _ = standardized(values)
    ends = _ends(scaled.shape[1], max(each.loop.delays(1).width for each in chosen), steps, origins, past)
    scores = spread(lambda method: _score(method, scaled, ends, steps, past), chosen)
    return Backtest(tuple(zip(chosen, scores, strict=True)), steps, len(ends) * len(scaled))


def _settings(methods: Choice | Sequence[Choice], grid: Mapping[str, Any] | None) -> list[SeriesMethod]:
    given = [methods] if isinstance(methods, SeriesMethod | str | Mapping) else list(methods)
    values = {name: listed(each) for name, each in (grid or {}).items()}
    if not given or not all(values.values()):
        raise UsageError("methods, and values to try", f"{methods!r}, {grid!r}", "Name at least one of each.")
    combined = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    return [series_method(_spec(choice) | each) for choice in given for each in combined]


def _spec(choice: Choice) -> dict[str, Any]:
    if isinstance(choice, SeriesMethod):
        return choice.spec
    return {"name": choice} if isinstance(choice, str) else dict(choice)


def _ends(length: int, width: int, steps: int, origins: int, past: bool) -> Tensor:
    """The last times that are told."""
    if not (is_whole(steps) and steps >= 1 and is_whole(origins) and origins >= 1):
        raise UsageError("steps and origins of at least 1", f"{steps!r}, {origins!r}", "Correct them.")
    first, last = max(width, length // 2 if past else 0), length - 1 - steps
    if last < first:
        given = f"{length} for keys of {width} and {steps} steps"
        raise DataError("series that are long enough", given, "Forecast fewer steps.")
    return torch.linspace(first, last, min(origins, last - first + 1), dtype=torch.float64).round().long()


def _score(method: SeriesMethod, values: Tensor, ends: Tensor, steps: int, past: bool) -> Score:
    after = ends + 1
    hidden = torch.stack([after, torch.full_like(after, values.shape[1]) if past else after + steps], 1)
    path = method.loop(values, steps, ends, hidden.repeat(len(values), 1))
    truth = values[:, after[:, None] + torch.arange(steps)].flatten(0, 1)
    known, silent = truth.isfinite(), path.values.isnan()
    miss = (path.values.masked_fill(silent, 0.0) - truth).square().masked_fill(~known, 0.0).sum(1)
    each = (miss / known.sum(1))[known.any(1)]
    if not len(each):
        raise DataError("values after the times that are asked", "none", "Use fewer steps.")
    error = float(each.std()) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    effective = float(method.loop.layer.neighbors)
    return Score(float(each.mean()), error, effective, int((silent & known).sum()))
