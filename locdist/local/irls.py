"""The minimum of a generalized linear model's loss around every query.

Newton's steps in centred coordinates need no more than a factorization of the smaller matrix and a solution,
and both in single precision, as long as the gradient of the last step is in double.
The loss is not looked at: the third derivative of each family's loss is at most the second one, so that with
a change of the linear predictor by at most D a step s with s'Hs = -g's changes the loss by at most
(phi(D) - 1) s'Hs, phi(D) = (exp(D) - D - 1) / D^2, which is less than 0 up to D = 1.79 (Bach, Self-concordant
analysis for logistic regression, Electronic Journal of Statistics 4, 2010); longer steps are shortened.

Queries whose matrix is nearly singular, or with more features than neighbors, are solved as weighted
least-squares fits of a working response (iteratively reweighted least squares), which `solve` does: slower,
and with its care for systems that have no unique solution. There a step that goes uphill is halved.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.local.families import Family
from locdist.local.models import weighted_sums
from locdist.local.solve import Design, Solution, design, factored, solve

STEPS = 50
HALVINGS = 20
SETTLED = 1e-7  # a change of the linear predictor after which the next, its square, is rounding
LEAST = 1e-30  # a curvature that is left where rounding leaves none
SAFE = 1.75  # a change of the linear predictor with which a step of Newton goes downhill, see above
WEAK = 1e-3  # a squared pivot of a matrix too near to a singular one for single precision
ROUGH = 3e-3  # a change in single precision after which the next step is in double
FINE = 1e-5  # a change after which the next is less than 1e-8, mostly 1e-11


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

    def put(self, index: Tensor, part: "State") -> "State":
        """The iterate with that of some queries in its place."""
        return State(
            self.eta.index_copy(0, index, part.eta),
            self.beta.index_copy(0, index, part.beta),
            self.loss.index_copy(0, index, part.loss),
            self.deficient.index_copy(0, index, part.deficient),
        )

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
    """One target [q, k] with its family, features [q, k, m] less those of the query, the ridge, and offsets
    [q, k] and [q].
    """

    family: Family
    near: Tensor
    targets: Tensor
    weights: Tensor
    ridge: float
    offsets: Tensor | None = None
    query_offsets: Tensor | None = None

    def at(self, index: Tensor) -> "Problem":
        """The problems of some of the queries."""
        own, query = (None if each is None else each[index] for each in (self.offsets, self.query_offsets))
        parts = (self.near[index], self.targets[index], self.weights[index])
        return Problem(self.family, *parts, self.ridge, own, query)

    def start(self) -> tuple[State, Tensor, Tensor]:
        """The constant model (without its loss), its mean [q], and where it is the answer: at an edge, or
        without any [q].
        """
        mean = (self.weights * self.targets).sum(1)
        link = self.family.link(mean)
        usable = self.near.sum((1, 2)).isfinite()  # a sum may overflow where all are
        usable = usable if usable.all() else self.near.isfinite().all(2).all(1)
        mean = mean.masked_fill(~usable, float("nan"))
        over = ~link.isfinite() | ~usable
        beta = self.near.new_zeros(len(mean), 1 + self.near.shape[2])
        beta[:, 0] = link.masked_fill(over, 0.0)
        eta = beta[:, :1].expand_as(self.weights)
        if self.offsets is not None:  # less their mean
            beta[:, 0] -= (self.weights * self.offsets).sum(1)
            eta = beta[:, :1] + self.offsets
        return State(eta, beta, torch.zeros_like(mean), torch.zeros_like(over)), mean, over

    def loss(self, eta: Tensor, beta: Tensor) -> Tensor:
        """What is minimised [q]."""
        losses = (self.weights * self.family.loss(eta, self.targets)).masked_fill(self.weights == 0, 0.0)
        return losses.sum(1) + self.ridge / 2 * beta[:, 1:].square().sum(1)

    def weighed(self, curve: Tensor) -> tuple[Design, Solution, Tensor]:
        """Least squares with weights times curve [q, k], and the root of their sum [q, 1].

        Weights must sum to one, and then the ridge is over their sum: features times its root say the same.
        """
        raw = self.weights * curve.clamp(min=LEAST)
        total = raw.sum(1, keepdim=True).clamp_(min=LEAST)
        root = total.sqrt()
        scaled = self.near * root[:, :, None]
        system = design(scaled, scaled.new_zeros(scaled.shape[0], scaled.shape[2]), raw / total)
        return system, solve(system, self.ridge, True), root

    def step(self, state: State) -> State:
        """Newton's step, halved until it does not go uphill."""
        family = self.family
        curve = family.curve(state.eta, self.targets).clamp(min=LEAST)
        response = state.eta - family.slope(state.eta, self.targets) / curve
        if self.offsets is not None:
            response = response - self.offsets
        response = response.masked_fill(self.weights == 0, 0.0)[:, :, None]
        system, solution, root = self.weighed(curve)
        assert solution.operator is not None
        slopes = torch.bmm(solution.operator, response)
        eta = weighted_sums(system.weights, response) + torch.bmm(system.rows, slopes)[:, :, 0]
        eta = eta if self.offsets is None else eta + self.offsets
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
class Walk:
    """Where the steps of each query have led.

    Attributes
    ----------
    theta : Tensor [q, 1 + m]
    eta : Tensor [q, k]
        The linear predictor at the neighbors.
    done, weak : Tensor [q] bool
        Which need no more steps, and which are not for steps of this kind.
    """

    theta: Tensor
    eta: Tensor
    done: Tensor
    weak: Tensor

    @property
    def left(self) -> Tensor:
        """Which queries need more steps [q] bool."""
        return ~(self.done | self.weak)

    def at(self, index: Tensor) -> "Walk":
        """Those of some queries."""
        return Walk(self.theta[index], self.eta[index], self.done[index], self.weak[index])

    def put(self, index: Tensor, part: "Walk") -> "Walk":
        """These with those of some queries in their place."""
        return Walk(
            self.theta.index_copy(0, index, part.theta),
            self.eta.index_copy(0, index, part.eta),
            self.done.index_copy(0, index, part.done),
            self.weak.index_copy(0, index, part.weak),
        )


