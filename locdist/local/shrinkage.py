"""Rows as a Gaussian of their neighborhood and noise: what was there before the noise came."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.models import LocalModel, answered, flagged, valued
from locdist.local.neighborhood import Neighborhood


def shrunk(
    rows: Tensor, weights: Tensor, asked: Tensor, noise: float, clean: bool, floor: float = 1.0
) -> Tensor:
    """The means of what was there, given noisy rows that are asked.

    With mean mu and covariance C of the rows of a neighborhood, mu + (C - s^2 I)+ C^-1 (x - mu); of clean
    rows, mu + C (C + s^2 I)^-1 (x - mu). Of noisy rows a variance up to the floor, in units of s^2, is noise
    alone: of few rows some are larger than s^2 by chance, up to s^2 (1 + sqrt(m / k))^2.

    Parameters
    ----------
    rows : Tensor [q, k, m]
    weights : Tensor [q, k] or [q, 1]
        Summing to one over k; [q, 1] are equal weights 1 / k.
    asked : Tensor [q, r, m]
    noise : float
        Standard deviation s in each column, > 0.
    clean : bool
        Whether the rows are without noise.
    floor : float

    Returns
    -------
    Tensor [q, r, m]
    """
    mean = (weights[:, :, None] * rows).sum(1, keepdim=True)
    centred = rows - mean
    covariance = torch.bmm((weights[:, :, None] * centred).mT, centred)
    variances, axes = torch.linalg.eigh(covariance)
    square = noise * noise
    kept = variances.clamp(min=0)
    signal = kept > 0 if clean else kept > floor * square
    shares = torch.where(signal, kept / (kept + square) if clean else 1 - square / kept, 0.0)
    return mean + torch.bmm(asked - mean, (axes * shares[:, None]) @ axes.mT)


@dataclass(frozen=True)
class Shrinkage(LocalModel):
    """The Bayes estimate of a row before noise, if those around it are of one Gaussian (Lebrun, Buades,
    Morel, A Nonlocal Bayesian Image Denoising Algorithm, SIAM J. Imaging Sciences 6, 2013).

    mu + (C - s^2 I)+ C^-1 (x - mu), mu and C weighted mean and covariance of the neighbors, the positive part
    by eigenvalues: the local principal components, each shrunk by its share of the noise.

    Parameters
    ----------
    noise : float
        Its standard deviation s in each column of the features, > 0.
    """

    noise: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})
    places: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.noise, bool) or not 0 < self.noise < float("inf"):
            raise UsageError("a positive standard deviation of the noise", repr(self.noise), "0.1, say.")

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"denoised_{name}" for name in features)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.features is not None
        assert hood.query_features is not None
        at = hood.query_features.double()
        near = (hood.features.double() - at[:, None]).masked_fill((weights == 0)[:, :, None], 0.0)
        lost = ~near.isfinite().all(2).all(1)
        near = near.masked_fill(lost[:, None, None], 0.0)
        values = at + shrunk(near, weights, torch.zeros_like(at)[:, None], self.noise, clean=False)[:, 0]
        values = values.masked_fill(lost[:, None], float("nan"))
        alone = flagged((weights > 0).sum(1) == 1, Status.RANK_DEFICIENT)
        return valued(answered(values, weights, alone, hood, weights, want))
