"""A support that moves: what a layer answers at every row becomes the support of the next layer.

Queries and support move together: blurring mean shift, denoising towards a manifold, local models stacked on
each other. Each layer needs what the one before made of all rows, so a job builds a new index for each; here
all is in memory.

A row-stochastic map that is applied forever makes one point, or one number, of everybody: a loop has to stop.
It does after so many layers, when the mean step is small enough, or when rows that were drawn together only
travel on: then the lengths of their steps do not change any more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.layer import Index, Layer
from locdist.local.loops import Update

BINS = 64  # of step lengths, each twice as long as the one before
_SHORTEST = -40  # the exponent of 2 in the first
Build = Callable[[Tensor, Tensor | None], Index]


@dataclass(frozen=True)
class Level:
    """A layer, and what becomes of its answers.

    Parameters
    ----------
    layer : Layer
        Of a model whose last values are a point, which moves the keys; any other moves the targets.
    update : Update
    """

    layer: Layer
    update: Update

    @property
    def moves(self) -> str:
        """What moves, "keys" or "targets"."""
        return "keys" if self.layer.model.places else "targets"

    def moved(self, before: Tensor, answers: Answers) -> Tensor:
        """The rows [n, p] after this layer; those without an answer stay."""
        found = answers.values[:, -before.shape[1] :] if self.layer.model.places else answers.values
        if found.shape[1] != before.shape[1]:
            given = f"{found.shape[1]} values for {before.shape[1]} targets"
            raise UsageError("a model with a value for each target", given, "Stack local means, say.")
        answered = found.isfinite().all(1, keepdim=True)
        return torch.where(answered, self.update(before, found.to(before.dtype)), before)


@dataclass(frozen=True)
class Steps:
    """How far the rows of a layer moved: their number, the sum of the lengths, and how many were how long."""

    rows: int
    total: float
    bins: tuple[int, ...]

    @staticmethod
    def of(lengths: Tensor) -> "Steps":
        """Of lengths [n], some of which may be nan."""
        there = lengths[lengths.isfinite()].double()
        place = (there.log2().floor() - _SHORTEST).clamp(0, BINS - 1).long()
        return Steps(len(there), float(there.sum()), tuple(torch.bincount(place, minlength=BINS).tolist()))

    def merge(self, other: "Steps") -> "Steps":
        """Of the rows of both."""
        bins = tuple(one + two for one, two in zip(self.bins, other.bins, strict=True))
        return Steps(self.rows + other.rows, self.total + other.total, bins)

    @property
    def mean(self) -> float:
        """Length of a step."""
        return self.total / max(self.rows, 1)

    def differs(self, other: "Steps") -> float:
        """The share of the rows whose steps would have to be of another length to be like those of others."""
        pairs = zip(self.bins, other.bins, strict=True)
        return sum(abs(one / max(self.rows, 1) - two / max(other.rows, 1)) for one, two in pairs) / 2


@dataclass(frozen=True)
class SupportLoop:
    """Layers on top of each other, each over the rows as the one below left them.

    Parameters
    ----------
    levels : tuple of Level
        One after the other, and again from the first.
    most : int
        Layers in all, at least 1.
    tolerance : float
        Mean length of a step at which it rests, in units of what moves; >= 0.
    steady : float
        Share of the rows that make steps of other lengths than in the layer before, at which rows only
        travel; 0 is no such rule.
    """

    levels: tuple[Level, ...]
    most: int
    tolerance: float = 0.0
    steady: float = 0.0

    def __post_init__(self) -> None:
        most: object = self.most  # whatever users passed
        if not self.levels or isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise UsageError("at least one layer", f"{len(self.levels)}, {most!r} times", "Give one.")
        for name in ("tolerance", "steady"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name} of 0 or more", repr(getattr(self, name)), "0 is no such rule.")

    def level(self, number: int) -> Level:
        """The one of a layer, from 0."""
        return self.levels[number % len(self.levels)]

    def rests(self, before: Steps | None, now: Steps) -> str:
        """Why no layer has to follow, in words, after the steps of the last two; empty when one has to."""
        if now.mean <= self.tolerance:
            return "rows rest"
        if self.steady and before is not None and now.differs(before) <= self.steady:
            return "rows only travel"
        return ""

    def __call__(self, build: Build, keys: Tensor, targets: Tensor | None = None) -> "Moved":
        """The rows after all layers, in memory.

        Parameters
        ----------
        build : callable (Tensor [n, d], Tensor [n, p] or None) -> Index
            Of keys and targets: `ld.Exact`.
        keys : Tensor [n, d]
            Rows that are not finite stay, and are no neighbors of anybody.
        targets : Tensor [n, p], optional
        """
        good = keys.isfinite().all(1) if targets is None else torch.cat([keys, targets], 1).isfinite().all(1)
        here = {"keys": keys[good].double(), "targets": None if targets is None else targets[good].double()}
        status, before, why, number = torch.zeros(len(keys), dtype=torch.int8)[good], None, "", 0
        own = torch.arange(len(status))
        while number < self.most and not why and len(own):
            level, points = self.level(number), here["keys"]
            rows = here[level.moves]
            assert points is not None
            if rows is None:
                raise UsageError("targets for a layer of them", "none", "Give them beside the keys.")
            answers = level.layer(build(points, here["targets"]), points, own=own)
            here[level.moves] = there = level.moved(rows, answers)
            now, status = Steps.of(torch.linalg.vector_norm(there - rows, dim=1)), answers.status
            before, why, number = now, self.rests(before, now), number + 1
        told = torch.full((len(keys),), int(Status.BAD_QUERY), dtype=torch.int8)
        told[good] = status
        moved = _put(keys, good, here["keys"])
        assert moved is not None
        return Moved(moved, _put(targets, good, here["targets"]), told, number, before, why)


def _put(whole: Tensor | None, good: Tensor, rows: Tensor | None) -> Tensor | None:
    """All rows, some of them new."""
    if whole is None or rows is None:
        return None
    return whole.double().index_put((good,), rows)


@dataclass(frozen=True)
class Moved:
    """Rows after all layers.

    Attributes
    ----------
    keys : Tensor [n, d]
    targets : Tensor [n, p], optional
    status : Tensor [n] int8
        Of the last layer.
    layers : int
        How many there were.
    steps : Steps, optional
        Of the last one.
    why : str
        Why no other followed; empty when as many were made as were allowed.
    """

    keys: Tensor
    targets: Tensor | None
    status: Tensor
    layers: int
    steps: Steps | None
    why: str
