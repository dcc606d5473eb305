"""The localization trick: any function with parameters, and any smooth loss, around every query.

Minimise J(theta) = sum_j w_j l(f(x_j - x_q, theta), y_j) + ridge / 2 |theta - theta_0|^2 for every query of a
tile at once, by derivatives that torch takes (`torch.func`); the value is f at the query, x_j - x_q = 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers, Status
from locdist.local.descent import Objective, minimum
from locdist.local.models import LocalModel, answered, flagged, penalty, valued, with_errors
from locdist.local.neighborhood import Neighborhood
from locdist.local.parametric import FUNCTIONS, LOSSES, Loss, Parametric
from locdist.local.solve import offsets

_ENTRIES = 1 << 22  # numbers of second derivatives that are held at once


@dataclass(frozen=True)
class Risk(Objective):
    """J of one target of every query.

    Parameters
    ----------
    function, loss : callable
        As `Parametric.fresh` and `Loss.fresh` make them.
    near : Tensor [q, k, m]
    targets, weights : Tensor [q, k]
        All entries finite and possible, also where a weight is 0.
    start, ridge : Tensor [c]
        Where the parameters begin, and how much each is drawn back there.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    written: Callable[[Tensor, Tensor], Tensor]
    near: Tensor
    targets: Tensor
    weights: Tensor
    start: Tensor
    ridge: Tensor

    def loss(self, theta: Tensor) -> Tensor:
        return self._each(self._risk, theta)

    def gradient(self, theta: Tensor) -> Tensor:
        return self._each(torch.func.grad(self._risk), theta)

    def hessian(self, theta: Tensor) -> Tensor:
        """A few queries at a time, whose derivatives are all in memory. By reverse mode: forward mode makes
        torch compile what it has deprecated.
        """
        second = torch.func.jacrev(torch.func.grad(self._risk))
        return self._each(second, theta, max(1, _ENTRIES // self._size))

    @cached_property
    def _size(self) -> int:
        return self.weights.shape[1] * len(self.start) * (len(self.start) + self.near.shape[2])

    def _risk(self, theta: Tensor, near: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        losses = self.written(self.function(near, theta), targets)
        return (weights * losses).sum() + (self.ridge * (theta - self.start).square()).sum() / 2

    def _each(self, function: Callable[..., Any], theta: Tensor, most: int | None = None) -> Tensor:
        mapped: Callable[..., Tensor] = torch.func.vmap(function, chunk_size=most)
        found: Tensor = mapped(theta, self.near, self.targets, self.weights).detach()
        return found


@dataclass(frozen=True)
class Localized(LocalModel):
    """A function with parameters, localized by its loss; each target has its own.

    The status is NOT_CONVERGED where the iteration did not settle (the value is that of its last step),
    RANK_DEFICIENT where a direction of at most `descent.NEWTON` parameters is not determined.

    Parameters
    ----------
    function : Parametric
    written : Loss
    ridge : float
        >= 0, relative to weights that sum to one; it draws the parameters to where they begin, of the named
        functions all but the constant.
    """

    function: Parametric = FUNCTIONS["linear"]
    written: Loss = LOSSES["squared"]
    ridge: float = 0.0
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "coefficients", "neighbors"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    @property
    def slopes(self) -> bool:
        return self.function.polynomial and len(self.function.start(1)) > 1

    def parameters(self, features: Sequence[str]) -> tuple[str, ...]:
        count = len(self.function.start(len(features)))
        if self.function.polynomial:
            return ("value", *features)[:count]
        return ("value", *map(str, range(1, 1 + count)))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.features is not None
        assert hood.query_features is not None
        assert hood.targets is not None
        near = offsets(hood.features, hood.query_features, weights == 0)
        # one that is there stands for those that are absent: what they hold must not meet a loss
        one = weights.argmax(1)[:, None, None].expand(-1, 1, hood.targets.shape[2])
        targets = torch.where((weights == 0)[:, :, None], hood.targets.gather(1, one), hood.targets)
        parts = [self._target(near, column, weights) for column in targets.unbind(2)]
        values, thetas, statuses = (torch.stack(part, -1) for part in zip(*parts, strict=True))
        answers = answered(values, weights, statuses.amax(1), hood, weights, want)
        if "coefficients" in want:
            told = thetas if self.function.polynomial else torch.cat([values[:, None], thetas], 1)
            answers = with_errors(answers, told, torch.full_like(told, float("nan")), want - {"spread"})
        return valued(answers)

    def _target(self, near: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # value [q], parameters [q, c], status [q]
        good = self.written.inside(targets).all(1) & near.isfinite().all(2).all(1)
        near = near.masked_fill(~good[:, None, None], 0.0)
        targets = targets.masked_fill(~good[:, None], 1.0)
        function = self.function.fresh(near.device)
        start = self.function.start(near.shape[2]).to(near)
        ridge = torch.full_like(start, self.ridge)
        ridge[: self.function.free(near.shape[2])] = 0.0
        risk = Risk(function, self.written.fresh(), near, targets, weights, start, ridge)
        found = minimum(risk, start.expand(len(near), -1))
        here = torch.func.vmap(lambda x, theta: function(x[None], theta)[0], in_dims=(None, 0))
        values = self.written.mean(here(near.new_zeros(near.shape[2]), found.theta))
        status = flagged(found.flat, Status.RANK_DEFICIENT)
        status = torch.maximum(status, flagged(~found.settled, Status.NOT_CONVERGED))
        return values.detach().masked_fill(~good, float("nan")), found.theta, status

    def columns(self, k: int, m: int) -> int:
        return len(self.function.start(m))
