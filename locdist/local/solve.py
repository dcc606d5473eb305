"""Weighted least squares in every neighborhood of a tile at once.

Minimise sum_j w_j (y_j - a - b'(x_j - x_q))^2 + ridge |b|^2 over a and b, with weights that sum to one; the
intercept is not penalized. With c the weighted mean of x - x_q, X the centred features, W = diag(w) and
z = -c, the value at the query is sum_j s_j y_j,

    s = w + W X A^-1 z      primal, A = X'WX + ridge I                 [m, m]
      = w + G^-1 X z        dual,   G = XX' + v 11' + ridge W^-1       [k, k]

whichever system is smaller. (The dual is XX' + ridge W^-1 in the literature; without a ridge that is
singular, since w'X = 0 leaves the direction of constants. Adding v 11', v > 0, there changes no solution.) A
Cholesky factorization, which is indifferent to the scales of features and weights, reports failures by item;
the few systems that are singular or nearly so are solved again by a singular value decomposition of sqrt(W)
X, which does not square the condition number and gives the solution of minimum norm.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

WEAK = 1e-12  # a squared pivot that lost 12 of 16 digits
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
    rows = torch.sub(features, query_features.double()[:, None])
    absent = weights == 0
    if absent.any():  # whatever stands there, nan included, must not meet a sum
        rows.masked_fill_(absent[:, :, None], 0.0)
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
    return _replaced(solution, again[finite], system, ridge)


def _primal(system: Design, ridge: float, slopes: bool) -> tuple[Solution, Tensor]:
    weighted = system.rows.mT * system.weights[:, None]
    matrix = torch.bmm(weighted, system.rows)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    constant = diagonal <= (diagonal + system.mean.square()) * system.rounding
    diagonal += ridge
    if constant.any():  # the equation of a constant column becomes 1 * slope = 0
        weighted.masked_fill_(constant[:, :, None], 0.0)
        matrix.masked_fill_(constant[:, :, None] | constant[:, None], 0.0)
        diagonal += constant
    factor, pivot = _factor(matrix)
    slope = torch.cholesky_solve(system.mean[:, :, None], factor)
    smoother = torch.baddbmm(system.weights[:, None], slope.mT, weighted, alpha=-1)[:, 0]
    operator = torch.cholesky_solve(weighted, factor) if slopes else None
    deficient = constant.any(1) if ridge == 0 else torch.zeros_like(pivot, dtype=torch.bool)
    return Solution(smoother, deficient, operator), ~(pivot > WEAK)


def _dual(system: Design, ridge: float, slopes: bool) -> tuple[Solution, Tensor]:
    weights, rows, mean = system.weights, system.rows, system.mean
    matrix = torch.bmm(rows, rows.mT)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    variance = (weights * diagonal).sum(1)
    noise = (variance + mean.square().sum(1)) * system.rounding
    matrix += variance[:, None, None]
    # an absent row has an infinite penalty: it vanishes from all sums but has a square
    penalty = torch.where(weights > 0, ridge / weights, _NEVER).clamp_(max=_NEVER)
    diagonal += penalty
    factor, pivot = _factor(matrix)
    absent = weights == 0
    direction = torch.cholesky_solve(torch.bmm(rows, mean[:, :, None]), factor)[:, :, 0]
    constant = ~(variance > noise)
    smoother = weights - direction.masked_fill_(absent | constant[:, None], 0.0)
    operator = torch.bmm(rows.mT, torch.cholesky_inverse(factor)) if slopes else None
    if operator is not None:
        operator.masked_fill_((absent | constant[:, None])[:, None], 0.0)
    weak = ~(pivot > WEAK + noise / variance) & ~constant
    return Solution(smoother, torch.full_like(weak, ridge == 0), operator), weak


def _factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    # the Cholesky factor and its smallest squared pivot relative to the diagonal: 0 or nan where it failed
    factor, info = torch.linalg.cholesky_ex(matrix)
    pivots = factor.diagonal(dim1=1, dim2=2).square() / matrix.diagonal(dim1=1, dim2=2)
    return factor, pivots.amin(1).masked_fill_(info != 0, 0.0)


def _replaced(solution: Solution, weak: Tensor, system: Design, ridge: float) -> Solution:
    weights, rows, mean = system.weights[weak], system.rows[weak], system.mean[weak]
    root = weights.sqrt()[:, :, None]
    left, size, right = torch.linalg.svd(root * rows, full_matrices=False)
    total = size.square().sum(1, keepdim=True) + mean.square().sum(1, keepdim=True)
    kept = size.square() > total * system.rounding
    gain = torch.where(kept, size / (size.square() + ridge), 0.0)[:, :, None]
    operator = torch.bmm(right.mT, gain * (root * left).mT)
    smoother = weights - torch.bmm(mean[:, None], operator)[:, 0]
    deficient = (kept.sum(1) < rows.shape[2]) & (ridge == 0)
    return Solution(
        solution.smoother.index_copy(0, weak, smoother),
        solution.deficient.index_copy(0, weak, deficient),
        None if solution.operator is None else solution.operator.index_copy(0, weak, operator),
    )
