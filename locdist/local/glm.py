"""Generalized linear models around every query: logistic, Poisson and gamma regression.

Minimise sum_j w_j l(y_j, a + b'(x_j - x_q)) + ridge / 2 |b|^2 over a and b, with l the negative
log-likelihood of a family whose link makes it convex. Newton's steps are weighted least-squares fits of a
working response (iteratively reweighted least squares), which `solve` does; a step that goes uphill is
halved. A query whose neighbors all have the mean at the edge of the family's range (one class only, no
counts) has its minimum at infinity: it is answered by that limit, with slopes of zero.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers, Status
from locdist.local.families import Bernoulli, Family
from locdist.local.models import (
    LocalModel,
    answered,
    flagged,
    freedom_of,
    known_targets,
    penalty,
    standard_error,
    valued,
    weighted_sums,
    with_errors,
)
from locdist.local.neighborhood import Neighborhood
from locdist.local.softmax import Softmax, softmax
from locdist.local.solve import Design, Solution, design, offsets, solve

STEPS = 50
HALVINGS = 20
SETTLED = 1e-7  # a change of the linear predictor after which the next, its square, is rounding
_LEAST = 1e-30  # a curvature that is left where rounding leaves none


@dataclass(frozen=True)
class State:
    """An iterate at each query.

    Attributes
    ----------
    eta : Tensor [q, k]
        The linear predictor at the neighbors.
    beta : Tensor [q, 1 + m]
        The one at the query, and the slopes.
    loss : Tensor [q]
        What is minimised.
    deficient : Tensor [q] bool
    """

    eta: Tensor
    beta: Tensor
    loss: Tensor
    deficient: Tensor

    def where(self, condition: Tensor, other: "State") -> "State":
        """The iterate where `condition` [q] holds, elsewhere the other."""
        each = condition[:, None]
        return State(
            torch.where(each, self.eta, other.eta),
            torch.where(each, self.beta, other.beta),
            torch.where(condition, self.loss, other.loss),
            torch.where(condition, self.deficient, other.deficient),
        )


@dataclass(frozen=True)
class Problem:
    """One target [q, k] with its family, features [q, k, m] less those of the query, and the ridge."""

    family: Family
    near: Tensor
    targets: Tensor
    weights: Tensor
    ridge: float

    def start(self) -> tuple[State, Tensor, Tensor]:
        """The constant model, its mean [q], and where it is the answer: at an edge, or without any [q]."""
        mean = (self.weights * self.targets).sum(1)
        link = self.family.link(mean)
        usable = self.near.isfinite().all(2).all(1)
        mean = mean.masked_fill(~usable, float("nan"))
        over = ~link.isfinite() | ~usable
        beta = self.near.new_zeros(len(mean), 1 + self.near.shape[2])
        beta[:, 0] = link.masked_fill(over, 0.0)
        eta = beta[:, :1].expand_as(self.weights)
        return State(eta, beta, self.loss(eta, beta), torch.zeros_like(over)), mean, over

    def loss(self, eta: Tensor, beta: Tensor) -> Tensor:
        """What is minimised [q]."""
        losses = (self.weights * self.family.loss(eta, self.targets)).masked_fill(self.weights == 0, 0.0)
        return losses.sum(1) + self.ridge / 2 * beta[:, 1:].square().sum(1)

    def weighed(self, curve: Tensor) -> tuple[Design, Solution, Tensor]:
        """Least squares with weights times curve [q, k], and the root of their sum [q, 1].

        Weights must sum to one, and then the ridge is over their sum: features times its root say the same.
        """
        raw = self.weights * curve.clamp(min=_LEAST)
        total = raw.sum(1, keepdim=True).clamp_(min=_LEAST)
        root = total.sqrt()
        scaled = self.near * root[:, :, None]
        system = design(scaled, scaled.new_zeros(scaled.shape[0], scaled.shape[2]), raw / total)
        return system, solve(system, self.ridge, True), root

    def step(self, state: State) -> State:
        """Newton's step, halved until it does not go uphill."""
        family = self.family
        curve = family.curve(state.eta, self.targets).clamp(min=_LEAST)
        response = state.eta - family.slope(state.eta, self.targets) / curve
        response = response.masked_fill(self.weights == 0, 0.0)[:, :, None]
        system, solution, root = self.weighed(curve)
        assert solution.operator is not None
        slopes = torch.bmm(solution.operator, response)
        eta = weighted_sums(system.weights, response) + torch.bmm(system.rows, slopes)[:, :, 0]
        value = weighted_sums(solution.smoother, response)
        beta = torch.cat([value, slopes[:, :, 0] * root], 1)
        return self._downhill(state, eta, beta, solution.deficient)

    def _downhill(self, state: State, eta: Tensor, beta: Tensor, deficient: Tensor) -> State:
        share, allowed = torch.ones_like(state.loss), state.loss + 1e-12 * (1 + state.loss.abs())
        for _ in range(HALVINGS):
            part = share[:, None]
            new = State(state.eta.lerp(eta, part), state.beta.lerp(beta, part), share, deficient)
            new = replace(new, loss=self.loss(new.eta, new.beta))
            uphill = ~(new.loss <= allowed)
            if not uphill.any():
                break
            share = torch.where(uphill, share / 2, share)
        return new


