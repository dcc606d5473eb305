"""Weighted least squares in every neighborhood of a tile at once.

Minimise sum_j w_j (y_j - a - b'(x_j - x_q))^2 + ridge |b|^2 over a and b, with weights that sum to one; the
intercept is not penalized. With c the weighted mean of x - x_q, X the centred features, W = diag(w) and
z = -c, the value at the query is sum_j s_j y_j,

    s = w + W X A^-1 z      primal, A = X'WX + ridge I                 [m, m]
      = w + G^-1 X z        dual,   G = XX' + v 11' + ridge W^-1       [k, k]

whichever system is smaller. (The dual is XX' + ridge W^-1 in the literature; without a ridge that is
singular, since w'X = 0 leaves the direction of constants. Adding v 11', v > 0, there changes no solution.) If
no slopes are wanted the dual needs no centring either: with R = x - x_q and slopes R'u the equations are
a 1 + (RR' + ridge W^-1) u = y and 1'u = 0, so that

    s = M^-1 1 / 1'M^-1 1   uncentred dual, M = RR' + v 11' + ridge W^-1

as in ordinary kriging. It loses digits when the query is far from its neighbors, which are then centred.

A Cholesky factorization, which is indifferent to the scales of features and weights, reports failures by
item, but of a matrix that squares the condition number. Where a pivot shows that digits were lost, a step of
refinement with a residual taken from X, not from its square, restores them (corrected seminormal equations:
Bjorck 1987, Linear Algebra Appl. 88/89). The few systems that are singular or nearly so are solved again by a
singular value decomposition of sqrt(W) X, which gives the solution of minimum norm.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

WEAK = 1e-10  # a squared pivot too small for a refined solution to be good to nine digits
CLOSE = 1e-4  # a squared pivot below which an answer that is not refined may lose the tenth digit
_NEVER = 1e200


@dataclass(frozen=True)
class Design:
    """The centred system of each query.

    Attributes
    ----------
    weights : Tensor [q, k] float64
        w, summing to one.
    rows : Tensor [q, k, m] float64
        X: the features less their weighted mean; finite where w is zero.
    mean : Tensor [q, m] float64
        c: the weighted mean of the features less those of the query.
    """

    weights: Tensor
    rows: Tensor
    mean: Tensor

    @property
    def rounding(self) -> float:
        """The relative size of what is left, squared, where the exact spread is zero: (k eps)^2."""
        return (max(self.rows.shape[1:]) * torch.finfo(torch.float64).eps) ** 2

    def at(self, index: Tensor) -> "Design":
        """The systems of some of the queries."""
        return Design(self.weights[index], self.rows[index], self.mean[index])


@dataclass(frozen=True)
class Solution:
    """What maps targets to answers.

    Attributes
    ----------
    smoother : Tensor [q, k]
        s, with value = sum_j s_j y_j.
    deficient : Tensor [q] bool
        Whether the slopes are not identified.
    operator : Tensor [q, m, k], optional
        C, with slopes = C y.
    """

    smoother: Tensor
    deficient: Tensor
    operator: Tensor | None = None


def design(features: Tensor, query_features: Tensor, weights: Tensor) -> Design:
    """Centre features [q, k, m] at the query [q, m], which is exact for close rows, then at their mean."""
    rows = offsets(features, query_features, weights == 0)
    mean = torch.bmm(weights[:, None], rows)
    return Design(weights, rows.sub_(mean), mean[:, 0])


def solve(system: Design, ridge: float, slopes: bool) -> Solution:
    """Smoother rows of every query, and with `slopes` the operator that gives the slopes.

    Parameters
    ----------
    system : Design
    ridge : float
        >= 0, in squared units of the features. With a positive ridge no system is deficient.
    slopes : bool
    """
    _, k, m = system.rows.shape
    solution, weak = (_primal if m < k else _dual)(system, ridge, slopes)
    again = weak.nonzero()[:, 0]
    if not len(again):
        return solution
    finite = system.rows[again].isfinite().all(2).all(1)  # the others have no answer, and would raise for all
    again = again[finite]
    return _replaced(solution, again, _pseudo(system.at(again), ridge))


def smooth(features: Tensor, query_features: Tensor, weights: Tensor, ridge: float) -> Solution:
    """What `solve` gives without slopes, for features [q, k, m] less those of the query [q, m]; quicker."""
    if features.shape[2] < features.shape[1]:
        return solve(design(features, query_features, weights), ridge, False)
    solution, weak = _uncentred(features, query_features, weights, ridge)
    again = weak.nonzero()[:, 0]
    if not len(again):
        return solution
    system = design(features[again], query_features[again], weights[again])
    return _replaced(solution, again, solve(system, ridge, False))


def _uncentred(
    features: Tensor, query_features: Tensor, weights: Tensor, ridge: float
) -> tuple[Solution, Tensor]:
    absent = weights == 0
    matrix = _products(features, query_features, absent)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    level = (weights * diagonal).sum(1)
    matrix += level[:, None, None]
    penalty = _penalty(weights, ridge)
    diagonal += penalty
    factor, pivot = factored(matrix)
    direction = torch.cholesky_solve(torch.ones_like(weights)[:, :, None], factor)

    def left(near: Tensor, part: Tensor) -> Tensor:  # of 1 - M direction
        some = offsets(features[near], query_features[near], absent[near])
        rest = 1 - level[near, None, None] * part.sum(1, keepdim=True) - penalty[near, :, None] * part
        return torch.baddbmm(rest, some, torch.bmm(some.mT, part), alpha=-1)

    _refine(direction, None, pivot, factor, left)
    smoother = direction[:, :, 0].masked_fill_(absent, 0.0)
    smoother /= smoother.sum(1, keepdim=True)
    weak = ~((pivot > WEAK) & (level > 0))
    return Solution(smoother, torch.full_like(weak, ridge == 0)), weak


def _products(features: Tensor, query_features: Tensor, absent: Tensor) -> Tensor:
    # RR' [q, k, k]. R is not kept: the memory, and with it the cache, is the factorization's next
    rows = offsets(features, query_features, absent)
    return torch.bmm(rows, rows.mT)


def offsets(features: Tensor, query_features: Tensor, absent: Tensor) -> Tensor:
    """R [q, k, m] float64: the features less those of the query, 0 where `absent` [q, k]."""
    count, k, m = features.shape
    there = query_features.double()[:, None]
    # of few features neighbors come last in memory: sums over them are several times quicker so
    rows = there.new_empty(count, m, k).mT if 4 * m <= k else there.new_empty(count, k, m)
    torch.sub(features.double(), there, out=rows)
    if absent.any():  # whatever stands there, nan included, must not meet a sum
        rows.masked_fill_(absent[:, :, None], 0.0)
    return rows


def _primal(system: Design, ridge: float, slopes: bool) -> tuple[Solution, Tensor]:
    weighted, mean = system.rows.mT * system.weights[:, None], system.mean[:, :, None]
    matrix = torch.bmm(weighted, system.rows)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    constant = diagonal <= (diagonal + system.mean.square()) * system.rounding
    diagonal += ridge
    if constant.any():  # the equation of a constant column becomes 1 * slope = 0
        weighted.masked_fill_(constant[:, :, None], 0.0)
        matrix.masked_fill_(constant[:, :, None] | constant[:, None], 0.0)
        diagonal += constant
        mean = mean.masked_fill(constant[:, :, None], 0.0)
    factor, pivot = factored(matrix)
    slope = torch.cholesky_solve(mean, factor)
    operator = torch.cholesky_solve(weighted, factor) if slopes else None

    def left(near: Tensor, part: Tensor) -> Tensor:  # of [c, WX'] - (WX' X + ridge) slope
        miss = torch.bmm(system.rows[near], part).neg_()
        miss[:, :, 1:].diagonal(dim1=1, dim2=2).add_(1)
        rest = torch.bmm(weighted[near], miss) - ridge * part
        rest[:, :, :1] += mean[near]
        return rest

    _refine(slope, operator, pivot, factor, left)
    smoother = torch.baddbmm(system.weights[:, None], slope.mT, weighted, alpha=-1)[:, 0]
    deficient = constant.any(1) if ridge == 0 else torch.zeros_like(pivot, dtype=torch.bool)
    return Solution(smoother, deficient, operator), ~(pivot > WEAK)


def _dual(system: Design, ridge: float, slopes: bool) -> tuple[Solution, Tensor]:
    weights, rows, mean = system.weights, system.rows, system.mean[:, :, None]
    matrix = torch.bmm(rows, rows.mT)
    variance = (weights * matrix.diagonal(dim1=1, dim2=2)).sum(1)
    noise = (variance + system.mean.square().sum(1)) * system.rounding
    matrix += variance[:, None, None]
    penalty = _penalty(weights, ridge)
    matrix.diagonal(dim1=1, dim2=2).add_(penalty)
    factor, pivot = factored(matrix)
    direction = torch.cholesky_solve(torch.bmm(rows, mean), factor)
    backward = inverse(factor, pivot) if slopes else None

    def left(near: Tensor, part: Tensor) -> Tensor:  # of [X c, 1] - G part
        miss = torch.bmm(rows[near].mT, part).neg_()
        miss[:, :, :1] += mean[near]
        rest = torch.bmm(rows[near], miss) - variance[near, None, None] * part.sum(1, keepdim=True)
        rest[:, :, 1:].diagonal(dim1=1, dim2=2).add_(1)
        return rest - penalty[near, :, None] * part

    _refine(direction, backward, pivot, factor, left)
    constant = variance <= noise
    unused = (weights == 0) | constant[:, None]
    smoother = weights - direction[:, :, 0].masked_fill_(unused, 0.0)
    operator = None
    if backward is not None:
        operator = torch.bmm(rows.mT, backward).masked_fill_(unused[:, None], 0.0)
    weak = ~(pivot > WEAK + noise / variance) & ~constant
    return Solution(smoother, torch.full_like(weak, ridge == 0), operator), weak


def _penalty(weights: Tensor, ridge: float) -> Tensor:
    # an absent row has an infinite penalty: it vanishes from all sums but has a square
    return torch.where(weights > 0, ridge / weights, _NEVER).clamp_(max=_NEVER)


def factored(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of each matrix and its smallest squared pivot relative to the diagonal.

    The pivot [q] is 0 or nan where the factorization failed.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    pivots = factor.diagonal(dim1=1, dim2=2).square() / matrix.diagonal(dim1=1, dim2=2)
    return factor, pivots.amin(1).masked_fill_(info != 0, 0.0)


def inverse(factor: Tensor, pivot: Tensor) -> Tensor:
    """The inverses of the factored matrices; the identity where the factorization failed."""
    failed = ~(pivot > 0)  # these have no inverse, and would raise for all
    if failed.any():
        identity = torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device)
        factor = torch.where(failed[:, None, None], identity, factor)
    return torch.cholesky_inverse(factor)


def _refine(
    vector: Tensor,
    operator: Tensor | None,
    pivot: Tensor,
    factor: Tensor,
    left: Callable[[Tensor, Tensor], Tensor],
) -> None:
    # one step, in place, where it is needed and helps; `left` is the residual of [vector, operator] there
    near = ((pivot > WEAK) & (pivot < CLOSE)).nonzero()[:, 0]
    if not len(near):
        return
    part = vector[near] if operator is None else torch.cat([vector[near], operator[near]], 2)
    part += torch.cholesky_solve(left(near, part), factor[near])
    vector[near] = part[:, :, :1]
    if operator is not None:
        operator[near] = part[:, :, 1:]


def _pseudo(system: Design, ridge: float) -> Solution:
    weights, rows, mean = system.weights, system.rows, system.mean
    root = weights.sqrt()[:, :, None]
    left, size, right = _svd(root * rows)
    total = size.square().sum(1, keepdim=True) + mean.square().sum(1, keepdim=True)
    kept = size.square() > total * system.rounding
    gain = torch.where(kept, size / (size.square() + ridge), 0.0)[:, :, None]
    operator = torch.bmm(right.mT, gain * (root * left).mT)
    smoother = weights - torch.bmm(mean[:, None], operator)[:, 0]
    deficient = (kept.sum(1) < rows.shape[2]) & (ridge == 0)
    return Solution(smoother, deficient, operator)


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # one matrix whose iteration does not converge raises for all: then each gets its own, or nan
    try:
        left, size, right = torch.linalg.svd(matrix, full_matrices=False)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        if len(matrix) > 1:
            parts = [_svd(one[None]) for one in matrix]
            left, size, right = (torch.cat(part) for part in zip(*parts, strict=True))
        else:
            rank = min(matrix.shape[1:])
            left, right = matrix[:, :, :rank] * torch.nan, matrix[:, :rank] * torch.nan
            size = left[:, 0]
    return left, size, right


def _replaced(solution: Solution, index: Tensor, part: Solution) -> Solution:
    operator = solution.operator
    if operator is not None:
        assert part.operator is not None
        operator = operator.index_copy(0, index, part.operator)
    return Solution(
        solution.smoother.index_copy(0, index, part.smoother),
        solution.deficient.index_copy(0, index, part.deficient),
        operator,
    )
