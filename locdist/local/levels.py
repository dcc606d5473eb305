"""Local models with other weights: those of two levels, and those of a sample of the neighbors."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers
from locdist.local.kernels import DotProduct, Kernel, weigh
from locdist.local.models import LocalModel
from locdist.local.neighborhood import Neighborhood

_SIGN, _WORD = 1 << 63, 1 << 64


class Reweighted(LocalModel):
    """A local model that is given other weights."""

    model: LocalModel

    @abstractmethod
    def reweigh(self, hood: Neighborhood, weights: Tensor) -> Tensor:
        """Weights [q, k], of the sum that those given have; 0 where a neighbor is absent."""

    @property
    def needs(self) -> frozenset[str]:
        return self.model.needs

    @property
    def tells(self) -> frozenset[str]:
        return self.model.tells

    @property
    def slopes(self) -> bool:
        return self.model.slopes

    @property
    def places(self) -> bool:
        return self.model.places

    @property
    def traced(self) -> bool:
        return self.model.traced

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        return self.model.outputs(targets, features)

    def parameters(self, features: Sequence[str]) -> tuple[str, ...]:
        return self.model.parameters(features)

    def columns(self, k: int, m: int) -> int:
        return self.model.columns(k, m)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        return self.model.predict(hood, self.reweigh(hood, weights), want)


@dataclass(frozen=True)
class Again(Reweighted):
    """A local model localized again: neighbors count by what the neighbors of the query give them.

    Of sum_k w_k J_k(theta), J_k what the model minimises around the neighbor k, the weights are
    sum_k w_k K(x_k, x_j) with the kernel of the model normalized in each row k. So a mean of a mean is a mean
    with the product of the two kernels. What is beyond the neighbors of the query takes no part.

    Parameters
    ----------
    model : LocalModel
    kernel : Kernel
        Of the model that is localized.
    """

    model: LocalModel
    kernel: Kernel

    @property
    def needs(self) -> frozenset[str]:
        return self.model.needs | self.kernel.needs | {"keys"}

    def reweigh(self, hood: Neighborhood, weights: Tensor) -> Tensor:
        return torch.bmm(weights[:, None], among(self.kernel, hood))[:, 0]


def among(kernel: Kernel, hood: Neighborhood) -> Tensor:
    """Weights [q, k, k] of the neighbors of a query around each of them: rows that sum to one, of absent
    neighbors whatever they are.
    """
    count, k = hood.ids.shape
    return weigh(kernel, surroundings(kernel, hood)).weights.reshape(count, k, k)


def surroundings(kernel: Kernel, hood: Neighborhood) -> Neighborhood:
    """Each neighbor as a query [q k] among all neighbors of its query [q k, k], with what the kernel needs,
    and the features where there are any.
    """
    assert hood.keys is not None
    keys = hood.keys.double().masked_fill(hood.absent[:, :, None], 0.0)
    if isinstance(kernel, DotProduct):
        distances = -torch.bmm(keys, keys.mT)
    else:  # differences, not products: a product loses half the digits of small distances
        distances = torch.cdist(keys, keys, compute_mode="donot_use_mm_for_euclid_dist").square_()
    count, k = hood.ids.shape

    def repeated(each: Tensor) -> Tensor:  # the neighbors of a query are those of each of them
        return each[:, None].expand(-1, k, *each.shape[1:]).reshape(count * k, *each.shape[1:])

    features = hood.features
    return Neighborhood(
        distances.reshape(count * k, k),
        repeated(hood.ids),
        queries=keys.reshape(count * k, keys.shape[2]),
        keys=repeated(keys) if "keys" in kernel.needs else None,
        features=None if features is None else repeated(features),
        query_features=None if features is None else features.reshape(count * k, features.shape[2]),
        row_weights=None if hood.row_weights is None else repeated(hood.row_weights),
        reach=None if hood.reach is None else repeated(hood.reach),
    )


@dataclass(frozen=True)
class Resampled(Reweighted):
    """A local model of a sample of the neighbors, drawn by the kernel: the Monte-Carlo form of localization.

    Each weight becomes the share of the draws, with replacement, that fell on its neighbor. With many draws
    the answer is that of the weights themselves, with an error of one over the root of their number. The
    draws of a query follow from the query itself and the seed, so they do not depend on its batch.

    Parameters
    ----------
    model : LocalModel
    draws : int
        At least 1.
    seed : int
    """

    model: LocalModel
    draws: int
    seed: int = 0

    def __post_init__(self) -> None:
        draws: object = self.draws  # whatever users passed
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
            raise UsageError("draws, a whole number of at least 1", repr(draws), "None uses the weights.")

    def reweigh(self, hood: Neighborhood, weights: Tensor) -> Tensor:
        assert hood.queries is not None
        order = hood.ids.argsort(dim=1, stable=True)  # whatever order neighbors come in
        shares = weights.gather(1, order).cumsum(1)
        points = uniform(hood.queries, self.draws, self.seed) * shares[:, -1:]
        drawn = torch.searchsorted(shares, points, right=True).clamp_(max=weights.shape[1] - 1)
        counts = torch.zeros_like(weights).scatter_add_(1, order.gather(1, drawn), torch.ones_like(points))
        return counts.masked_fill_(weights == 0, 0.0) / self.draws


def uniform(queries: Tensor, count: int, seed: int) -> Tensor:
    """Numbers [q, count] in [0, 1) that follow from the queries [q, d] and the seed (SplitMix64: Steele, Lea
    and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
    """
    bits = (queries.double() + 0.0).view(torch.int64)  # without the sign of zero
    gamma = _signed(0x9E3779B97F4A7C15)
    places = torch.arange(1, 1 + max(bits.shape[1], count), device=bits.device) * gamma
    state = _mixed((_mixed(bits + places[: bits.shape[1]])).sum(1) + _signed(seed % _WORD))
    mixed = _mixed(state[:, None] + places[:count])
    return _shifted(mixed, 11).double() * 2.0**-53


def _mixed(words: Tensor) -> Tensor:
    words = (words ^ _shifted(words, 30)) * _signed(0xBF58476D1CE4E5B9)
    words = (words ^ _shifted(words, 27)) * _signed(0x94D049BB133111EB)
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, bits: int) -> Tensor:
    # to the right, zeros come in
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - _WORD if word >= _SIGN else word
