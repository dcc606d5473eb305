"""What is solved over the weighted neighbors of each query.

Most local models are linear smoothers: the prediction is sum_j s_j y_j with rows s that do not depend on the
targets. A smoother gives its rows, the prediction and its standard errors are written once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import Design, Solution, design, smooth, solve

FREE = torch.finfo(torch.float64).eps ** 0.5  # fewer degrees of freedom (of at most 1) are rounding


class LocalModel(ABC):
    """A model fitted anew to the neighbors of each query, and discarded."""

    needs: ClassVar[frozenset[str]]

    @abstractmethod
    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        """Answers at the queries.

        Parameters
        ----------
        hood : Neighborhood
            With what the model `needs` filled in.
        weights : Tensor [q, k] float64
            Summing to one in each row; a row of zeros is answered by the status EMPTY.
        want : frozenset of str
            Of `answers.WANTS`.
        """


@dataclass(frozen=True)
class Fit:
    """A linear smoother at each query: its solution, the ridge, and with slopes the design behind them."""

    solution: Solution
    design: Design | None = None
    ridge: float = 0.0


class LinearSmoother(LocalModel):
    """A model whose prediction is linear in the targets.

    The spread is the standard error of the value when the targets have equal variance and the kernel weights
    localize (they are not precisions): spread^2 = sigma2 sum_j s_j^2. With e the residuals of the local fit
    at its neighbors and C the operator with slopes = C y, E sum_j w_j e_j^2 = sigma2 freedom, where

        freedom = sum_j w_j (1 - w_j) - sum_jm w_j x_jm C_mj - ridge sum_jm C_mj^2

    x the centred features: it is tr(W (I - H)) for a least-squares projection H, W = diag(w), and 1 - sum w^2
    for the local mean. So sigma2 = sum_j w_j e_j^2 / freedom is the textbook estimate RSS / (n - m - 1) when
    all weights are equal. It is nan where no freedom is left.
    """

    @abstractmethod
    def fit(self, hood: Neighborhood, weights: Tensor, slopes: bool) -> Fit:
        """The smoother at each query, with `slopes` the operator of its slopes too."""

    @final
    def smoother(self, hood: Neighborhood, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Smoother rows s [q, k], and whether the slopes are not identified [q] bool."""
        solution = self.fit(hood, weights, False).solution
        return solution.smoother, solution.deficient

    @final
    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        explained = bool(want & {"spread", "coefficients"})
        fit = self.fit(hood, weights, explained)
        targets = _targets(hood, weights)
        rows = fit.solution.smoother
        answers = _answers(_sums(rows, targets), rows, fit.solution.deficient, hood, weights, want)
        return _valued(_explained(answers, fit, targets, want) if explained else answers)


@dataclass(frozen=True)
class Constant(LinearSmoother):
    """The local mean (Nadaraya-Watson; with a uniform kernel the mean of the k nearest): sum_j w_j y_j."""

    needs: ClassVar[frozenset[str]] = frozenset({"targets"})

    def fit(self, hood: Neighborhood, weights: Tensor, slopes: bool) -> Fit:
        # no features: every sum over them is zero
        operator = weights.new_empty(len(weights), 0, weights.shape[1])
        deficient = torch.zeros(len(weights), dtype=torch.bool, device=weights.device)
        return Fit(Solution(weights, deficient, operator), Design(weights, operator.mT, operator[:, :, 0]))


@dataclass(frozen=True)
class Linear(LinearSmoother):
    """The local linear fit, with an intercept and optionally a ridge on the slopes.

    Parameters
    ----------
    ridge : float
        >= 0, in squared units of the features and relative to weights that sum to one: the penalty of
        `sklearn.linear_model.Ridge(alpha=ridge).fit(features, targets, sample_weight=weights)`.

    Raises
    ------
    UsageError
        If the ridge is negative or not finite.
    """

    ridge: float = 0.0
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})

    def __post_init__(self) -> None:
        if isinstance(self.ridge, bool) or not 0 <= self.ridge < float("inf"):
            raise UsageError(
                "a ridge of 0 or more", repr(self.ridge), "Give a finite number; 0 is least squares."
            )
        object.__setattr__(self, "ridge", float(self.ridge))

    def fit(self, hood: Neighborhood, weights: Tensor, slopes: bool) -> Fit:
        assert hood.features is not None
        assert hood.query_features is not None
        if not slopes:
            return Fit(smooth(hood.features, hood.query_features, weights, self.ridge))
        system = design(hood.features, hood.query_features, weights)
        return Fit(solve(system, self.ridge, slopes), system, self.ridge)


