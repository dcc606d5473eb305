"""Local linear fits of rows of a support by sums over all of its rows: quick where many of them count.

With P the products of a row's terms z = (1, features) with each other and with its target, the normal
equations of all queries are one matrix product, kernel weights [q, n] times P [n, c]. Only the value and the
weight of a row in its own value are asked, for criteria that compare bandwidths: the products are of features
that are standardized over all rows, not centred at each query, and lose digits where these hardly vary.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from locdist.local.kernels import Kernel, log_weights
from locdist.local.metrics import distances
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import WEAK, factored


@dataclass(frozen=True)
class Everyone:
    """All rows of a support.

    Attributes
    ----------
    keys : Tensor [n, d]
    features : Tensor [n, m]
    targets : Tensor [n]
    weights : Tensor [n], optional
    metric : str
    """

    keys: Tensor
    features: Tensor
    targets: Tensor
    weights: Tensor | None = None
    metric: str = "l2"

    @cached_property
    def _terms(self) -> Tensor:
        """Z [n, 1 + m]."""
        features = self.features.double()
        scale = features.std(0, correction=0)
        features = (features - features.mean(0)) / scale.where(scale > 0, 1.0)
        return torch.cat([torch.ones_like(features[:, :1]), features], 1)

    @cached_property
    def _products(self) -> Tensor:
        """P [n, (1 + m) (2 + m)]: with each other, then with the target."""
        terms = self._terms
        pairs = (terms[:, :, None] * terms[:, None]).flatten(1)
        return torch.cat([pairs, terms * self.targets.double()[:, None]], 1)

    def around(self, rows: Tensor) -> Neighborhood:
        """All rows as neighbors of some of them, in the order of their ids."""
        at = self.keys[rows].double()
        away = distances(at, self.keys, self.metric)
        ids = torch.arange(len(self.keys)).expand_as(away)
        weights = None if self.weights is None else self.weights.expand_as(away)
        return Neighborhood(away, ids, at, row_weights=weights)

    def fitted(self, kernel: Kernel, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, leverages, effective numbers of neighbors of some rows [q]; nan where digits are lost."""
        raw = log_weights(kernel, self.around(rows)).exp_()
        width = self._terms.shape[1]
        sums = raw @ self._products
        matrix, right = sums[:, : width**2].reshape(-1, width, width), sums[:, width**2 :]
        factor, pivot = factored(matrix)
        here = self._terms[rows][:, :, None]
        solved = torch.cholesky_solve(torch.cat([right[:, :, None], here], 2), factor)
        told = (here * solved).sum(1)  # z'b and z'A^-1 z
        own = raw.gather(1, rows[:, None])[:, 0]
        effective = matrix[:, 0, 0].square() / raw.square().sum(1)
        weak = ~(pivot > WEAK)
        return (
            told[:, 0].masked_fill(weak, torch.nan),
            (own * told[:, 1]).masked_fill(weak, torch.nan),
            effective,
        )
