"""How much each neighbor counts.

A kernel gives the logarithm of a weight, because only ratios matter: subtracting the largest logarithm keeps
a query far from all its neighbors from dividing zero by zero. With the reduced distance u = d / h, h the
bandwidth, the kernels are those of the literature (Wand and Jones, Kernel Smoothing, 1995, table 2.1), up to
constants that normalization removes.
"""

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.neighborhood import Neighborhood

_LOWEST = torch.finfo(torch.float64).min  # finite, so that -inf less it is -inf and not nan


def _positive(value: Any, expected: str) -> float:
    if not isinstance(value, bool) and isinstance(value, numbers.Real) and 0 < float(value) < math.inf:
        return float(value)
    raise UsageError(expected, repr(value), "It multiplies true distances, not squared ones.")


@dataclass(frozen=True)
class Nearest:
    """An adaptive bandwidth: a multiple of the distance to the last neighbor that counts.

    Parameters
    ----------
    scale : float
        The multiple, positive. The default lets the last neighbor itself count a little under a compact
        kernel, as geographically weighted regression has it. Where that distance is 0 every neighbor is at
        the query and all count alike.
    """

    scale: float = 1.0000001

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "scale", _positive(self.scale, "a positive, finite scale of the k-th distance")
        )


Bandwidth: TypeAlias = float | Nearest


@dataclass(frozen=True)
class Kernel(ABC):
    """A weight for each neighbor.

    Parameters
    ----------
    bandwidth : float or Nearest
        h, in units of the true distance. Also taken: "nearest", {"nearest": scale}.

    Raises
    ------
    UsageError
        If the bandwidth is not positive and finite.
    """

    bandwidth: Bandwidth = Nearest()
    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", parse_bandwidth(self.bandwidth))

    @abstractmethod
    def log_weights(self, hood: Neighborhood) -> Tensor:
        """Logarithms of the raw weights, [q, k] float64; -inf is no weight.

        Entries of missing neighbors may hold anything.
        """

    def squares(self, hood: Neighborhood) -> Tensor:
        """u^2 = (d / h)^2, [q, k] float64."""
        distances = hood.distances.double()
        if not isinstance(self.bandwidth, Nearest):
            return distances * self.bandwidth**-2
        last = distances.masked_fill(hood.absent, 0.0).amax(1, keepdim=True)
        # where the last distance is 0, dividing by inf makes every u 0
        return distances / (last * self.bandwidth.scale**2).masked_fill_(last == 0, float("inf"))


@dataclass(frozen=True)
class Uniform(Kernel):
    """1 for u <= 1: with `Nearest()` the plain mean of the neighbors."""

    name: ClassVar[str] = "uniform"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        squares = self.squares(hood)
        return torch.zeros_like(squares).masked_fill_(squares > 1, float("-inf"))


@dataclass(frozen=True)
class Triangular(Kernel):
    """1 - u for u < 1."""

    name: ClassVar[str] = "triangular"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).clamp_(max=1).sqrt_().neg_().log1p_()


@dataclass(frozen=True)
class Epanechnikov(Kernel):
    """1 - u^2 for u < 1."""

    name: ClassVar[str] = "epanechnikov"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).clamp_(max=1).neg_().log1p_()


@dataclass(frozen=True)
class Biweight(Kernel):
    """(1 - u^2)^2 for u < 1, also called bisquare."""

    name: ClassVar[str] = "biweight"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).clamp_(max=1).neg_().log1p_().mul_(2)


@dataclass(frozen=True)
class Tricube(Kernel):
    """(1 - u^3)^3 for u < 1 (Cleveland, 1979)."""

    name: ClassVar[str] = "tricube"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        squares = self.squares(hood).clamp_(max=1)
        return squares.mul_(squares.sqrt()).neg_().log1p_().mul_(3)


@dataclass(frozen=True)
class Gaussian(Kernel):
    """exp(-u^2 / 2): h is the standard deviation."""

    name: ClassVar[str] = "gaussian"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).mul_(-0.5)


