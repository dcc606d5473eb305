"""Models on a covariance of the targets: the local Gaussian process (kriging) and kernel ridge regression.

A covariance says how alike the targets of two rows are, by the distance of their features. It is not the
localization kernel, which says how much a neighbor counts, here by the variance of its noise: the less the
weight the larger, and infinite for a weight of zero. All covariances are 1 at distance 0; variances and
nuggets are multiples of that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.answers import Answers, Status
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
from locdist.local.solve import factored, inverse, offsets

SINGULAR = 1e-13  # a squared pivot that may be rounding
JITTER = 1e-10  # noise, relative to the diagonal, that takes the place of a missing nugget
_MOST = 1e200  # noise whose squares do not overflow

Covariance = Callable[[Tensor], Tensor]


def _rbf(distances: Tensor) -> Tensor:
    return distances.square().mul_(-0.5).exp_()


def _matern12(distances: Tensor) -> Tensor:
    return distances.neg().exp_()


def _matern32(distances: Tensor) -> Tensor:
    scaled = distances * math.sqrt(3)
    return scaled.neg().exp_().mul_(scaled.add_(1))


def _matern52(distances: Tensor) -> Tensor:
    scaled = distances * math.sqrt(5)
    return scaled.neg().exp_().mul_(1 + scaled + scaled.square() / 3)


COVARIANCES: dict[str, Covariance] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
}


@dataclass(frozen=True)
class Likeness:
    """A stationary covariance with a length scale for every feature (ARD).

    With the distance u = |(x - x') / scales| it is exp(-u^2 / 2) for "rbf", exp(-u) for "matern12",
    (1 + a) exp(-a) with a = sqrt(3) u for "matern32", and (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) u for
    "matern52" (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter 4).

    Parameters
    ----------
    name : str
        One of `COVARIANCES`.
    scales : float or sequence of float
        Positive, in units of the features; one number for all features, or one for each.

    Raises
    ------
    UsageError
        For another name, or scales that are not positive and finite.
    """

    name: str = "matern32"
    scales: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        if self.name not in COVARIANCES:
            raise UsageError("a covariance", repr(self.name), did_you_mean(self.name, COVARIANCES))
        given: Sequence[object] = self.scales if isinstance(self.scales, Sequence) else (self.scales,)
        if not given or not all(map(_is_scale, given)):
            expected = "length scales, positive and finite"
            raise UsageError(expected, repr(self.scales), "One for all features, or one for each.")
        scales = tuple(map(float, self.scales)) if isinstance(self.scales, Sequence) else float(self.scales)
        object.__setattr__(self, "scales", scales)

    def scaled(self, hood: Neighborhood, absent: Tensor) -> Tensor:
        """Features [q, k, m] less those of the query, in length scales; 0 where absent [q, k]."""
        assert hood.features is not None
        assert hood.query_features is not None
        rows, m = offsets(hood.features, hood.query_features, absent), hood.features.shape[2]
        if isinstance(self.scales, tuple) and len(self.scales) != m:
            raise UsageError(
                f"{m} length scales, one for each feature", str(len(self.scales)), "One number is for all."
            )
        return rows.div_(torch.tensor(self.scales, dtype=rows.dtype, device=rows.device))

    def __call__(self, distances: Tensor) -> Tensor:
        """The covariance at distances in length scales."""
        return COVARIANCES[self.name](distances)


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


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


def system(likeness: Likeness, hood: Neighborhood, weights: Tensor, noise: Tensor) -> System:
    """The system of every query.

    Parameters
    ----------
    likeness : Likeness
    hood : Neighborhood
    weights : Tensor [q, k]
        Neighbors of weight 0 are absent.
    noise : Tensor [q, k]
        Variance of each neighbor's noise, >= 0; anything where absent.
    """
    absent = weights == 0
    rows = likeness.scaled(hood, absent)
    # differences, not products: a product loses half the digits of small distances
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    matrix = likeness(apart)
    cross = likeness(torch.linalg.vector_norm(rows, dim=2)).masked_fill_(absent, 0.0)
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

    With K the covariance of the neighbors, c theirs with the query, A = K + diag(noise) and a constant mean,
    estimated by generalized least squares in each neighborhood (ordinary kriging),

        s = A^-1 (c + 1 (1 - 1'A^-1 c) / 1'A^-1 1),   value = s'y
        spread^2 = variance (1 - c'A^-1 c + (1 - 1'A^-1 c)^2 / 1'A^-1 1)

    With mean "zero" the terms of the constant are missing, and constants are not reproduced. The spread is
    the posterior's standard deviation of the noiseless function. The noise of neighbor j is
    nugget max(K_h) / K_h(j), with the localization kernel K_h, over the row's weight: with a uniform kernel
    it is the nugget. Where A is singular (equal rows, or very long scales, and no nugget) the value is the
    limit for a small nugget, which averages equal rows; the status is RANK_DEFICIENT.

    Parameters
    ----------
    likeness : Likeness
    nugget : float
        Variance of the noise, >= 0, relative to the process.
    mean : {"constant", "zero"}
    variance : float, optional
        Of the process, positive, in squared units of the target. By default it is estimated in each
        neighborhood, as e'A^-1 e over the degrees of freedom, e = y - mean.
    """

    likeness: Likeness = Likeness()
    nugget: float = 0.01
    mean: str = "constant"
    variance: float | None = None
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "nugget", penalty(self.nugget))
        if self.mean not in ("constant", "zero"):
            raise UsageError("a mean of 'constant' or 'zero'", repr(self.mean), "'constant' is estimated.")
        if self.variance is not None and not 0 < self.variance < math.inf:
            raise UsageError("a positive variance", repr(self.variance), "None estimates it.")

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        targets = known_targets(hood, weights)
        parts = system(self.likeness, hood, weights, self.nugget / _relative(hood, weights))
        one = (~parts.absent).to(weights.dtype)[:, :, None]
        both = parts.solve(torch.cat([parts.cross, one], 2))
        direction, ones = both[:, :, :1], both[:, :, 1:]
        missing, total = 1 - (one * direction).sum(1), (one * ones).sum(1)  # [q, 1]: of the constant
        mend = missing / total if self.mean == "constant" else torch.zeros_like(total)
        rows = (direction[:, :, 0] + mend * ones[:, :, 0]).masked_fill_(parts.absent, 0.0)
        values = weighted_sums(rows, targets)
        singular = flagged(parts.singular, Status.RANK_DEFICIENT)
        answers = answered(values, rows, singular, hood, weights, want)
        if want & {"spread", "coefficients"}:
            left = 1 - (parts.cross * direction).sum(1) + mend * missing
            variance = self._variance(parts, targets, ones / total[:, :, None])
            spread = (variance * left.clamp_(min=0)).sqrt()[:, None]
            answers = with_errors(answers, values[:, None], spread, want)
        return valued(answers)

    def _variance(self, parts: System, targets: Tensor, averaging: Tensor) -> Tensor:
        if self.variance is not None:
            return torch.full_like(targets[:, 0], self.variance)
        count = (~parts.absent).sum(1, keepdim=True)
        rest = targets
        if self.mean == "constant":
            rest = (targets - torch.bmm(averaging.mT, targets)).masked_fill(parts.absent[:, :, None], 0.0)
            count = count - 1
        energy = (rest * parts.solve(rest)).sum(1)
        return energy / count.to(rest.dtype).masked_fill(count == 0, float("nan"))

    def columns(self, k: int, m: int) -> int:
        return max(k, m)


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

    likeness: Likeness = Likeness("rbf")
    ridge: float = 0.01
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        targets, noise = known_targets(hood, weights), self.ridge / weights
        parts = system(self.likeness, hood, weights, noise)
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
