"""Distributions of a target given its linear predictor, each with the link that makes its loss convex."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


class Family(ABC):
    """A distribution of the target given the linear predictor eta."""

    dispersed: ClassVar[bool] = False  # whether the variance has a factor that is estimated

    @abstractmethod
    def inside(self, targets: Tensor) -> Tensor:
        """Which targets the family can have, [.] bool."""

    @abstractmethod
    def link(self, mean: Tensor) -> Tensor:
        """The linear predictor of a mean; infinite at the edge of the range."""

    @abstractmethod
    def mean(self, eta: Tensor) -> Tensor:
        """The mean of a linear predictor."""

    @abstractmethod
    def gain(self, eta: Tensor) -> Tensor:
        """The derivative of the mean."""

    @abstractmethod
    def information(self, eta: Tensor) -> Tensor:
        """The expected curve."""

    @abstractmethod
    def loss(self, eta: Tensor, targets: Tensor) -> Tensor:
        """The negative log-likelihood, less terms without eta."""

    @abstractmethod
    def slope(self, eta: Tensor, targets: Tensor) -> Tensor:
        """The derivative of the loss by eta."""

    @abstractmethod
    def deviance(self, mean: Tensor, targets: Tensor) -> Tensor:
        """Twice the log-likelihood that a target loses against a mean that is the target."""

    @abstractmethod
    def curve(self, eta: Tensor, targets: Tensor) -> Tensor:
        """The second derivative of the loss by eta, positive."""

    def derivatives(self, eta: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """`slope` and `curve`, for less where they share something."""
        return self.slope(eta, targets), self.curve(eta, targets)


@dataclass(frozen=True)
class Bernoulli(Family):
    """Yes (1) or no (0), or a share between; logit link."""

    def inside(self, targets: Tensor) -> Tensor:
        return (targets >= 0) & (targets <= 1)

    def link(self, mean: Tensor) -> Tensor:
        return torch.logit(mean)

    def mean(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta)

    def gain(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta) * torch.sigmoid(-eta)

    def information(self, eta: Tensor) -> Tensor:
        return self.gain(eta)

    def loss(self, eta: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.softplus(eta, threshold=40) - targets * eta

    def slope(self, eta: Tensor, targets: Tensor) -> Tensor:
        return torch.sigmoid(eta) - targets

    def deviance(self, mean: Tensor, targets: Tensor) -> Tensor:
        return 2 * (_lost(mean, targets) + _lost(1 - mean, 1 - targets))

    def curve(self, eta: Tensor, targets: Tensor) -> Tensor:
        return self.derivatives(eta, targets)[1]

    def derivatives(self, eta: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.sigmoid(eta)
        return share - targets, share * (1 - share)  # without the digits of tiny ones, which steer no step


@dataclass(frozen=True)
class Poisson(Family):
    """Counts of 0 or more, or rates; logarithmic link."""

    def inside(self, targets: Tensor) -> Tensor:
        return (targets >= 0) & targets.isfinite()

    def link(self, mean: Tensor) -> Tensor:
        return mean.log()

    def mean(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def gain(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def information(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def loss(self, eta: Tensor, targets: Tensor) -> Tensor:
        return eta.exp() - targets * eta

    def slope(self, eta: Tensor, targets: Tensor) -> Tensor:
        return eta.exp() - targets

    def deviance(self, mean: Tensor, targets: Tensor) -> Tensor:
        return 2 * (_lost(mean, targets) - (targets - mean))

    def curve(self, eta: Tensor, targets: Tensor) -> Tensor:
        return eta.exp()


@dataclass(frozen=True)
class Gamma(Family):
    """Positive amounts whose standard deviation grows with their mean; logarithmic link.

    The spread has a dispersion, from the Pearson residuals.
    """

    dispersed: ClassVar[bool] = True

    def inside(self, targets: Tensor) -> Tensor:
        return (targets > 0) & targets.isfinite()

    def link(self, mean: Tensor) -> Tensor:
        return mean.log()

    def mean(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def gain(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def information(self, eta: Tensor) -> Tensor:
        return torch.ones_like(eta)

    def loss(self, eta: Tensor, targets: Tensor) -> Tensor:
        return targets * eta.neg().exp() + eta

    def slope(self, eta: Tensor, targets: Tensor) -> Tensor:
        return 1 - self.curve(eta, targets)

    def deviance(self, mean: Tensor, targets: Tensor) -> Tensor:
        return 2 * ((targets - mean) / mean - (targets / mean).log())

    def curve(self, eta: Tensor, targets: Tensor) -> Tensor:
        return targets * eta.neg().exp()


def _lost(mean: Tensor, targets: Tensor) -> Tensor:
    # y log(y / mean), 0 where the target is 0
    return torch.xlogy(targets, targets) - torch.xlogy(targets, mean)
