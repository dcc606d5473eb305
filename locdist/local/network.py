"""Nodes with losses, the edges between them, and what their models say."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.families import Family
from locdist.local.graph import Edges, Graph
from locdist.local.losses import Array, Losses, double, sums_over


@dataclass(frozen=True, eq=False)
class Links:
    """The edges of an undirected graph, each once.

    Attributes
    ----------
    graph : Graph
        With each of them both ways.
    heads, tails : Tensor [e]
        Nodes.
    weights : Tensor [e] float64
    """

    graph: Graph
    heads: Tensor
    tails: Tensor
    weights: Tensor

    @staticmethod
    def of(graph: Graph) -> "Links":
        """Those of a graph, whichever way its edges lead: of two between the same nodes the larger weight
        counts; an edge from a node to itself, or of weight 0, does not.
        """
        if len(graph) != graph.nodes or not (graph.weights >= 0).all():
            given = f"{len(graph)} rows, {graph.nodes} nodes, or a weight below 0"
            raise UsageError("a graph whose weights are 0 or more", given, "Leave such edges out.")
        both = graph.symmetrized("union").edges
        both = both.some((both.heads != both.tails) & (both.weights > 0))
        once = both.some(both.heads < both.tails)
        kept = Graph.of_sorted(both, len(graph), len(graph))
        return Links(kept, once.heads, once.tails, once.weights)

    @cached_property
    def incidence(self) -> Graph:
        """The matrix [n, e] with 1 where an edge begins and -1 where it ends."""
        edges, ones = torch.arange(len(self.heads)), torch.ones_like(self.weights)
        both = Edges(torch.cat([self.heads, self.tails]), edges.repeat(2), torch.cat([ones, -ones]))
        return Graph.of(both, len(self.graph), len(self.heads))

    @cached_property
    def degrees(self) -> Tensor:
        """Sums of the weights [n]."""
        return self.ends.times(self.weights[:, None])[:, 0]

    @cached_property
    def ends(self) -> Graph:
        """The matrix [n, e] with 1 at both ends of an edge."""
        return replace(self.incidence, weights=self.incidence.weights.abs())

    def differences(self, models: Tensor) -> Tensor:
        """w_i - w_j of each edge [e, m]."""
        return models[self.heads] - models[self.tails]

    def gathered(self, flows: Tensor) -> Tensor:
        """The transpose of `differences`: what flows [e, m] on edges leave at nodes [n, m]."""
        return self.incidence.times(flows)


@dataclass(frozen=True, eq=False)
class Network:
    """Losses of nodes, the edges between them, and how much these count."""

    losses: Losses
    links: Links
    strength: float

    @staticmethod
    def of(losses: Losses, graph: Graph, strength: float) -> "Network":
        """Without a strength there are no edges, and every node is alone."""
        none = torch.zeros(0, dtype=torch.int64)
        return Network(
            losses, Links.of(graph if strength else Graph.of_pairs(none, none, nodes=len(graph))), strength
        )

    @cached_property
    def component(self) -> Tensor:
        """The connected component [n] of each node, from 0."""
        number: Tensor = torch.unique(self.links.graph.components(), return_inverse=True)[1]
        return number

    @cached_property
    def together(self) -> Graph:
        """The matrix [c, n] that sums over components."""
        return sums_over(self.component, int(self.component.max()) + 1 if len(self.component) else 0)

    @cached_property
    def pooled(self) -> Losses:
        """The losses of components whose nodes share one model."""
        return self.losses.summed(self.together)

    def shared(self, right: Tensor) -> Tensor:
        """What one model for all nodes of a component makes of right sides [n, m]."""
        summed = self.together.times(right)
        return self.pooled.solve(summed, torch.zeros(len(summed), dtype=torch.float64))[self.component]

    @cached_property
    def deficient(self) -> Tensor:
        """The nodes [n] of components whose rows, all together, do not tell the parameters."""
        return (self.pooled.spectrum[0] == 0).any(1)[self.component]

    def shortest(self, models: Tensor) -> Tensor:
        """Parameters [n, m] without what no row has a say in, the same at all nodes of a component."""
        if not self.deficient.any():
            return models
        size, axes = self.pooled.spectrum
        mean = self.together.normalized("rows").times(models)
        unsaid = torch.bmm(axes, (size == 0)[:, :, None] * torch.bmm(axes.mT, mean[:, :, None]))[:, :, 0]
        return models - unsaid[self.component]

    def statuses(self, settled: bool) -> Tensor:
        """A `Status` [n] of each node's model: EMPTY where no row is in reach, RANK_DEFICIENT where those in
        reach do not tell it, LOW_SUPPORT without rows of its own, FEW with fewer than parameters.
        """
        rows, there = self.losses.rows, self.pooled.rows[self.component] > 0
        status = torch.full(rows.shape, int(Status.OK if settled else Status.NOT_CONVERGED))
        for which, meaning in (
            (rows < self.losses.pull.shape[1], Status.FEW),
            (rows == 0, Status.LOW_SUPPORT),
            (self.deficient, Status.RANK_DEFICIENT),
            (~there, Status.EMPTY),
        ):
            status = torch.where(which, status.clamp(min=int(meaning)), status)
        return status.to(torch.int8)


@dataclass(frozen=True, eq=False)
class NodeModels:
    """Linear models of n nodes.

    Attributes
    ----------
    values : Tensor [n, m]
        Parameters; nan where there are none.
    status : Tensor [n] int8
    rows : Tensor [n]
        Rows of their own.
    rounds : int
    gap, residual : float
        How far the last round was from the minimum.
    objective : float
        What was minimised.
    intercept : bool
        Whether the first parameter is one.
    family : Family, optional
        Whose mean is predicted.
    """

    values: Tensor
    status: Tensor
    rows: Tensor
    rounds: int
    gap: float
    residual: float
    objective: float
    intercept: bool = True
    family: Family | None = None

    def first(self, count: int) -> "NodeModels":
        """Those of so many nodes; behind them are groups."""
        values, status, rows = (part[:count] for part in (self.values, self.status, self.rows))
        return replace(self, values=values, status=status, rows=rows)

    def predict(self, nodes: Array, features: Array) -> Answers:
        """The predictions [q, 1] of rows with features [q, d] at nodes [q]; EMPTY where the node is -1,
        NOT_FINITE where they overflow.
        """
        places, x = double(nodes).long(), double(features)
        values = self.values.nan_to_num()
        design = with_intercept(x, self.intercept)
        if design.ndim != 2 or design.shape[1] != values.shape[1]:
            width = values.shape[1] - self.intercept
            raise UsageError(f"features [q, {width}]", f"shape {list(x.shape)}", "Use the same ones.")
        eta = (design * values[places.clamp(min=0)]).sum(1, keepdim=True)
        mean = eta if self.family is None else self.family.mean(eta)
        return answered(mean, places, self.status, x)


def answered(values: Tensor, places: Tensor, status: Tensor, features: Tensor) -> Answers:
    """What models say of rows, with the statuses of models and rows.

    Parameters
    ----------
    values : Tensor [q, p]
    places : Tensor [q]
        The node of each row; -1 for none.
    status : Tensor [n]
        Of each node's model.
    features : Tensor [q, d]
    """
    told = torch.where(places >= 0, status[places.clamp(min=0)], int(Status.EMPTY)).to(torch.int8)
    found = Answers(values, told).without_value(told >= int(Status.EMPTY))
    broken = (told < int(Status.EMPTY)) & ~values.isfinite().all(1)
    return found.refuse(broken, Status.NOT_FINITE).refuse(~features.isfinite().all(1), Status.BAD_QUERY)


def with_intercept(features: Tensor, intercept: bool) -> Tensor:
    """Features [r, d] with a first column of ones, if wanted."""
    ones = features.new_ones(len(features), 1)
    return torch.cat([ones, features], 1) if intercept else features
