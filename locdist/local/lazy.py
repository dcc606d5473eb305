"""Lazy maps: what a linear local model makes of values at its own rows, again and again.

A local model over a support is a matrix, its smoother rows. Applied to any values of the rows it smooths
them; applied forever it makes one value of all, for a matrix of weights leaves the constant alone and nothing
else. So a useful map keeps something up: it takes the mean away and the scale out, or the largest label.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers

_CHECKED = 10  # steps between looks at whether it rests


@dataclass(frozen=True)
class Walk:
    """The smoother rows of all rows of a support: a sparse matrix [n, n].

    Parameters
    ----------
    ids : Tensor [n, k] int64
    shares : Tensor [n, k]
        0 where there is no neighbor.
    """

    ids: Tensor
    shares: Tensor

    @staticmethod
    def of(answers: Answers) -> "Walk":
        """Of answers to the rows of the support, in their order, with "neighbors"; UsageError where a row has
        no neighbors.
        """
        assert answers.ids is not None
        assert answers.smoother is not None
        shares = answers.smoother.masked_fill(answers.ids < 0, 0.0)
        lost = ~(shares.sum(1) != 0) | ~shares.isfinite().all(1)
        if lost.any():
            given = f"none at row {int(lost.nonzero()[0])}"
            raise UsageError("an answer at each row", given, "Take more neighbors, or a larger bandwidth.")
        return Walk(answers.ids.clamp(min=0), shares)

    def __call__(self, values: Tensor) -> Tensor:
        """What becomes of values [n, p]: S Y."""
        columns = [(self.shares * column[self.ids]).sum(1) for column in values.T]
        return torch.stack(columns, 1)

    def back(self, masses: Tensor) -> Tensor:
        """Where masses [n] go: S' m."""
        flat = (self.shares * masses[:, None]).flatten()
        return torch.zeros_like(masses).index_add_(0, self.ids.flatten(), flat)

    def resting(self, tolerance: float, most: int) -> Tensor:
        """The masses [n], summing to one, that the walk leaves alone; of symmetric kernels the degrees."""
        masses = self.shares.new_full((len(self.ids),), 1 / len(self.ids))
        for _ in range(most):
            after = (masses + self.back(masses)) / 2
            if (after - masses).abs().sum() <= tolerance:
                break
            masses = after
        return after / after.sum()


@dataclass(frozen=True)
class Rested:
    """Where the iteration of a map came to.

    Attributes
    ----------
    values : Tensor [n, p], or labels [n] int64
    shares : Tensor [p], optional
        Eigenvalues, the largest first: what a step leaves of each column.
    steps : int
    rests : bool
        Whether it came to rest.
    """

    values: Tensor
    shares: Tensor | None
    steps: int
    rests: bool


def settled(walk: Walk, start: Tensor, tolerance: float, most: int) -> Rested:
    """The leading eigenvectors of a walk besides the constant, by iteration: each step takes the mean away
    and the scale out, both by the masses that rest. Columns are uncorrelated and of length one by these.

    Parameters
    ----------
    walk : Walk
    start : Tensor [n, p]
    tolerance : float
        Change of the eigenvalues at which it rests.
    most : int
    """
    masses = walk.resting(1e-15, most)
    roots = masses.clamp(min=0).sqrt()[:, None]

    def whitened(values: Tensor) -> Tensor:
        scaled = roots * (values - masses @ values)
        basis: Tensor = torch.linalg.qr(scaled)[0]
        return basis.div(roots.clamp(min=torch.finfo(roots.dtype).tiny))

    values, before, rests = whitened(start), None, False
    for step in range(1, most + 1):
        values = whitened((values + walk(values)) / 2)  # half a step: no eigenvalue is negative
        if step % _CHECKED and step < most:
            continue
        shares, vectors = torch.linalg.eig((masses[:, None] * values).T @ walk(values))
        order = shares.real.argsort(descending=True)
        now = shares.real[order]
        rests = before is not None and bool((now - before).abs().max() <= tolerance)
        before = now
        if rests:
            break
    turned = values @ vectors.real[:, order]
    lengths = (masses[:, None] * turned.square()).sum(0).sqrt()
    return Rested(turned / lengths, before, step, rests)


def repeated(walk: Walk, start: Tensor, tolerance: float, most: int) -> Rested:
    """The map alone, Y <- S Y, until the largest change is within the tolerance."""
    return _until(lambda values: walk(values), start, tolerance, most)


def elected(walk: Walk, labels: Tensor, most: int) -> Rested:
    """Every row takes the label [n] with the largest weight among its neighbors, until none changes; of
    several labels the first.
    """
    classes = int(labels.max()) + 1

    def vote(now: Tensor) -> Tensor:
        return walk(torch.nn.functional.one_hot(now[:, 0], classes).double()).argmax(1, keepdim=True)

    found = _until(vote, labels[:, None], 0, most)
    return Rested(found.values[:, 0], None, found.steps, found.rests)


def _until(step: Callable[[Tensor], Tensor], values: Tensor, tolerance: float, most: int) -> Rested:
    for number in range(1, most + 1):
        after = step(values)
        change = float((after - values).abs().max())
        values = after
        if change <= tolerance:
            return Rested(values, None, number, True)
    return Rested(values, None, most, False)


def reconstructed(codes: Tensor, rows: Tensor) -> Tensor:
    """Rows [n, d] as local means of the others, by a Gaussian of width 1 of their codes [n, p]."""
    squares = (codes[:, None] - codes).square().sum(2)
    hollow = torch.eye(len(codes), dtype=torch.bool)
    return torch.softmax((-0.5 * squares).masked_fill(hollow, float("-inf")), 1) @ rows


def unsupervised(rows: Tensor, start: Tensor, steps: int) -> Tensor:
    """Codes [n, p] from which each row is best told by the others: unsupervised kernel regression.

    Parameters
    ----------
    rows : Tensor [n, d]
    start : Tensor [n, p]
        Of any scale; the best of some is begun with.
    steps : int
        Of L-BFGS.
    """

    def lost(codes: Tensor) -> Tensor:
        return (reconstructed(codes, rows) - rows).square().sum(1).mean()

    unit = start / start.std(0).clamp(min=torch.finfo(start.dtype).tiny)
    scales = [float(2.0**power) for power in range(-1, 6)]
    best = min(scales, key=lambda scale: float(lost(scale * unit)))
    codes = (best * unit).contiguous().requires_grad_()  # as L-BFGS wants it
    descent = torch.optim.LBFGS([codes], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        descent.zero_grad()
        loss = lost(codes)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    descent.step(closure)  # type: ignore[no-untyped-call]
    return codes.detach()
