"""Which neighbors become edges of a graph, and what an edge weighs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.graph import Edges
from locdist.local.kernels import DotProduct, Kernel, log_weights, weigh
from locdist.local.layer import Index
from locdist.local.models import LinearSmoother
from locdist.local.neighborhood import Neighborhood
from locdist.local.tiles import TILE

FIRST, WIDEN = 32, 4  # neighbors that are looked for within a radius, and by how many times more
PAIRS = 4 << 20  # neighbors held at once


@dataclass(frozen=True)
class Links:
    """Edges from each row to its neighbors, never to itself.

    Parameters
    ----------
    k : int or None
        The nearest, at most; None with a radius.
    radius : float, optional
        In units of the distances that users see; those farther away are left out.
    kernel : Kernel, optional
        An edge weighs its raw value times the weight of the row that it leads to; 1 without it.
    model : LinearSmoother, optional
        An edge weighs what the neighbor counts in the model's prediction, by the kernel.
    """

    k: int | None
    radius: float | None = None
    kernel: Kernel | None = None
    model: LinearSmoother | None = None

    def __post_init__(self) -> None:
        k: object = self.k  # whatever users passed
        if k is None and self.radius is None:
            raise UsageError("k neighbors or a radius", "neither", "Say whom an edge leads to.")
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
            raise UsageError("k, a whole number of at least 1", repr(k), "Choose how many neighbors count.")
        wide = self.radius is not None and not 0 < self.radius < float("inf")
        if wide or isinstance(self.radius, bool):
            raise UsageError("a positive radius", repr(self.radius), "It is a distance.")

    def check(self, metric: str) -> None:
        """UsageError unless radius and kernel go with the metric of an index."""
        if metric == "ip" and self.radius is not None:
            raise UsageError("a metric with distances for a radius", "'ip'", "Choose k neighbors.")
        if self.kernel is not None and isinstance(self.kernel, DotProduct) != (metric == "ip"):
            given = f"kernel {self.kernel.name!r} on an index of metric {metric!r}"
            raise UsageError(
                "the dot-product kernel with the metric 'ip', and no other", given, "Correct it."
            )

    def edges(self, index: Index, ids: Tensor, own: Tensor, rows: int) -> tuple[Edges, Tensor]:
        """The edges of stored rows, nearest first, and how many neighbors each one has [q].

        Parameters
        ----------
        index : Index
        ids, own : Tensor [q] int64
            The rows, by their place in the index and in the source.
        rows : int
            Of the index.

        Returns
        -------
        Edges
            Heads count from the first of these rows, tails are stored rows, distances as a kernel sees them.
        """
        parts, found = list[Edges](), torch.zeros(len(ids), dtype=torch.int64)
        asked = _themselves(index, ids)
        for places, hood in self._found(index, asked, own, rows):
            for tile in torch.split(torch.arange(len(places)), max(1, min(TILE, PAIRS // hood.ids.shape[1]))):
                edges = self._weighed(index, asked.rows(places[tile]), hood.rows(tile))
                parts.append(replace(edges, heads=places[tile][edges.heads]))
            found[places] = hood.found.sum(1)
        whole = Edges.together(parts)
        return whole.some(whole.heads.argsort(stable=True)), found

    def _found(
        self, index: Index, asked: Neighborhood, own: Tensor, rows: int
    ) -> Iterator[tuple[Tensor, Neighborhood]]:
        """Rows by their places, each once, and their neighbors."""
        assert asked.keys is not None
        most = min(self.k or rows, max(rows - 1, 1))
        left, k = torch.arange(len(own)), most if self.radius is None else min(FIRST, most)
        while len(left):
            later = []
            for places in torch.split(left, max(1, PAIRS // k)):
                hood = _ordered(index.search(asked.keys[places, 0], k, own[places]))
                inside = self._inside(hood)
                more = inside[:, -1] if k < most else torch.zeros(len(places), dtype=torch.bool)
                ids, away = hood.ids.where(inside, -1), hood.distances.where(inside, torch.inf)
                yield places[~more], replace(hood, ids=ids, distances=away).rows(~more)
                later.append(places[more])
            left, k = torch.cat(later), min(WIDEN * k, most)

    def _inside(self, hood: Neighborhood) -> Tensor:
        if self.radius is None:
            return hood.found
        return hood.found & (hood.distances.double().clamp(min=0).sqrt() <= self.radius)

    def _weighed(self, index: Index, asked: Neighborhood, hood: Neighborhood) -> Edges:
        """The edges of one tile."""
        if self.kernel is None:
            return Edges.of_neighbors(hood.ids, torch.ones_like(hood.distances), hood.distances)
        assert asked.features is not None
        needs = self.kernel.needs | (self.model.needs - {"targets"} if self.model else frozenset())
        hood = index.gather(replace(hood, query_features=asked.features[:, 0]), needs)
        if self.model is None:
            return Edges.of_neighbors(hood.ids, log_weights(self.kernel, hood).exp(), hood.distances)
        rows, _ = self.model.smoother(hood, weigh(self.kernel, hood).weights)
        return Edges.of_neighbors(hood.ids, rows, hood.distances)


def _themselves(index: Index, ids: Tensor) -> Neighborhood:
    """Stored rows as their own neighbors, with their keys and features."""
    itself = Neighborhood(torch.zeros(len(ids), 1), ids[:, None])
    return index.gather(itself, frozenset({"keys", "features"}))


def _ordered(hood: Neighborhood) -> Neighborhood:
    """Neighborhoods in the order of their queries."""
    return hood if hood.order is None else hood.rows(hood.order.argsort())