@dataclass(frozen=True)
class Fitted:
    """A generalized linear model at each query.

    Attributes
    ----------
    mean : Tensor [q]
    beta : Tensor [q, 1 + m]
        The linear predictor at the query, and its slopes.
    status : Tensor [q] int8
    edge : Tensor [q] bool
        Where the mean is the edge of the family's range.
    rows : Tensor [q, k]
        The smoother of the linear predictor.
    errors : Tensor [q, 1 + m]
        Standard errors of beta.
    """

    mean: Tensor
    beta: Tensor
    status: Tensor
    edge: Tensor
    rows: Tensor
    errors: Tensor


def fitted(problem: Problem, want: frozenset[str]) -> Fitted:
    """The minimum at each query; rows and errors only where wanted, else weights and nan."""
    family = problem.family
    state, constant, edge = problem.start()
    done = edge
    for _ in range(STEPS):
        new = problem.step(state)
        change = _change(state.eta, new.eta, problem.weights) + _change(state.beta, new.beta)
        state = state.where(done, new)
        done = done | (change <= SETTLED)
        if done.all():
            break
    status = flagged(state.deficient, Status.RANK_DEFICIENT)
    status = torch.maximum(status, flagged(~done, Status.NOT_CONVERGED))
    beta = state.beta
    beta[:, 0] = torch.where(edge, family.link(constant), beta[:, 0])
    mean = torch.where(edge, constant, family.mean(beta[:, 0]))
    rows, errors = problem.weights, torch.full_like(beta, float("nan"))
    if want & {"spread", "coefficients", "neighbors"}:
        rows, errors = _rows_and_errors(problem, state.eta)
        rows = torch.where(edge[:, None], problem.weights, rows)
        errors.masked_fill_(edge[:, None], float("nan"))
    return Fitted(mean, beta, status, edge, rows, errors)


def _change(old: Tensor, new: Tensor, weights: Tensor | None = None) -> Tensor:
    change = (new - old).abs() / (1 + new.abs())
    return (change if weights is None else change.masked_fill(weights == 0, 0.0)).amax(1)


def _rows_and_errors(problem: Problem, eta: Tensor) -> tuple[Tensor, Tensor]:
    # of the last fit with the expected curve: the response of a neighbor has the variance phi / information
    information = problem.family.information(eta)
    system, solution, root = problem.weighed(information)
    assert solution.operator is not None
    operator = torch.cat([solution.smoother[:, None], solution.operator * root[:, :, None]], 1)
    squares = (operator.square() / information.clamp(min=_LEAST)[:, None]).sum(2)
    if not problem.family.dispersed:
        return solution.smoother, squares.sqrt()
    misses = (problem.targets - problem.family.mean(eta)) / problem.family.gain(eta)
    variance = (system.weights * misses.masked_fill(problem.weights == 0, 0.0).square()).sum(1)
    freedom = freedom_of(system, solution.operator, problem.ridge)
    return solution.smoother, standard_error(variance[:, None], freedom[:, None], squares)


