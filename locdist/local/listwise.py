"""What geographically weighted regression lists of every site: coefficients, and how far to trust them."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers
from locdist.local.glm import GeneralizedLinear, fitted
from locdist.local.models import Linear, LocalModel, known_targets, weighted_sums
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import design, offsets, solve


@dataclass(frozen=True)
class Listwise(LocalModel):
    """The coefficients of a local (generalized) linear model with an intercept where all features are 0.

    Values are, with m features: the value at the query [1]; intercept and slopes [1 + m]; their variances, as
    multiples of the targets' variance for `Linear` [1 + m]; the condition number of the weighed design
    W [1, X] whose columns have length one (Belsley, Kuh, Welsch, *Regression Diagnostics*, 1980) [1]; and the
    variance inflation factors, the diagonal of the inverse of the weighed correlations [m] (Wheeler and
    Tiefelsdorf, Journal of Geographical Systems 7, 2005).

    Parameters
    ----------
    model : Linear or GeneralizedLinear
        Of one target.
    origin : tuple of float
        The features [m], as they are scaled, of a site where they are all 0.
    """

    model: Linear | GeneralizedLinear
    origin: tuple[float, ...]
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})

    @property
    def offsets(self) -> bool:
        """Whether offsets are added to a linear predictor."""
        return self.model.offsets

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.features is not None
        assert hood.query_features is not None
        near = offsets(hood.features, hood.query_features, weights == 0)
        base = weights.new_tensor(self.origin) - hood.query_features.double()
        answers = self.model.predict(hood, weights, want)
        told = [*self._coefficients(hood, near, base, weights), _condition(near, base, weights)]
        return replace(answers, values=torch.cat([answers.values, *told, _inflation(near, weights)], 1))

    def _coefficients(
        self, hood: Neighborhood, near: Tensor, base: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Coefficients and their variances [q, 1 + m]."""
        targets = known_targets(hood, weights)
        if isinstance(self.model, Linear):
            solution = solve(design(near, torch.zeros_like(base), weights), self.model.ridge, True)
            assert solution.operator is not None
            moved = _moved(torch.cat([solution.smoother[:, None], solution.operator], 1), base)
            return torch.bmm(moved, targets)[:, :, 0], moved.square().sum(2)
        problem = self.model.problem(hood, near, targets[:, :, 0], weights)
        fit = fitted(problem, frozenset({"coefficients"}))
        assert fit.operator is not None
        assert fit.variances is not None
        moved = _moved(fit.operator, base)
        spread = (moved.square() * fit.variances[:, None]).sum(2).masked_fill(fit.edge[:, None], float("nan"))
        return _moved(fit.beta[:, :, None], base)[:, :, 0], spread


def _moved(operator: Tensor, base: Tensor) -> Tensor:
    """Rows for the value at the query and the slopes [q, 1 + m, k], the first moved by `base` [q, m]."""
    first = operator[:, :1] + torch.bmm(base[:, None], operator[:, 1:])
    return torch.cat([first, operator[:, 1:]], 1)


def _condition(near: Tensor, base: Tensor, weights: Tensor) -> Tensor:
    """[q, 1]"""
    rows = torch.cat([torch.ones_like(weights)[:, :, None], near - base[:, None]], 2) * weights[:, :, None]
    unit = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    known = unit.isfinite().all(2).all(1)
    sizes = torch.linalg.svdvals(unit.where(known[:, None, None], 1.0))
    ratio: Tensor = sizes[:, :1] / sizes[:, -1:]
    return ratio.where(known[:, None], float("nan"))


def _inflation(near: Tensor, weights: Tensor) -> Tensor:
    """[q, m]"""
    rows = near - weighted_sums(weights, near)[:, None]
    covariance = torch.bmm(rows.mT * weights[:, None], rows)
    deviation = covariance.diagonal(dim1=1, dim2=2).sqrt()
    correlation = covariance / deviation[:, :, None] / deviation[:, None]
    inverse, info = torch.linalg.inv_ex(correlation)
    factors: Tensor = inverse.diagonal(dim1=1, dim2=2)
    return factors.masked_fill(info[:, None] != 0, float("inf"))
