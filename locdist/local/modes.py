"""Modes: of many places that climbs ended in, those that stand for the others."""

import torch
from torch import Tensor

_ROWS = 1024  # places that are compared with each other at once
_PAIRS = 1 << 22  # distances held at once


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
    size = max(1, _PAIRS // len(others))
    starts = range(0, max(1, len(places)), size)
    found = [apart(places[start : start + size], others).min(1) for start in starts]
    return torch.cat([each.values for each in found]), torch.cat([each.indices for each in found])


def apart(places: Tensor, others: Tensor) -> Tensor:
    """Distances [n, m]; of differences, not of products, which lose the digits of small ones."""
    return torch.cdist(places.double(), others.double(), compute_mode="donot_use_mm_for_euclid_dist")


def cells(places: Tensor, side: float) -> Tensor:
    """The cell [n, d] int64 of a lattice that each place [n, d] lies in."""
    return (places / side).round().long()


def gathered(places: Tensor, heights: Tensor, counts: Tensor, side: float) -> tuple[Tensor, Tensor]:
    """The places that stand for those in the same cell of a lattice: the first of them in their ranks.

    Returns
    -------
    Tensor [m] int64, Tensor [m]
        Which ones, ranked, and the sum of the counts in their cells.
    """
    order = ranked(places, heights)
    _, inside = distinct(cells(places[order], side))
    number = int(inside.max()) + 1 if len(inside) else 0
    first = torch.full((number,), len(order)).scatter_reduce_(0, inside, torch.arange(len(order)), "amin")
    whole = torch.zeros(number, dtype=counts.dtype).index_add_(0, inside, counts[order])
    ranks = first.argsort()
    return order[first[ranks]], whole[ranks]


def located(asked: Tensor, known: Tensor) -> Tensor:
    """Which of the known cells [m, d], which are distinct, each asked cell [n, d] is; -1 for none."""
    _, place = distinct(torch.cat([known, asked]))
    which = torch.full((len(known) + len(asked),), -1)
    which[place[: len(known)]] = torch.arange(len(known))
    return which[place[len(known) :]]


def distinct(cells: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of cells [n, d], in their order, and which of them each is [n]."""
    place = torch.zeros_like(cells[:, 0])
    for column in cells.unbind(1):  # several times faster than rows at once
        _, value = torch.unique(column, return_inverse=True)
        _, place = torch.unique(place * len(cells) + value, return_inverse=True)
    some = torch.empty_like(place).scatter_(0, place, torch.arange(len(place)))
    return cells[some[: int(place.amax()) + 1 if len(place) else 0]], place
