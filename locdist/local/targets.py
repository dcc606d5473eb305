"""Target loops: a state of every node, moved by what its neighbors say, while the graph stays.

The second of the three ways to feed a prediction back. A sweep replaces the state F [n, c] by a function of
F and W F, row by row, so that partitions of the nodes can be swept apart, with one barrier a sweep.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.graph import Graph
from locdist.local.loops import Replace, Update

RULES = ("change", "labels", "consistency")


class Sweep(ABC):
    """What becomes of the states of some nodes."""

    @abstractmethod
    def __call__(self, before: Tensor, found: Tensor, given: Tensor) -> Tensor:
        """The next state [n, c], from the one before, W F, and what was given of these nodes at first: rows
        of zeros where nothing was.
        """


@dataclass(frozen=True)
class Clamp(Sweep):
    """The updated state as shares that sum to one; nodes of which something was given keep it."""

    update: Update = Replace()  # noqa: RUF009 - frozen

    def __call__(self, before: Tensor, found: Tensor, given: Tensor) -> Tensor:
        known = given.any(1, keepdim=True)
        return torch.where(known, given, shares(self.update(before, found)))


@dataclass(frozen=True)
class Free(Sweep):
    """The updated state as shares that sum to one; what was given is only where it began."""

    update: Update = Replace()  # noqa: RUF009 - frozen

    def __call__(self, before: Tensor, found: Tensor, given: Tensor) -> Tensor:
        return shares(self.update(before, found))


@dataclass(frozen=True)
class Blend(Sweep):
    """alpha W F + (1 - alpha) of what was given."""

    alpha: float = 0.2

    def __post_init__(self) -> None:
        if isinstance(self.alpha, bool) or not 0 < self.alpha < 1:
            raise UsageError("alpha between 0 and 1", repr(self.alpha), "It is the share of the neighbors.")

    def __call__(self, before: Tensor, found: Tensor, given: Tensor) -> Tensor:
        return self.alpha * found + (1 - self.alpha) * given


@dataclass(frozen=True)
class Reinforce(Sweep):
    """Each share times its support, p_i(a) s_i(a) / sum_b p_i(b) s_i(b), where s_i(a) is
    sum_b r(a, b) (W p)_i(b).

    Parameters
    ----------
    compatibility : tuple of tuple of float, optional
        r(a, b) >= 0, how much a neighbor's label b supports the label a; by default 1 for the same, else 0.
    """

    compatibility: tuple[tuple[float, ...], ...] | None = None

    def support(self, found: Tensor) -> Tensor:
        """S [n, c] from W p."""
        if self.compatibility is None:
            return found
        table = torch.tensor(self.compatibility, dtype=torch.float64)
        if table.shape != (found.shape[1], found.shape[1]) or not (table >= 0).all():
            wanted = (
                f"compatibilities [{found.shape[1]}, {found.shape[1]}] of 0 or more, one for each two labels"
            )
            raise UsageError(wanted, str(list(table.shape)), "Labels are in sorted order.")
        return found @ table.T

    def __call__(self, before: Tensor, found: Tensor, given: Tensor) -> Tensor:
        supported = before * self.support(found)
        told = supported.sum(1, keepdim=True) > 0
        return torch.where(told, shares(supported), before)  # nobody supports anything: nothing is learned


@dataclass(frozen=True)
class Source(Sweep):
    """W F and what was given, added: with a random walk W the fixed point solves (1 - W) F = given."""

    def __call__(self, before: Tensor, found: Tensor, given: Tensor) -> Tensor:
        return found + given


@dataclass(frozen=True)
class Moved:
    """What a sweep did; those of partitions are merged.

    Attributes
    ----------
    change : float
        The largest change of a number.
    flipped : int
        Nodes whose largest number is in another place, or in any, now.
    consistency : float
        sum_i p_i . s_i, before the sweep: how well labels and neighbors agree.
    """

    change: float = 0.0
    flipped: int = 0
    consistency: float = 0.0

    @staticmethod
    def of(sweep: Sweep, before: Tensor, found: Tensor, after: Tensor) -> "Moved":
        """What was done to some nodes."""
        if not len(before):
            return Moved()
        support = sweep.support(found) if isinstance(sweep, Reinforce) else found
        flipped = (_largest(before) != _largest(after)).sum()
        return Moved(float((after - before).abs().max()), int(flipped), float((before * support).sum()))

    def merge(self, other: "Moved") -> "Moved":
        """What was done to the nodes of both."""
        change = max(self.change, other.change)
        return Moved(change, self.flipped + other.flipped, self.consistency + other.consistency)


@dataclass(frozen=True)
class TargetLoop:
    """Sweeps over a graph until the state rests.

    Parameters
    ----------
    sweep : Sweep
    rule : {"change", "labels", "consistency"}
        When it rests: no number changes by more than the tolerance; no node's label changes; the average
        local consistency rises by no more than the tolerance times itself.
    tolerance : float
    most : int
        Sweeps, at least 1.
    """

    sweep: Sweep
    rule: str = "change"
    tolerance: float = 1e-6
    most: int = 1000

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"one of {', '.join(RULES)}", repr(self.rule), did_you_mean(self.rule, RULES))
        if isinstance(self.tolerance, bool) or not 0 <= self.tolerance < float("inf"):
            raise UsageError("a tolerance of 0 or more", repr(self.tolerance), "1e-6 is usual.")
        most: object = self.most  # whatever users passed
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise UsageError("at least one sweep", repr(self.most), "It is a whole number.")

    def rests(self, moved: Moved, last: Moved | None) -> bool:
        """Whether a sweep was the last one that is needed; `last` is what the one before did."""
        if self.rule == "change":
            return moved.change <= self.tolerance
        if self.rule == "labels":
            return not moved.flipped
        rise = float("inf") if last is None else moved.consistency - last.consistency
        return rise <= self.tolerance * abs(moved.consistency)

    def step(self, before: Tensor, found: Tensor, given: Tensor) -> tuple[Tensor, Moved]:
        """The next state of some nodes, from W F of them."""
        after = self.sweep(before, found, given)
        return after, Moved.of(self.sweep, before, found, after)

    def states(self, graph: Graph, given: Tensor, begun: "State") -> Iterator["State"]:
        """The states after each sweep, up to the one that rests, or the last.

        Parameters
        ----------
        graph : Graph
            Normalized as the sweep wants it.
        given : Tensor [n, c]
        begun : State
            Where to begin, or to go on.
        """
        state = begun
        while not (state.rests or state.number >= self.most):
            after, moved = self.step(state.values, graph.times(state.values), given)
            state = State(after, state.number + 1, moved, self.rests(moved, state.moved))
            yield state

    def __call__(self, graph: Graph, given: Tensor, begun: Tensor | None = None) -> "State":
        """The state that rests, or that of the last sweep; it begins with what is given by default."""
        state = State(given if begun is None else begun)
        for each in self.states(graph, given, state):
            state = each
        return state


@dataclass(frozen=True, eq=False)
class State:
    """The state [n, c] after some sweeps, what the last one did, and whether it rests."""

    values: Tensor
    number: int = 0
    moved: Moved | None = None
    rests: bool = False


def _largest(values: Tensor) -> Tensor:
    """The place of the largest number of each row [n]; -1 where all are equal."""
    return values.argmax(1).where((values != values[:, :1]).any(1), -1)


def shares(values: Tensor) -> Tensor:
    """Rows that sum to one; rows of zeros stay as they are."""
    total = values.sum(1, keepdim=True)
    return values / total.where(total != 0, 1.0)