@dataclass(frozen=True)
class Centred:
    """A problem whose features have the weighted mean 0 at each query.

    Attributes
    ----------
    problem : Problem
    rows : Tensor [q, 1 + m, k]
        One and these features; neighbors come last, where sums over them are quickest.
    center : Tensor [q, m]
        What was subtracted.
    """

    problem: Problem
    rows: Tensor
    center: Tensor

    @staticmethod
    def of(problem: Problem) -> "Centred":
        """The same problem in other coordinates."""
        count, k, m = problem.near.shape
        rows = problem.near.new_empty(count, 1 + m, k)
        rows[:, 0] = 1
        center = torch.bmm(problem.weights[:, None], problem.near)
        torch.sub(problem.near.mT, center.mT, out=rows[:, 1:])
        return Centred(problem, rows, center[:, 0])

    def at(self, index: Tensor) -> "Centred":
        """The problems of some of the queries."""
        return Centred(self.problem.at(index), self.rows[index], self.center[index])

    @cached_property
    def single(self) -> "Centred":
        """The same in single precision."""
        own = self.problem
        parts = (own.near[:, :0], own.targets.float(), own.weights.float())  # features are in the rows
        return Centred(Problem(own.family, *parts, own.ridge), self.rows.float(), self.center)

    def step(self, theta: Tensor, eta: Tensor) -> tuple[Tensor, Tensor]:
        """Newton's step [q, 1 + m] from parameters and linear predictors, and where there is none [q]. The
        gradient has the precision of the problem, its second derivatives are single.
        """
        own, rows = self.problem, self.single.rows
        slope, curve = own.family.derivatives(eta, own.targets)
        down = torch.bmm((own.weights * slope)[:, None], self.rows.mT)[:, 0]
        down[:, 1:].add_(theta[:, 1:], alpha=own.ridge)
        matrix = torch.bmm(rows * (own.weights * curve).float()[:, None], rows.mT)
        matrix.diagonal(dim1=1, dim2=2)[:, 1:].add_(own.ridge)
        factor, pivot = factored(matrix)
        step = torch.cholesky_solve(down.float()[:, :, None], factor)[:, :, 0]
        return step.neg_().to(theta.dtype), ~(pivot > WEAK)

    def steps(self, walk: Walk, enough: float, most: int = STEPS) -> Walk:
        """Steps until the linear predictors of every query change by no more than enough."""
        for taken in range(1, most + 1):
            walk = self._moved(walk, enough)
            some = walk.left.nonzero()[:, 0]
            if not len(some):
                break
            if 2 * len(some) <= len(walk.done):  # the others have settled
                return walk.put(some, self.at(some).steps(walk.at(some), enough, most - taken))
        return walk

    def _moved(self, walk: Walk, enough: float) -> Walk:
        step, lost = self.step(walk.theta, walk.eta)
        weak = walk.weak | (lost & ~walk.done)
        change = torch.bmm(step[:, None], self.rows)[:, 0]
        largest = change.abs().amax(1)
        share = (SAFE / largest).clamp_(max=1.0).masked_fill_(walk.done | weak, 0.0)[:, None]
        theta, eta = torch.addcmul(walk.theta, step, share), torch.addcmul(walk.eta, change, share)
        return Walk(theta, eta, walk.done | (~weak & (largest <= enough)), weak)


