"""What a learned map minimises: the loss of each row, predicted from its neighbors without itself.

Each objective is the leave-one-out loss of a method under the map; its other parameters are learned beside
the map, as logarithms and the like, without bounds. The methods themselves compute the same predictions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from locdist.local.likeness import COVARIANCES, MIX, Likeness, mixed

FLOOR = 1e-6  # of the nugget, where targets are standardized: below, a likelihood only sees ties
_NEAR = 1e-18  # squared distances below are as good as 0, where a root has no slope
_JITTER = 1e-8
Parameters = Mapping[str, Tensor]


class Objective(ABC):
    """The loss of rows given their neighbors, which a map has moved."""

    neighbors: ClassVar[int] = 32
    batch: ClassVar[int] = 128

    @abstractmethod
    def start(self) -> dict[str, float]:
        """The parameters before the first step, unbounded."""

    @abstractmethod
    def loss(self, at: Parameters, near: Tensor, targets: Tensor, own: Tensor) -> Tensor:
        """The losses [b].

        Parameters
        ----------
        at : mapping of str to Tensor
            Parameters, each a number.
        near : Tensor [b, k, e] float64
            Mapped keys of the neighbors less that of the row.
        targets : Tensor [b, k, p]
            Of the neighbors: float64, or codes [b, k, 1].
        own : Tensor [b, p]
            Of the row itself, which is none of its neighbors.
        """

    @abstractmethod
    def told(self, at: Mapping[str, float]) -> dict[str, float]:
        """The parameters as people and methods read them."""


@dataclass(frozen=True)
class Kriging(Objective):
    """The negative log-likelihood of a target under the Gaussian process on its neighbors.

    The covariance of two neighbors is variance C(|z - z'|) + constant + linear z'z' + nugget [z = z'], C
    Matern-3/2 or the mix of `Likeness`; targets are standardized and their mean is 0. Leave-one-out
    likelihoods on retrieved neighbors: Jankowiak and Pleiss, Scalable cross-validation losses for Gaussian
    process models, 2021.

    Parameters
    ----------
    covariance : str
        A name of `COVARIANCES`, or "mix".
    """

    covariance: str = "matern32"

    def __post_init__(self) -> None:
        Likeness(self.covariance)  # refuses another name

    def start(self) -> dict[str, float]:
        first = {"variance": 0.0, "constant": 0.0, "linear": -2.0, "nugget": math.log(0.05)}
        return first | ({"share": 0.0, "ratio": -1.0} if self.covariance == MIX else {})

    def loss(self, at: Parameters, near: Tensor, targets: Tensor, own: Tensor) -> Tensor:
        variance, constant = at["variance"].exp(), at["constant"].exp()
        noise = at["nugget"].exp() + FLOOR
        gram = torch.bmm(near, near.mT)
        square = gram.diagonal(dim1=1, dim2=2)
        apart = square[:, :, None] + square[:, None] - 2 * gram
        matrix = variance * self._likeness(at, apart) + constant + at["linear"].exp() * gram
        matrix = matrix + torch.diag_embed(noise.expand_as(square))
        cross = variance * self._likeness(at, square) + constant
        factor, right = _root(matrix.detach()), torch.cat([cross[:, :, None], targets], 2)
        solved = torch.cholesky_solve(right.detach(), factor)
        # with A^-1 c and A^-1 y held fixed these sums have the values and the gradients of c'A^-1 y and
        # c'A^-1 c: nothing has to be differentiated through a factorization
        direction, dual = solved[:, :, :1], solved[:, :, 1:]
        through, along = torch.bmm(direction.mT, matrix), cross[:, None]
        mean = (torch.bmm(direction.mT, targets) + torch.bmm(along - through, dual))[:, 0]
        known = torch.bmm(2 * along - through, direction)[:, 0]
        left = variance + constant + noise - known
        losses: Tensor = (own - mean).square() / left + (2 * math.pi * left).log()
        return losses.mean(1) / 2

    def _likeness(self, at: Parameters, squares: Tensor) -> Tensor:
        distances = squares.clamp(min=_NEAR).sqrt()
        if self.covariance == MIX:
            return mixed(distances, at["share"].sigmoid(), at["ratio"].exp())
        return COVARIANCES[self.covariance](distances)

    def told(self, at: Mapping[str, float]) -> dict[str, float]:
        """As `GaussianProcess` takes them: all but the variance relative to it."""
        variance = math.exp(at["variance"])
        noise = (math.exp(at["nugget"]) + FLOOR) / variance
        told = {name: math.exp(at[name]) / variance for name in ("constant", "linear")}
        told |= {"variance": variance, "nugget": noise}
        if self.covariance == MIX:
            told |= {"share": 1 / (1 + math.exp(-at["share"])), "ratio": math.exp(at["ratio"])}
        return told


def _root(matrix: Tensor) -> Tensor:
    """Cholesky factors; a little more of the diagonal where there is none."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not info.any():
        return factor
    more = _JITTER * matrix.diagonal(dim1=1, dim2=2).mean(1, keepdim=True).detach() * (info != 0)[:, None]
    factor, _ = torch.linalg.cholesky_ex(matrix + torch.diag_embed(more.expand_as(matrix[:, 0])))
    return factor


