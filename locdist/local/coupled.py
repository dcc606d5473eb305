"""Networks of local models: a model at each node of a graph, drawn to those of its neighbors.

    minimise  sum_i f_i(w_i) + strength sum_{i,j} A_ij phi(w_i - w_j)

over the parameters w_i of all nodes, each edge once, for quadratic losses f_i(w) = w'Q_i w / 2 - b_i'w + c_i.
With phi(u) = |u|^2 / 2 the minimum is where every node rests after the block update

    w_i = (Q_i + strength d_i)^-1 (b_i + strength sum_j A_ij w_j)

a graph's local mean together with what the node's rows say. With phi(u) = |u| nodes that agree well enough
share one model exactly. All nodes are computed at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.losses import is_number
from locdist.local.network import Network
from locdist.local.stretched import Stretched, System

EPOCH = 200  # rounds of conjugate gradients at a time
NEWTON = 50  # steps
GROWTH = 3.0  # of the scale of flows, until they have the models together
DIGITS = 1e-12  # relative: a rise that is rounding
SETTLED = 1e-9  # relative: a change of the models after which Newton's steps are done
_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class State:
    """The models after some rounds, and how far from the minimum they may be.

    Attributes
    ----------
    models : Tensor [n, m]
    flows : Tensor [e, m]
        What each edge pulls with, of a coupling that keeps it.
    scale : float
        How far models move compared with flows.
    rounds : int
    gap, residual : float
        By how much flows and differences of models disagree, and by how much slopes and flows do, relative to
        the pulls of the losses: both 0 at the minimum and nowhere else.
    """

    models: Tensor
    flows: Tensor
    scale: float = 1.0
    rounds: int = 0
    gap: float = float("inf")
    residual: float = float("inf")

    @property
    def error(self) -> float:
        """The larger of both."""
        return max(self.gap, self.residual)


class Coupling(ABC):
    """What a difference u of the models at the ends of an edge costs."""

    @abstractmethod
    def cost(self, network: Network, models: Tensor) -> float:
        """What all differences cost: strength sum A_ij phi(w_i - w_j)."""

    def objective(self, network: Network, models: Tensor) -> float:
        """What is minimised."""
        return float(network.losses.values(models).sum()) + self.cost(network, models)

    @abstractmethod
    def begin(self, network: Network, models: Tensor | None = None) -> State:
        """Where the rounds begin: at given models, or at one model for each component."""

    @abstractmethod
    def advance(self, network: Network, state: State, tolerance: float, most: int) -> State:
        """The state some rounds later, at least one and at most `most`."""


@dataclass(frozen=True)
class Squared(Coupling):
    """phi(u) = |u|^2 / 2: one linear system, by conjugate gradients."""

    def cost(self, network: Network, models: Tensor) -> float:
        apart = network.links.differences(models).square().sum(1)
        return network.strength / 2 * float((network.links.weights * apart).sum())

    def begin(self, network: Network, models: Tensor | None = None) -> State:
        models = network.shared(network.losses.pull) if models is None else models
        return State(models, models.new_zeros(0, models.shape[1]))

    def advance(self, network: Network, state: State, tolerance: float, most: int) -> State:
        losses, links = network.losses, network.links
        reach = network.strength * links.weights[:, None]

        def bent(models: Tensor) -> Tensor:
            return losses.bent(models) + links.gathered(reach * links.differences(models))

        drawn, whole = network.strength * links.degrees, float(losses.pull.norm()) or 1.0
        rounding = _EPS * float((drawn[:, None] * state.models).norm())
        left, enough = losses.pull - bent(state.models), max(tolerance * whole, rounding)
        step, rounds = System(network, bent, drawn).solve(left, enough, min(EPOCH, most))
        models = state.models + step
        residual = float((losses.pull - bent(models)).norm())
        residual = residual / whole if residual > rounding else 0.0
        rounds = state.rounds + max(1, rounds)
        return replace(state, models=models, rounds=rounds, gap=0.0, residual=residual)


@dataclass(frozen=True)
class Norm(Coupling):
    """phi(u) = |u|, by an augmented Lagrangian.

    A flow on each edge, cut to the length strength A_ij, pulls its ends together. Given flows u, models
    minimise f(w) plus, for each edge, what its stretched flow u + scale (w_i - w_j) does up to that length:
    a few steps of Newton, each by conjugate gradients. Then the stretched and cut flows are the flows.

    References
    ----------
    Sun, Toh, Yuan, *Convex Clustering: Model, Theoretical Guarantee and Efficient Algorithm*, JMLR 22, 2021.
    """

    def cost(self, network: Network, models: Tensor) -> float:
        apart = network.links.differences(models).norm(dim=1)
        return network.strength * float((network.links.weights * apart).sum())

    def begin(self, network: Network, models: Tensor | None = None) -> State:
        models = network.shared(network.losses.pull) if models is None else models
        flows = models.new_zeros(len(network.links.weights), models.shape[1])
        mean = float(network.losses.curve.diagonal(dim1=1, dim2=2).sum()) / models.shape[1]
        return State(models, flows, mean / (2 * len(flows)) if mean and len(flows) else 1.0)

    def advance(self, network: Network, state: State, tolerance: float, most: int) -> State:
        stretched, whole = Stretched(network, state.flows, state.scale), float(network.losses.pull.norm())
        models, rounds = state.models, 0
        for _ in range(NEWTON):
            slope = stretched.slope(models)
            if float(slope.norm()) <= tolerance / 2 * whole or rounds >= most:
                break
            step, took = stretched.step(models, slope, most - rounds)
            models, rounds = stretched.downhill(models, step, slope), rounds + took
        flows, rounds = stretched.flow(models), state.rounds + max(1, rounds)
        after = self._told(network, replace(state, models=models, flows=flows, rounds=rounds))
        return replace(after, scale=GROWTH * state.scale if after.gap > tolerance else state.scale)

    def _told(self, network: Network, state: State) -> State:
        """With how far it is from the minimum."""
        links, losses = network.links, network.losses
        apart = links.differences(state.models)
        gap = network.strength * links.weights * apart.norm(dim=1) - (apart * state.flows).sum(1)
        left = losses.slopes(state.models) + links.gathered(state.flows)
        energy = float((losses.pull * state.models).sum().abs()) or 1.0
        whole = float(losses.pull.norm()) or 1.0
        return replace(state, gap=float(gap.clamp(min=0).sum()) / energy, residual=float(left.norm()) / whole)


@dataclass(frozen=True)
class Rounds:
    """Rounds until the models rest.

    Parameters
    ----------
    coupling : Coupling
    strength : float
        >= 0.
    tolerance : float
        Of the certificate.
    most : int
    """

    coupling: Coupling
    strength: float
    tolerance: float = 1e-8
    most: int = 20_000

    def __post_init__(self) -> None:
        strength, most = self.strength, self.most
        if not is_number(strength) or not 0 <= strength < float("inf"):
            raise UsageError("a strength of 0 or more", repr(strength), "0 fits every node for itself.")
        given: object = most  # whatever users passed
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise UsageError("at least one round", repr(most), "It is a whole number.")
        if not is_number(self.tolerance) or not 0 <= self.tolerance < 1:
            raise UsageError("a tolerance from 0, below 1", repr(self.tolerance), "1e-8 is the default.")

    def rests(self, state: State) -> bool:
        """Whether the certificate is good enough."""
        return state.error <= self.tolerance

    def states(self, network: Network, begun: State | None = None) -> Iterator[State]:
        """The states from where they begin, every some rounds, up to the one that rests, or the last."""
        state = self.coupling.begin(network) if begun is None else begun
        yield state
        while not self.rests(state) and state.rounds < self.most:
            state = self.coupling.advance(network, state, self.tolerance, self.most - state.rounds)
            yield state

    def __call__(
        self, network: Network, begun: State | None = None, watch: Callable[[State], None] | None = None
    ) -> State:
        """The last state; those before are shown to `watch`."""
        state = None
        for state in self.states(network, begun):
            if watch is not None:
                watch(state)
        assert state is not None
        return state


@dataclass(frozen=True, eq=False)
class Fit:
    """Where Newton's steps on the losses of a family have led; those that are quadratic take one.

    Attributes
    ----------
    models : Tensor [n, m]
        The best so far.
    value : float
        What is minimised, there.
    state : State
        Of the last rounds: its models are tried next, and the answer in the end.
    done : bool
    steps : int
    """

    models: Tensor
    value: float
    state: State
    done: bool = False
    steps: int = 0

    def next(
        self,
        network: Network,
        loop: Rounds,
        exact: bool = False,
        begun: State | None = None,
        watch: Callable[[State], None] | None = None,
    ) -> "Fit":
        """The next one.

        Parameters
        ----------
        network : Network
            Whose losses were expanded at the models that are tried.
        loop : Rounds
        exact : bool
            Whether the losses are quadratic themselves.
        begun, watch
            Of the rounds.
        """
        tried, steps = self.state.models, self.steps + 1
        here = loop.coupling.objective(network, tried)
        if not here <= self.value + DIGITS * abs(self.value):
            half = replace(self.state, models=(self.models + tried) / 2)
            return replace(self, state=half, steps=steps)
        state = loop(network, begun, watch)
        change = float((state.models - tried).abs().amax())
        done = exact or change <= SETTLED * (1 + float(tried.abs().amax()))
        value = loop.coupling.objective(network, state.models) if done else here
        return Fit(tried, value, replace(state, rounds=self.state.rounds + state.rounds), done, steps)

    @staticmethod
    def begin(count: int, width: int) -> "Fit":
        """At zero."""
        zeros = torch.zeros(count, width, dtype=torch.float64)
        return Fit(zeros, float("inf"), State(zeros, zeros[:0]))
