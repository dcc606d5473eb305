"""Weighted graphs over the rows of a support: who is a neighbor of whom, and how much it counts."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean

Numbers = Sequence[float] | Tensor  # and arrays of NumPy
SYMMETRIES = ("union", "mutual", "mean")
ALIKE = 1e-12  # relative: the same weight both ways


@dataclass(frozen=True, eq=False)
class Graph:
    """The edges out of some nodes, row by row: a sparse matrix W [n, m], of which a square one is a graph.

    Within a row the columns ascend, and none is there twice.

    Parameters
    ----------
    starts : Tensor [n + 1] int64
        Where the edges of each row begin, and at the end their number e.
    ends : Tensor [e] int64
        The node that each edge leads to.
    weights : Tensor [e] float64
    distances : Tensor [e] float64, optional
    nodes : int
        Columns m; as many as rows by default.
    """

    starts: Tensor
    ends: Tensor
    weights: Tensor
    distances: Tensor | None = None
    nodes: int = -1

    def __post_init__(self) -> None:
        if self.nodes < 0:
            object.__setattr__(self, "nodes", len(self.starts) - 1)
        beyond = len(self.ends) and not 0 <= int(self.ends.min()) <= int(self.ends.max()) < self.nodes
        if len(self.weights) != len(self.ends) or int(self.starts[-1]) != len(self.ends) or beyond:
            given = f"{len(self.ends)} ends, {len(self.weights)} weights, {int(self.starts[-1])} in rows"
            raise UsageError(f"edges to {self.nodes} nodes, each with a weight", given, "Align them.")

    def __len__(self) -> int:
        return len(self.starts) - 1

    @staticmethod
    def of(edges: "Edges", rows: int, nodes: int | None = None) -> "Graph":
        """The graph of edges in any order; of several between the same two nodes the last one counts."""
        nodes = rows if nodes is None else nodes
        order = (edges.heads * nodes + edges.tails).argsort(stable=True)
        key = (edges.heads * nodes + edges.tails)[order]
        last = torch.ones_like(key, dtype=torch.bool)
        last[:-1] = key[1:] != key[:-1]
        return Graph.of_sorted(edges.some(order[last]), rows, nodes)

    @staticmethod
    def of_sorted(edges: "Edges", rows: int, nodes: int) -> "Graph":
        """The graph of edges that are sorted by row and node, each pair once."""
        counts = torch.bincount(edges.heads, minlength=rows)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Graph(starts, edges.tails, edges.weights, edges.distances, nodes)

    @staticmethod
    def of_pairs(
        heads: Numbers, tails: Numbers, weights: Numbers | None = None, *, nodes: int, both: bool = False
    ) -> "Graph":
        """The graph of edges from the nodes `heads` [e] to the nodes `tails` [e], arrays of numbers from 0.

        Parameters
        ----------
        weights : array [e], optional
            1 by default.
        nodes : int
        both : bool
            Whether each edge leads back, too, with the same weight.
        """
        ends = [torch.as_tensor(given).long() for given in (heads, tails)]
        found = torch.ones(len(ends[0])) if weights is None else torch.as_tensor(weights)
        edges = Edges(ends[0], ends[1], found.double())
        return Graph.of(Edges.together([edges, edges.reversed]) if both else edges, nodes)

    @cached_property
    def counts(self) -> Tensor:
        """Edges of each row [n]."""
        return self.starts.diff()

    @cached_property
    def heads(self) -> Tensor:
        """The row of each edge [e]."""
        return torch.repeat_interleave(torch.arange(len(self)), self.counts)

    @cached_property
    def degrees(self) -> Tensor:
        """Sums of the weights of each row [n]."""
        return self.times(torch.ones(self.nodes, 1, dtype=torch.float64))[:, 0]

    @property
    def edges(self) -> "Edges":
        """The edges as pairs."""
        return Edges(self.heads, self.ends, self.weights, self.distances)

    @cached_property
    def symmetric(self) -> bool:
        """Whether every edge leads back with the same weight."""
        if len(self) != self.nodes:
            return False
        back = Graph.of(self.edges.reversed, len(self))
        if not torch.equal(back.ends, self.ends) or not torch.equal(back.starts, self.starts):
            return False
        return bool(((back.weights - self.weights).abs() <= ALIKE * self.weights.abs()).all())

    def times(self, state: Tensor) -> Tensor:
        """W F [n, c] for a state F [m, c] float64: of each row the weighted sum over its neighbors, added up
        in their order.
        """
        return torch.nn.functional.embedding_bag(
            self.ends,
            state,
            self.starts,
            mode="sum",
            per_sample_weights=self.weights,
            include_last_offset=True,
        )  # fmt: skip

    def normalized(self, how: str) -> "Graph":
        """The graph with weights over degrees d.

        Parameters
        ----------
        how : {"rows", "both"}
            "rows" is D⁻¹ W: the weights of a row sum to one, a random walk. "both" is D^-½ W D^-½, of a
            symmetric graph.
        """
        size = self.degrees.where(self.degrees != 0, 1.0)
        scale = size.reciprocal() if how == "rows" else size.rsqrt()
        weights = self.weights * scale[self.heads]
        return replace(self, weights=weights if how == "rows" else weights * scale[self.ends])

    def symmetrized(self, how: str) -> "Graph":
        """The undirected graph; see `combined`."""
        both = combined(self.edges, self.edges.reversed, self.nodes, how)
        return Graph.of_sorted(both, len(self), self.nodes)

    def components(self) -> Tensor:
        """The smallest node [n] that each node is connected with, whichever way edges lead."""
        parents = joined(torch.arange(len(self)), self.heads, self.ends)
        return roots(parents, torch.arange(len(self)))


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges as pairs, in any order.

    Parameters
    ----------
    heads, tails : Tensor [e] int64
        The row that an edge belongs to, and the node that it leads to.
    weights : Tensor [e] float64
    distances : Tensor [e] float64, optional
    """

    heads: Tensor
    tails: Tensor
    weights: Tensor
    distances: Tensor | None = None

    @staticmethod
    def of_neighbors(ids: Tensor, weights: Tensor, distances: Tensor | None = None) -> "Edges":
        """Row i leads to its neighbors `ids` [n, k]: those that are not missing (-1) and weigh something."""
        found = (ids >= 0) & (weights != 0)
        heads = torch.arange(len(ids))[:, None].expand_as(ids)[found]
        away = None if distances is None else distances[found].double()
        return Edges(heads, ids[found], weights[found].double(), away)

    @staticmethod
    def together(parts: Sequence["Edges"]) -> "Edges":
        """The edges of all parts, one after the other; with distances where all have them."""
        away = [part.distances for part in parts if part.distances is not None]
        none, nothing = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
        return Edges(
            torch.cat([none, *(part.heads for part in parts)]),
            torch.cat([none, *(part.tails for part in parts)]),
            torch.cat([nothing, *(part.weights for part in parts)]),
            torch.cat([nothing, *away]) if len(away) == len(parts) else None,
        )

    @property
    def reversed(self) -> "Edges":
        """The same edges the other way."""
        return Edges(self.tails, self.heads, self.weights, self.distances)

    def some(self, which: Tensor) -> "Edges":
        """Those that `which` [e] bool or [s] int64 names."""
        away = None if self.distances is None else self.distances[which]
        return Edges(self.heads[which], self.tails[which], self.weights[which], away)


