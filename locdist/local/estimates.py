"""Slopes of weighted least squares in every neighborhood, and what their errors are made of.

The operator C [m, k] that maps targets to slopes is as large as the neighborhoods. Its sums over neighbors
are not: with A = X'WX + ridge I, as `solve` has it,

    slopes = A^-1 X'Wy      CC' = A^-1 (X'W^2X) A^-1      sum_j w_j x_j'C_j = tr(A^-1 X'W^2X)

which squares of small matrices give, where A is far enough from singular and enough freedom is left that its
difference has its digits. The others are solved with C.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from locdist.local.solve import CLOSE, Design, factored, solve

TIGHT = 1e-3  # degrees of freedom, of at most 1, whose difference has lost three digits


@dataclass(frozen=True)
class Estimates:
    """A fit to targets.

    Attributes
    ----------
    smoother : Tensor [q, k]
        s, with value = sum_j s_j y_j.
    deficient : Tensor [q] bool
        Whether the slopes are not identified.
    slopes : Tensor [q, m, p]
    norms : Tensor [q, m]
        The diagonal of CC'.
    freedom : Tensor [q]
        What the fit leaves of it, as `LinearSmoother` says.
    """

    smoother: Tensor
    deficient: Tensor
    slopes: Tensor
    norms: Tensor
    freedom: Tensor

    def put(self, index: Tensor, part: "Estimates") -> "Estimates":
        """These with those of some queries in their place."""
        names = [field.name for field in fields(self)]
        return Estimates(*(getattr(self, name).index_copy(0, index, getattr(part, name)) for name in names))


def estimates(system: Design, targets: Tensor, ridge: float) -> Estimates:
    """The fit of every query to targets [q, k, p]; ridge >= 0 as for `solve`."""
    _, k, m = system.rows.shape
    if m >= k:
        return _operated(system, targets, ridge)
    found, sound = _squared(system, targets, ridge)
    rest = (~sound).nonzero()[:, 0]
    return found.put(rest, _operated(system.at(rest), targets[rest], ridge)) if len(rest) else found


def _squared(system: Design, targets: Tensor, ridge: float) -> tuple[Estimates, Tensor]:
    # and where it is good [q]
    weighted = system.rows.mT * system.weights[:, None]
    matrix, squares = torch.bmm(weighted, system.rows), torch.bmm(weighted, weighted.mT)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    varying = diagonal > (diagonal + system.mean.square()) * system.rounding
    diagonal += ridge
    factor, pivot = factored(matrix)
    sides = torch.cat([system.mean[:, :, None], squares, torch.bmm(weighted, targets)], 2)
    slope, half, slopes = torch.tensor_split(
        torch.cholesky_solve(sides, factor), (1, 1 + squares.shape[1]), 2
    )
    smoother = torch.baddbmm(system.weights[:, None], slope.mT, weighted, alpha=-1)[:, 0]
    norms = torch.cholesky_solve(half.mT, factor).diagonal(dim1=1, dim2=2)
    spent = half.diagonal(dim1=1, dim2=2).sum(1) + ridge * norms.sum(1)
    freedom = (system.weights * (1 - system.weights)).sum(1) - spent
    deficient = torch.zeros_like(pivot, dtype=torch.bool)
    sound = (pivot > CLOSE) & varying.all(1) & (freedom > TIGHT)
    return Estimates(smoother, deficient, slopes, norms, freedom), sound


def _operated(system: Design, targets: Tensor, ridge: float) -> Estimates:
    solution = solve(system, ridge, True)
    assert solution.operator is not None
    norms, slopes = solution.operator.square().sum(2), torch.bmm(solution.operator, targets)
    freedom = freedom_of(system, solution.operator, ridge)
    return Estimates(solution.smoother, solution.deficient, slopes, norms, freedom)


def freedom_of(system: Design, operator: Tensor, ridge: float) -> Tensor:
    """Degrees of freedom [q] that a least-squares fit leaves, as `LinearSmoother` says."""
    leverage = (system.rows * operator.mT).sum(2)
    spent = ridge * operator.square().sum(2).sum(1)
    return (system.weights * (1 - system.weights - leverage)).sum(1) - spent
