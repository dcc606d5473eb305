"""Models on a covariance of the targets: the local Gaussian process (kriging) and kernel ridge regression.

The covariance is not the localization kernel, which says how much a neighbor counts, here by the variance
of its noise: the less the weight the larger, and infinite for a weight of zero. All covariances are 1 at
distance 0; variances and nuggets are multiples of that.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.likeness import Likeness
from locdist.local.models import (
    LocalModel,
    answered,
    flagged,
    known_targets,
    penalty,
    standard_error,
    valued,
    weighted_sums,
    with_errors,
)
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import factored, inverse

SINGULAR = 1e-13  # a squared pivot that may be rounding
JITTER = 1e-10  # noise, relative to the diagonal, that takes the place of a missing nugget
_MOST = 1e200  # noise whose squares do not overflow
_TOGETHER = 2 << 20  # bytes of the matrices that are factored together: they stay in the cache


@dataclass(frozen=True)
class Prior:
    """The covariance of the targets around a query: a stationary part, a constant, and slopes.

    With z the features less those of the query in length scales, it is
    K(x, x') = likeness(|z - z'|) + constant + linear z'z'.

    Parameters
    ----------
    likeness : Likeness
    constant, linear : float
        >= 0: variances of the local mean and of each local slope, relative to the stationary part.
    """

    likeness: Likeness = field(default_factory=Likeness)
    constant: float = 0.0
    linear: float = 0.0

    def __post_init__(self) -> None:
        for name in ("constant", "linear"):
            object.__setattr__(self, name, penalty(getattr(self, name)))


@dataclass(frozen=True)
class System:
    """The factored covariance of the neighbors' noisy targets.

    Attributes
    ----------
    factor : Tensor [q, k, k]
        Cholesky factor of K + noise; unconnected where a neighbor is absent.
    pivot : Tensor [q]
    cross : Tensor [q, k, 1]
        Covariance of the neighbors with the query; 0 where absent.
    absent : Tensor [q, k] bool
    singular : Tensor [q] bool
        Where K + noise had no inverse, and a little more noise took its place.
    """

    factor: Tensor
    pivot: Tensor
    cross: Tensor
    absent: Tensor
    singular: Tensor

    def solve(self, right: Tensor) -> Tensor:
        """(K + noise)^-1 of [q, k, r]."""
        return torch.cholesky_solve(right, self.factor)


def system(prior: Prior, hood: Neighborhood, weights: Tensor, noise: Tensor) -> System:
    """The system of every query.

    Parameters
    ----------
    prior : Prior
    hood : Neighborhood
    weights : Tensor [q, k]
        Neighbors of weight 0 are absent.
    noise : Tensor [q, k]
        Variance of each neighbor's noise, >= 0; anything where absent.
    """
    absent, likeness = weights == 0, prior.likeness
    rows = likeness.scaled(hood, absent)
    # differences, not products: a product loses half the digits of small distances
    matrix = likeness(torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist"))
    cross = likeness(torch.linalg.vector_norm(rows, dim=2))
    if prior.linear:
        matrix.baddbmm_(rows, rows.mT, alpha=prior.linear)
    if prior.constant:
        matrix += prior.constant
        cross += prior.constant
    if absent.any():
        cross.masked_fill_(absent, 0.0)
        matrix.masked_fill_(absent[:, :, None] | absent[:, None], 0.0)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    diagonal += torch.where(absent, 1.0, noise.clamp(max=_MOST))
    factor, pivot = factored(matrix)
    singular = ~(pivot > SINGULAR)
    if singular.any():
        diagonal += JITTER * diagonal * singular[:, None]
        factor, pivot = factored(matrix)
    return System(factor, pivot, cross[:, :, None], absent, singular)


@dataclass(frozen=True)
class GaussianProcess(LocalModel):
    """The posterior of a Gaussian process at the query, given its neighbors: kriging.

    With K the prior's covariance of the neighbors, c theirs with the query, v that of the query with itself,
    A = K + diag(noise) and a constant mean, estimated by generalized least squares in each neighborhood
    (ordinary kriging),

        s = A^-1 (c + 1 (1 - 1'A^-1 c) / 1'A^-1 1),   value = s'y
        spread^2 = variance (v - c'A^-1 c + (1 - 1'A^-1 c)^2 / 1'A^-1 1)

    With a known mean (a number, "zero" is 0) the terms of the constant are missing, the value is
    mean + s'(y - mean), and constants are not reproduced. The spread is the posterior's standard deviation of
    the noiseless function; `predictive` adds the nugget, for a new target. The noise of neighbor j is
    nugget max(K_h) / K_h(j), with the localization kernel K_h, over the row's weight: with a uniform kernel
    it is the nugget. Where A is singular (equal rows, or very long scales, and no nugget) the value is the
    limit for a small nugget, which averages equal rows; the status is RANK_DEFICIENT.

    Parameters
    ----------
    prior : Prior
    nugget : float
        Variance of the noise, >= 0, relative to the process.
    mean : {"constant", "zero"} or float
    variance : float, optional
        Of the process, in squared units of the target: positive, or 0 where `adaptive` is positive. By
        default it is estimated in each neighborhood.
    adaptive : float, optional
        This multiple of the estimate in the neighborhood, e'A^-1 e over its degrees of freedom with
        e = y - mean, is added to the variance; >= 0. 0 where a variance is given, otherwise 1.
    predictive : bool
    """

    prior: Prior = Prior()
    nugget: float = 0.01
    mean: str | float = "constant"
    variance: float | None = None
    adaptive: float | None = None
    predictive: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})
    traced: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "nugget", penalty(self.nugget))
        mean: object = self.mean
        if mean not in ("constant", "zero"):
            if isinstance(mean, bool | str) or not (isinstance(mean, int | float) and math.isfinite(mean)):
                raise UsageError(
                    "a mean of 'constant', 'zero' or a number", repr(mean), "'constant' is estimated."
                )
            object.__setattr__(self, "mean", float(mean))
        variance, adaptive = self.parts
        if not (0 <= variance < math.inf and 0 <= adaptive < math.inf and variance + adaptive > 0):
            given = f"variance={self.variance!r}, adaptive={self.adaptive!r}"
            raise UsageError("a positive variance", given, "None estimates it in each neighborhood.")

    @property
    def parts(self) -> tuple[float, float]:
        """The given variance, and the multiple of the estimate that is added to it."""
        if self.variance is None:
            return 0.0, 1.0 if self.adaptive is None else self.adaptive
        return self.variance, self.adaptive or 0.0

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        return Answers.concatenate([self._answers(*block, want) for block in _blocks(hood, weights)])

    def _answers(self, hood: Neighborhood, weights: Tensor, want: frozenset[str]) -> Answers:
        targets = known_targets(hood, weights)
        parts = system(self.prior, hood, weights, self.nugget / _relative(hood, weights))
        rows, direction, averaging, mended = self._posterior(parts)
        known = float(self.mean) if isinstance(self.mean, float) else 0.0
        values = weighted_sums(rows, targets) + known * (1 - rows.sum(1, keepdim=True))
        singular = flagged(parts.singular, Status.RANK_DEFICIENT)
        answers = answered(values, rows, singular, hood, weights, want)
        if want & {"spread", "coefficients"}:
            own = 1 + self.prior.constant + self.predictive * self.nugget
            left = own - (parts.cross * direction).sum(1) + mended
            variance = self._variance(parts, targets - known, averaging)
            spread = (variance * left.clamp_(min=0)).sqrt()[:, None]
            answers = with_errors(answers, values[:, None], spread, want)
        return valued(answers)

    def _posterior(self, parts: System) -> tuple[Tensor, Tensor, Tensor | None, Tensor | float]:
        """The smoother [q, k], A^-1 c [q, k, 1], the smoother of the constant [q, k, 1] (None where the mean
        is known), and what not knowing it adds to the variance [q, 1].
        """
        if self.mean != "constant":
            direction = parts.solve(parts.cross)
            return direction[:, :, 0].masked_fill(parts.absent, 0.0), direction, None, 0.0
        one = (~parts.absent).to(parts.cross.dtype)[:, :, None]
        both = parts.solve(torch.cat([parts.cross, one], 2))
        direction, ones = both[:, :, :1], both[:, :, 1:]
        missing, total = 1 - (one * direction).sum(1), (one * ones).sum(1)  # [q, 1]: of the constant
        averaging = ones / total[:, :, None]
        rows = (direction + missing[:, :, None] * averaging)[:, :, 0].masked_fill_(parts.absent, 0.0)
        return rows, direction, averaging, missing.square() / total

    def _variance(self, parts: System, targets: Tensor, averaging: Tensor | None) -> Tensor:
        given, multiple = self.parts
        if not multiple:
            return torch.full_like(targets[:, 0], given)
        count = (~parts.absent).sum(1, keepdim=True)
        if averaging is not None:
            targets = targets - torch.bmm(averaging.mT, targets)
            count = count - 1
        rest = targets.masked_fill(parts.absent[:, :, None], 0.0)
        energy = (rest * parts.solve(rest)).sum(1)
        return given + multiple * energy / count.to(rest.dtype).masked_fill(count == 0, float("nan"))

    def columns(self, k: int, m: int) -> int:
        return max(k, m)


def _blocks(hood: Neighborhood, weights: Tensor) -> Iterator[tuple[Neighborhood, Tensor]]:
    """Queries of a tile that are solved together."""
    q, k = weights.shape
    size = max(16, _TOGETHER // (8 * k * k))
    for start in range(0, q, size):
        block = slice(start, start + size)
        yield hood.rows(block), weights[block]


def _relative(hood: Neighborhood, weights: Tensor) -> Tensor:
    # precision of each target: its row's weight times the kernel, which is 1 where it is largest
    rows = weights.new_ones(()) if hood.row_weights is None else hood.row_weights.to(weights.dtype)
    kernel = (weights / rows).masked_fill(weights == 0, 0.0)
    return kernel / kernel.amax(1, keepdim=True) * rows


@dataclass(frozen=True)
class KernelRidge(LocalModel):
    """Kernel ridge regression on the neighborhood.

    Minimises sum_j w_j (y_j - f(x_j))^2 + ridge |f|^2 over the functions of the covariance's Hilbert space,
    that is value = c'(K + ridge W^-1)^-1 y. The spread is that of a linear smoother: sigma2 sum_j s_j^2 with
    sigma2 from the residuals of the fit at the neighbors.

    Parameters
    ----------
    likeness : Likeness
    ridge : float
        >= 0, relative to weights that sum to one: the alpha of `sklearn.kernel_ridge.KernelRidge` fitted with
        `sample_weight=weights`. With 0 the targets are interpolated.
    """

    likeness: Likeness = field(default_factory=lambda: Likeness("rbf"))
    ridge: float = 0.01
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})
    traced: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        return Answers.concatenate([self._answers(*block, want) for block in _blocks(hood, weights)])

    def _answers(self, hood: Neighborhood, weights: Tensor, want: frozenset[str]) -> Answers:
        targets, noise = known_targets(hood, weights), self.ridge / weights
        parts = system(Prior(self.likeness), hood, weights, noise)
        rows = parts.solve(parts.cross)[:, :, 0].masked_fill_(parts.absent, 0.0)
        values = weighted_sums(rows, targets)
        singular = flagged(parts.singular, Status.RANK_DEFICIENT)
        answers = answered(values, rows, singular, hood, weights, want)
        if want & {"spread", "coefficients"}:
            # the residuals are noise times the dual values A^-1 y
            noise = noise.masked_fill(parts.absent, 0.0)[:, :, None]
            misses = noise * inverse(parts.factor, parts.pivot)
            variance = weighted_sums(weights, torch.bmm(misses, targets).square())
            freedom = (weights * misses.square().sum(2)).sum(1, keepdim=True)
            squares = rows.square().sum(1, keepdim=True)
            errors = standard_error(variance, freedom, squares)[:, None]
            answers = with_errors(answers, values[:, None], errors, want)
        return valued(answers)

    def columns(self, k: int, m: int) -> int:
        return max(k, m)
