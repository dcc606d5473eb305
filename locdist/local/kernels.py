"""How much each neighbor counts: kernels by their names, their products, and normalized weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.bandwidths import Nearest, SamplePoint, parse_bandwidth, spec
from locdist.local.neighborhood import Neighborhood
from locdist.local.shapes import (
    LOWEST,
    Biweight,
    DotProduct,
    Epanechnikov,
    Gaussian,
    Kernel,
    Laplace,
    Triangular,
    Tricube,
    Uniform,
)

__all__ = [
    "KERNELS",
    "LOWEST",
    "DotProduct",
    "Gaussian",
    "Group",
    "Kernel",
    "Mixture",
    "Nearest",
    "Product",
    "Uniform",
    "bandwidth_spec",
    "kernel",
    "kernel_spec",
    "log_weights",
    "parse_bandwidth",
    "spec",
    "weigh",
]


@dataclass(frozen=True)
class Group:
    """The next columns of the key, and the kernel of the distance in them."""

    columns: int
    kernel: Kernel

    def __post_init__(self) -> None:
        columns: object = self.columns  # whatever users passed
        if isinstance(columns, bool) or not isinstance(columns, int) or columns < 1:
            raise UsageError("a number of columns, at least 1", repr(columns), "Count those of the key.")
        if isinstance(self.kernel, DotProduct | Product) or isinstance(self.kernel.bandwidth, SamplePoint):
            given = f"{self.kernel.name!r} with bandwidth {self.kernel.bandwidth!r}"
            raise UsageError("a kernel of a distance in a group", given, "Choose another one.")


@dataclass(frozen=True)
class Product(Kernel):
    """The product of kernels, each of the distance in its own columns of the key: space x time x attributes.

    Rows are retrieved by all columns together; `Nearest` is the largest distance in a group among the
    neighbors.

    Parameters
    ----------
    groups : tuple of Group
        One after the other; together all columns of the key.
    """

    groups: tuple[Group, ...] = ()
    name: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        if not self.groups:
            raise UsageError("groups of columns", "none", "Give each its columns, kernel and bandwidth.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"keys"})

    @property
    def adaptive(self) -> bool:
        return any(group.kernel.adaptive for group in self.groups)

    def log_weights(self, hood: Neighborhood) -> Tensor:
        parts = self._parts(hood)
        return torch.stack([group.kernel.log_weights(part) for group, part in parts]).sum(0)

    def log_volume(self, hood: Neighborhood) -> Tensor:
        parts = self._parts(hood)
        return torch.stack([group.kernel.log_volume(part) for group, part in parts]).sum(0)

    def _parts(self, hood: Neighborhood) -> list[tuple[Group, Neighborhood]]:
        """Each group with the neighborhood that it sees."""
        assert hood.queries is not None
        assert hood.keys is not None
        counts, width = [group.columns for group in self.groups], hood.queries.shape[1]
        if sum(counts) != width:
            given = f"{sum(counts)} in groups of {' + '.join(map(str, counts))}"
            raise UsageError(f"{width} columns of the key", given, "A category has a column for each value.")
        parts, begin = [], 0
        for group in self.groups:
            columns = slice(begin, begin + group.columns)
            at = hood.queries[:, columns].double()
            distances = (hood.keys[:, :, columns] - at[:, None]).square().sum(2)
            parts.append((group, replace(hood, distances=distances, queries=at)))
            begin += group.columns
        return parts


@dataclass(frozen=True)
class Mixture(Kernel):
    """The mean of normalized kernels: sum_l v_l K_l(j) / sum_i K_l(i) over the neighbors.

    With it the local mean is the mean of local means, one for each kernel.

    Parameters
    ----------
    parts : tuple of (float, Kernel)
        Weights v >= 0, which are brought to the sum one.
    """

    parts: tuple[tuple[float, Kernel], ...] = ()
    name: ClassVar[str] = "mixture"
    absolute: ClassVar[bool] = False
    adaptive: ClassVar[bool] = True  # what a kernel is normalized by is only known of neighbors

    def __post_init__(self) -> None:
        total = math.fsum(share for share, _ in self.parts)
        good = all(share >= 0 and not isinstance(part, DotProduct | Mixture) for share, part in self.parts)
        if not good or not 0 < total < math.inf:
            expected = "kernels of a distance with weights of 0 or more, not all 0"
            raise UsageError(expected, repr(self.parts), "Give {weight, kernel, bandwidth} of each.")
        shares = tuple((share / total, part) for share, part in self.parts)
        object.__setattr__(self, "parts", shares)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.needs for _, part in self.parts))

    def log_weights(self, hood: Neighborhood) -> Tensor:
        mixed = sum(share * weigh(part, hood).weights for share, part in self.parts)
        assert isinstance(mixed, Tensor)
        # row weights, which come later, are in there already
        return mixed.log() if hood.row_weights is None else mixed.log() - hood.row_weights.double().log()

    def log_volume(self, hood: Neighborhood) -> Tensor:
        raise UsageError("a kernel with an integral", repr(self.name), "A density takes a single kernel.")


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
_ALIASES: dict[str, type[Kernel]] = {"bisquare": Biweight, "exponential": Laplace}
KERNELS: dict[str, type[Kernel]] = {each.name: each for each in _ALL} | _ALIASES


def kernel(choice: str | Mapping[str, Any] | Kernel, bandwidth: object = None) -> Kernel:
    """A kernel by its name.

    Parameters
    ----------
    choice : str, mapping or Kernel
        A name of `KERNELS`; {"product": [{"columns": 2, "kernel": "bisquare", "bandwidth": "nearest"}, ...]};
        {"mixture": [{"weight": 0.3, "kernel": "gaussian", "bandwidth": 0.5}, ...]}; or a kernel, which is
        returned as it is.
    bandwidth : float, "nearest", {"nearest": scale}, {"sample-point": rank} or one of their classes, optional
        None takes the kernel's default.

    Raises
    ------
    UsageError
        If the name is unknown, the bandwidth is wrong, or a kernel and another bandwidth are both given.
    """
    if isinstance(choice, Mapping):
        choice = _mixture(choice) if "mixture" in choice else _product(choice)
    if isinstance(choice, Kernel):
        if bandwidth is None or parse_bandwidth(bandwidth) == choice.bandwidth:
            return choice
        raise UsageError(
            "one bandwidth", f"{choice} and bandwidth={bandwidth!r}", "Give it inside the kernel."
        )
    if choice not in KERNELS:
        raise UsageError("the name of a kernel", repr(choice), did_you_mean(str(choice), KERNELS))
    return KERNELS[choice]() if bandwidth is None else KERNELS[choice](parse_bandwidth(bandwidth))


def _product(choice: Mapping[str, Any]) -> Product:
    example = '{"product": [{"columns": 2, "kernel": "gaussian"}, ...]}'
    listed = _listed(choice, "product", "columns", example)
    kernels = [kernel(each.get("kernel", "tricube"), each.get("bandwidth")) for each in listed]
    return Product(
        groups=tuple(Group(each.get("columns", 0), one) for each, one in zip(listed, kernels, strict=True))
    )


def _mixture(choice: Mapping[str, Any]) -> Mixture:
    example = '{"mixture": [{"weight": 0.3, "kernel": "gaussian", "bandwidth": 0.5}, ...]}'
    listed = _listed(choice, "mixture", "weight", example)
    kernels = [kernel(each.get("kernel", "tricube"), each.get("bandwidth")) for each in listed]
    return Mixture(
        parts=tuple((float(each.get("weight", 1.0)), one) for each, one in zip(listed, kernels, strict=True))
    )


def _listed(choice: Mapping[str, Any], name: str, own: str, example: str) -> list[Mapping[str, Any]]:
    """The parts of a composed kernel; UsageError where they are not as they should be."""
    given: Any = choice.get(name)
    listed = list(given) if isinstance(given, list | tuple) else [given]
    good = all(isinstance(each, Mapping) and set(each) <= {own, "kernel", "bandwidth"} for each in listed)
    if set(choice) != {name} or not good:
        expected = f"the name of a kernel, or {example}"
        raise UsageError(expected, repr(choice), "Each part may have a bandwidth, too.")
    return listed


def kernel_spec(kernel: Kernel) -> str | dict[str, Any]:
    """The kernel without its bandwidth as JSON; of a product with those of its groups."""
    if isinstance(kernel, Mixture):
        shares = [
            {"weight": share, "kernel": kernel_spec(part), "bandwidth": bandwidth_spec(part)}
            for share, part in kernel.parts
        ]
        return {"mixture": shares}
    if not isinstance(kernel, Product):
        return kernel.name
    groups = [
        {
            "columns": group.columns,
            "kernel": kernel_spec(group.kernel),
            "bandwidth": spec(group.kernel.bandwidth),
        }
        for group in kernel.groups
    ]
    return {"product": groups}


def bandwidth_spec(kernel: Kernel) -> float | dict[str, float] | None:
    """The bandwidth of a kernel as JSON; None where its parts have their own."""
    return None if isinstance(kernel, Product | Mixture) else spec(kernel.bandwidth)


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

    @property
    def total(self) -> Tensor:
        """Logarithm of the sum of the raw weights [q]; -inf where nobody counts."""
        # the largest raw weight is the peak's, and the same part of the sum as the largest here
        return self.peak - self.weights.amax(1).log().masked_fill(self.peak.isneginf(), 0.0)


def weigh(kernel: Kernel, hood: Neighborhood) -> Weights:
    """Weights of the neighbors: kernel times row weight, normalized, zero for missing neighbors."""
    logs = log_weights(kernel, hood)
    peak = logs.amax(1, keepdim=True)
    raw = logs.sub_(peak.clamp(min=LOWEST)).exp_()
    # the largest is exp(0), so a sum below one means that nobody counts
    return Weights(raw.div_(raw.sum(1, keepdim=True).clamp_(min=1)), peak[:, 0])


def log_weights(kernel: Kernel, hood: Neighborhood) -> Tensor:
    """Logarithms [q, k] of kernel times row weight, -inf for missing neighbors."""
    logs = kernel.log_weights(hood)
    if logs.shape != hood.ids.shape:
        raise UsageError(
            f"log-weights {list(hood.ids.shape)} of {type(kernel).__name__}, one for each neighbor",
            f"{list(logs.shape)}",
            "Its `log_weights` returns a number for each entry of the neighborhood.",
        )
    if isinstance(kernel.bandwidth, SamplePoint):
        assert hood.queries is not None
        logs = logs - hood.queries.shape[1] / 2 * kernel.bandwidth.square(hood).log()
    if hood.row_weights is not None:
        logs = logs + hood.row_weights.double().log()
    return logs.masked_fill(hood.absent, float("-inf"))
