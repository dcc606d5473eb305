"""Local regressions on the terms of sites, all of which are neighbors of every place."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.local.kernels import Kernel, log_weights
from locdist.local.metrics import distances
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import WEAK, factored
from locdist.local.tiles import TILE

_NOTHING = 1e-24  # of its mean square: a term that is smaller around a site is 0 there


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
    reached : Tensor [q] bool
        Whether any site has a weight there.
    """

    coefficients: Tensor
    leverage: Tensor
    deficient: Tensor
    reached: Tensor


def regress(sites: Sites, kernel: Kernel, targets: Tensor, places: Tensor | None = None) -> Regression:
    """The local regressions of targets [n, p] on the terms of all sites, at the sites or other places.

    The normal equations of a tile of places are one product, weights [t, n] times products of terms [n, *].
    """
    at, terms = sites.keys if places is None else places, sites.terms
    pairs = (terms[:, :, None] * terms[:, None]).flatten(1)
    size, c, p = terms.square().mean(0), terms.shape[1], targets.shape[1]
    products = torch.cat([pairs, (terms[:, :, None] * targets[:, None]).flatten(1)], 1)
    parts = []
    for start in range(0, max(1, len(at)), TILE):
        weights = log_weights(kernel, sites.around(at[start : start + TILE])).exp_()
        sums, total = weights @ products, weights.sum(1, keepdim=True)
        matrix, right = sums[:, : c * c].reshape(-1, c, c), sums[:, c * c :].reshape(-1, c, p)
        gone = matrix.diagonal(dim1=1, dim2=2) <= _NOTHING * total * size
        matrix = matrix.masked_fill(gone[:, :, None] | gone[:, None], 0.0)
        here = terms[start : start + TILE, :, None] if places is None else right[:, :, :0]
        solved, weak = _solved(matrix, torch.cat([right, here], 2))
        leverage = torch.zeros_like(matrix[:, 0, 0])
        if places is None:
            leverage = weights.diagonal(start) * (here * solved[:, :, -1:]).sum((1, 2))
        parts.append((solved[:, :, :p], leverage, weak, total[:, 0] > 0))
    return Regression(*map(torch.cat, zip(*parts, strict=True)))


def _solved(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    factor, pivot = factored(matrix)
    weak = ~(pivot > WEAK)
    solved = torch.cholesky_solve(right, factor)
    if weak.any():
        inverse = torch.linalg.pinv(matrix[weak], rtol=WEAK, hermitian=True)
        solved[weak] = torch.bmm(inverse, right[weak])
    return solved, weak
