"""Queries and the support rows retrieved for them.

A neighborhood starts as what a search returns, distances and ids, and an index fills in the rows that a
kernel or a model needs. Short neighborhoods are padded (id -1, distance inf), so that a tile of queries is
always one tensor.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from locdist.errors import UsageError

_LAST = torch.iinfo(torch.int64).max
_OF_QUERIES = frozenset({"queries", "query_features"})  # whose columns are no neighbors


@dataclass(frozen=True)
class Neighborhood:
    """k neighbors of each of q queries.

    Attributes
    ----------
    distances : Tensor [q, k] float32 or float64
        Squared distances (metric "ip": minus the score); inf where missing.
    ids : Tensor [q, k] int64
        Row ids of the support; -1 where missing.
    queries : Tensor [q, d], optional
    order : Tensor [q] int64, optional
        Which of the caller's queries each row is; None is the caller's order.
    keys : Tensor [q, k, d], optional
    targets : Tensor [q, k, p], optional
        float64, or int64 class codes [q, k, 1] for votes. Entries of missing neighbors may hold anything.
    classes : int
        The number of classes when the targets are codes.
    features : Tensor [q, k, m], optional
    query_features : Tensor [q, m], optional
    row_weights : Tensor [q, k], optional
        Weights of the support rows, >= 0; a row of weight zero is absent.
    reach : Tensor [q, k], optional
        Squared distance of each neighbor to its own nearest row of some rank.
    shapes : Tensor [q, k, c], optional
        Numbers of each neighbor for its own kernel and model: widths of memberships, slopes of consequents;
        [1, n, c] where all rows are everybody's neighbors.
    offsets : Tensor [q, k], optional
        What is added to the linear predictor of the support rows.
    query_offsets : Tensor [q], optional
        The same of the queries.
    own : Tensor [q] int64, optional
        Row of the support that each query is.
    alone : Tensor [q] bool, optional
        Which queries are rows of the support that are left out.
    support : Tensor [q] float64, optional
        Weight of all rows of the support, less a mean one where a row is left out.
    mass : Tensor [q] float64, optional
        Logarithm of the sum over the neighbors of the kernel that integrates to one over the key's space.
    """

    distances: Tensor
    ids: Tensor
    queries: Tensor | None = None
    order: Tensor | None = None
    keys: Tensor | None = None
    targets: Tensor | None = None
    classes: int = 0
    features: Tensor | None = None
    query_features: Tensor | None = None
    row_weights: Tensor | None = None
    reach: Tensor | None = None
    offsets: Tensor | None = None
    query_offsets: Tensor | None = None
    own: Tensor | None = None
    alone: Tensor | None = None
    support: Tensor | None = None
    mass: Tensor | None = None
    shapes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.distances.ndim != 2 or self.distances.shape != self.ids.shape:
            raise UsageError(
                "distances and ids of one shape [q, k]",
                f"{list(self.distances.shape)} and {list(self.ids.shape)}",
                "Return both from the search with one column for each neighbor.",
            )

    def within(self, rows: int, weight: float) -> Tensor:
        """`support` in an index of so many rows and of so much weight."""
        whole = torch.full(self.ids.shape[:1], weight, dtype=torch.float64, device=self.ids.device)
        return whole if self.alone is None else whole - self.alone * (weight / rows)

    @cached_property
    def found(self) -> Tensor:
        """Which neighbors exist: [q, k] bool."""
        return self.ids >= 0

    @cached_property
    def absent(self) -> Tensor:
        """Which neighbors cannot count, missing or with a row weight of zero: [q, k] bool."""
        missing = self.ids < 0
        return missing if self.row_weights is None else missing | ~(self.row_weights > 0)

    def rows(self, index: slice | Tensor) -> "Neighborhood":
        """The neighborhoods of some queries, with everything that is filled in."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value[index] for name, value in values.items() if isinstance(value, Tensor)}
        return Neighborhood(**(values | tensors))

    def to(self, device: str) -> "Neighborhood":
        """The same neighborhoods on a torch device."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return Neighborhood(**(values | moved))

    def first(self, k: int) -> "Neighborhood":
        """The first k neighbors of each query (of sorted ones the nearest), with everything filled in."""
        if k == self.ids.shape[1]:
            return self
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        rows = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        wide = {name: value for name, value in rows.items() if value.ndim > 1 and name not in _OF_QUERIES}
        cut = {name: value[:, :k] for name, value in wide.items()}
        return Neighborhood(**(values | cut))

    def nearest(self, k: int) -> "Neighborhood":
        """The k nearest of these neighbors, sorted by (distance, id). Gathered rows are not carried along."""
        return self._found_anew(*smallest(self.distances, self.ids, k))

    def without(self, own: Tensor) -> "Neighborhood":
        """These neighbors less one id for each query.

        Parameters
        ----------
        own : Tensor [q] int64
            The id to leave out; -1 leaves out nothing. Gathered rows are not carried along.
        """
        return self._found_anew(*_less(self.distances, self.ids, self.ids == own[:, None]))

    def pad(self, k: int) -> "Neighborhood":
        """These neighbors in k columns, the new ones missing. Gathered rows are not carried along."""
        return self._found_anew(*_padded(self.distances, self.ids, k))

    def merge(self, other: "Neighborhood") -> "Neighborhood":
        """The union of two neighborhoods of the same queries, k1 + k2 columns sorted by (distance, id).

        An id that both hold counts once, with the smaller distance. Merging is associative and commutative;
        follow it by `nearest(k)`. Only distances and ids are merged.
        """
        distances = torch.cat([self.distances, other.distances], 1)
        ids = torch.cat([self.ids, other.ids], 1)
        distances, ids = smallest(distances, ids, ids.shape[1])
        order = ids.argsort(dim=1, stable=True)
        distances, ids = distances.gather(1, order), ids.gather(1, order)
        repeated = torch.zeros_like(ids, dtype=torch.bool)
        repeated[:, 1:] = ids[:, 1:] == ids[:, :-1]
        return self._found_anew(*_less(distances, ids, repeated))

    def _found_anew(self, distances: Tensor, ids: Tensor) -> "Neighborhood":
        return Neighborhood(distances, ids, self.queries, self.order, query_features=self.query_features)


def smallest(distances: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest (distance, id) pairs of each row, sorted: ties to the smaller id, missing ones last.

    Parameters
    ----------
    distances : Tensor [q, n]
    ids : Tensor [q, n] int64
        -1 where missing, whatever the distance there.
    k : int
        Columns of the result; more than n pads.

    Returns
    -------
    tuple of Tensor [q, k], Tensor [q, k]
        Distances (inf where missing) and ids (-1 where missing).
    """
    distances = distances.masked_fill(ids < 0, float("inf"))
    distances, ids = _with_ties(distances, ids, k)
    near, order = distances.sort(dim=1)
    tied = ((near[:, 1:] == near[:, :-1]) & near[:, 1:].isfinite()).any(dim=1)
    if tied.any():  # rare, and twice the work
        order[tied] = _by_id(distances[tied], ids[tied])
    # copies: a view would keep the whole sorted rows alive
    return _padded(near[:, :k].clone(), ids.gather(1, order[:, :k]), k)


def _by_id(distances: Tensor, ids: Tensor) -> Tensor:
    order = torch.where(ids < 0, _LAST, ids).argsort(dim=1)
    return order.gather(1, distances.gather(1, order).argsort(dim=1, stable=True))


def _with_ties(distances: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # Sorting wide rows is slow and topk alone breaks ties as it likes: so take as many columns as reach every
    # tie of the k-th.
    if not 0 < 2 * k < distances.shape[1]:
        return distances, ids
    last = distances.topk(k, largest=False).values[:, -1:]
    count = int((distances <= last).sum(1).max()) if len(distances) else k
    near, order = distances.topk(max(count, k), largest=False, sorted=False)
    return near, ids.gather(1, order)


def _less(distances: Tensor, ids: Tensor, drop: Tensor) -> tuple[Tensor, Tensor]:
    return smallest(distances, ids.masked_fill(drop, -1), ids.shape[1])


def _padded(distances: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    extra = max(k - ids.shape[1], 0)
    pad = torch.nn.functional.pad
    return pad(distances, (0, extra), value=float("inf")), pad(ids, (0, extra), value=-1)
