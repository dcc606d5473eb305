"""Logistic regression on more than two classes around every query, with one linear predictor for each class.

Minimise sum_j w_j (log sum_c exp(eta_jc) - eta_j,y_j) + ridge / 2 sum_c |b_c|^2 with eta_jc = a_c + b_c'x_j.
The Hessian of all classes is too large to be factored in every neighborhood, but its product with a vector
costs no more than the gradient: Newton's steps are solved by conjugate gradients, preconditioned by the
blocks of single classes. All stays in the subspace of coefficients whose sum over the classes is zero: what
is added to all of them changes no probability. Classes that no neighbor has get the probability 0 and take no
part.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.local.answers import Answers, Status
from locdist.local.models import answered, flagged, valued, with_errors
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import WEAK, factored

STEPS = 50
HALVINGS = 20
SETTLED = 1e-7  # change of the linear predictors after which the next is rounding
FEWEST = 1e-12  # of all weight: a class of so little is missing
MOST = 100  # steps of conjugate gradients
TINY = 1e-10  # makes the preconditioner definite
EXACT, FINE = 1e-4, 1e-10  # residuals of a Newton step, which leaves so much of the error, and of a spread


@dataclass(frozen=True)
class Softmax:
    """The problem of every query, without the classes whose weight is rounding.

    Attributes
    ----------
    rows : Tensor [q, k, 1 + m]
        One, and the features less their weighted mean; finite where a neighbor is absent.
    here : Tensor [q, 1, 1 + m]
        The same of the query.
    codes : Tensor [q, k] int64
        In [0, classes).
    weights : Tensor [q, k]
    classes : int
    ridge : float
    """

    rows: Tensor
    here: Tensor
    codes: Tensor
    weights: Tensor
    classes: int
    ridge: float

    @staticmethod
    def of(near: Tensor, codes: Tensor, weights: Tensor, classes: int, ridge: float) -> "Softmax":
        """The problem of features [q, k, m] less those of the query."""
        shares = weights.new_zeros(len(weights), classes).scatter_add_(1, codes, weights)
        weights = weights.masked_fill((shares <= FEWEST).gather(1, codes), 0.0)
        center = torch.bmm(weights[:, None], near)
        ones = near.new_ones(*near.shape[:2], 1)
        rows, here = torch.cat([ones, near - center], 2), torch.cat([ones[:, :1], -center], 2)
        return Softmax(rows, here, codes, weights, classes, ridge)

    @cached_property
    def shares(self) -> Tensor:
        """[q, 1, c] weight of each class."""
        none = self.weights.new_zeros(len(self.weights), self.classes)
        return none.scatter_add_(1, self.codes, self.weights)[:, None]

    @cached_property
    def mask(self) -> Tensor:
        """[q, 1, c] what is added to the linear predictors: minus infinity for a class that is missing."""
        # where nobody counts no class is there, and all stay: an answer is refused later
        gone = (self.shares == 0) & (self.shares.sum(2, keepdim=True) > 0)
        return torch.zeros_like(self.shares).masked_fill_(gone, float("-inf"))

    @cached_property
    def penalty(self) -> Tensor:
        """[1 + m, 1]: the ridge, and 0 for the constant."""
        ridge = self.rows.new_full((self.rows.shape[2], 1), self.ridge)
        ridge[0] = 0.0
        return ridge

    def chances(self, beta: Tensor, rows: Tensor) -> Tensor:
        """Probabilities [q, r, c] of rows [q, r, 1 + m] by beta [q, 1 + m, c]."""
        return (torch.bmm(rows, beta) + self.mask).softmax(2)

    def loss(self, beta: Tensor) -> Tensor:
        """What is minimised [q]."""
        eta = torch.bmm(self.rows, beta) + self.mask
        own = eta.gather(2, self.codes[:, :, None])[:, :, 0]
        losses = (self.weights * (eta.logsumexp(2) - own)).masked_fill(self.weights == 0, 0.0)
        return losses.sum(1) + (self.penalty * beta.square()).sum((1, 2)) / 2

    def gradient(self, beta: Tensor, chances: Tensor) -> Tensor:
        """Of the loss [q, 1 + m, c]."""
        misses = chances.scatter_add(2, self.codes[:, :, None], -torch.ones_like(chances[:, :, :1]))
        return self._back(misses) + self.penalty * beta

    def hessian(self, chances: Tensor, vector: Tensor) -> Tensor:
        """The Hessian of the loss times a vector [q, 1 + m, c]."""
        moved = torch.bmm(self.rows, vector)
        change = chances * (moved - (chances * moved).sum(2, keepdim=True))
        return self._back(change) + self.penalty * vector

    def blocks(self, chances: Tensor) -> Tensor:
        """Cholesky factors [q, c, 1 + m, 1 + m] of the Hessian's blocks of single classes, made definite."""
        spread = chances * (1 - chances) * self.weights[:, :, None]
        matrix = torch.einsum("qki,qkc,qkj->qcij", self.rows, spread, self.rows)
        diagonal = matrix.diagonal(dim1=2, dim2=3)
        diagonal += self.penalty[:, 0]
        diagonal += TINY * diagonal + (diagonal == 0)
        root = diagonal.sqrt()
        factor, failed = torch.linalg.cholesky_ex(matrix)
        return torch.where((failed != 0)[:, :, None, None], root.diag_embed(), factor)

    def solve(self, chances: Tensor, blocks: Tensor, right: Tensor, exact: float) -> Tensor:
        """The Hessian's inverse times [q, 1 + m, c], to a residual of `exact` times that of zero."""
        result, rest = torch.zeros_like(right), self.centred(right)
        along = image = self._conditioned(blocks, rest)
        energy = _dot(rest, along)
        goal = exact**2 * energy
        for _ in range(MOST):
            active = energy > goal
            if not active.any():
                break
            image = self.hessian(chances, along)
            bend = _dot(along, image)
            active = active & (bend > 0)
            length = torch.where(active, energy / bend, 0.0)
            result, rest = result + length * along, rest - length * image
            near = self._conditioned(blocks, rest)
            new = _dot(rest, near)
            along = near + torch.where(active, new / energy, 0.0) * along
            energy = torch.where(active, new, 0.0)
        return result

    def centred(self, beta: Tensor) -> Tensor:
        """Less the mean over the classes that are there; 0 for the others."""
        gone = self.mask.isinf()
        kept = beta.masked_fill(gone, 0.0)
        return (kept - kept.sum(2, keepdim=True) / (~gone).sum(2, keepdim=True)).masked_fill(gone, 0.0)

    def _conditioned(self, blocks: Tensor, right: Tensor) -> Tensor:
        solved = torch.cholesky_solve(right.mT[:, :, :, None], blocks)[:, :, :, 0]
        return self.centred(solved.mT)

    def minimum(self) -> tuple[Tensor, Tensor]:
        """Where the loss is least [q, 1 + m, c], and whether the iteration settled [q]."""
        beta = self.rows.new_zeros(self.rows.shape[0], self.rows.shape[2], self.classes)
        beta[:, :1] = self.shares.log().masked_fill(self.shares == 0, 0.0)
        done = ~self.rows.isfinite().all(2).all(1)
        for _ in range(STEPS):
            chances = self.chances(beta, self.rows)
            blocks = self.blocks(chances)
            step = -self.solve(chances, blocks, self.gradient(beta, chances), EXACT)
            new = self._downhill(beta, step)
            change = self._change(new - beta, self.rows) + self._change(new - beta, self.here)
            beta = torch.where(done[:, None, None], beta, new)
            done = done | (change <= SETTLED)
            if done.all():
                break
        return beta, done

    def spread(self, beta: Tensor) -> Tensor:
        """Standard errors [q, c] of the probabilities at the query, by the delta method."""
        chances, here = self.chances(beta, self.rows), self.chances(beta, self.here)
        squares, blocks = self.weights.square(), self.blocks(chances)
        errors = []
        for each in range(self.classes):
            rise = -here * here[:, :, each : each + 1]  # of this probability by the linear predictors
            rise[:, :, each] += here[:, :, each]
            moved = torch.bmm(self.rows, self.solve(chances, blocks, self.here.mT * rise, FINE))
            mean = (chances * moved).sum(2)
            noise = (chances * moved.square()).sum(2) - mean.square()
            errors.append((squares * noise.clamp(min=0)).sum(1).sqrt())
        return torch.stack(errors, 1)

    def _downhill(self, beta: Tensor, step: Tensor) -> Tensor:
        before, share = self.loss(beta), self.weights.new_ones(len(beta))
        allowed = before + 1e-12 * (1 + before.abs())
        for _ in range(HALVINGS):
            new = beta + share[:, None, None] * step
            uphill = ~(self.loss(new) <= allowed)
            if not uphill.any():
                break
            share = torch.where(uphill, share / 2, share)
        return new

    def _change(self, step: Tensor, rows: Tensor) -> Tensor:
        # of log-odds; those of absent neighbors do not matter
        moved = torch.bmm(rows, self.centred(step)).abs().amax(2)
        return moved.masked_fill(self.weights == 0, 0.0).amax(1) if rows is self.rows else moved[:, 0]

    def _back(self, change: Tensor) -> Tensor:
        return torch.bmm(self.rows.mT, change * self.weights[:, :, None])


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum((1, 2), keepdim=True)


