"""What is solved over the weighted neighbors of each query: the contract, and the linear smoothers.

Most local models are linear smoothers: the prediction is sum_j s_j y_j with rows s that do not depend on the
targets. A smoother gives its rows, the prediction and its standard errors are written once.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import ClassVar, final

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import WANTS, Answers, Status
from locdist.local.estimates import Estimates, estimates
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import Design, Solution, design, offsets, smooth

FREE = torch.finfo(torch.float64).eps ** 0.5  # fewer degrees of freedom (of at most 1) are rounding


class LocalModel(ABC):
    """A model fitted anew to the neighbors of each query, and discarded."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """What an index must gather for it."""

    @property
    def tells(self) -> frozenset[str]:
        """Of `answers.WANTS`, what it can be asked for besides values and status."""
        return WANTS

    @property
    def slopes(self) -> bool:
        """Whether coefficients go on, after the value, with a slope by feature."""
        return False

    @property
    def offsets(self) -> bool:
        """Whether offsets of rows and queries are added to a linear predictor."""
        return False

    @property
    def traced(self) -> bool:
        """Whether the rows of its smoother are those of the value, or of the linear predictor: their trace
        over the support counts parameters.
        """
        return False

    @property
    def places(self) -> bool:
        """Whether the last values are a point in the space of the features."""
        return False

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

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        """Names of the values [p], given those of targets and features; of codes the classes have names."""
        return each_target("prediction", targets)

    def shape(self, key: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
        """Names of the numbers that each row has for it, given those of the columns of the key."""
        return ()

    def parameters(self, features: Sequence[str]) -> tuple[str, ...]:
        """Names of the coefficients of one value, given those of the features."""
        return ("value", *features) if self.slopes else ("value",)

    def columns(self, k: int, m: int) -> int:
        """Columns of the system that is solved over k neighbors with m features; 0 is none. For its cost."""
        return m if "features" in self.needs else 0


def each_target(name: str, targets: Sequence[str]) -> tuple[str, ...]:
    """A name for what there is of each target: alone as it is, else with the target's."""
    return (name,) if len(targets) == 1 else tuple(f"{name}_{target}" for target in targets)