@dataclass(frozen=True)
class GeneralizedLinear(LocalModel):
    """A generalized linear model of numbers, one for each target.

    The spread is that of the mean: its derivative times the standard error of the linear predictor, for
    targets of the family's variance and weights that localize. Targets outside of the family's range make
    their queries NOT_FINITE.

    Parameters
    ----------
    family : Family
    ridge : float
        >= 0, relative to weights that sum to one: the penalty is ridge / 2 |b|^2 beside the mean negative
        log-likelihood.
    """

    family: Family
    ridge: float = 0.0
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})
    slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        columns, near = known_targets(hood, weights).unbind(2), _near(hood, weights)
        fits = [fitted(self._problem(near, column, weights), want) for column in columns]
        values = torch.stack([fit.mean for fit in fits], 1)
        status = torch.stack([fit.status for fit in fits], 1).amax(1)
        answers = answered(values, fits[0].rows, status, hood, weights, want)
        if want & {"spread", "coefficients"}:
            beta, errors = (
                torch.stack(part, 2) for part in ([fit.beta for fit in fits], [fit.errors for fit in fits])
            )
            spreads = torch.stack([_spread(fit, self.family) for fit in fits], 1)
            answers = with_errors(answers, beta, errors, want)
            answers = replace(answers, spread=spreads) if "spread" in want else answers
        return valued(answers)

    def _problem(self, near: Tensor, targets: Tensor, weights: Tensor) -> Problem:
        outside = ~self.family.inside(targets) & (weights > 0)
        targets = targets.masked_fill(outside, float("nan")).masked_fill(weights == 0, 1.0)
        return Problem(self.family, near, targets, weights, self.ridge)


@dataclass(frozen=True)
class Logistic(LocalModel):
    """Logistic regression on classes: two by one linear predictor, more by a softmax with one for each class.

    With two classes the coefficients are those of the log-odds of each class. With more they are those of the
    softmax, whose mean over the classes is zero, and have no standard errors.

    Parameters
    ----------
    ridge : float
        >= 0, relative to weights that sum to one: `sklearn.linear_model.LogisticRegression(C=1 / ridge)`
        fitted with `sample_weight=weights`. In small neighborhoods classes are often separable, and without a
        ridge the status is then NOT_CONVERGED.
    """

    ridge: float = 0.01
    needs: ClassVar[frozenset[str]] = frozenset({"codes", "features"})
    slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.targets is not None
        codes = hood.targets[:, :, 0].masked_fill(weights == 0, 0)
        near = _near(hood, weights)
        if hood.classes > 2:
            return softmax(Softmax.of(near, codes, weights, hood.classes, self.ridge), hood, want)
        family = Bernoulli()
        fit = fitted(Problem(family, near, codes.to(weights.dtype), weights, self.ridge), want)
        # without a second class the first has all
        mean, sign = fit.mean, torch.tensor([-1.0, 1.0], device=near.device).to(near)[: hood.classes]
        values = torch.stack([torch.where(fit.edge, 1 - mean, family.mean(-fit.beta[:, 0])), mean], 1)
        answers = answered(values[:, : hood.classes], fit.rows, fit.status, hood, weights, want)
        if want & {"spread", "coefficients"}:
            errors = fit.errors[:, :, None].expand(-1, -1, len(sign))
            answers = with_errors(answers, fit.beta[:, :, None] * sign, errors, want)
            if "spread" in want:
                spread = _spread(fit, family)[:, None].expand(-1, len(sign))
                answers = replace(answers, spread=spread.contiguous())
        return valued(answers)


def _near(hood: Neighborhood, weights: Tensor) -> Tensor:
    assert hood.features is not None
    assert hood.query_features is not None
    return offsets(hood.features, hood.query_features, weights == 0)


def _spread(fit: Fitted, family: Family) -> Tensor:
    # by the delta method; at the edge nothing spreads
    spread = family.gain(fit.beta[:, 0]) * fit.errors[:, 0]
    return torch.where(fit.edge, 0.0, spread)