def minimum(problem: Problem) -> tuple[State, Tensor, Tensor, Tensor]:
    """The iterate at which each query ended, the mean of the constant model [q], where that is the answer
    [q], and which queries settled [q].
    """
    state, constant, edge = problem.start()
    done = edge
    if problem.near.shape[2] < problem.near.shape[1]:
        state, done = _quickly(problem, state, edge)
    rest = (~done).nonzero()[:, 0]
    if len(rest):
        part, settled = _carefully(problem.at(rest))
        state, done = state.put(rest, part), done.index_copy(0, rest, settled)
    return state, constant, edge, done


def _carefully(problem: Problem) -> tuple[State, Tensor]:
    state, _, done = problem.start()
    state = replace(state, loss=problem.loss(state.eta, state.beta))
    for _ in range(STEPS):
        new = problem.step(state)
        change = _change(state.eta, new.eta, problem.weights) + _change(state.beta, new.beta)
        state = state.where(done, new)
        done = done | (change <= SETTLED)
        if done.all():
            break
    return state, done


def _quickly(problem: Problem, start: State, edge: Tensor) -> tuple[State, Tensor]:
    """Newton's steps from the constant model, most of them in single precision, and which queries settled;
    the others are left for `_carefully`.
    """
    centred = Centred.of(problem)
    rough = Walk(start.beta.float(), start.eta.float(), edge, torch.zeros_like(edge))
    rough = centred.single.steps(rough, ROUGH)
    theta = rough.theta.double()
    eta = torch.bmm(theta[:, None], centred.rows)[:, 0]
    eta = eta if problem.offsets is None else eta + problem.offsets
    fine = centred.steps(Walk(theta, eta, edge, ~rough.done), FINE)
    value = fine.theta[:, :1] - (centred.center * fine.theta[:, 1:]).sum(1, keepdim=True)
    beta = torch.cat([value, fine.theta[:, 1:]], 1)
    return start.where(edge, State(fine.eta, beta, start.loss, torch.zeros_like(edge))), fine.done


def _change(old: Tensor, new: Tensor, weights: Tensor | None = None) -> Tensor:
    change = (new - old).abs() / (1 + new.abs())
    return (change if weights is None else change.masked_fill(weights == 0, 0.0)).amax(1)
