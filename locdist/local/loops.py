"""Feeding a prediction back: the same layer again, until nothing moves.

There are three ways. A query loop moves the queries over a support that stays: mean shift, Hopfield
retrieval, projections onto a manifold. It needs no barrier, so it runs inside a task.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import LEVERAGE, Answers, Status
from locdist.local.layer import Index, Layer


class Update(ABC):
    """What becomes of a state when a prediction comes in."""

    @abstractmethod
    def __call__(self, before: Tensor, found: Tensor) -> Tensor:
        """The next state [q, p], from the one before and the prediction."""


@dataclass(frozen=True)
class Replace(Update):
    """The prediction takes the place of the state."""

    def __call__(self, before: Tensor, found: Tensor) -> Tensor:
        return found


@dataclass(frozen=True)
class Soft(Update):
    """A step of the share `alpha`, over 0 and at most 1, towards the prediction."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.alpha, bool) or not 0 < self.alpha <= 1:
            raise UsageError("a step over 0 and at most 1", repr(self.alpha), "1 goes all the way.")

    def __call__(self, before: Tensor, found: Tensor) -> Tensor:
        return before.lerp(found, self.alpha)


@dataclass(frozen=True)
class QueryLoop:
    """A layer whose queries move to what it answers, a point, until they rest.

    It is called as a `Layer` is. Values are those of the last step, with the point that it led to; a query
    that still moved more than the tolerance after `most` steps is NOT_CONVERGED. Queries that rest leave the
    batch.

    Parameters
    ----------
    layer : Layer
        Of a model whose last values are a point in the space of the queries.
    update : Update
    tolerance : float
        Length of a step, in units of the queries, at which a query rests; >= 0.
    most : int
        Steps, at least 1.
    settles : bool
        Whether a query that still moves after all steps is NOT_CONVERGED; otherwise they are what was wanted.
    """

    layer: Layer
    update: Update = Replace()
    tolerance: float = 1e-6
    most: int = 300
    settles: bool = True
    leave_one_out: ClassVar[bool] = False  # a query that moved is no row of the support

    def __post_init__(self) -> None:
        if not self.layer.model.places:
            model = type(self.layer.model).__name__
            raise UsageError("a model whose values are points", model, "Use the local mean of the keys.")
        if isinstance(self.tolerance, bool) or not 0 <= self.tolerance < float("inf"):
            raise UsageError("a tolerance of 0 or more", repr(self.tolerance), "It is the length of a step.")
        most: object = self.most  # whatever users passed
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise UsageError("at least one step", repr(self.most), "It is a whole number.")

    def __call__(
        self,
        index: Index,
        queries: Tensor,
        query_features: Tensor | None = None,
        own: Tensor | None = None,
        bad: Tensor | None = None,
        want: frozenset[str] = frozenset(),
        device: str = "cpu",
        offsets: Tensor | None = None,
    ) -> Answers:
        """Where the queries [q, d] come to rest, in their order; arguments are those of a `Layer`.

        Raises
        ------
        UsageError
            If the support has features apart from its keys: a point of them is nowhere to search.
        """
        if index.apart or query_features is not None:
            raise UsageError(
                "a support whose features are its key",
                "features apart from it",
                "Index without `features`: points move in the space of the key.",
            )
        if LEVERAGE in want:
            raise UsageError("what is told of queries that move", LEVERAGE, "They are no rows: leave it out.")
        there = torch.arange(len(queries), device=queries.device)
        parts, places = list[Answers](), list[Tensor]()
        for step in range(1, self.most + 1):
            found = self.layer(index, queries, bad=bad, want=want, device=device)
            point = found.values[:, -queries.shape[1] :].to(queries.dtype)
            moved = self.update(queries, point)
            found = replace(
                found, values=torch.cat([found.values[:, : -queries.shape[1]], moved.double()], 1)
            )
            length = torch.linalg.vector_norm(moved - queries, dim=1)
            rests = ~(length > self.tolerance)  # without a value there is nowhere to go
            if step == self.most:
                late = (~rests & self.settles).to(torch.int8) * int(Status.NOT_CONVERGED)
                found = replace(found, status=torch.maximum(found.status, late))
                rests = torch.ones_like(rests)
            parts.append(found.rows(rests))
            places.append(there[rests])
            queries, there = moved[~rests], there[~rests]
            bad = None if bad is None else bad[~rests]
            if not len(queries):
                break
        return Answers.concatenate(parts).reorder(torch.cat(places))
