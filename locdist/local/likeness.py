"""Covariances: how alike the targets of two rows are, by the distance of their features.

All are 1 at distance 0. Gradients pass through them: no step overwrites what an earlier one needs again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import offsets

MIX = "mix"


def _rbf(distances: Tensor) -> Tensor:
    return distances.square().mul_(-0.5).exp_()


def _matern12(distances: Tensor) -> Tensor:
    return distances.neg().exp_()


def _matern32(distances: Tensor) -> Tensor:
    scaled = distances * math.sqrt(3)
    decay = scaled.neg().exp_()
    return torch.addcmul(decay, scaled, decay)


def _matern52(distances: Tensor) -> Tensor:
    scaled = distances * math.sqrt(5)
    return scaled.neg().exp_() * (1 + scaled + scaled.square() / 3)


COVARIANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
}


def mixed(distances: Tensor, share: float | Tensor, ratio: float | Tensor) -> Tensor:
    """Share Matern-1/2 of distances, and for the rest Matern-3/2 of `ratio` times them."""
    return torch.lerp(_matern32(distances * ratio), _matern12(distances), share)


@dataclass(frozen=True)
class Likeness:
    """A stationary covariance with a length scale for every feature (ARD).

    With the distance u = |(x - x') / scales| it is exp(-u^2 / 2) for "rbf", exp(-u) for "matern12",
    (1 + a) exp(-a) with a = sqrt(3) u for "matern32", and (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) u for
    "matern52" (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter 4). "mix" is
    share times "matern12" plus (1 - share) times "matern32" of ratio u: rough near by, smooth farther away.

    Parameters
    ----------
    name : str
        One of `COVARIANCES`, or "mix".
    scales : float or sequence of float
        Positive, in units of the features; one number for all features, or one for each.
    share : float
        Of "mix", from 0 to 1.
    ratio : float
        Of "mix", positive.

    Raises
    ------
    UsageError
        For another name, or numbers out of range.
    """

    name: str = "matern32"
    scales: float | Sequence[float] = 1.0
    share: float = 0.5
    ratio: float = 1.0

    def __post_init__(self) -> None:
        names = (*COVARIANCES, MIX)
        if self.name not in names:
            raise UsageError("a covariance", repr(self.name), did_you_mean(self.name, names))
        given: Sequence[object] = self.scales if isinstance(self.scales, Sequence) else (self.scales,)
        if not given or not all(map(_is_scale, given)):
            expected = "length scales, positive and finite"
            raise UsageError(expected, repr(self.scales), "One for all features, or one for each.")
        if not (0 <= self.share <= 1 and _is_scale(self.ratio)):
            expected = "a share from 0 to 1 and a positive ratio"
            raise UsageError(expected, f"{self.share!r} and {self.ratio!r}", "They are of covariance 'mix'.")
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
        if self.scales == 1.0:
            return rows
        return rows.div_(torch.tensor(self.scales, dtype=rows.dtype, device=rows.device))

    def __call__(self, distances: Tensor) -> Tensor:
        """The covariance at distances in length scales."""
        if self.name == MIX:
            return mixed(distances, self.share, self.ratio)
        return COVARIANCES[self.name](distances)


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
