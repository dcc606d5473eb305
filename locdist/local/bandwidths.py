"""How far a kernel reaches: a distance, or one that adapts to where the rows are."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from locdist.errors import UsageError
from locdist.local.neighborhood import Neighborhood

_LEAST = 1e-300  # takes the place of a squared bandwidth of 0


def positive(value: Any, expected: str) -> float:
    """A positive, finite number; UsageError for anything else."""
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
    rank : int, optional
        Instead of the last neighbor the rank-th nearest, if there are as many: farther ones count too if the
        kernel lets them.
    """

    scale: float = 1.0000001
    rank: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "scale", positive(self.scale, "a positive, finite scale of the k-th distance")
        )
        if self.rank is not None:
            _check_rank(self.rank)

    def square(self, hood: Neighborhood) -> Tensor:
        """The squared bandwidth of each query, [q, 1] float64; 0 where nobody counts."""
        distances = hood.distances.double()
        if self.rank is None or self.rank >= distances.shape[1]:
            last = distances.masked_fill(hood.absent, 0.0).amax(1, keepdim=True)
        else:
            there = distances.masked_fill(hood.absent, float("inf"))
            last = there.kthvalue(self.rank, 1, keepdim=True).values
            last = last.where(last.isfinite(), distances.masked_fill(hood.absent, 0.0).amax(1, keepdim=True))
        return last * self.scale**2


NEAREST = Nearest()


@dataclass(frozen=True)
class SamplePoint:
    """A bandwidth for each row of the support: a multiple of the distance to its own rank-th nearest row.

    A row in a crowd reaches less far than a lonely one, wherever the query is. Its weight is
    h_j^-d K(|x - x_j| / h_j) with d the width of the key, so that sums of weights are densities, and local
    means their ratios. Rows with so many equal ones that h_j is 0 count only at their own place.

    Parameters
    ----------
    rank : int
        At least 1; the row itself does not count.
    scale : float
        Positive.

    References
    ----------
    Breiman, Meisel, Purcell, Variable kernel estimates of multivariate densities, Technometrics 19, 1977.
    """

    rank: int = 8
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_rank(self.rank)
        object.__setattr__(self, "scale", positive(self.scale, "a positive, finite scale"))

    @property
    def need(self) -> str:
        """What an index fills in as `reach`."""
        return f"reach-{self.rank}"

    def square(self, hood: Neighborhood) -> Tensor:
        """The squared bandwidth of each neighbor, [q, k] float64, positive."""
        assert hood.reach is not None
        return (hood.reach.double() * self.scale**2).clamp(min=_LEAST)


def rank_of(needs: frozenset[str]) -> int | None:
    """The rank of the `reach` among what a layer needs."""
    ranks = [int(need.removeprefix("reach-")) for need in needs if need.startswith("reach-")]
    return ranks[0] if ranks else None


def _check_rank(rank: object) -> None:
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise UsageError("a rank of at least 1, a whole number", repr(rank), "1 is the nearest row.")


Bandwidth: TypeAlias = float | Nearest | SamplePoint


def parse_bandwidth(value: object) -> Bandwidth:
    """The bandwidth that a configuration names: a number, "nearest", {"nearest": scale}, {"nearest": scale,
    "rank": r}, {"sample-point": r}, {"sample-point": r, "scale": s}, or a `Nearest` or `SamplePoint`.

    Raises
    ------
    UsageError
        For anything else, zero, negative and infinite numbers included.
    """
    if isinstance(value, Nearest | SamplePoint):
        return value
    if value == "nearest":
        return Nearest()
    if isinstance(value, Mapping) and "nearest" in value and set(value) <= {"nearest", "rank"}:
        return Nearest(value["nearest"], value.get("rank"))
    if isinstance(value, Mapping) and "sample-point" in value and set(value) <= {"sample-point", "scale"}:
        return SamplePoint(value["sample-point"], value.get("scale", 1.0))
    return positive(value, 'a positive, finite bandwidth, "nearest" or {"nearest": scale}')


def spec(bandwidth: Bandwidth) -> float | dict[str, float]:
    """The bandwidth as JSON; `parse_bandwidth` reads it back."""
    if isinstance(bandwidth, SamplePoint):
        return {"sample-point": bandwidth.rank, "scale": bandwidth.scale}
    if not isinstance(bandwidth, Nearest):
        return bandwidth
    rank = {} if bandwidth.rank is None else {"rank": bandwidth.rank}
    return {"nearest": bandwidth.scale, **rank}
