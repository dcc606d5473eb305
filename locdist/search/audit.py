"""Recall: measured on every run, with its interval, and the fewest probes that reach a target."""

import dataclasses
import math
from typing import Protocol

import torch
from torch import Tensor

from locdist.local.neighborhood import Neighborhood

_NORMAL = 1.96  # two-sided 95 %
_TIE = 1e-9  # relative: a neighbor as far as the k-th exact one counts as found


@dataclasses.dataclass(frozen=True)
class Recall:
    """Share of the exact k nearest neighbors that a search found.

    Parameters
    ----------
    mean : float
        In [0, 1].
    low, high : float
        95 % interval over the sampled queries.
    queries, k : int
        How many queries were compared, at how many neighbors.
    """

    mean: float
    low: float
    high: float
    queries: int
    k: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f}, {self.queries} queries, k={self.k})"


def recall(found: Neighborhood, exact: Neighborhood) -> Recall:
    """Recall of `found` against `exact`, both [q, k] over the same queries in the same order.

    A found neighbor counts when it is no farther than the farthest exact one: with ties, either is right.
    """
    horizon = exact.distances.where(exact.found, -torch.inf).amax(dim=1, keepdim=True)
    right = ((found.distances.double() <= horizon + _TIE * horizon.abs()) & found.found).sum(dim=1)
    shares = right.clamp(max=exact.found.sum(dim=1)) / exact.found.sum(dim=1).clamp(min=1)
    return _interval(shares.where(exact.found.any(dim=1), 1.0).double(), exact.ids.shape[1])


def _interval(shares: Tensor, k: int) -> Recall:
    """Normal interval of the mean; where all shares agree, the rule of three bounds what a sample of this
    size can miss.
    """
    n, mean = len(shares), float(shares.mean())
    spread = _NORMAL * float(shares.std(correction=1)) / math.sqrt(n) if n > 1 else 1.0
    spread = spread if spread > 0 else 3.0 / n
    return Recall(mean, max(0.0, mean - spread), min(1.0, mean + spread), n, k)


class Tunable(Protocol):
    """An index whose searches can be compared with the exact answer."""

    def exactly(self, queries: Tensor, k: int, own: Tensor | None = None) -> Neighborhood:
        """The exact neighbors, in the order of the queries."""

    def probed(self, queries: Tensor, k: int, own: Tensor | None, nprobe: int) -> Neighborhood:
        """What a search of `nprobe` lists finds; `order` says which query each row is."""


def audit(
    index: Tunable, queries: Tensor, k: int, own: Tensor | None, nprobe: int, exact: Neighborhood
) -> Recall:
    """Recall of searches with `nprobe` lists on queries [q, d] whose `exact` neighbors are known."""
    found = index.probed(queries, k, own, nprobe)
    return recall(found, exact if found.order is None else exact.rows(found.order))


def tune(
    index: Tunable,
    queries: Tensor,
    k: int,
    own: Tensor | None,
    exact: Neighborhood,
    target: float,
    nlist: int,
) -> int:
    """The fewest lists to search so that recall reaches `target` on queries [q, d].

    Doubles until the mean less one standard error reaches the target, then halves the gap: a choice by
    counted neighbors, never by a clock, so it is the same on every machine. A target of 1 takes all lists.
    """

    def reached(nprobe: int) -> bool:
        found = audit(index, queries, k, own, nprobe, exact)
        return found.mean == 1 or found.mean - (found.mean - found.low) / _NORMAL >= target

    if target == 1:
        return nlist  # a sample that misses nobody does not show that nobody is missed
    enough = 1
    while enough < nlist and not reached(enough):
        enough *= 2
    below, enough = enough // 2, min(enough, nlist)
    while enough - below > max(1, below // 8):
        middle = (below + enough) // 2
        below, enough = (below, middle) if reached(middle) else (middle, enough)
    return enough
