"""Local linear models of which every term has a bandwidth of its own, by backfitting.

The prediction is a sum of parts, sum_j x_j b_j, each a local regression of one term. A target loop: the sites
and their neighborhoods stay, and in a sweep each part in turn becomes the local regression of what the others
leave, until the parts rest. All of it is linear in the targets once the bandwidths are known: the same sweeps
over unit vectors give the columns of the hat matrix of each part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.bandwidths import Nearest
from locdist.local.kernels import Kernel, log_weights
from locdist.local.kernels import kernel as named
from locdist.local.layer import TILE
from locdist.local.metrics import distances
from locdist.local.neighborhood import Neighborhood
from locdist.local.select import INFORMATION, Judged, golden, score
from locdist.local.solve import WEAK, factored

_NOTHING = 1e-24  # of its mean square: a term that is smaller around a site is 0 there
FEWEST = 40  # neighbors where a search begins, and two for each term, as in software of GWR


@dataclass(frozen=True, eq=False)
class Sites:
    """Where rows lie, and their terms.

    Attributes
    ----------
    keys : Tensor [n, d]
    terms : Tensor [n, c] float64
        The columns of the linear model, that of the intercept too.
    metric : str
    """

    keys: Tensor
    terms: Tensor
    metric: str = "l2"

    def around(self, places: Tensor) -> Neighborhood:
        """All sites as neighbors of some places [q, d]."""
        away = distances(places, self.keys, self.metric)
        return Neighborhood(away, torch.arange(len(self.keys)).expand_as(away), places)

    def term(self, number: int) -> "Sites":
        """The same with one term alone."""
        return replace(self, terms=self.terms[:, number : number + 1])

    @cached_property
    def extent(self) -> tuple[float, float]:
        """Half the smallest distance of two sites, and twice the largest."""
        low, high = float("inf"), 0.0
        for start in range(0, len(self.keys), TILE):
            away = self.around(self.keys[start : start + TILE]).distances
            own = torch.arange(start, start + len(away))[:, None]
            high = max(high, float(away.max()))
            low = min(low, float(away.scatter(1, own, float("inf")).min()))
        return max(low**0.5 / 2, 1e-9 * high**0.5), 2 * high**0.5


@dataclass(frozen=True, eq=False)
class Regression:
    """Local regressions on the terms of sites, at some places.

    Attributes
    ----------
    coefficients : Tensor [q, c, p]
    leverage : Tensor [q]
        Of places that are the sites themselves, the weight of each one's target in its own value.
    deficient : Tensor [q] bool
        Whether they are not identified: then those of least length.
    """

    coefficients: Tensor
    leverage: Tensor
    deficient: Tensor


def regress(sites: Sites, kernel: Kernel, targets: Tensor, places: Tensor | None = None) -> Regression:
    """The local regressions of targets [n, p] on the terms of all sites, at the sites or other places.

    The normal equations of a tile of places are one product, weights [t, n] times products of terms [n, *].
    """
    at, terms = sites.keys if places is None else places, sites.terms
    pairs = (terms[:, :, None] * terms[:, None]).flatten(1)
    size = terms.square().mean(0)
    products = torch.cat([pairs, (terms[:, :, None] * targets[:, None]).flatten(1)], 1)
    parts = []
    for start in range(0, len(at), TILE):
        weights = log_weights(kernel, sites.around(at[start : start + TILE])).exp_()
        sums, c = weights @ products, terms.shape[1]
        matrix, right = sums[:, : c * c].reshape(-1, c, c), sums[:, c * c :].reshape(len(sums), c, -1)
        gone = matrix.diagonal(dim1=1, dim2=2) <= _NOTHING * weights.sum(1, keepdim=True) * size
        matrix = matrix.masked_fill(gone[:, :, None] | gone[:, None], 0.0)
        here = terms[start : start + TILE, :, None] if places is None else right[:, :, :0]
        solved, weak = _solved(matrix, torch.cat([right, here], 2))
        leverage = torch.zeros_like(matrix[:, 0, 0])
        if places is None:
            leverage = weights.diagonal(start) * (here * solved[:, :, -1:]).sum((1, 2))
        parts.append(Regression(solved[:, :, : targets.shape[1]], leverage, weak))
    return Regression(
        torch.cat([part.coefficients for part in parts]),
        torch.cat([part.leverage for part in parts]),
        torch.cat([part.deficient for part in parts]),
    )


def _solved(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    factor, pivot = factored(matrix)
    weak = ~(pivot > WEAK)
    solved = torch.cholesky_solve(right, factor)
    if weak.any():
        inverse = torch.linalg.pinv(matrix[weak], rtol=WEAK, hermitian=True)
        solved[weak] = torch.bmm(inverse, right[weak])
    return solved, weak


@dataclass(frozen=True)
class Backfitting:
    """Sweeps over the terms until the parts rest.

    Parameters
    ----------
    kernel : str
    fixed : bool
        Whether bandwidths are distances, and not numbers of neighbors.
    criterion : {"aicc", "aic", "bic", "gcv"}
        What bandwidths minimise, by golden section.
    low, high : float, optional
        The range of bandwidths; by default from 40 neighbors and two for each term to all, or from half the
        smallest distance to twice the largest.
    tolerance : float
        Of the score of change (SOC-f) at which the parts rest.
    most : int
        Sweeps.
    steady : int
        Bandwidths that were the same in so many sweeps more are not searched again.
    """

    kernel: str = "bisquare"
    fixed: bool = False
    criterion: str = "aicc"
    low: float | None = None
    high: float | None = None
    tolerance: float = 1e-5
    most: int = 200
    steady: int = 5

    def __post_init__(self) -> None:
        named(self.kernel, 1.0)  # it is one
        if self.criterion not in INFORMATION:
            remedy = did_you_mean(self.criterion, INFORMATION)
            raise UsageError(f"one of {', '.join(INFORMATION)}", repr(self.criterion), remedy)
        if isinstance(self.tolerance, bool) or not 0 <= self.tolerance < float("inf"):
            raise UsageError("a tolerance of 0 or more", repr(self.tolerance), "1e-5 is usual.")
        for name in ("most", "steady"):
            count: object = getattr(self, name)  # whatever users passed
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise UsageError(f"{name} of at least 1", repr(count), "It counts sweeps.")
        if self.low is not None and self.high is not None and not 0 < self.low < self.high:
            given = f"{self.low} to {self.high}"
            raise UsageError("a range of bandwidths, from low to high", given, "Correct them.")

    def at(self, width: float) -> Kernel:
        """The kernel with a bandwidth."""
        return named(self.kernel, float(width) if self.fixed else Nearest(rank=int(width)))

    def states(self, sites: Sites, target: Tensor, begun: "State | None" = None) -> Iterator["State"]:
        """The states after each sweep, up to the one that rests, or the last; before them that of a
        regression with one bandwidth for all terms, where they begin.
        """
        fitting, state = _Fitting(self, sites), begun
        if state is None:
            yield (state := fitting.first(target))
        while not (state.rests or state.number >= self.most):
            yield (state := fitting.swept(state))

    def columns(self, sites: Sites, state: "State", some: slice) -> tuple[Tensor, Tensor]:
        """Columns of what makes the coefficients and the parts of the last sweep from the targets: both
        [n, c, p].
        """
        unit = torch.zeros(len(sites.keys), some.stop - some.start, dtype=torch.float64)
        unit[some] = torch.eye(some.stop - some.start, dtype=torch.float64)
        (first, *sweeps), fitting = state.history, _Fitting(self, sites)
        _, parts, error = fitting.together(unit, first[0])
        for widths in sweeps:
            slopes, parts, error, _ = fitting.sweep(parts, error, _known(widths))
        return slopes, parts

    def values(self, sites: Sites, state: "State", places: Tensor) -> Tensor:
        """Coefficients [q, c] at other places."""
        found = [
            regress(
                sites.term(number), self.at(width), (state.parts[:, number] + state.error)[:, None], places
            )
            for number, width in enumerate(state.widths)
        ]
        return torch.cat([each.coefficients[:, :, 0] for each in found], 1)


@dataclass(frozen=True, eq=False)
class State:
    """Where a sweep left the parts.

    Attributes
    ----------
    coefficients, parts : Tensor [n, c]
        b_j and x_j b_j.
    error : Tensor [n]
        The target less all parts.
    history : tuple of tuple of float
        The bandwidths of each sweep; first those of the regression before.
    change : float
        The score of change of the last sweep.
    rests : bool
    deficient : Tensor [n] bool
        Sites where a coefficient is not identified.
    """

    coefficients: Tensor
    parts: Tensor
    error: Tensor
    history: tuple[tuple[float, ...], ...]
    deficient: Tensor
    change: float = float("inf")
    rests: bool = False

    @property
    def number(self) -> int:
        """Sweeps that were made."""
        return len(self.history) - 1

    @property
    def widths(self) -> tuple[float, ...]:
        """The bandwidths of the last sweep."""
        return self.history[-1]

    def steady(self, most: int) -> bool:
        """Whether the last sweeps had the bandwidths of the one before them."""
        last = self.history[1:][-most - 1 :]
        return len(last) > most and len(set(last)) == 1


@dataclass(frozen=True, eq=False)
class _Fitting:
    """How the states of some sites follow from each other."""

    loop: Backfitting
    sites: Sites

    def first(self, target: Tensor) -> State:
        """One bandwidth for all terms."""
        width = self._best(self.sites, target)
        found, parts, error = self.together(target[:, None], width)
        history = ((width,) * parts.shape[1],)
        return State(found.coefficients[:, :, 0], parts[:, :, 0], error[:, 0], history, found.deficient)

    def together(self, targets: Tensor, width: float) -> tuple[Regression, Tensor, Tensor]:
        """The regression on all terms, its parts [n, c, p], and what they leave [n, p]."""
        found = regress(self.sites, self.loop.at(width), targets)
        parts = self.sites.terms[:, :, None] * found.coefficients
        return found, parts, targets - parts.sum(1)

    def swept(self, state: State) -> State:
        """The next state."""
        steady, widths = state.steady(self.loop.steady), list[float]()

        def chosen(number: int, target: Tensor) -> float:
            one = self.sites.term(number)
            width = state.widths[number] if steady else self._best(one, target[:, 0], self.loop)
            widths.append(width)
            return width

        before = state.parts
        slopes, parts, error, weak = self.sweep(before[:, :, None], state.error[:, None], chosen)
        after = parts[:, :, 0]
        moved = (after - before).square().sum() / len(after)
        change = float((moved / after.sum(1).square().sum()).sqrt())
        history = (*state.history, tuple(widths))
        rests = change < self.loop.tolerance
        return State(slopes[:, :, 0], after, error[:, 0], history, weak, change, rests)

    def sweep(
        self, parts: Tensor, error: Tensor, chosen: Callable[[int, Tensor], float]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Coefficients and parts [n, c, p] after a sweep, what they leave [n, p], and where they are not
        identified [n].
        """
        slopes, parts = torch.empty_like(parts), parts.clone()
        weak = torch.zeros(len(parts), dtype=torch.bool)
        for number in range(parts.shape[1]):
            target, one = parts[:, number] + error, self.sites.term(number)
            found = regress(one, self.loop.at(chosen(number, target)), target)
            slopes[:, number] = found.coefficients[:, 0]
            parts[:, number] = one.terms * slopes[:, number]
            error = target - parts[:, number]
            weak |= found.deficient
        return slopes, parts, error, weak

    def _best(self, sites: Sites, target: Tensor, within: Backfitting | None = None) -> float:
        """The bandwidth of the best criterion, in the range that is given, or found."""
        rows, terms = sites.terms.shape

        def judged(width: float) -> float:
            found = regress(sites, self.loop.at(width), target[:, None])
            left = target - (sites.terms * found.coefficients[:, :, 0]).sum(1)
            said = Judged(left.square(), found.leverage, found.leverage)
            return score(said, target, self.loop.criterion, rows, False).value

        low, high = self.sites.extent if self.loop.fixed else (_narrowest(terms, rows), float(rows))
        if within is not None:
            low, high = within.low or low, within.high or high
        return golden(
            judged, low, min(high, rows) if not self.loop.fixed else high, whole=not self.loop.fixed
        )


def _known(widths: tuple[float, ...]) -> Callable[[int, Tensor], float]:
    """Bandwidths that nobody searches."""
    return lambda number, _: widths[number]


def _narrowest(terms: int, rows: int) -> float:
    """Neighbors where a search over some terms begins."""
    usual = FEWEST + 2 * terms
    return float(usual if usual < rows else max(terms + 1, rows // 2))
