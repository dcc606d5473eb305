"""Bandwidths and other settings: geographically weighted regression beside mgwr, local linear regression
beside statsmodels, and many settings beside one.
"""

import functools
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.csv

from locdist.jobs.asking.spread import spread
from locdist.jobs.grid import Between
from locdist.jobs.select import select
from locdist.jobs.telling.selection import Selection
from locdist.methods.gwr import gwr
from locdist.methods.method import Method
from locdist.methods.named import local_linear
from locdist.search.exact import Exact
from tests.speed.inputs import Sizes
from tests.speed.timing import Time, interleaved, timed

Numbers = npt.NDArray[np.float64]
DATA = Path(__file__).parents[2].parent / "shared/data/gwr_zillow"
PUBLISHED = {"zillow_5k.csv": (25.7, 61867.18296256346), "zillow_20k.csv.xz": (156.3, 246309.68704617335)}
"""Of FastGWR: seconds of its whole search, and the AICc that it found."""
KS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128)
SHAPES = ("tricube", "biweight", "epanechnikov", "uniform", "gaussian")
FIFTY = {"k": KS, "kernel": SHAPES}


class Compared(NamedTuple):
    """A row: what is done, our time, against what, its time, and how many times faster it should be."""

    work: str
    ours: Time
    against: str
    theirs: Time
    least: float
    valid: bool = True


class Sites(NamedTuple):
    """Places [n, 2], features [n, 4] and targets [n] of a regression whose slopes change with the place."""

    places: Numbers
    features: Numbers
    targets: Numbers

    @staticmethod
    def random(rows: int) -> "Sites":
        rng = np.random.default_rng(0)
        places, features = rng.uniform(0, 100, (rows, 2)), rng.standard_normal((rows, 4))
        slopes = np.sin(places @ rng.standard_normal((2, 4)) / 15)
        return Sites(places, features, (slopes * features).sum(1) + rng.standard_normal(rows))

    @property
    def index(self) -> Exact:
        return Exact(self.places, self.targets, features=self.features)


def one_bandwidth(sizes: Sizes, workers: int) -> Compared:
    """Estimates, their errors and leverages of every site."""
    from mgwr.gwr import GWR

    sites, k = Sites.random(sizes.sites), min(121, sizes.sites // 2)
    index, want, own = sites.index, {"coefficients", "leverage"}, np.arange(sizes.sites)
    model = GWR(sites.places, sites.targets[:, None], sites.features, k, n_jobs=workers)

    def ours() -> object:  # on threads, as a task has it
        parts = _slices(len(sites.places), workers)
        places, features = sites.places, sites.features
        return spread(
            lambda rows: gwr(k)(index, places[rows], features=features[rows], own=own[rows], want=want), parts
        )

    contenders: dict[str, Callable[[], object]] = {"ours": ours, "theirs": model.fit}
    told = interleaved(contenders)
    work, against = f"GWR of {sizes.sites:,} sites, one bandwidth", f"mgwr, {workers} processes"
    return Compared(work, told["ours"], against, told["theirs"], 40)


def bandwidth_search(sizes: Sizes, workers: int) -> Compared:
    """The golden section of mgwr, in the same range."""
    from mgwr.sel_bw import Sel_BW

    sites = Sites.random(sizes.sites)
    low, high = 50, sizes.sites
    selector = Sel_BW(sites.places, sites.targets[:, None], sites.features, n_jobs=workers)
    best: list[Method] = []
    found: list[float] = []
    ours = timed(lambda: best.append(select("gwr", sites.index, grid={"k": Between(low, high)}).best))
    theirs = timed(lambda: found.append(selector.search(bw_min=low, bw_max=high)))
    work = f"GWR of {sizes.sites:,} sites, bandwidth in [{low}, {high:,}]"
    return Compared(work, ours, f"mgwr, {workers} processes", theirs, 5, best[0].layer.k == int(found[0]))


def published_search(sizes: Sizes, workers: int, name: str) -> Compared:
    """A search that is not told the range, against published seconds on four processes."""
    seconds, aicc = PUBLISHED[name]
    content = (DATA / name).read_bytes()
    table = pyarrow.csv.read_csv(io.BytesIO(lzma.decompress(content) if name.endswith("xz") else content))
    places, features = (
        np.column_stack([table[each] for each in names])
        for names in (("utmX", "utmY"), ("nbaths", "nbeds", "area", "age"))
    )
    found: list[Selection] = []
    index = Exact(places, table["value"].to_numpy(), features=features)
    ours = timed(lambda: found.append(select("gwr", index)))
    best = min(trial.score.value for trial in found[0].trials)
    work, against = f"GWR, {name.partition('.')[0]}, bandwidth not bracketed", "FastGWR, published"
    return Compared(work, ours, against, Time(seconds, seconds), 10, best <= aicc * (1 + 1e-11))


def kernel_regression(sizes: Sizes, workers: int) -> Compared:
    """k=256 neighbors of n rows, beside all of them; scaled to as many queries."""
    from statsmodels.nonparametric.kernel_regression import KernelReg

    rng = np.random.default_rng(0)
    n, count, fewer = sizes.regression, sizes.regression, 20
    keys, queries = rng.standard_normal((n, 2)), rng.standard_normal((count, 2))
    targets = np.sin(keys[:, 0]) + keys[:, 1]
    peer = KernelReg(targets, keys, "cc", reg_type="ll", bw=[0.2, 0.2], rng=rng)
    index, chosen = Exact(keys, targets), local_linear(min(256, n // 4), "gaussian", 0.2)
    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: spread(lambda rows: chosen(index, queries[rows]), _slices(count, workers)),
        "theirs": lambda: peer.fit(queries[:fewer]),
    }
    told = interleaved(contenders)
    scale = count / fewer
    theirs = Time(told["theirs"].wall * scale, told["theirs"].cpu * scale)
    work = f"local-linear, k=256 of {n:,}, {count:,} queries"
    return Compared(work, told["ours"], f"statsmodels KernelReg, {fewer} queries scaled", theirs, 100)


def settings(sizes: Sizes, workers: int, method: str, least: float, alone: bool) -> Compared:
    """Fifty settings beside one of them (the largest), or beside each alone."""
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((sizes.regression, 4))
    index = Exact(keys, np.sin(keys[:, 0]) + keys[:, 1] + 0.3 * rng.standard_normal(len(keys)))
    each = [{"k": [k], "kernel": [shape]} for k in KS for shape in SHAPES]
    others = each if alone else each[-5:-4]
    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: select(method, index, grid=FIFTY),
        "theirs": lambda: [select(method, index, grid=grid) for grid in others],
    }
    told = interleaved(contenders)
    against = "the separate runs" if alone else "one of them"
    return Compared(f"leave-one-out of 50 settings, {method}", told["ours"], against, told["theirs"], least)


def _slices(count: int, workers: int) -> list[slice]:
    size = -(-count // workers)
    return [slice(start, start + size) for start in range(0, count, size)]


COMPARED: dict[str, Callable[[Sizes, int], Compared]] = {
    "gwr": one_bandwidth,
    "gwr search": bandwidth_search,
    **{
        name.partition(".")[0]: functools.partial(published_search, name=name)
        for name in PUBLISHED
        if (DATA / name).exists()
    },
    "regression": kernel_regression,
    "settings mean": functools.partial(settings, method="local-mean", least=0.2, alone=False),
    "settings linear": functools.partial(settings, method="local-linear", least=2, alone=True),
}
