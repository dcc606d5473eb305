"""How much of a kernel's mass over all the support the k nearest rows leave out, bounded by a sample of rows.

No other row weighs more than the last neighbor, w_k, so that n - k of them weigh (n - k) w_k at most: true,
and far too much. A sample of m rows tells more. With the mean and the variance of the weights of those of the
sample that are no neighbors, the others together weigh at most

    n (mean + sqrt(2 variance L / m) + 7 w_k L / (3 (m - 1))),    L = log(2 / chance),

except with that chance (an empirical Bernstein bound: Maurer, Pontil, *Empirical Bernstein Bounds and Sample
Variance Penalization*, COLT 2009, theorem 4).
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.kernels import LOWEST, Kernel, log_weights
from locdist.local.moments import Asked, Batch
from locdist.local.neighborhood import Neighborhood

DRAWN = 10_000  # rows of a sample
CHANCE = 1e-6  # that the mass of one query is larger than its bound
_REMEDY = "Leave `neglected` out."


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from a support, without replacement.

    Attributes
    ----------
    ids : Tensor [m] int64
        Ascending, as a search names them.
    rows : Batch
    total : int
        Rows of the support.
    """

    ids: Tensor
    rows: Batch
    total: int


@runtime_checkable
class Sampled(Protocol):
    """An index that has a sample of its rows."""

    @property
    def sample(self) -> Sample:
        """`DRAWN` rows, or all: always the same ones."""


def check_neglected(kernel: Kernel, weighted: bool) -> None:
    """UsageError where a row beyond the neighbors may weigh more than they do."""
    if kernel.adaptive or kernel.needs:
        wanted = (
            "a kernel of the distance of the search and of a bandwidth that is one, to bound what it neglects"
        )
        given = (
            "a bandwidth that neighbors set"
            if kernel.adaptive
            else f"one of {', '.join(sorted(kernel.needs))}"
        )
        raise UsageError(wanted, f"{kernel.name!r}, {given}", _REMEDY)
    if weighted:
        raise UsageError("rows of one weight, to bound what a kernel neglects", "row weights", _REMEDY)


def sample_of(index: object, kernel: Kernel) -> Sample:
    """What `neglected` needs of an index; UsageError where it cannot be told."""
    if not isinstance(index, Sampled):
        raise UsageError("an index that has a sample of its rows", type(index).__name__, _REMEDY)
    check_neglected(kernel, index.sample.rows.row_weights is not None)
    return index.sample


def neglected(kernel: Kernel, near: Neighborhood, sample: Sample, metric: str) -> Tensor:
    """Upper bounds [q] of the share of the kernel's mass that lies beyond the neighbors, from 0 to 1.

    An average over the neighbors is off that over all the support by at most this share of the largest
    distance between two of the values. Rows that an approximate search misses count as the last neighbor.
    """
    assert near.queries is not None
    logs = log_weights(kernel, near)
    peak = logs.amax(1, keepdim=True).clamp(min=LOWEST)
    held = (logs - peak).exp()
    least = held.masked_fill(near.absent, torch.inf).amin(1, keepdim=True)
    away, missing = sample.rows.around(Asked(near.queries, near.queries), metric)
    other = (kernel.log_weights(away) - peak).exp()
    other = other if missing is None else other.masked_fill(missing, 0.0)
    other = torch.minimum(other, least).masked_fill_(_among(near.ids, sample.ids), 0.0)
    rest = sample.total * _most(other, least[:, 0], sample.total)
    rest = torch.minimum(rest, (sample.total - near.found.sum(1)) * least[:, 0])
    return (rest / (rest + held.sum(1))).nan_to_num(1.0)


def _among(ids: Tensor, drawn: Tensor) -> Tensor:
    """Which of the drawn rows [m] are among the neighbors [q, k]: [q, m]."""
    places = torch.searchsorted(drawn, ids).clamp_(max=len(drawn) - 1)
    hit = drawn[places] == ids
    among = torch.zeros(len(ids), len(drawn) + 1, dtype=torch.bool, device=ids.device)
    return among.scatter_(1, places.masked_fill(~hit, len(drawn)), True)[:, :-1]


def _most(values: Tensor, largest: Tensor, total: int) -> Tensor:
    """The largest mean [q] of values from 0 to `largest` [q], of which [q, m] were drawn of so many."""
    drawn, mean = values.shape[1], values.mean(1)
    if drawn == total:
        return mean
    doubt = math.log(2 / CHANCE)
    return mean + (2 * values.var(1) * doubt / drawn).sqrt() + 7 * largest * doubt / (3 * (drawn - 1))
