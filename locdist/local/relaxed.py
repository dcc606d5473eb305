"""Any estimator at each node of a graph, refitted until neighbors agree on shared rows that have no target.

    minimise  sum_i L_i(h_i) + strength sum_{i,j} A_ij (1/r) sum_r |h_i(x_r) - h_j(x_r)|^2

A node is fitted on its rows and on the r shared ones, with what its neighbors said of these in the round
before as targets, and the weight strength d_i / r: the mean of its neighbors, for squares, says the same as
each of them. What they said before that is forgotten.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locdist.local.answers import Status
from locdist.local.estimated import Estimated
from locdist.local.graph import Graph
from locdist.local.levels import uniform
from locdist.local.losses import Rows

_SAID = 300  # characters of an error


def draws(rows: Rows, count: int, seed: int = 0) -> Tensor:
    """Numbers [r, count] from 0 to 1 that follow from the content of rows and the seed."""
    told = torch.cat([rows.features, rows.targets[:, None], rows.weights[:, None]], 1)
    return uniform(told, count, seed)


def ordered(rows: Rows) -> Rows:
    """Rows in an order that follows from their content: estimators sum them, and break ties, by it."""
    return rows.some(draws(rows, 1)[:, 0].argsort(stable=True))


def heard(graph: Graph, said: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of what the neighbors of each node said [n, r, p], and the weights of those that spoke [n].

    Parameters
    ----------
    graph : Graph
        The edges out of some nodes.
    said : Tensor [m, r, p]
        Of nodes that say nothing not finite.
    """
    spoke = said.flatten(1).isfinite().all(1)
    weight = graph.times(spoke[:, None].double())[:, 0]
    total = graph.times(said.flatten(1).masked_fill(~spoke[:, None], 0.0))
    mean = total / weight.where(weight > 0, torch.nan)[:, None]
    return mean.reshape(-1, *said.shape[1:]), weight


@dataclass(frozen=True)
class Relaxed:
    """The refit of one node.

    Parameters
    ----------
    model : Estimated
    strength : float
    """

    model: Estimated
    strength: float

    def refit(self, own: Rows, shared: Tensor, told: Tensor, weight: float) -> Any:
        """The estimator of a node, as `attempt` says; None where there is none."""
        return self.attempt(own, shared, told, weight)[0]

    def attempt(self, own: Rows, shared: Tensor, told: Tensor, weight: float) -> tuple[Any, str]:
        """The estimator of a node, or None where there is nothing to fit it on, or its fit raises an error;
        and what that says.

        Parameters
        ----------
        own : Rows
            The rows of the node.
        shared : Tensor [r, d]
        told : Tensor [r, p]
            What neighbors say of these: a number, or the share of each class.
        weight : float
            Of the neighbors that spoke; 0 for none.
        """
        x, y, v = [own.features], [own.targets], [own.weights]
        if weight > 0:
            each = self.strength * weight / len(shared)
            for code in range(told.shape[1]):
                x.append(shared)
                classes = self.model.classifies
                y.append(torch.full_like(told[:, 0], code) if classes else told[:, 0])
                v.append(each * told[:, code] if classes else torch.full_like(told[:, 0], each))
        features, targets, weights = torch.cat(x), torch.cat(y), torch.cat(v)
        used = weights > 0
        if not used.any():
            return None, ""
        if self.model.classifies and (targets[used] == targets[used][0]).all():
            return Constant(int(targets[used][0])), ""
        parts = (features[used].numpy(), targets[used].numpy(), weights[used].numpy())
        fitted = self.model.fresh()
        try:
            fitted.fit(parts[0], parts[1], sample_weight=parts[2])
        except (ValueError, ArithmeticError) as error:
            return None, f"{type(error).__name__}: {error}"[:_SAID]
        return fitted, ""

    def ask(self, fitted: Any, features: Tensor, width: int) -> Tensor:
        """What an estimator says of rows [q, p]; nan without one, and where it raises an error."""
        found = features.new_full((len(features), width), torch.nan)
        if fitted is None or not len(features):
            return found
        try:
            return self._told(fitted, features, found)
        except (ValueError, ArithmeticError):
            return found

    def _told(self, fitted: Any, features: Tensor, found: Tensor) -> Tensor:
        if not self.model.classifies:
            return torch.as_tensor(fitted.predict(features.numpy())).double().reshape(-1, 1)
        if isinstance(fitted, Constant):
            return torch.zeros_like(found).index_fill_(1, torch.tensor([fitted.code]), 1.0)
        shares = torch.as_tensor(fitted.predict_proba(features.numpy())).double()
        return torch.zeros_like(found).index_copy_(1, torch.as_tensor(fitted.classes_).long(), shares)


@dataclass(frozen=True)
class Constant:
    """The model of a node that knows of one class."""

    code: int


def statuses(rows: Tensor, drawn: Tensor, said: Tensor, settled: bool) -> Tensor:
    """A `Status` [n] of each node, from its number of rows, the weight of its neighbors and what it says of
    shared rows: EMPTY for nodes that nobody reached, NOT_FINITE where a fit on something has said nothing,
    LOW_SUPPORT without rows of its own.
    """
    status = torch.full(rows.shape, int(Status.OK if settled else Status.NOT_CONVERGED))
    status = torch.where(rows == 0, status.clamp(min=int(Status.LOW_SUPPORT)), status)
    silent = ~said.flatten(1).isfinite().all(1)
    why = torch.where((rows > 0) | (drawn > 0), int(Status.NOT_FINITE), int(Status.EMPTY))
    return torch.where(silent, why, status).to(torch.int8)