def softmax(problem: Softmax, hood: Neighborhood, want: frozenset[str]) -> Answers:
    """Probabilities of the classes at each query."""
    beta, settled = problem.minimum()
    chances = problem.chances(beta, problem.here)[:, 0]
    status = torch.maximum(
        flagged(_deficient(problem), Status.RANK_DEFICIENT), flagged(~settled, Status.NOT_CONVERGED)
    )
    chances = chances.masked_fill(~problem.rows.isfinite().all(2).all(1)[:, None], float("nan"))
    answers = answered(chances, problem.weights, status, hood, problem.weights, want)
    if want & {"spread", "coefficients"}:
        errors = torch.full_like(beta, float("nan"))
        if "spread" in want:
            errors[:, 0] = problem.spread(beta)
        answers = with_errors(answers, _coefficients(problem, beta), errors, want)
        if answers.errors is not None:  # the spread is that of the probability
            answers = replace(answers, errors=torch.full_like(errors, float("nan")))
    return valued(answers)


def _coefficients(problem: Softmax, beta: Tensor) -> Tensor:
    own = problem.centred(torch.cat([torch.bmm(problem.here, beta), beta[:, 1:]], 1))
    return own.masked_fill(problem.mask.isinf(), float("nan"))


def _deficient(problem: Softmax) -> Tensor:
    if problem.ridge > 0:
        return torch.zeros(len(problem.rows), dtype=torch.bool, device=problem.rows.device)
    rows = problem.rows[:, :, 1:]
    _, pivot = factored(torch.bmm(rows.mT * problem.weights[:, None], rows))
    return ~(pivot > WEAK)
