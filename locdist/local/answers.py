"""Answers of a local model: one row for each query, each with a status.

A query that cannot be answered never stops its batch: its values are nan and its status says why. What
explains an answer (spread, coefficients, neighbors) is computed only when it is wanted.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

WANTS = frozenset({"effective", "spread", "coefficients", "neighbors"})  # of models
NEGLECTED, LEVERAGE = "neglected", "leverage"  # of layers


class Status(enum.IntEnum):
    """What became of a query, ordered by severity; of several that apply the largest is reported.

    Up to `NOT_CONVERGED` the answer carries a value, from `EMPTY` on it is null.
    """

    OK = 0
    FEW = 1  # fewer than k neighbors were found
    LOW_SUPPORT = 2  # every raw weight underflows: the nearest rows decide
    RANK_DEFICIENT = 3  # the slopes are not identified: the value is that of the minimum-norm solution
    NOT_CONVERGED = 4  # the model's iteration did not settle: the value is that of its last step
    EMPTY = 5  # no neighbor found, or none in reach of the kernel
    NOT_FINITE = 6  # the solution overflowed, or a target is not finite or outside of the model's range
    BAD_QUERY = 7  # the query itself is not finite


@dataclass(frozen=True)
class Answers:
    """Values at q queries, their status, and on demand what explains them.

    Attributes
    ----------
    values : Tensor [q, p] float64
        Predictions (for classes: the probability of each); nan where there is no answer.
    status : Tensor [q] int8
        A `Status` for each query.
    effective : Tensor [q] float64, optional
        Kish's effective number of neighbors 1 / sum w^2, from 1 to k; 0 where nobody counts.
    spread : Tensor [q, p] float64, optional
        Standard error of the value, in units of the target; nan where the neighbors leave no degree of
        freedom.
    coefficients : Tensor [q, 1 + m, p] float64, optional
        The value at the query, then the slopes by feature; of generalized linear models those of the linear
        predictor.
    errors : Tensor [q, 1 + m, p] float64, optional
        Standard errors of the coefficients.
    ids : Tensor [q, k] int64, optional
        The neighbors, -1 where missing.
    distances : Tensor [q, k], optional
        As the kernel saw them: squared (metric "ip": minus the score); inf where missing.
    weights, smoother : Tensor [q, k] float64, optional
        The normalized weights w, and the rows s of the smoother with value = sum_j s_j y_j; of models that
        are no linear smoothers those of the linear one inside, else the weights.
    neglected : Tensor [q] float64, optional
        Upper bound of the share of the kernel's mass that the neighbors leave out.
    leverage : Tensor [q] float64, optional
        The weight of the query's own row in its answer, the diagonal of the hat matrix; 0 where it is none of
        its neighbors.
    """

    values: Tensor
    status: Tensor
    effective: Tensor | None = None
    spread: Tensor | None = None
    coefficients: Tensor | None = None
    errors: Tensor | None = None
    ids: Tensor | None = None
    distances: Tensor | None = None
    weights: Tensor | None = None
    smoother: Tensor | None = None
    neglected: Tensor | None = None
    leverage: Tensor | None = None

    @staticmethod
    def concatenate(parts: Sequence["Answers"]) -> "Answers":
        """Answers of all parts (at least one, each with the same fields filled), one after the other."""

        def joined(name: str) -> Tensor | None:
            tensors = [tensor for part in parts if (tensor := getattr(part, name)) is not None]
            return torch.cat(tensors) if tensors else None

        values, status, *rest = (joined(field.name) for field in fields(Answers))
        assert values is not None
        assert status is not None
        return Answers(values, status, *rest)

    def rows(self, index: slice | Tensor) -> "Answers":
        """The answers of some queries."""
        return self._each(lambda tensor: tensor[index])

    def reorder(self, order: Tensor) -> "Answers":
        """Answers in another order: row i of these belongs to row order[i] of the result.

        Parameters
        ----------
        order : Tensor [q] int64
            A permutation.
        """

        def scattered(tensor: Tensor) -> Tensor:
            result = torch.empty_like(tensor)
            result[order] = tensor
            return result

        return self._each(scattered)

    def refuse(self, bad: Tensor, status: Status) -> "Answers":
        """The same answers, but null with `status` where `bad` [q] bool: numbers are nan, ids -1."""
        blank = self._each(lambda tensor: _nothing(tensor, bad))
        return replace(blank, status=self.status.masked_fill(bad, int(status)))

    def without_value(self, null: Tensor) -> "Answers":
        """The same answers, but nan where `null` [q] bool; status and neighbors stay, to say why."""
        return self._each(
            lambda tensor: _nothing(tensor, null), ("values", "spread", "coefficients", "errors")
        )

    def unlisted(self) -> "Answers":
        """The same answers without their neighbors."""
        return replace(self, ids=None, distances=None, weights=None, smoother=None)

    def to(self, device: str) -> "Answers":
        """The same answers on a torch device."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[Tensor], Tensor], names: Sequence[str] = ()) -> "Answers":
        chosen = names or [field.name for field in fields(self)]
        present = {name: tensor for name in chosen if (tensor := getattr(self, name)) is not None}
        return replace(self, **{name: change(tensor) for name, tensor in present.items()})


def _nothing(tensor: Tensor, where: Tensor) -> Tensor:
    fill = float("nan") if tensor.is_floating_point() else -1
    return tensor.masked_fill(where.reshape(-1, *[1] * (tensor.ndim - 1)), fill)
