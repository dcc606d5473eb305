"""Models of devices in groups of groups: each is drawn to the mean of its groups, one for each level.

    minimise over w_i   F_i(w_i) + (mu / 2) sum_k (1 / N_k) |w_i - w^(k)|^2

where w^(k) is the mean over the N_k devices of the group of i at level k. Of a group's nodes with no rows of
its own, joined to each of its devices by an edge of weight 1 / N_k, the mean is what the squared coupling
makes: where all rest, this is the network of devices and groups with the strength mu.
"""

import torch
from torch import Tensor

from locdist.local.graph import Graph


def grouped(levels: Tensor) -> Graph:
    """The graph of devices, and behind them their groups.

    Parameters
    ----------
    levels : Tensor [k, n] int64
        The group of each device at each level; -1 for none.
    """
    nodes = levels.shape[1]
    heads, tails, weights = [], [], []
    for groups in levels:
        there = (groups >= 0).nonzero()[:, 0]
        _, own, sizes = torch.unique(groups[there], return_inverse=True, return_counts=True)
        heads.append(there)
        tails.append(own + nodes)
        weights.append((1 / sizes.double())[own])
        nodes += len(sizes)
    none = torch.zeros(0, dtype=torch.int64)
    ends = torch.cat([none, *heads]), torch.cat([none, *tails])
    return Graph.of_pairs(*ends, torch.cat([none.double(), *weights]), nodes=nodes)
