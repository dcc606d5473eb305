"""Networks of local models: a linear model at each node of a graph, drawn to those of its neighbors, or of
each device in groups of groups, drawn to their means.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from locdist.errors import UsageError, did_you_mean
from locdist.local.coupled import Coupling, Fit, Norm, Rounds, Squared
from locdist.local.families import Bernoulli, Family, Gamma, Poisson
from locdist.local.graph import Graph
from locdist.local.hierarchy import grouped
from locdist.local.losses import Array, Losses, Rows, double, is_number
from locdist.local.network import Network, NodeModels, with_intercept
from locdist.methods.atlas import Atlas, atlas_by_name
from locdist.methods.estimators import with_parameters
from locdist.methods.federated import FedRelax, fed_relax_by_name
from locdist.methods.method import plain
from locdist.methods.spelled import spelled

COUPLINGS: Mapping[str, Coupling] = {"norm": Norm(), "squared": Squared()}
FAMILIES: Mapping[str, Family | None] = {
    "linear": None, "logistic": Bernoulli(), "poisson": Poisson(), "gamma": Gamma(),
}  # fmt: skip
STEPS = 100  # of Newton


@dataclass(frozen=True)
class CoupledMethod:
    """A frozen choice of what a node minimises, and of what draws it to others.

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
    levels : bool
        Whether nodes are drawn to the means of groups, and not to neighbors.
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    loop: Rounds
    ridge: float
    intercept: bool
    family: Family | None = None
    levels: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))
        if not is_number(self.ridge) or not 0 <= self.ridge < float("inf"):
            raise UsageError("a ridge of 0 or more", repr(self.ridge), "0 is the default.")

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `coupled_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}

    def __call__(
        self,
        graph: Graph | Array,
        nodes: Array,
        features: Array,
        targets: Array,
        weights: Array | None = None,
    ) -> NodeModels:
        """The models of all nodes, in memory.

        Parameters
        ----------
        graph : Graph, or array [k, n] of int
            From `ld.graph`, or `ld.Graph.of_pairs(heads, tails, weights, nodes=n)`; each edge counts once,
            whichever way it leads. Of `dem_learn` the group of each of n devices at each level, -1 for none.
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
        count, whole = self._whole(graph)
        rows = self.rows(count, nodes, features, targets, weights)
        fit = Fit.begin(len(whole), rows.features.shape[1])
        while not fit.done and fit.steps < STEPS:
            losses = Losses.of(rows, len(whole), fit.state.models, self.family)
            network = self.network(losses, whole)
            fit = fit.next(network, self.loop, self.family is None)
        return self.models(network, fit).first(count)

    def _whole(self, given: Graph | Array) -> tuple[int, Graph]:
        """How many nodes are asked for, and the graph of these, and of groups behind them."""
        if isinstance(given, Graph) and not self.levels:
            return len(given), given
        groups = None if isinstance(given, Graph) else double(given).long()
        if not self.levels or groups is None or groups.ndim != 2:
            wanted = "groups [levels, devices]" if self.levels else "a graph"
            told = "a graph" if groups is None else f"an array of shape {list(groups.shape)}"
            raise UsageError(wanted, told, "Give a row for each level, or choose another method.")
        return groups.shape[1], grouped(groups)

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


def dem_learn(
    mu: float = 1.0,
    ridge: float = 0.0,
    intercept: bool = True,
    tolerance: float = 1e-10,
    rounds: int = 10_000,
) -> CoupledMethod:
    """DemLearn's personalized step: each device minimizes F_i(w) + (μ/2) Σ_k (1/N_k) ‖w − w⁽ᵏ⁾‖² over the
    levels of groups that it is in, w⁽ᵏ⁾ the mean over the N_k devices of its group, until all rest.

    One level of one group is FedProx; with μ = 0 every device is alone. Groups take part as nodes without
    rows, so that devices and means are one linear system.

    Parameters
    ----------
    mu : float
        How much the means of groups count.
    ridge, intercept
        As in `gtvmin`.
    tolerance : float
        Of the norm of the slopes of what is minimized, relative to the pulls X'y, at which devices rest.
    rounds : int
        At most; in each a device hears once of its groups.

    Returns
    -------
    CoupledMethod

    References
    ----------
    Nguyen et al., *Edge-Assisted Democratized Learning Toward Federated Analytics*, IEEE Internet of Things
    Journal 9, 2022.
    """
    told = {"mu": mu, "ridge": ridge, "intercept": intercept, "tolerance": tolerance, "rounds": rounds}
    loop = Rounds(Squared(), mu, tolerance, rounds)
    return CoupledMethod("dem-learn", tuple(told.items()), loop, ridge, bool(intercept), levels=True)


OfNodes = CoupledMethod | FedRelax | Atlas
COUPLED_METHODS: Mapping[str, Callable[..., OfNodes]] = {
    "gtvmin": gtvmin, "dem-learn": dem_learn, "fed-relax": fed_relax_by_name, "logifold": atlas_by_name,
}  # fmt: skip


def coupled_method(choice: OfNodes | str | Mapping[str, Any]) -> OfNodes:
    """A method by its name, or by its name and parameters: {"name": "gtvmin", "strength": 0.1}. One of an
    estimator takes the parameters of this among its own: {"name": "fed-relax", "estimator":
    "sklearn.tree.DecisionTreeRegressor", "max_depth": 4}.
    """
    if isinstance(choice, CoupledMethod | FedRelax | Atlas):
        return choice
    given = {"name": choice} if isinstance(choice, str) else dict(choice)
    make = COUPLED_METHODS.get(str(given.get("name")))
    if make in (fed_relax_by_name, atlas_by_name):
        given = with_parameters(given, make)
    return spelled(given, COUPLED_METHODS, "a method that couples the nodes of a graph")
