"""Modes: of many places that climbs ended in, those that stand for the others."""

import torch
from torch import Tensor

_ROWS = 1024  # places that are compared with each other at once


def ranked(places: Tensor, heights: Tensor) -> Tensor:
    """An order [n] of places [n, d]: the highest first, of equal ones that with the larger coordinates."""
    order = torch.arange(len(places))
    for column in reversed(places.unbind(1)):
        order = order[column[order].argsort(descending=True, stable=True)]
    return order[heights[order].argsort(descending=True, stable=True)]


def strongest(places: Tensor, radius: float) -> Tensor:
    """Which places stand for the others: the first, then the first that is farther than the radius from all
    that were chosen, and so on.

    Parameters
    ----------
    places : Tensor [n, d]
        Ranked.
    radius : float

    Returns
    -------
    Tensor [m] int64
        Ascending.
    """
    chosen = torch.zeros(0, dtype=torch.int64)
    for start in range(0, len(places), _ROWS):
        some = torch.arange(start, min(start + _ROWS, len(places)))
        some = some[nearest(places[some], places[chosen])[0] > radius]
        chosen = torch.cat([chosen, some[_greedy(apart(places[some], places[some]) <= radius)]])
    return chosen


def _greedy(near: Tensor) -> Tensor:
    """Which of n, in their order, are chosen when each one rules out those near it [n, n] that come later."""
    earlier = near.tril(-1)
    chosen = torch.zeros(len(near), dtype=torch.bool)
    open_ = ~chosen
    while open_.any():  # those with no open one before them are certain
        sure = open_ & ~(earlier & open_).any(1)
        chosen |= sure
        open_ &= ~(sure | (earlier & chosen).any(1))
    return chosen


def nearest(places: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The distance [n] of places [n, d] to the nearest of others [m, d], and which it is, the first of equal
    ones; inf and -1 where there is none.
    """
    if not len(others):
        return places.new_full((len(places),), float("inf")), torch.full((len(places),), -1)
    parts = [apart(rows, others) for rows in places.split(max(1, (1 << 22) // len(others)))]
    found = [part.min(1) for part in parts]
    if not found:
        return places.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    return torch.cat([each.values for each in found]), torch.cat([each.indices for each in found])


def apart(places: Tensor, others: Tensor) -> Tensor:
    """Distances [n, m]; of differences, not of products, which lose the digits of small ones."""
    return torch.cdist(places.double(), others.double(), compute_mode="donot_use_mm_for_euclid_dist")
