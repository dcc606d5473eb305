"""Networks of local models: a linear model at each node of a graph, drawn to those of its neighbors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from locdist.errors import UsageError, did_you_mean
from locdist.local.coupled import Coupling, Fit, Norm, Rounds, Squared
from locdist.local.families import Bernoulli, Family, Gamma, Poisson
from locdist.local.graph import Graph
from locdist.local.losses import Array, Losses, Rows
from locdist.local.network import Network, NodeModels, with_intercept
from locdist.methods.method import plain
from locdist.methods.spelled import spelled

COUPLINGS: Mapping[str, Coupling] = {"norm": Norm(), "squared": Squared()}
FAMILIES: Mapping[str, Family | None] = {
    "linear": None, "logistic": Bernoulli(), "poisson": Poisson(), "gamma": Gamma(),
}  # fmt: skip
STEPS = 100  # of Newton


@dataclass(frozen=True)
class CoupledMethod:
    """A frozen choice of what a node minimises, and of what draws it to its neighbors.

    Parameters
    ----------
    name : str
    parameters : tuple of (str, value)
        JSON-able and complete.
    loop : Rounds
    ridge : float
        Penalty of the slopes of a node.
    intercept : bool
    family : Family, optional
        Of the targets; half a sum of squares without one.
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    loop: Rounds
    ridge: float
    intercept: bool
    family: Family | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))
        if isinstance(self.ridge, bool) or not 0 <= self.ridge < float("inf"):
            raise UsageError("a ridge of 0 or more", repr(self.ridge), "0 is the default.")

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `coupled_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}

    def __call__(
        self, graph: Graph, nodes: Array, features: Array, targets: Array, weights: Array | None = None
    ) -> NodeModels:
        """The models of all nodes, in memory.

        Parameters
        ----------
        graph : Graph
            From `ld.graph`, or `ld.Graph.of_pairs(heads, tails, weights, nodes=n)`; each edge counts once,
            whichever way it leads.
        nodes : array [r] of int
            The node of each row, from 0.
        features : array [r, d]
        targets : array [r]
        weights : array [r], optional
            How much a row counts; 1 by default.

        Returns
        -------
        NodeModels
        """
        rows = self.rows(len(graph), nodes, features, targets, weights)
        fit = Fit.begin(len(graph), rows.features.shape[1])
        while not fit.done and fit.steps < STEPS:
            network = self.network(Losses.of(rows, len(graph), fit.state.models, self.family), graph)
            fit = fit.next(network, self.loop, self.family is None)
        return self.models(network, fit)

    def rows(
        self, count: int, nodes: Array, features: Array, targets: Array, weights: Array | None = None
    ) -> Rows:
        """Rows of `count` nodes, checked."""
        found = Rows.of(count, nodes, features, targets, weights)
        if self.family is not None and not self.family.inside(found.targets).all():
            wanted = f"targets that {self.spec['family']} models have"
            raise UsageError(wanted, "others", "Leave such rows out, or choose another family.")
        return replace(found, features=with_intercept(found.features, self.intercept))

    def network(self, losses: Losses, graph: Graph) -> Network:
        """The network of all rows' losses."""
        return Network.of(losses.penalized(self.ridge, int(self.intercept)), graph, self.loop.strength)

    def models(self, network: Network, fit: Fit) -> NodeModels:
        """What came out."""
        state, there = fit.state, network.pooled.rows[network.component] > 0
        values = torch.where(there[:, None], network.shortest(state.models), torch.nan)
        status = network.statuses(fit.done and self.loop.rests(state))
        told = (state.rounds, state.gap, state.residual, fit.value, self.intercept, self.family)
        return NodeModels(values, status, network.losses.rows, *told)


def gtvmin(
    strength: float = 1.0,
    coupling: str = "norm",
    family: str = "linear",
    ridge: float = 0.0,
    intercept: bool = True,
    tolerance: float = 1e-8,
    rounds: int = 20_000,
) -> CoupledMethod:
    """Generalized total variation minimization: min Σ_i f_i(w_i) + strength Σ_{i,j} A_ij φ(w_i − w_j), f_i
    half the sum of squares of the rows of node i, A_ij the weight of an edge.

    With a strength of 0 every node is fitted for itself; with a large one there is one model for each
    connected component. A node without rows takes part, and gets what its neighbors say.

    Parameters
    ----------
    strength : float
        How much differences of neighbors count.
    coupling : {"norm", "squared"}
        φ(u) = ‖u‖, with which nodes that agree well enough share one model exactly, and others are let go; or
        ‖u‖² / 2, with which neighbors are drawn to each other everywhere.
    family : {"linear", "logistic", "poisson", "gamma"}
        What f_i measures: squares, or the negative log-likelihood of classes 0 and 1, counts, or amounts.
    ridge : float
        f_i gets ridge/2 ‖slopes‖².
    intercept : bool
        Whether the first parameter is a constant.
    tolerance : float
        Of the certificate: the norm of the slopes that are left, relative to the pulls X'y, and the gap
        between differences and flows, relative to Σ w'X'y.
    rounds : int
        At most; in each a node hears once of its neighbors.

    Returns
    -------
    CoupledMethod

    References
    ----------
    SarcheshmehPour, Tian, Zhang, Jung, *Clustered Federated Learning via Generalized Total Variation
    Minimization*, IEEE Transactions on Signal Processing 71, 2023.
    """
    for name, given, known in (("coupling", coupling, COUPLINGS), ("family", family, FAMILIES)):
        if given not in known:
            raise UsageError(f"{name} as one of {', '.join(known)}", repr(given), did_you_mean(given, known))
    told = {"strength": strength, "coupling": coupling, "family": family, "ridge": ridge}
    told |= {"intercept": intercept, "tolerance": tolerance, "rounds": rounds}
    loop = Rounds(COUPLINGS[coupling], strength, tolerance, rounds)
    return CoupledMethod("gtvmin", tuple(told.items()), loop, ridge, bool(intercept), FAMILIES[family])


COUPLED_METHODS: Mapping[str, Callable[..., CoupledMethod]] = {"gtvmin": gtvmin}


def coupled_method(choice: CoupledMethod | str | Mapping[str, Any]) -> CoupledMethod:
    """A method by its name, or by its name and parameters: {"name": "gtvmin", "strength": 0.1}."""
    if isinstance(choice, CoupledMethod):
        return choice
    return spelled(choice, COUPLED_METHODS, "a method that couples the nodes of a graph")
