"""Charts: models that each know a part of the world, and say where they are certain.

A chart has a domain, a share mu of each query that belongs to it, and gives a probability to each class. Its
certainty is the largest of them. Its vote counts where that passes its threshold; votes are averaged,
weighted by mu. With thresholds of 0 and domains of 1 that is the average of all models, with domains that are
0 or 1 and do not overlap each query asks the one whose domain it is in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import DataError
from locdist.local.answers import Answers, Status


def certainty(votes: Tensor) -> Tensor:
    """The largest probability [c, q] of votes [c, q, k]."""
    return votes.amax(2)


def gated(votes: Tensor, domains: Tensor, thresholds: Tensor) -> Answers:
    """The average of votes [c, q, k] of the charts that are certain, with domains [c, q], thresholds [c].

    Where no chart of the domain is certain the average of all of them answers, LOW_SUPPORT; EMPTY where a
    query is in no domain.
    """
    there = domains * ~votes.isnan().any(2)
    kept = there * (certainty(votes) >= thresholds[:, None])
    uncertain, nobody = ~kept.any(0), ~there.any(0)
    weights = torch.where(uncertain, there, kept)
    total, mean = torch.zeros_like(weights[0]), torch.zeros_like(votes[0])
    for weight, vote in zip(weights, votes.nan_to_num(), strict=True):  # one by one: the same in any batch
        total, mean = total + weight, mean + weight[:, None] * vote
    mean = mean / total.where(total > 0, 1.0)[:, None]
    status = uncertain.to(torch.int8) * int(Status.LOW_SUPPORT)
    return Answers(mean, status).refuse(nobody, Status.EMPTY)


def thresholds_for(votes: Tensor, domains: Tensor, labels: Tensor, accuracy: float) -> Tensor:
    """The smallest threshold [c] of each chart above which it is right as often as is asked, on validation
    data: votes [c, q, k], domains [c, q] and classes [q]. Infinite for a chart that never is.
    """
    return Judged.of(votes, domains, labels).lowest(accuracy)


@dataclass(frozen=True, eq=False)
class Judged:
    """What charts say of rows whose classes are known: all that is kept for their thresholds.

    Attributes
    ----------
    sure : Tensor [c, q]
        Their certainties; -1 where they say nothing.
    hits, seen : Tensor [c, q]
        How much a row counts for a chart, where it is right, and anyhow.
    """

    sure: Tensor
    hits: Tensor
    seen: Tensor

    @staticmethod
    def of(votes: Tensor, domains: Tensor, labels: Tensor) -> "Judged":
        """Of votes [c, q, k], domains [c, q] and classes [q]."""
        right = (votes.argmax(2) == labels) & ~votes.isnan().any(2)
        return Judged(certainty(votes).nan_to_num(-1.0), right.double() * domains, domains)

    @staticmethod
    def joined(parts: Sequence["Judged"]) -> "Judged":
        """The rows of all parts, in an order that follows from what is said of them: sums are the same."""
        each = zip(*((part.sure, part.hits, part.seen) for part in parts), strict=True)
        sure, hits, seen = (torch.cat(some, 1) for some in each)
        order = hits.argsort(dim=1, stable=True)
        for values in (seen, sure):
            order = order.gather(1, values.gather(1, order).argsort(dim=1, stable=True))
        return Judged(*(values.gather(1, order) for values in (sure, hits, seen)))

    def lowest(self, accuracy: float) -> Tensor:
        """The thresholds [c]; DataError without rows."""
        if not self.sure.shape[1]:
            remedy = "Hold out more (holdout=0.5), or nothing: with holdout=0 thresholds are 0."
            raise DataError("rows that are held out for the thresholds", "none", remedy)
        order = self.sure.argsort(dim=1, descending=True, stable=True)
        hits, seen = (each.gather(1, order).cumsum(1) for each in (self.hits, self.seen))
        ranked = self.sure.gather(1, order)
        last = torch.ones_like(ranked, dtype=torch.bool)  # of queries with one certainty
        last[:, :-1] = ranked[:, 1:] != ranked[:, :-1]
        good = last & (hits / seen >= accuracy)  # 0.55 * 100 is more than 55, 55 / 100 is 0.55
        lowest = torch.where(good, ranked, torch.inf).amin(1)
        return lowest.masked_fill(good[:, -1], 0.0)
