"""Models of devices in groups of groups: each is drawn to the mean of its groups, one for each level.

    minimise over w_i   F_i(w_i) + (mu / 2) sum_k (1 / N_k) |w_i - w^(k)|^2

where w^(k) is the mean over the N_k devices of the group of i at level k. Where all rest, this is the minimum
of sum_i F_i + (mu / 2) sum_{i,j} A_ij |w_i - w_j|^2 with A_ij = sum_k 1 / N_k^2 over the levels at which i
and j are in one group.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.local.coupled import State
from locdist.local.losses import Losses, sums_over


@dataclass(frozen=True, eq=False)
class Levels:
    """The groups of devices.

    Attributes
    ----------
    groups : Tensor [k, n] int64
        The group of each device at each level; -1 for none.
    """

    groups: Tensor

    def drawn(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """sum_k 1 / N_k [n], and sum_k w^(k) / N_k [n, m]."""
        counts, means = torch.zeros(len(models), dtype=models.dtype), torch.zeros_like(models)
        for groups in self.groups:
            there = (groups >= 0).nonzero()[:, 0]
            names, own = torch.unique(groups[there], return_inverse=True)
            together = sums_over(own, len(names))
            size = together.counts.double()
            counts[there] += (1 / size)[own]
            means[there] += (together.times(models[there]) / size[:, None].square())[own]
        return counts, means


def settled(losses: Losses, levels: Levels, mu: float, tolerance: float, most: int) -> State:
    """Rounds of local fits and means of groups, until the norm of the slopes that are left, relative to the
    pulls of the losses, is at most the tolerance, or nothing moves any more.
    """
    models, rounds, moved = losses.solve(losses.pull, torch.zeros_like(losses.level)), 0, True
    counts, means = levels.drawn(models)
    while moved and rounds < most and _left(losses, models, mu * counts, mu * means) > tolerance:
        after = losses.solve(losses.pull + mu * means, mu * counts)
        models, rounds, moved = after, rounds + 1, not torch.equal(after, models)
        counts, means = levels.drawn(models)
    left = _left(losses, models, mu * counts, mu * means)
    return State(models, models[:0], 1.0, rounds, 0.0, left)


def _left(losses: Losses, models: Tensor, drawn: Tensor, means: Tensor) -> float:
    """The norm of the slopes of what is minimised, over that of the pulls; 0 where it is rounding."""
    pulled = drawn[:, None] * models
    left = float((losses.slopes(models) + pulled - means).norm())
    rounding = torch.finfo(models.dtype).eps * float(losses.bent(models).norm() + pulled.norm())
    return left / (float(losses.pull.norm()) or 1.0) if left > rounding else 0.0