def _weights(near: Tensor) -> Tensor:
    """exp(-|z|^2 / 2) [b, k], summing to one: the Gaussian kernel of bandwidth 1."""
    return torch.softmax(-0.5 * near.square().sum(2), 1)


@dataclass(frozen=True)
class MeanError(Objective):
    """The squared error of the local mean with a Gaussian kernel of bandwidth 1.

    Weinberger and Tesauro, Metric learning for kernel regression (MLKR), AISTATS 2007.
    """

    neighbors: ClassVar[int] = 64
    batch: ClassVar[int] = 256

    def start(self) -> dict[str, float]:
        return {}

    def loss(self, at: Parameters, near: Tensor, targets: Tensor, own: Tensor) -> Tensor:
        mean = torch.bmm(_weights(near)[:, None], targets)[:, 0]
        return (own - mean).square().mean(1)

    def told(self, at: Mapping[str, float]) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class LinearError(Objective):
    """The squared error of the local linear fit with a Gaussian kernel of bandwidth 1 and a learned ridge."""

    neighbors: ClassVar[int] = 64
    batch: ClassVar[int] = 256

    def start(self) -> dict[str, float]:
        return {"ridge": -4.0}

    def loss(self, at: Parameters, near: Tensor, targets: Tensor, own: Tensor) -> Tensor:
        weights = _weights(near)
        center = torch.bmm(weights[:, None], near)
        rows, mean = near - center, torch.bmm(weights[:, None], targets)
        weighted = rows.mT * weights[:, None]
        identity = torch.eye(near.shape[2], dtype=near.dtype, device=near.device)
        matrix = torch.bmm(weighted, rows) + at["ridge"].exp() * identity
        slopes = torch.cholesky_solve(torch.bmm(weighted, targets), _root(matrix))
        value = (mean - torch.bmm(center, slopes))[:, 0]
        return (own - value).square().mean(1)

    def told(self, at: Mapping[str, float]) -> dict[str, float]:
        return {"ridge": math.exp(at["ridge"])}


@dataclass(frozen=True)
class VoteLoss(Objective):
    """The log-loss of a vote with a Gaussian kernel of bandwidth 1.

    Goldberger, Roweis, Hinton and Salakhutdinov, Neighbourhood components analysis (NCA), 2005, with the
    logarithm of the probability that they also name. Nobody is refused: a class without a neighbor has the
    chance FLOOR.
    """

    neighbors: ClassVar[int] = 64
    batch: ClassVar[int] = 256

    def start(self) -> dict[str, float]:
        return {}

    def loss(self, at: Parameters, near: Tensor, targets: Tensor, own: Tensor) -> Tensor:
        same = targets[:, :, 0] == own
        return -((_weights(near) * same).sum(1) + FLOOR).log()

    def told(self, at: Mapping[str, float]) -> dict[str, float]:
        return {}
