"""Estimators of many owners that learn from each other by what they say of shared rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers
from locdist.local.estimated import Estimated
from locdist.local.graph import Graph
from locdist.local.losses import Array, Rows, double, is_number
from locdist.local.network import Links, answered
from locdist.local.parametric import Named
from locdist.local.relaxed import Relaxed, heard, ordered, statuses
from locdist.methods.charts import check_labels
from locdist.methods.estimators import check_estimator, estimator_of


@dataclass(frozen=True)
class FedRelax:
    """Estimators of nodes that agree on shared rows; made by `fed_relax`."""

    refit: Relaxed
    tolerance: float
    rounds: int

    @property
    def spec(self) -> dict[str, Any]:
        """What was chosen, in words; `coupled_method(spec)` makes it again."""
        model = self.refit.model
        kind = model.kind.path if isinstance(model.kind, Named) else model.kind
        told = {"name": "fed-relax", "estimator": kind, "parameters": dict(model.choices)}
        return told | {"strength": self.refit.strength, "tolerance": self.tolerance, "rounds": self.rounds}

    def __call__(
        self,
        graph: Graph,
        nodes: Array,
        features: Array,
        targets: Array,
        shared: Array,
        weights: Array | None = None,
    ) -> "NodeEstimators":
        """The estimators of all nodes.

        Parameters
        ----------
        graph : Graph
            Each edge counts once, whichever way it leads.
        nodes : array [r] of int
            The node of each row, from 0.
        features : array [r, d]
        targets : array [r]
            Numbers, or classes from 0.
        shared : array [s, d]
            Rows that everybody may see, without a target.
        weights : array [r], optional

        Returns
        -------
        NodeEstimators
        """
        rows, common = Rows.of(len(graph), nodes, features, targets, weights), double(shared)
        if common.ndim != 2 or common.shape[1] != rows.features.shape[1] or not len(common):
            given = f"shape {list(common.shape)}"
            raise UsageError(f"shared rows [s, {rows.features.shape[1]}], at least one", given, "Give some.")
        if self.refit.model.classifies:
            check_labels(rows.targets)
        own, links = ordered(rows).by_node(len(graph)), Links.of(graph).graph
        width = int(rows.targets.max()) + 1 if self.refit.model.classifies and len(rows.targets) else 1
        said = torch.full((len(graph), len(common), width), torch.nan, dtype=torch.float64)
        change, number, fitted, weight = float("inf"), 0, list[Any](), said.new_zeros(len(graph))
        while number <= self.rounds and change > self.tolerance:
            told, weight = heard(links, said)
            fitted = [
                self.refit.refit(mine, common, others, each)
                for mine, others, each in zip(own, told, weight.tolist(), strict=True)
            ]
            after = torch.stack([self.refit.ask(one, common, width) for one in fitted])
            change, said, number = largest_change(said, after), after, number + 1
        counts = torch.bincount(rows.nodes, minlength=len(graph))
        status = statuses(counts, self.refit.strength * weight, said, change <= self.tolerance)
        return NodeEstimators(self.refit, tuple(fitted), status, said, number - 1, change)


@dataclass(frozen=True, eq=False)
class NodeEstimators:
    """The estimators of n nodes.

    Attributes
    ----------
    refit : Relaxed
    fitted : sequence
        One for each node; None where there is none, or its fit raised an error (NOT_FINITE).
    status : Tensor [n] int8
    said : Tensor [n, s, p]
        What they say of the shared rows.
    rounds : int
    change : float
        By how much the last round changed that.
    """

    refit: Relaxed
    fitted: Sequence[Any]
    status: Tensor
    said: Tensor
    rounds: int
    change: float

    def predict(self, nodes: Array, features: Array) -> Answers:
        """What the estimators of nodes [q] say of features [q, d]: numbers [q, 1], or shares of classes.

        EMPTY where the node is -1, NOT_FINITE where an estimator raises an error, or its numbers are not
        finite.
        """
        places, x = double(nodes).long(), double(features)
        values = torch.full((len(x), self.said.shape[2]), torch.nan, dtype=torch.float64)
        usable = ((places >= 0) & x.isfinite().all(1)).nonzero()[:, 0]
        order = usable[places[usable].argsort(stable=True)]
        asked, counts = torch.unique_consecutive(places[order], return_counts=True)
        for node, here in zip(asked.tolist(), torch.split(order, counts.tolist()), strict=True):
            values[here] = self.refit.ask(self.fitted[node], x[here], values.shape[1])
        return answered(values, places, self.status, x)


def fed_relax(estimator: Any, strength: float = 1.0, tolerance: float = 1e-6, rounds: int = 100) -> FedRelax:
    """FedRelax: any estimator at each node, min Σ_i L_i(h_i) + strength Σ_{i,j} A_ij (1/s) Σ_r (h_i(x_r) −
    h_j(x_r))² over s shared rows x_r without targets.

    In a round every node is refitted on its rows and on the shared ones, whose targets are the mean of what
    its neighbors said of them in the round before, with the weight strength d_i / s. Of linear models it
    rests at the minimum of `gtvmin` with φ(u) = u'Gu, G = X'X / s of the shared rows.

    Parameters
    ----------
    estimator : object
        With scikit-learn's `fit(X, y, sample_weight)` and `predict(X)`; one with `predict_proba` has classes,
        and is fitted on shared rows once for each class, weighted by its share. A node whose fit raises an
        error is NOT_FINITE, and silent.
    strength : float
    tolerance : float
        Largest change of what nodes say of shared rows at which they rest.
    rounds : int
        At most. Trees and forests may never rest.

    Returns
    -------
    FedRelax

    References
    ----------
    Jung, *Plug In and Learn: Federated Intelligence over a Smart Grid of Models*, arXiv 2302.04363.
    """
    check_rounds(strength, tolerance, rounds)
    check_estimator(estimator)
    return FedRelax(Relaxed(Estimated.of(estimator), strength), tolerance, rounds)


def fed_relax_by_name(
    estimator: str | None = None,
    strength: float = 1.0,
    tolerance: float = 1e-6,
    rounds: int = 100,
    parameters: Mapping[str, Any] | None = None,
) -> FedRelax:
    """FedRelax: any estimator at each node, so that neighbors agree on shared rows without targets.

    Parameters
    ----------
    estimator : str
        The path of its class: "sklearn.tree.DecisionTreeRegressor".
    strength, tolerance, rounds
        As in `fed_relax`.
    parameters : mapping, optional
        Of the estimator.
    """
    own = ("strength", "tolerance", "rounds")
    return fed_relax(estimator_of(estimator, parameters, own), strength, tolerance, rounds)


def largest_change(before: Tensor, after: Tensor) -> float:
    """Of two tensors; infinite where one is nan and the other is not."""
    apart = torch.where(before.isnan() & after.isnan(), 0.0, (after - before).abs())
    return float(apart.nan_to_num(torch.inf).amax()) if apart.numel() else 0.0


def check_rounds(amount: float, tolerance: float, rounds: int) -> None:
    """UsageError for what cannot be."""
    if not is_number(amount) or not 0 <= amount < float("inf"):
        raise UsageError("a strength of 0 or more", repr(amount), "0 leaves every node alone.")
    if not is_number(tolerance) or not 0 <= tolerance < float("inf"):
        raise UsageError("a tolerance of 0 or more", repr(tolerance), "1e-6 is usual.")
    most: object = rounds  # whatever users passed
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise UsageError("at least one round", repr(rounds), "It is a whole number.")
