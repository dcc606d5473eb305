"""The bandwidth of geographically weighted regression: found by golden section, in a range that is given or
found.

Where few of many rows weigh, their neighbors are searched once and reused; where many do, all rows are
weighed at once (`local.screen`).
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from locdist.errors import UsageError
from locdist.jobs.asking.spread import spread
from locdist.jobs.grid import Between, listed
from locdist.jobs.sample import Bench, Sample, drawn, rows_of
from locdist.jobs.telling.selection import Trial
from locdist.local.bandwidths import NEAREST, Nearest
from locdist.local.kernels import Gaussian, kernel
from locdist.local.layer import Layer
from locdist.local.models import Linear
from locdist.local.neighborhood import Neighborhood
from locdist.local.screen import Everyone
from locdist.local.select import Asked, Judged, golden, judge, score, squares
from locdist.local.shapes import Laplace
from locdist.local.tiles import TILE
from locdist.methods.method import Method
from locdist.methods.named import method as named
from locdist.search.exact import Exact
from locdist.search.generation import Generation

FIXED = "fixed"
FIRST = 256  # neighbors searched at first
FEW = 6  # all rows are weighed at once where more than one of so many counts
SMALL = 2000  # rows up to which the range is all of them
POLISH = 1.15  # a criterion over whole numbers is bumpy: all within this factor of its bottom are tried
TRIED = 64  # but no more than these
PAIRS = 1 << 29  # of a sampled row and a row, at most, for kernels that reach everybody


@dataclass(frozen=True)
class Wanted:
    """A bandwidth to be searched.

    Attributes
    ----------
    spec : dict
        Of `gwr`, without k.
    fixed : bool
        Whether it is a distance, and not a number of neighbors.
    between : Between, optional
        The range; found by default.
    """

    spec: Mapping[str, Any]
    fixed: bool
    between: Between | None

    def at(self, place: float, rows: int) -> Method:
        """The method with a bandwidth, on a support of so many rows."""
        if self.fixed:
            return named({**self.spec, "k": rows, "bandwidth": float(place)})
        if not self.boundless:
            return named({**self.spec, "k": int(place)})
        rank = {"nearest": NEAREST.scale, "rank": int(place)}
        return named({**self.spec, "k": rows, "bandwidth": rank})

    @property
    def boundless(self) -> bool:
        """Whether the kernel gives everybody a weight."""
        return isinstance(kernel(self.spec.get("kernel", "bisquare")), Gaussian | Laplace)


def wanted(choice: object, grid: Mapping[str, Any] | None) -> list[Wanted]:
    """The searches that a choice and a grid ask for; none unless it is `gwr` without k."""
    spec = {"name": choice} if isinstance(choice, str) else choice
    if not isinstance(spec, Mapping) or spec.get("name") != "gwr":
        return []
    values = {name: [value] for name, value in spec.items()}
    values |= {name: listed(given) for name, given in (grid or {}).items()}
    ks, widths = values.pop("k", [None]), values.pop("bandwidth", ["nearest"])
    if not all(k is None or isinstance(k, Between) for k in ks):
        return []
    found = []
    for each in itertools.product(*values.values()):
        others = dict(zip(values, each, strict=True))
        for k, width in itertools.product(ks, widths):
            fixed = isinstance(width, Between) or width == FIXED
            if not fixed and width != "nearest":
                remedy = "Give k, or leave the bandwidth to the search."
                raise UsageError("nearest, fixed or a range of bandwidths", repr(width), remedy)
            between = width if isinstance(width, Between) else None if fixed else k
            found.append(Wanted(others, fixed, between))
    return found


def searched(sites: "Sites", search: Wanted) -> list[Trial]:
    """The trials of a search, by their bandwidth."""
    trials: dict[float, Trial] = {}

    def tried(places: Iterable[float]) -> None:
        new = [place for place in dict.fromkeys(places) if place not in trials]
        found = sites.trials([search.at(place, sites.rows) for place in new])
        trials.update(zip(new, found, strict=True))

    def value(place: float) -> float:
        tried([place])
        return trials[place].score.value

    if search.between is not None:
        golden(value, search.between.low, search.between.high, not search.fixed)
    elif search.fixed:
        golden(value, *sites.distances, whole=False)
    else:
        golden(value, *_grown(sites, value), whole=True)
        best = min(trials, key=lambda place: trials[place].score.value)
        low, high = max(math.ceil(best / POLISH), sites.least), min(int(best * POLISH), sites.rows)
        tried(map(float, range(low, high + 1, max(1, (high - low) // TRIED))))
    return [trials[place] for place in sorted(trials)]


def _grown(sites: "Sites", value: Any) -> tuple[float, float]:
    """A range with the bottom: from few neighbors on, twice as many until the criterion rises."""
    if sites.rows <= SMALL:
        return float(min(sites.fewest, sites.rows // 2)), float(sites.rows)
    places = [float(sites.fewest)]
    while 2 * places[-1] <= sites.rows and (len(places) < 2 or value(places[-1]) <= value(places[-2])):
        places.append(2 * places[-1])
    best = min(places, key=value)
    return max(best / 2, float(sites.least)), min(best * 2, float(sites.rows))


@dataclass(frozen=True)
class Sites:
    """Rows of a support that judge bandwidths by a criterion.

    Attributes
    ----------
    index : Exact or Generation
    criterion : str
    sample, seed : int
        Rows that are asked.
    """

    index: Exact | Generation
    criterion: str
    sample: int
    seed: int
    _benches: dict[int, Bench] = field(default_factory=dict, compare=False)

    @cached_property
    def rows(self) -> int:
        """Rows of the support."""
        return rows_of(self.index)

    @cached_property
    def own(self) -> torch.Tensor:
        """The ids of the sample [s]."""
        return drawn(self.rows, self.sample, self.seed)

    @cached_property
    def everyone(self) -> Everyone:
        """All rows in memory."""
        ids = torch.arange(self.rows)[:, None]
        hood = self.index.gather(
            Neighborhood(torch.zeros(len(ids), 1), ids), frozenset({"keys", "features", "targets"})
        )
        assert hood.keys is not None
        assert hood.features is not None
        assert hood.targets is not None
        weights = None if hood.row_weights is None else hood.row_weights[:, 0].double()
        targets = hood.targets[:, 0, 0].double()
        return Everyone(hood.keys[:, 0], hood.features[:, 0], targets, weights, self.index.metric)

    @property
    def fewest(self) -> int:
        """Neighbors where a search begins, as in GWR software."""
        return 40 + 2 * (self.everyone.features.shape[1] + 1)

    @property
    def least(self) -> int:
        """Neighbors that a fit needs."""
        return self.everyone.features.shape[1] + 2

    @cached_property
    def distances(self) -> tuple[float, float]:
        """The range of a fixed bandwidth, as in GWR software: half the smallest distance of two rows to twice
        the largest.
        """
        low, high = math.inf, 0.0
        for start in range(0, len(self.own), TILE):
            rows = self.own[start : start + TILE]
            away = self.everyone.around(rows).distances
            high = max(high, float(away.max()))
            low = min(low, float(away.scatter(1, rows[:, None], math.inf).min()))
        return max(math.sqrt(low) / 2, 1e-9 * math.sqrt(high)), 2 * math.sqrt(high)

    def trials(self, methods: list[Method]) -> list[Trial]:
        """How well settings answer, in their order."""
        wide = [self._wide(method.layer) for method in methods]
        if not methods or all(wide):
            return [self._screened(method) for method in methods]
        return self._bench(max(method.layer.neighbors for method in methods)).trials(methods)

    def _wide(self, layer: Layer) -> bool:
        plain = isinstance(layer.model, Linear) and layer.model.ridge == 0
        whole = layer.neighbors == self.rows or not isinstance(layer.kernel, Gaussian | Laplace)
        if self.everyone.weights is not None and layer.neighbors != self.rows:
            whole = whole and bool((self.everyone.weights > 0).all())  # else some of the k do not count
        return plain and whole and self.criterion != "log-likelihood" and FEW * layer.neighbors > self.rows

    def _bench(self, k: int) -> Bench:
        """A bench with at least k neighbors; one is kept, as it is large."""
        size = max((one for one in self._benches if one >= k), default=0)
        if not size:
            size = min(max(FIRST, 1 << math.ceil(math.log2(k))), self.rows)
            self._benches.clear()
            self._benches[size] = Bench(Sample.of(self.index, size, self.sample, self.seed), self.criterion)
        return self._benches[size]

    def _screened(self, method: Method) -> Trial:
        layer = replace(method.layer, k=self.rows, kernel=_over_all(method.layer))
        starts = range(0, len(self.own), TILE)
        parts = spread(lambda start: self._judged(layer, self.own[start : start + TILE]), starts)
        truth = self.everyone.targets[self.own]
        return Trial(method, score(Judged.concatenate(parts), truth, self.criterion, self.rows, False))

    def _judged(self, layer: Layer, rows: torch.Tensor) -> Judged:
        everyone = self.everyone
        values, leverage, effective = everyone.fitted(layer.kernel, rows)
        judged = Judged(
            squares(values, everyone.targets[rows], leverage, self.criterion), leverage, effective
        )
        lost = values.isnan().nonzero()[:, 0]
        if not len(lost):
            return judged
        some = rows[lost]  # solved with care
        hood = replace(everyone.around(some), query_features=everyone.features[some])
        asked = Asked(self.index.gather(hood, layer.needs), some, everyone.targets[some])
        careful = judge(layer, asked, self.criterion)
        return Judged(
            judged.loss.index_copy(0, lost, careful.loss),
            judged.leverage.index_copy(0, lost, careful.leverage),
            judged.effective.index_copy(0, lost, careful.effective),
        )


def _over_all(layer: Layer) -> Any:
    """The kernel that gives the k nearest of all rows the weights that they have among k."""
    width = layer.kernel.bandwidth
    if not isinstance(width, Nearest):
        return layer.kernel
    return replace(layer.kernel, bandwidth=Nearest(width.scale, width.rank or layer.k))