@dataclass(frozen=True)
class Fit:
    """A linear smoother at each query, or with targets its estimates and their design.

    Only the first `reported` slopes are by feature; None is all.
    """

    solution: Solution | Estimates
    design: Design | None = None
    reported: int | None = None


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

    traced: ClassVar[bool] = True

    @abstractmethod
    def fit(self, hood: Neighborhood, weights: Tensor, targets: Tensor | None = None) -> Fit:
        """The smoother at each query, with targets [q, k, p] its estimates."""

    @final
    def smoother(self, hood: Neighborhood, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Smoother rows s [q, k], and whether the slopes are not identified [q] bool."""
        solution = self.fit(hood, weights).solution
        return solution.smoother, solution.deficient

    @final
    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        more, targets = bool(want & {"spread", "coefficients"}), known_targets(hood, weights)
        fit = self.fit(hood, weights, targets if more else None)
        rows = fit.solution.smoother
        deficient = flagged(fit.solution.deficient, Status.RANK_DEFICIENT)
        answers = answered(weighted_sums(rows, targets), rows, deficient, hood, weights, want)
        return valued(explained(answers, fit, targets, want) if more else answers)


@dataclass(frozen=True)
class Constant(LinearSmoother):
    """The local mean (Nadaraya-Watson; with a uniform kernel the mean of the k nearest): sum_j w_j y_j."""

    needs: ClassVar[frozenset[str]] = frozenset({"targets"})

    def fit(self, hood: Neighborhood, weights: Tensor, targets: Tensor | None = None) -> Fit:
        deficient = torch.zeros(len(weights), dtype=torch.bool, device=weights.device)
        if targets is None:
            return Fit(Solution(weights, deficient))
        count, k, p = targets.shape  # no features: every sum over them is zero
        nothing, freedom = weights.new_empty(count, 0, p), (weights * (1 - weights)).sum(1)
        system = Design(weights, weights.new_empty(count, k, 0), nothing[:, :, 0])
        return Fit(Estimates(weights, deficient, nothing, nothing[:, :, 0], freedom), system)


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
    slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def fit(self, hood: Neighborhood, weights: Tensor, targets: Tensor | None = None) -> Fit:
        assert hood.features is not None
        assert hood.query_features is not None
        if targets is None:
            return Fit(smooth(hood.features, hood.query_features, weights, self.ridge))
        system = design(hood.features, hood.query_features, weights)
        return Fit(estimates(system, targets, self.ridge), system)


@dataclass(frozen=True)
class Polynomial(LinearSmoother):
    """The local polynomial fit in the features less those of the query: a quadric for degree 2.

    The value and the slopes that are reported are those at the query: the constant and linear terms.

    Parameters
    ----------
    degree : int
        The largest sum of exponents in a term, at least 1; 1 is `Linear`.
    cross : bool
        Whether products of different features are terms. With them m features make (m + degree)! / m! degree!
        - 1 columns, without them m degree.
    ridge : float
        >= 0, as in `Linear`: the same penalty for every term but the constant.

    Raises
    ------
    UsageError
        If the degree is not a whole number of at least 1, or the ridge is negative or not finite.
    """

    degree: int = 2
    cross: bool = True
    ridge: float = 0.0
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})
    slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        degree: object = self.degree  # whatever users passed
        if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
            raise UsageError(
                "a degree of at least 1, a whole number", repr(self.degree), "2 fits local quadrics."
            )
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def fit(self, hood: Neighborhood, weights: Tensor, targets: Tensor | None = None) -> Fit:
        assert hood.features is not None
        assert hood.query_features is not None
        near = offsets(hood.features, hood.query_features, weights == 0)
        terms = self.terms(near)
        here = terms.new_zeros(terms.shape[0], terms.shape[2])
        if targets is None:
            return Fit(smooth(terms, here, weights, self.ridge))
        system = design(terms, here, weights)
        return Fit(estimates(system, targets, self.ridge), system, near.shape[2])

    def columns(self, k: int, m: int) -> int:
        return math.comb(m + self.degree, m) - 1 if self.cross else m * self.degree

    def terms(self, near: Tensor) -> Tensor:
        """The terms [q, k, t] of features [q, k, m] less those of the query, those of degree 1 first."""
        return torch.cat([near[:, :, each].prod(dim=3) for each in self._terms(near.shape[2])], 2)

    def _terms(self, m: int) -> list[list[tuple[int, ...]]]:
        # for each degree the columns that a term multiplies
        if not self.cross:
            return [[(column,) * degree for column in range(m)] for degree in range(1, self.degree + 1)]
        return [list(combinations_with_replacement(range(m), degree)) for degree in range(1, self.degree + 1)]


def penalty(ridge: float) -> float:
    """The ridge as a number; UsageError unless it is finite and not negative."""
    if isinstance(ridge, bool) or not 0 <= ridge < float("inf"):
        raise UsageError("a ridge of 0 or more", repr(ridge), "Give a finite number; 0 is no penalty.")
    return float(ridge)


def known_targets(hood: Neighborhood, weights: Tensor) -> Tensor:
    """Targets [q, k, p], 0 where a neighbor has no weight: what stands there must not meet a sum."""
    assert hood.targets is not None
    absent = weights == 0
    return hood.targets.masked_fill(absent[:, :, None], 0.0) if absent.any() else hood.targets


def weighted_sums(rows: Tensor, targets: Tensor) -> Tensor:
    """The sums [q, p] of targets [q, k, p] with the weights of rows [q, k]."""
    return torch.bmm(rows[:, None], targets)[:, 0]


def answered(
    values: Tensor, rows: Tensor, status: Tensor, hood: Neighborhood, weights: Tensor, want: frozenset[str]
) -> Answers:
    """Answers with a status, and what is wanted of "effective" and "neighbors".

    Parameters
    ----------
    values : Tensor [q, p]
    rows : Tensor [q, k]
        The smoother.
    status : Tensor [q] int8
        What the model has to say; NOT_FINITE and EMPTY are added here.
    """
    status = status.masked_fill(~values.isfinite().all(1), int(Status.NOT_FINITE))
    answers = Answers(values, status.masked_fill_(weights.sum(1) == 0, int(Status.EMPTY)))
    if "effective" in want:
        effective = weights.square().sum(1).reciprocal()
        answers = replace(answers, effective=effective.masked_fill(effective.isinf(), 0.0))
    if "neighbors" in want:
        answers = replace(answers, ids=hood.ids, distances=hood.distances, weights=weights, smoother=rows)
    return answers


def flagged(where: Tensor, status: Status) -> Tensor:
    """A status [q] int8 where `where` [q] bool, elsewhere OK."""
    return where.to(torch.int8) * int(status)


def explained(answers: Answers, fit: Fit, targets: Tensor, want: frozenset[str]) -> Answers:
    """Answers with the spread and coefficients of a linear smoother, as wanted."""
    told, system = fit.solution, fit.design
    assert isinstance(told, Estimates)
    assert system is not None
    mean = torch.bmm(system.weights[:, None], targets)
    residual = targets - mean - torch.bmm(system.rows, told.slopes)
    variance = torch.bmm(system.weights[:, None], residual.square())[:, 0]
    squares = torch.cat([told.smoother.square().sum(1, keepdim=True), told.norms], 1)
    errors = standard_error(variance[:, None], told.freedom[:, None, None], squares[:, :, None])
    coefficients = torch.cat([answers.values[:, None], told.slopes], 1)
    reported = None if fit.reported is None else 1 + fit.reported
    return with_errors(answers, coefficients[:, :reported], errors[:, :reported], want)


def standard_error(variance: Tensor, freedom: Tensor, squares: Tensor) -> Tensor:
    """sqrt(sigma2 * squares) with sigma2 = variance / freedom; nan where no freedom is left."""
    return (variance / freedom.masked_fill(freedom <= FREE, float("nan")) * squares).sqrt()


def with_errors(answers: Answers, coefficients: Tensor, errors: Tensor, want: frozenset[str]) -> Answers:
    """Answers with coefficients and their errors, whose first is the spread, as wanted."""
    if "spread" in want:
        answers = replace(answers, spread=errors[:, 0])
    return replace(answers, coefficients=coefficients, errors=errors) if "coefficients" in want else answers


def valued(answers: Answers) -> Answers:
    """Answers without numbers where their status allows none."""
    return answers.without_value(answers.status >= int(Status.EMPTY))
