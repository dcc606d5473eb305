"""Models of devices in groups of groups (DemLearn)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.graph import Graph
from locdist.local.hierarchy import Levels, settled
from locdist.local.losses import Array, Losses, Rows, double
from locdist.local.network import Network, NodeModels, with_intercept
from locdist.methods.federated import check_rounds


@dataclass(frozen=True)
class DemLearn:
    """Linear models of devices in groups of groups; made by `dem_learn`."""

    mu: float
    ridge: float
    intercept: bool
    tolerance: float
    rounds: int

    def __call__(
        self, groups: Array, nodes: Array, features: Array, targets: Array, weights: Array | None = None
    ) -> NodeModels:
        """The models of all devices.

        Parameters
        ----------
        groups : array [k, n] of int
            The group of each of n devices at each level, -1 for none.
        nodes, features, targets, weights
            As in `gtvmin`.

        Returns
        -------
        NodeModels
        """
        levels = double(groups).long()
        if levels.ndim != 2:
            given = f"shape {list(levels.shape)}"
            raise UsageError("groups [levels, devices]", given, "Give one row for each level.")
        count = levels.shape[1]
        rows = Rows.of(count, nodes, features, targets, weights)
        rows = replace(rows, features=with_intercept(rows.features, self.intercept))
        losses = Losses.of(rows, count).penalized(self.ridge, int(self.intercept))
        state = settled(losses, Levels(levels), self.mu, self.tolerance, self.rounds)
        network = Network.of(losses, _chained(levels if self.mu else levels[:0], count), 1.0)
        value = float(losses.values(state.models).sum()) + self._apart(Levels(levels), state.models)
        there = network.pooled.rows[network.component] > 0
        return NodeModels(
            torch.where(there[:, None], state.models, torch.nan),
            network.statuses(state.residual <= self.tolerance),
            losses.rows, state.rounds, 0.0, state.residual, value, self.intercept,
        )  # fmt: skip

    def _apart(self, levels: Levels, models: Tensor) -> float:
        """(mu / 2) sum_i sum_k |w_i - w^(k)|^2 / N_k."""
        counts, means = levels.drawn(models)
        return self.mu / 2 * float((models * (counts[:, None] * models - means)).sum())


def dem_learn(
    mu: float = 1.0,
    ridge: float = 0.0,
    intercept: bool = True,
    tolerance: float = 1e-10,
    rounds: int = 10_000,
) -> DemLearn:
    """DemLearn's personalized step: each device minimizes F_i(w) + (μ/2) Σ_k (1/N_k) ‖w − w⁽ᵏ⁾‖² over the
    levels of groups that it is in, w⁽ᵏ⁾ the mean over the N_k devices of its group, until all rest.

    One level of one group is FedProx; with μ = 0 every device is alone.

    Parameters
    ----------
    mu : float
        How much the means of groups count.
    ridge, intercept
        As in `gtvmin`.
    tolerance : float
        Of the norm of the slopes of what is minimized, relative to the pulls X'y, at which devices rest.
    rounds : int
        At most.

    Returns
    -------
    DemLearn

    References
    ----------
    Nguyen et al., *Edge-Assisted Democratized Learning Toward Federated Analytics*, IEEE Internet of Things
    Journal 9, 2022.
    """
    check_rounds(mu, tolerance, rounds)
    check_rounds(ridge, tolerance, rounds)
    return DemLearn(mu, ridge, intercept, tolerance, rounds)


def _chained(levels: Tensor, count: int) -> Graph:
    """A graph in which the members of each group are connected."""
    heads, tails = [], []
    for groups in levels:
        order = groups.argsort(stable=True)
        order = order[groups[order] >= 0]
        same = groups[order[1:]] == groups[order[:-1]]
        heads.append(order[1:][same])
        tails.append(order[:-1][same])
    none = torch.zeros(0, dtype=torch.int64)
    return Graph.of_pairs(torch.cat([none, *heads]), torch.cat([none, *tails]), nodes=count)
