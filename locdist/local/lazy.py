"""Lazy maps: what a linear local model makes of values at its own rows, again and again.

A local model over a support is a matrix, its smoother rows. Applied to any values of the rows it smooths
them; applied forever it makes one value of all, for a matrix of weights leaves the constant alone and nothing
else. So a useful map keeps something up: it takes the mean away and the scale out, or the largest label.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers
from locdist.local.embedding import signed
from locdist.local.graph import Edges, Graph

_CHECKED = 10  # steps between looks at whether it rests


@dataclass(frozen=True, eq=False)
class Walk:
    """The smoother rows of all rows of a support: a sparse matrix S [n, n].

    Raises
    ------
    UsageError
        Where a row has no neighbors.
    """

    graph: Graph

    def __post_init__(self) -> None:
        lost = ~(self.graph.degrees != 0) | ~self.graph.degrees.isfinite()
        if lost.any():
            given = f"none at row {int(lost.nonzero()[0])}"
            raise UsageError("an answer at each row", given, "Take more neighbors, or a larger bandwidth.")

    @staticmethod
    def of(answers: Answers) -> "Walk":
        """Of answers to the rows of the support, in their order, with "neighbors"."""
        assert answers.ids is not None
        assert answers.smoother is not None
        return Walk(Graph.of(Edges.of_neighbors(answers.ids, answers.smoother), len(answers.ids)))

    @cached_property
    def _back(self) -> Graph:
        return Graph.of(self.graph.edges.reversed, len(self.graph))

    def __call__(self, values: Tensor) -> Tensor:
        """What becomes of values [n, p]: S Y."""
        return self.graph.times(values)

    def back(self, masses: Tensor) -> Tensor:
        """Where masses [n] go: S' m."""
        return self._back.times(masses[:, None])[:, 0]

    def resting(self, tolerance: float, most: int) -> Tensor:
        """The masses [n], summing to one, that the walk leaves alone; of symmetric kernels the degrees."""
        rows = len(self.graph)
        masses = torch.full((rows,), 1 / rows, dtype=torch.float64)
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
        Whether it came to rest; of `settled` at eigenvectors.
    """

    values: Tensor
    shares: Tensor | None
    steps: int
    rests: bool


def settled(walk: Walk, start: Tensor, tolerance: float, most: int) -> Rested:
    """The leading eigenvectors of a walk besides the constant, by iteration: each step takes the mean away
    and the scale out, both by the masses that rest. Columns are uncorrelated and of length one by these, and
    the largest entry of each is positive.

    Parameters
    ----------
    walk : Walk
    start : Tensor [n, p]
    tolerance : float
        Change of the eigenvalues at which it rests.
    most : int
    """
    return Settling(walk, tolerance, most)(Rested(start, None, 0, False))


@dataclass(frozen=True, eq=False)
class Settling:
    """The iteration of `settled`, which can be left and gone on with."""

    walk: Walk
    tolerance: float
    most: int

    def __call__(self, state: Rested) -> Rested:
        """Where it rests, from a state on."""
        for each in self.states(state):
            state = each
        return self.turned(state)

    @cached_property
    def _masses(self) -> Tensor:
        masses = self.walk.resting(1e-15, self.most)
        if not (masses >= 0).all():
            raise _growing()
        return masses

    @cached_property
    def _roots(self) -> Tensor:
        return self._masses.sqrt()[:, None]

    def states(self, state: Rested) -> Iterator[Rested]:
        """The states every few steps, up to the one that rests, or the last."""
        values, before = state.values if state.steps else self._whitened(state.values), state.shares
        for step in range(state.steps + 1, self.most + 1):
            values = self._whitened((values + self.walk(values)) / 2)  # half a step: no eigenvalue below 0
            if step % _CHECKED and step < self.most:
                continue
            shares = self._axes(values)[0]
            rests = before is not None and bool((shares - before).abs().max() <= self.tolerance)
            before = shares
            yield Rested(values, shares, step, rests)
            if rests:
                return

    def turned(self, state: Rested) -> Rested:
        """A state with an eigenvector in each column."""
        shares, vectors = self._axes(state.values)
        turned = state.values @ vectors
        lengths = (self._masses[:, None] * turned.square()).sum(0).sqrt()
        missed = (self.walk(turned) - shares * turned).abs().amax(0)  # also where there is no mass
        rests = state.rests and bool((missed <= 10 * self.tolerance**0.5 * turned.abs().amax(0)).all())
        return Rested(signed(turned / lengths), shares, state.steps, rests)

    def _whitened(self, values: Tensor) -> Tensor:
        centred = values - self._masses @ values
        factor = torch.linalg.qr(self._roots * centred, mode="r")[1]  # rows without mass have values, too
        found: Tensor = torch.linalg.solve_triangular(factor, centred, upper=True, left=False)
        return found.contiguous()  # as a checkpoint holds it: the last bits of sums follow the layout

    def _axes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        moved = (self._masses[:, None] * values).T @ self.walk(values)
        if not moved.isfinite().all():
            raise _growing()
        shares, vectors = torch.linalg.eig(moved)
        order = shares.real.argsort(descending=True)
        return shares.real[order], (vectors.real + vectors.imag)[:, order]


def _growing() -> UsageError:
    given = "one whose values grow without end, as negative weights make them"
    return UsageError("a local model that comes to rest", given, "Use ld.local_mean, say.")


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