@dataclass(frozen=True)
class Vote(LocalModel):
    """The local mode: the probability of each class is the sum of the weights of its neighbors.

    The label is the argmax, which breaks ties towards the smaller code. Codes of neighbors with a weight must
    lie in [0, classes).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"codes"})

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.targets is not None
        codes = hood.targets[:, :, 0].masked_fill(weights == 0, 0)
        chances = weights.new_zeros(len(weights), hood.classes).scatter_add_(1, codes, weights)
        chances.clamp_(max=1.0)  # many weights of one class may add up to an ulp more
        certain = torch.zeros(len(weights), dtype=torch.bool, device=weights.device)
        answers = _answers(chances, weights, certain, hood, weights, want)
        if want & {"spread", "coefficients"}:
            square = weights.square().sum(1, keepdim=True)
            spread = _error(chances * (1 - chances), 1 - square, square)
            answers = _with_errors(answers, chances[:, None], spread[:, None], want)
        return _valued(answers)


def _targets(hood: Neighborhood, weights: Tensor) -> Tensor:
    assert hood.targets is not None
    absent = weights == 0
    # whatever stands in an absent row, nan included, must not meet a sum
    return hood.targets.masked_fill(absent[:, :, None], 0.0) if absent.any() else hood.targets


def _sums(rows: Tensor, targets: Tensor) -> Tensor:
    return torch.bmm(rows[:, None], targets)[:, 0]


def _answers(
    values: Tensor, rows: Tensor, deficient: Tensor, hood: Neighborhood, weights: Tensor, want: frozenset[str]
) -> Answers:
    status = deficient.to(torch.int8) * int(Status.RANK_DEFICIENT)
    status = status.masked_fill_(~values.isfinite().all(1), int(Status.NOT_FINITE))
    answers = Answers(values, status.masked_fill_(weights.sum(1) == 0, int(Status.EMPTY)))
    if "effective" in want:
        effective = weights.square().sum(1).reciprocal()
        answers = replace(answers, effective=effective.masked_fill(effective.isinf(), 0.0))
    if "neighbors" in want:
        answers = replace(answers, ids=hood.ids, distances=hood.distances, weights=weights, smoother=rows)
    return answers


def _explained(answers: Answers, fit: Fit, targets: Tensor, want: frozenset[str]) -> Answers:
    operator, system = fit.solution.operator, fit.design
    assert operator is not None
    assert system is not None
    weights, slopes = system.weights, torch.bmm(operator, targets)
    mean = torch.bmm(weights[:, None], targets)
    residual = targets - mean - torch.bmm(system.rows, slopes)
    variance = torch.bmm(weights[:, None], residual.square())[:, 0]
    leverage = (system.rows * operator.mT).sum(2)
    norms = operator.square().sum(2)
    freedom = (weights * (1 - weights - leverage)).sum(1) - fit.ridge * norms.sum(1)
    squares = torch.cat([fit.solution.smoother.square().sum(1, keepdim=True), norms], 1)
    errors = _error(variance[:, None], freedom[:, None, None], squares[:, :, None])
    return _with_errors(answers, torch.cat([answers.values[:, None], slopes], 1), errors, want)


def _error(variance: Tensor, freedom: Tensor, squares: Tensor) -> Tensor:
    # sqrt(sigma2 * sum of squares), with sigma2 from the weighted residual variance
    return (variance / freedom.masked_fill(freedom <= FREE, float("nan")) * squares).sqrt()


def _with_errors(answers: Answers, coefficients: Tensor, errors: Tensor, want: frozenset[str]) -> Answers:
    if "spread" in want:
        answers = replace(answers, spread=errors[:, 0])
    return replace(answers, coefficients=coefficients, errors=errors) if "coefficients" in want else answers


def _valued(answers: Answers) -> Answers:
    return answers.without_value(answers.status >= int(Status.EMPTY))
