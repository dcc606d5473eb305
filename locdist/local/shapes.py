"""Kernels of a distance: how much each neighbor counts.

A kernel gives the logarithm of a weight, because only ratios matter: subtracting the largest logarithm keeps
a query far from all its neighbors from dividing zero by zero. With the reduced distance u = d / h, h the
bandwidth, the kernels are those of the literature (Wand and Jones, Kernel Smoothing, 1995, table 2.1), up to
constants that normalization removes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.bandwidths import NEAREST, Bandwidth, Nearest, SamplePoint, parse_bandwidth, positive
from locdist.local.neighborhood import Neighborhood

LOWEST = torch.finfo(torch.float64).min  # finite, so that -inf less it is -inf and not nan


@dataclass(frozen=True)
class Kernel(ABC):
    """A weight for each neighbor.

    Parameters
    ----------
    bandwidth : float, Nearest or SamplePoint
        h, in units of the true distance. Also taken: what `parse_bandwidth` takes.

    Raises
    ------
    UsageError
        If the bandwidth is not positive and finite.
    """

    bandwidth: Bandwidth = NEAREST
    name: ClassVar[str]
    absolute: ClassVar[bool] = True  # whether small weights say that a query is far from everybody

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", parse_bandwidth(self.bandwidth))

    @property
    def needs(self) -> frozenset[str]:
        """What an index must gather besides distances."""
        return frozenset({self.bandwidth.need}) if isinstance(self.bandwidth, SamplePoint) else frozenset()

    @property
    def adaptive(self) -> bool:
        """Whether the bandwidth depends on the neighbors."""
        return not isinstance(self.bandwidth, float)

    def shape(self, key: Sequence[str]) -> tuple[str, ...]:
        """Names of the numbers that each row has for it, given those of the columns of the key."""
        return ()

    @abstractmethod
    def log_weights(self, hood: Neighborhood) -> Tensor:
        """Logarithms of the raw weights, [q, k] float64; -inf is no weight.

        Entries of missing neighbors may hold anything.
        """

    def log_integral(self, d: int) -> float:
        """Logarithm of the integral over d dimensions of the raw weight of the distance to a point, h = 1."""
        raise UsageError("a kernel with an integral", repr(self.name), "Choose one of distances.")

    def log_volume(self, hood: Neighborhood) -> Tensor:
        """The same with the bandwidth of each query, [q] float64."""
        assert hood.queries is not None
        d, nothing = hood.queries.shape[1], hood.distances.new_zeros(len(hood.ids), dtype=torch.float64)
        if isinstance(self.bandwidth, SamplePoint):  # whose weights have the bandwidths in them
            return nothing + self.log_integral(d)
        if not isinstance(self.bandwidth, Nearest):
            return nothing + (self.log_integral(d) + d * math.log(self.bandwidth))
        return self.log_integral(d) + d / 2 * self.bandwidth.square(hood)[:, 0].log()

    def squares(self, hood: Neighborhood) -> Tensor:
        """u^2 = (d / h)^2, [q, k] float64."""
        distances = hood.distances.double()
        if isinstance(self.bandwidth, SamplePoint):
            return distances / self.bandwidth.square(hood)
        if not isinstance(self.bandwidth, Nearest):
            return distances * self.bandwidth**-2
        square = self.bandwidth.square(hood)
        # where the last distance is 0, dividing by inf makes every u 0
        return distances / square.masked_fill_(square == 0, float("inf"))


def _compact(d: int, inner: float, outer: float) -> float:
    # of (1 - u^inner)^outer, by the beta function
    parts = math.lgamma(d / inner) + math.lgamma(outer + 1) - math.lgamma(d / inner + outer + 1)
    return _sphere(d) - math.log(inner) + parts


def _sphere(d: int) -> float:
    # logarithm of the surface of the ball of radius 1
    return math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)


@dataclass(frozen=True)
class Uniform(Kernel):
    """1 for u <= 1: with `Nearest()` the plain mean of the neighbors."""

    name: ClassVar[str] = "uniform"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        squares = self.squares(hood)
        return torch.zeros_like(squares).masked_fill_(squares > 1, float("-inf"))

    def log_integral(self, d: int) -> float:
        return _compact(d, 1, 0)


@dataclass(frozen=True)
class Triangular(Kernel):
    """1 - u for u < 1."""

    name: ClassVar[str] = "triangular"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).clamp_(max=1).sqrt_().neg_().log1p_()

    def log_integral(self, d: int) -> float:
        return _compact(d, 1, 1)


@dataclass(frozen=True)
class Epanechnikov(Kernel):
    """1 - u^2 for u < 1."""

    name: ClassVar[str] = "epanechnikov"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).clamp_(max=1).neg_().log1p_()

    def log_integral(self, d: int) -> float:
        return _compact(d, 2, 1)


@dataclass(frozen=True)
class Biweight(Kernel):
    """(1 - u^2)^2 for u < 1, also called bisquare."""

    name: ClassVar[str] = "biweight"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).clamp_(max=1).neg_().log1p_().mul_(2)

    def log_integral(self, d: int) -> float:
        return _compact(d, 2, 2)


@dataclass(frozen=True)
class Tricube(Kernel):
    """(1 - u^3)^3 for u < 1 (Cleveland, 1979)."""

    name: ClassVar[str] = "tricube"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        squares = self.squares(hood).clamp_(max=1)
        return squares.mul_(squares.sqrt()).neg_().log1p_().mul_(3)

    def log_integral(self, d: int) -> float:
        return _compact(d, 3, 3)


@dataclass(frozen=True)
class Gaussian(Kernel):
    """exp(-u^2 / 2): h is the standard deviation."""

    name: ClassVar[str] = "gaussian"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).mul_(-0.5)

    def log_integral(self, d: int) -> float:
        return d / 2 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Laplace(Kernel):
    """exp(-u), also called exponential."""

    name: ClassVar[str] = "laplace"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).sqrt_().neg_()

    def log_integral(self, d: int) -> float:
        return _sphere(d) + math.lgamma(d)


@dataclass(frozen=True)
class DotProduct(Kernel):
    """exp(score / h), the softmax of attention.

    It goes with the metric "ip" only, whose distances are minus the scores.

    Parameters
    ----------
    bandwidth : float
        The temperature h; sqrt(d) in scaled dot-product attention.
    """

    bandwidth: Bandwidth = 1.0
    name: ClassVar[str] = "dot-product"
    absolute: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", positive(self.bandwidth, "a positive temperature"))

    def log_weights(self, hood: Neighborhood) -> Tensor:
        assert isinstance(self.bandwidth, float)
        return hood.distances.double() / -self.bandwidth
