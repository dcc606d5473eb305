"""Local linear models of which every term has a bandwidth of its own, by backfitting.

The prediction is a sum of parts, sum_j x_j b_j, each a local regression of one term. A target loop: the sites
and their neighborhoods stay, and in a sweep each part in turn becomes the local regression of what the others
leave, until the parts rest. All of it is linear in the targets once the bandwidths are known: the same sweeps
over unit vectors give the columns of the hat matrix of each part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, TypeGuard

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.bandwidths import Nearest
from locdist.local.kernels import Kernel
from locdist.local.kernels import kernel as named
from locdist.local.select import INFORMATION, Judged, golden, score
from locdist.local.sites import Regression, Sites, regress

FEWEST = 40  # neighbors where a search begins, and two for each term, as in software of GWR


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
        least, wanted = (0.0, "over 0") if self.fixed else (1.0, "of at least 1")
        for name in ("low", "high"):
            width: object = getattr(self, name)
            if width is not None and not (_is_number(width) and width >= least and width > 0):
                raise UsageError(f"{name}, a number {wanted}", repr(width), "Correct it, or leave it out.")
        if self.low is not None and self.high is not None:
            self.within(self.low, self.high)

    def check(self, rows: int) -> None:
        """UsageError for numbers of neighbors that so many rows do not have."""
        if not self.fixed:
            self.within(_narrowest(1, rows), rows)

    def within(self, low: float, high: float) -> tuple[float, float]:
        """The range of the bandwidths of parts: what is given, else from low to high."""
        least = low if self.low is None else self.low
        most = high if self.high is None else self.high if self.fixed else min(self.high, high)
        if (self.low, self.high) != (None, None) and not least < most:
            wanted = "bandwidths from low to a larger high" + ("" if self.fixed else ", at most all rows")
            raise UsageError(wanted, f"{least:g} to {most:g}", "Give both, or choose others.")
        return least, most

    def at(self, width: float) -> Kernel:
        """The kernel with a bandwidth."""
        return named(self.kernel, float(width) if self.fixed else Nearest(rank=int(width)))

    def states(self, sites: Sites, target: Tensor, begun: "State | None" = None) -> Iterator["State"]:
        """The states after each sweep, up to the one that rests, or the last; before them that of a
        regression with one bandwidth for all terms, where they begin.
        """
        fitting, state = _Fitting(self, sites), begun
        self.check(len(sites.keys))
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

    def elsewhere(self, sites: Sites, state: "State", places: Tensor) -> Regression:
        """The regressions of all terms at other places, with coefficients [q, c, 1]; one that does not reach
        a site or is not identified makes all so.
        """
        found = [
            regress(
                sites.term(number), self.at(width), (state.parts[:, number] + state.error)[:, None], places
            )
            for number, width in enumerate(state.widths)
        ]
        return Regression(
            torch.cat([each.coefficients for each in found], 1),
            found[0].leverage,
            torch.stack([each.deficient for each in found]).any(0),
            torch.stack([each.reached for each in found]).all(0),
        )


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
            width = state.widths[number] if steady else self._best(one, target[:, 0], part=True)
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

    def _best(self, sites: Sites, target: Tensor, part: bool = False) -> float:
        """The bandwidth of the best criterion, for a part in the range that is given."""
        rows, terms = sites.terms.shape
        fixed = self.loop.fixed

        def judged(width: float) -> float:
            found = regress(sites, self.loop.at(width), target[:, None])
            left = target - (sites.terms * found.coefficients[:, :, 0]).sum(1)
            said = Judged(left.square(), found.leverage, found.leverage)
            return score(said, target, self.loop.criterion, rows, False).value

        low, high = self.sites.extent if fixed else (_narrowest(terms, rows), float(rows))
        low, high = self.loop.within(low, high) if part else (low, high)
        return golden(judged, low, high, whole=not fixed)


def _is_number(value: Any) -> TypeGuard[float]:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)


def _known(widths: tuple[float, ...]) -> Callable[[int, Tensor], float]:
    """Bandwidths that nobody searches."""
    return lambda number, _: widths[number]


def _narrowest(terms: int, rows: int) -> float:
    """Neighbors where a search over some terms begins."""
    usual = FEWEST + 2 * terms
    return float(usual if usual < rows else max(terms + 1, rows // 2))
