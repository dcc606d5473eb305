"""How the targets of the neighbors are distributed: their mode, quantiles, and variance around the mean."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.models import (
    FREE,
    LocalModel,
    answered,
    each_target,
    flagged,
    known_targets,
    standard_error,
    valued,
    weighted_sums,
    with_errors,
)
from locdist.local.neighborhood import Neighborhood

LEVEL = 1e-12  # weights that add up to a level but for this are that level


@dataclass(frozen=True)
class Vote(LocalModel):
    """The local mode: the probability of each class is the sum of the weights of its neighbors.

    The label is the argmax, which breaks ties towards the smaller code. Codes of neighbors with a weight must
    lie in [0, classes).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"codes"})

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.targets is not None
        codes = hood.targets[:, :, 0].masked_fill(weights == 0, 0)
        chances = weights.new_zeros(len(weights), hood.classes).scatter_add_(1, codes, weights)
        chances.clamp_(max=1.0)  # many weights of one class may add up to an ulp more
        certain = torch.zeros(len(weights), dtype=torch.int8, device=weights.device)
        answers = answered(chances, weights, certain, hood, weights, want)
        if want & {"spread", "coefficients"}:
            square = weights.square().sum(1, keepdim=True)
            spread = standard_error(chances * (1 - chances), 1 - square, square)
            answers = with_errors(answers, chances[:, None], spread[:, None], want)
        return valued(answers)


@dataclass(frozen=True)
class Quantile(LocalModel):
    """Weighted quantiles of each target: with the level a, what minimises sum_j w_j r_a(y_j - t) over t.

    r_a(e) = e (a - [e < 0]) is the check loss (Koenker and Bassett, Regression Quantiles, Econometrica 46,
    1978). A minimum is the smallest target that has a share of at least a at or below it; where that share is
    a itself, every value up to the next target is a minimum, and their midpoint is taken. So the median of an
    even number of equal weights is the one that everybody knows.

    Parameters
    ----------
    levels : sequence of float
        Between 0 and 1.

    Raises
    ------
    UsageError
        If a level is none.
    """

    levels: tuple[float, ...] = (0.5,)
    needs: ClassVar[frozenset[str]] = frozenset({"targets"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})

    def __post_init__(self) -> None:
        levels: tuple[object, ...] = self.levels  # whatever users passed
        if not levels or not all(isinstance(each, float) and 0 < each < 1 for each in levels):
            raise UsageError("levels between 0 and 1", repr(self.levels), "0.5 is the median.")

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        if len(self.levels) == 1:
            return each_target("prediction", targets)
        return tuple(name for level in self.levels for name in each_target(f"quantile_{level:g}", targets))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        targets = known_targets(hood, weights)
        places = [_places(targets, weights, level) for level in self.levels]
        ends = [targets.gather(1, each) for each in places]
        spoiled = ~targets.isfinite().all(1)
        values = torch.cat([each.mean(1).masked_fill(spoiled, float("nan")) for each in ends], 1)
        rows = torch.zeros_like(weights).scatter_add_(1, places[0][:, :, 0], torch.full_like(weights, 0.5))
        certain = torch.zeros(len(weights), dtype=torch.int8, device=weights.device)
        return valued(answered(values, rows, certain, hood, weights, want))


def _places(targets: Tensor, weights: Tensor, level: float) -> Tensor:
    # [q, 2, p]: the neighbors whose targets are the first and the last minimum
    absent = (weights == 0)[:, :, None]
    order = targets.masked_fill(absent, float("inf")).argsort(dim=1, stable=True)
    shares = weights[:, :, None].expand_as(targets).gather(1, order).cumsum(1)
    last = (~absent).sum(1).sub_(1).clamp_(min=0)
    ends = [(shares < level - LEVEL).sum(1), (shares <= level + LEVEL).sum(1)]
    ranks = torch.stack([torch.minimum(end, last) for end in ends], 1)
    return order.gather(1, ranks)


@dataclass(frozen=True)
class Variance(LocalModel):
    """The local mean m = sum_j w_j y_j and the variance sum_j w_j (y_j - m)^2 around it.

    With the Gaussian likelihood these are what a local model of a mean and a variance is fitted to. Where the
    variance has no estimate, because one neighbor counts alone, the mean stays and the status is
    RANK_DEFICIENT.

    Parameters
    ----------
    unbiased : bool
        Divide by 1 - sum_j w_j^2: then the expectation is the variance of the targets when all have the same
        mean and variance, and the weights are not precisions. With equal weights that is the division by
        n - 1.
    """

    unbiased: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"targets"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        return each_target("prediction", targets) + each_target("variance", targets)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        targets = known_targets(hood, weights)
        mean = weighted_sums(weights, targets)
        variance = weighted_sums(weights, (targets - mean[:, None]).square())
        freedom = 1 - weights.square().sum(1, keepdim=True)
        lost = (freedom <= FREE) & self.unbiased
        if self.unbiased:
            variance = variance / freedom.masked_fill(lost, float("nan"))
        alone = flagged(lost[:, 0], Status.RANK_DEFICIENT)
        answers = answered(mean, weights, alone, hood, weights, want)
        return valued(replace(answers, values=torch.cat([mean, variance], 1)))