@dataclass(frozen=True)
class Laplace(Kernel):
    """exp(-u), also called exponential."""

    name: ClassVar[str] = "laplace"

    def log_weights(self, hood: Neighborhood) -> Tensor:
        return self.squares(hood).sqrt_().neg_()


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", _positive(self.bandwidth, "a positive temperature"))

    def log_weights(self, hood: Neighborhood) -> Tensor:
        assert not isinstance(self.bandwidth, Nearest)
        scores = hood.distances.double().masked_fill(hood.absent, float("inf")).div_(-self.bandwidth)
        # a softmax knows no absolute scale: the best score counts 1, so that no query looks far from its
        # neighbors
        top = scores.amax(1, keepdim=True)
        return scores.sub_(top.clamp_(min=_LOWEST))


_ALL: tuple[type[Kernel], ...] = (
    Uniform,
    Triangular,
    Epanechnikov,
    Biweight,
    Tricube,
    Gaussian,
    Laplace,
    DotProduct,
)
KERNELS: dict[str, type[Kernel]] = {each.name: each for each in _ALL} | {"bisquare": Biweight}


def kernel(choice: str | Kernel, bandwidth: object = None) -> Kernel:
    """A kernel by its name.

    Parameters
    ----------
    choice : str or Kernel
        A name of `KERNELS`, or a kernel, which is returned as it is.
    bandwidth : float, "nearest", {"nearest": scale} or Nearest, optional
        None takes the kernel's default.

    Raises
    ------
    UsageError
        If the name is unknown, the bandwidth is wrong, or a kernel and another bandwidth are both given.
    """
    if isinstance(choice, Kernel):
        if bandwidth is None or parse_bandwidth(bandwidth) == choice.bandwidth:
            return choice
        raise UsageError(
            "one bandwidth", f"{choice} and bandwidth={bandwidth!r}", "Give it inside the kernel."
        )
    if choice not in KERNELS:
        raise UsageError("the name of a kernel", repr(choice), did_you_mean(str(choice), KERNELS))
    return KERNELS[choice]() if bandwidth is None else KERNELS[choice](parse_bandwidth(bandwidth))


def parse_bandwidth(value: object) -> Bandwidth:
    """The bandwidth that a configuration names: a number, "nearest", {"nearest": scale} or a `Nearest`.

    Raises
    ------
    UsageError
        For anything else, zero, negative and infinite numbers included.
    """
    if isinstance(value, Nearest):
        return value
    if value == "nearest":
        return Nearest()
    if isinstance(value, Mapping) and set(value) == {"nearest"}:
        return Nearest(value["nearest"])
    return _positive(value, 'a positive, finite bandwidth, "nearest" or {"nearest": scale}')


def spec(bandwidth: Bandwidth) -> float | dict[str, float]:
    """The bandwidth as JSON; `parse_bandwidth` reads it back."""
    return {"nearest": bandwidth.scale} if isinstance(bandwidth, Nearest) else bandwidth


@dataclass(frozen=True)
class Weights:
    """Normalized weights.

    Attributes
    ----------
    weights : Tensor [q, k] float64
        They sum to one in each row; a row where nobody counts is zero.
    peak : Tensor [q] float64
        Logarithm of the largest raw weight; -inf where nobody counts.
    """

    weights: Tensor
    peak: Tensor


def weigh(kernel: Kernel, hood: Neighborhood) -> Weights:
    """Weights of the neighbors: kernel times row weight, normalized, zero for missing neighbors."""
    logs = kernel.log_weights(hood)
    if logs.shape != hood.ids.shape:
        raise UsageError(
            f"log-weights {list(hood.ids.shape)} of {type(kernel).__name__}, one for each neighbor",
            f"{list(logs.shape)}",
            "Its `log_weights` returns a number for each entry of the neighborhood.",
        )
    if hood.row_weights is not None:
        logs = logs + hood.row_weights.double().log()
    logs = logs.masked_fill(hood.absent, float("-inf"))
    peak = logs.amax(1, keepdim=True)
    raw = logs.sub_(peak.clamp(min=_LOWEST)).exp_()
    # the largest is exp(0), so a sum below one means that nobody counts
    return Weights(raw.div_(raw.sum(1, keepdim=True).clamp_(min=1)), peak[:, 0])