def combined(there: Edges, back: Edges, nodes: int, how: str) -> Edges:
    """Edges of an undirected graph, sorted by row and node.

    Parameters
    ----------
    there, back : Edges
        Those of some rows, and those of other rows that lead to them, reversed. No pair is twice in either.
    nodes : int
    how : {"union", "mutual", "mean"}
        "union" keeps an edge that leads either way, with the larger weight; "mutual" one that leads both
        ways, with the smaller; "mean" is (W + W') / 2, where an edge that is not there weighs 0.
    """
    if how not in SYMMETRIES:
        raise UsageError(f"one of {', '.join(SYMMETRIES)}", repr(how), did_you_mean(how, SYMMETRIES))
    heads, tails = torch.cat([there.heads, back.heads]), torch.cat([there.tails, back.tails])
    keys, place = torch.unique(heads * nodes + tails, return_inverse=True)
    sides = []
    for side, own in ((there, place[: len(there.heads)]), (back, place[len(there.heads) :])):
        weights = torch.full(keys.shape, float("nan"), dtype=torch.float64)
        weights[own] = side.weights
        sides.append(weights)
    one, other = sides
    found = one.isfinite() & other.isfinite() if how == "mutual" else torch.ones_like(one, dtype=torch.bool)
    mean = (one.nan_to_num(0.0) + other.nan_to_num(0.0)) / 2
    weights = {"union": torch.fmax(one, other), "mutual": torch.fmin(one, other), "mean": mean}[how]
    away = None
    if there.distances is not None and back.distances is not None:
        away = torch.empty_like(one)
        away[place] = torch.cat([there.distances, back.distances])
    return Edges(keys // nodes, keys % nodes, weights, away).some(found)


def joined(parents: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """Trees [n] of connected nodes after some more edges, changed in place: each node's parent is a node of
    its component with a smaller number, or itself.

    Edges may come in pieces, in any order, and are needed once (a union-find, by whole tensors).
    """
    while len(heads):
        one, other = roots(parents, heads), roots(parents, tails)
        parents[heads], parents[tails] = one, other
        apart = one != other
        low, high = torch.minimum(one, other)[apart], torch.maximum(one, other)[apart]
        parents.scatter_reduce_(0, high, low, "amin")
        heads, tails = heads[apart], tails[apart]
    return parents


def roots(parents: Tensor, nodes: Tensor) -> Tensor:
    """The smallest node of the component of each of some nodes."""
    while True:
        above = parents[nodes]
        if torch.equal(above, nodes):
            return above
        nodes = above


def blocks(graph: Graph, columns: list[int]) -> Iterator[Graph]:
    """The graph cut between columns: for each pair of neighbors in `columns` the edges to the nodes from the
    first to before the second, which are counted from the first.
    """
    for first, last in itertools.pairwise(columns):
        here = graph.edges.some((graph.ends >= first) & (graph.ends < last))
        yield Graph.of_sorted(replace(here, tails=here.tails - first), len(graph), last - first)
