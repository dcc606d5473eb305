"""Generalized linear models around every query: logistic, Poisson and gamma regression.

Minimise sum_j w_j l(y_j, a + b'(x_j - x_q)) + ridge / 2 |b|^2 over a and b, with l the negative
log-likelihood of a family whose link makes it convex; `irls` finds the minimum. A query whose neighbors all
have the mean at the edge of the family's range (one class only, no counts) has its minimum at infinity: it is
answered by that limit, with slopes of zero.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers, Status
from locdist.local.estimates import freedom_of
from locdist.local.families import Bernoulli, Family
from locdist.local.irls import LEAST, Problem, minimum
from locdist.local.models import (
    LocalModel,
    answered,
    flagged,
    known_targets,
    penalty,
    standard_error,
    valued,
    with_errors,
)
from locdist.local.neighborhood import Neighborhood
from locdist.local.softmax import Softmax, softmax
from locdist.local.solve import offsets


@dataclass(frozen=True)
class Fitted:
    """A generalized linear model at each query.

    Attributes
    ----------
    mean : Tensor [q]
    eta : Tensor [q]
        The linear predictor at the query.
    beta : Tensor [q, 1 + m]
        The same less the query's offset, and its slopes.
    status : Tensor [q] int8
    edge : Tensor [q] bool
        Where the mean is the edge of the family's range.
    rows : Tensor [q, k]
        The smoother of the linear predictor.
    errors : Tensor [q, 1 + m]
        Standard errors of beta.
    operator : Tensor [q, 1 + m, k], optional
        What maps the working responses of the neighbors to beta.
    variances : Tensor [q, k], optional
        Of these responses.
    """

    mean: Tensor
    eta: Tensor
    beta: Tensor
    status: Tensor
    edge: Tensor
    rows: Tensor
    errors: Tensor
    operator: Tensor | None = None
    variances: Tensor | None = None


def fitted(problem: Problem, want: frozenset[str]) -> Fitted:
    """The minimum at each query; rows and errors only where wanted, else weights and nan."""
    family = problem.family
    state, constant, edge, done = minimum(problem)
    status = flagged(state.deficient, Status.RANK_DEFICIENT)
    status = torch.maximum(status, flagged(~done, Status.NOT_CONVERGED))
    beta = state.beta
    beta[:, 0] = torch.where(edge, family.link(constant), beta[:, 0])
    at = beta[:, 0] if problem.query_offsets is None else beta[:, 0] + problem.query_offsets
    mean = torch.where(edge, constant, family.mean(at))
    if not want & {"spread", "coefficients", "neighbors"}:
        unknown = torch.full_like(beta, float("nan"))
        return Fitted(mean, at, beta, status, edge, problem.weights, unknown)
    operator, variances = _operator(problem, state.eta)
    errors = (operator.square() * variances[:, None]).sum(2).sqrt().masked_fill_(edge[:, None], float("nan"))
    rows = torch.where(edge[:, None], problem.weights, operator[:, 0])
    return Fitted(mean, at, beta, status, edge, rows, errors, operator, variances)


def _operator(problem: Problem, eta: Tensor) -> tuple[Tensor, Tensor]:
    # of the last fit with the expected curve: the response of a neighbor has the variance phi / information
    information = problem.family.information(eta)
    system, solution, root = problem.weighed(information)
    assert solution.operator is not None
    operator = torch.cat([solution.smoother[:, None], solution.operator * root[:, :, None]], 1)
    variances = information.clamp(min=LEAST).reciprocal()
    if not problem.family.dispersed:
        return operator, variances
    misses = (problem.targets - problem.family.mean(eta)) / problem.family.gain(eta)
    variance = (system.weights * misses.masked_fill(problem.weights == 0, 0.0).square()).sum(1)
    freedom = freedom_of(system, solution.operator, problem.ridge)
    dispersion = standard_error(variance, freedom, torch.ones_like(freedom)).square()
    return operator, variances * dispersion[:, None]


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
    traced: ClassVar[bool] = True
    offsets: ClassVar[bool] = True
    slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", penalty(self.ridge))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        columns, near = known_targets(hood, weights).unbind(2), _near(hood, weights)
        fits = [fitted(self.problem(hood, near, column, weights), want) for column in columns]
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

    def problem(self, hood: Neighborhood, near: Tensor, targets: Tensor, weights: Tensor) -> Problem:
        """What is minimised for one target [q, k], with features [q, k, m] less those of the query."""
        outside = ~self.family.inside(targets) & (weights > 0)
        targets = targets.masked_fill(outside, float("nan")).masked_fill(weights == 0, 1.0)
        added = None if hood.offsets is None else hood.offsets.masked_fill(weights == 0, 0.0)
        return Problem(self.family, near, targets, weights, self.ridge, added, hood.query_offsets)


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
    spread = family.gain(fit.eta) * fit.errors[:, 0]
    return torch.where(fit.edge, 0.0, spread)
