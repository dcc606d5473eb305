"""Labels that spread over a graph of neighbors, from the nodes that have one to those that have none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.graph import Graph
from locdist.local.loops import Soft
from locdist.local.targets import Blend, Clamp, Free, Reinforce, Source, Sweep, TargetLoop, shares
from locdist.methods.method import plain
from locdist.methods.spelled import spelled


@dataclass(frozen=True)
class LabelMethod:
    """A frozen choice of a target loop under a registered name.

    Parameters
    ----------
    name : str
    parameters : tuple of (str, value)
        JSON-able and complete.
    loop : TargetLoop
    normalized : {"rows", "both", ""}
        How the weights of the graph are divided by degrees.
    undirected : bool
        Whether edges must lead both ways, with one weight.
    confidence : float or None
        What a node begins with as the share of its label, where the others begin with equal shares; None:
        others begin with nothing.
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    loop: TargetLoop
    normalized: str
    undirected: bool = False
    confidence: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `label_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}

    @property
    def balanced(self) -> bool:
        """Whether what is given has to sum to zero over each connected component."""
        return isinstance(self.loop.sweep, Source)

    def given(self, known: Tensor, degrees: Tensor, means: Tensor) -> Tensor:
        """What the loop is given [n, c]: shares of labels `known` [n, c], zeros where there is none; for a
        balanced method less the means [n, c] of all labels of the component, over the degrees [n].
        """
        if not self.balanced:
            return known
        some = known.any(1, keepdim=True)
        return torch.where(some, known - means, 0.0) / degrees.where(degrees != 0, 1.0)[:, None]

    def begun(self, known: Tensor) -> Tensor:
        """The state [n, c] that the loop begins with."""
        if self.balanced:
            return torch.zeros_like(known)
        if self.confidence is None:
            return known
        even, some = 1 / known.shape[1], known.any(1, keepdim=True)
        return torch.where(some, self.confidence * known + (1 - self.confidence) * even, even)

    def answers(self, values: Tensor, means: Tensor, settled: bool) -> Answers:
        """Scores [n, c] and statuses of nodes: EMPTY where no label came, NOT_CONVERGED where the loop did
        not rest.

        In a component where all labels are the same, a balanced method says nothing, and they decide.
        """
        silent = (values == values[:, :1]).all(1) if self.confidence is not None else ~values.any(1)
        if self.balanced:
            alone = silent & (means.amax(1) == 1)
            values, silent = torch.where(alone[:, None], means, values), silent & ~alone
        elif self.confidence is None:
            values = shares(values)
        status = torch.full(
            silent.shape, int(Status.OK if settled else Status.NOT_CONVERGED), dtype=torch.int8
        )
        return Answers(values, status).refuse(silent, Status.EMPTY)

    def __call__(self, graph: Graph, labels: Tensor | Sequence[int]) -> Answers:
        """Scores of each class for each node, in memory.

        Parameters
        ----------
        graph : Graph
            From `ld.graph`.
        labels : array [n] of int, or [n, c] of float
            Classes from 0, and -1 for a node without one; or shares of classes, zeros for a node without any.

        Returns
        -------
        Answers
            `values` [n, c]; nan with the status EMPTY for nodes that no label reaches.
        """
        known = _known(torch.as_tensor(labels), len(graph))
        if self.undirected and not graph.symmetric:
            raise UsageError("a graph whose edges lead both ways", "a directed one", "Use symmetrize='mean'.")
        means = component_means(known, graph.components()) if self.balanced else known[:0]
        given = self.given(known, graph.degrees, means)
        walk = graph.normalized(self.normalized) if self.normalized else graph
        state = self.loop(walk, given, self.begun(known))
        return self.answers(state.values, means, state.rests)


def component_means(known: Tensor, components: Tensor) -> Tensor:
    """The mean of the labels [n, c] in each node's component [n]; zeros where there is none."""
    sums = torch.zeros_like(known).index_add_(0, components, known)
    return shares(sums)[components]


def label_propagation(alpha: float = 1.0, tolerance: float = 1e-6, sweeps: int = 1000) -> LabelMethod:
    """Label propagation: every node takes the weighted mean of its neighbors' shares, F ← D⁻¹ W F, and nodes
    with a label keep it. The fixed point is harmonic, F_u = (I − P_uu)⁻¹ P_ul Y_l.

    Parameters
    ----------
    alpha : float
        Share of the way of each sweep, over 0 and at most 1; less than 1 where a graph has two sides.
    tolerance : float
        Largest change of a share at which the loop rests.
    sweeps : int
        At most.

    Returns
    -------
    LabelMethod

    References
    ----------
    Zhu, Ghahramani, *Learning from Labeled and Unlabeled Data with Label Propagation*, CMU-CALD-02-107, 2002.
    """
    told = {"alpha": alpha, "tolerance": tolerance, "sweeps": sweeps}
    loop = TargetLoop(Clamp(Soft(alpha)), "change", tolerance, sweeps)
    return LabelMethod("label-propagation", tuple(told.items()), loop, "rows")


def label_spreading(alpha: float = 0.2, tolerance: float = 1e-6, sweeps: int = 1000) -> LabelMethod:
    """Label spreading: F ← α S F + (1 − α) Y with S = D^-½ W D^-½, so that labels may be revised. The fixed
    point is (1 − α)(I − α S)⁻¹ Y.

    Parameters
    ----------
    alpha : float
        Between 0 and 1, how much the neighbors count against a node's own label.
    tolerance, sweeps
        As in `label_propagation`.

    Returns
    -------
    LabelMethod

    References
    ----------
    Zhou et al., *Learning with Local and Global Consistency*, NIPS 2003.
    """
    told = {"alpha": alpha, "tolerance": tolerance, "sweeps": sweeps}
    loop = TargetLoop(Blend(alpha), "change", tolerance, sweeps)
    return LabelMethod("label-spreading", tuple(told.items()), loop, "both", undirected=True)


def relaxation_labeling(
    compatibility: Sequence[Sequence[float]] | None = None,
    confidence: float = 0.9,
    form: str = "product",
    rule: str = "consistency",
    tolerance: float = 1e-6,
    sweeps: int = 1000,
) -> LabelMethod:
    """Relaxation labeling: every node's shares p_i are multiplied by what its neighbors say of them,
    p_i(a) ← p_i(a) s_i(a) / Σ_b p_i(b) s_i(b), with s_i(a) = Σ_j w_ij Σ_b r(a, b) p_j(b).

    With r ≥ 0 and weights that are the same both ways the average local consistency Σ_i p_i·s_i never falls.

    Parameters
    ----------
    compatibility : list of lists, optional
        r(a, b), rows and columns in the sorted order of the classes; by default 1 for the same class, else 0.
    confidence : float
        The share that a node's own label begins with besides an equal share of the rest, in (0, 1]; other
        nodes begin with equal shares. With 1 labels never change.
    form : {"product", "mean"}
        "mean" is the local mode: p ← D⁻¹ W p, without the product and without compatibilities. It ends in
        equal shares everywhere, so choose the rule "labels".
    rule : {"consistency", "labels", "change"}
        When it rests: the consistency rises by less than the tolerance, relative to itself; no label changes;
        no share changes by more than the tolerance.
    tolerance : float
    sweeps : int
        At most.

    Returns
    -------
    LabelMethod

    References
    ----------
    Rosenfeld, Hummel, Zucker, *Scene Labeling by Relaxation Operations*, IEEE SMC 6, 1976; Pelillo, *The
    Dynamics of Nonlinear Relaxation Labeling Processes*, JMIV 7, 1997.
    """
    if isinstance(confidence, bool) or not 0 < confidence <= 1:
        raise UsageError("a confidence over 0 and at most 1", repr(confidence), "0.9 is usual.")
    if form not in ("product", "mean") or (form == "mean" and compatibility is not None):
        raise UsageError("form 'product', or 'mean' without compatibilities", repr(form), "Correct it.")
    table = None if compatibility is None else tuple(tuple(map(float, row)) for row in compatibility)
    told = {
        "compatibility": None if table is None else [list(row) for row in table], "confidence": confidence,
        "form": form, "rule": rule, "tolerance": tolerance, "sweeps": sweeps,
    }  # fmt: skip
    sweep: Sweep = Reinforce(table) if form == "product" else Free()
    loop = TargetLoop(sweep, rule, tolerance, sweeps)
    parameters = tuple(told.items())
    normalized = "" if form == "product" else "rows"
    return LabelMethod("relaxation-labeling", parameters, loop, normalized, confidence=confidence)


def poisson_learning(tolerance: float = 1e-8, sweeps: int = 10_000) -> LabelMethod:
    """Poisson learning, for very few labels: the solution of L u = Σ_j (y_j − ȳ) δ_j, L = D − W the Laplacian
    and ȳ the mean of the labels, by u ← D⁻¹ W u + D⁻¹ b.

    Where labels are few, propagation is flat except near them; here they are sources and sinks. Scores of a
    class sum to zero over each connected component, weighted by degrees.

    Parameters
    ----------
    tolerance : float
        Largest change of a score at which the loop rests.
    sweeps : int
        At most.

    Returns
    -------
    LabelMethod

    References
    ----------
    Calder, Cook, Thorpe, Slepčev, *Poisson Learning: Graph Based Semi-Supervised Learning at Very Low Label
    Rates*, ICML 2020.
    """
    loop = TargetLoop(Source(), "change", tolerance, sweeps)
    told = {"tolerance": tolerance, "sweeps": sweeps}
    return LabelMethod("poisson-learning", tuple(told.items()), loop, "rows", undirected=True)


LABEL_METHODS: Mapping[str, Callable[..., LabelMethod]] = {
    "label-propagation": label_propagation,
    "label-spreading": label_spreading,
    "relaxation-labeling": relaxation_labeling,
    "poisson-learning": poisson_learning,
}


def label_method(choice: LabelMethod | str | Mapping[str, Any]) -> LabelMethod:
    """A method by its name, or by its name and parameters: {"name": "label-spreading", "alpha": 0.5}."""
    return (
        choice
        if isinstance(choice, LabelMethod)
        else spelled(choice, LABEL_METHODS, "a method that labels a graph")
    )


def _known(labels: Tensor, nodes: int) -> Tensor:
    """Shares [n, c] of labels; UsageError for what are none."""
    if len(labels) != nodes or labels.ndim not in (1, 2):
        given = f"shape {list(labels.shape)}"
        raise UsageError(f"a label of each of {nodes} nodes, -1 for none", given, "Align labels and nodes.")
    if labels.ndim == 2:
        return shares(labels.double())
    some = labels >= 0
    if not some.any():
        raise UsageError("a label of some node", "none", "Give at least one.")
    known = torch.nn.functional.one_hot(labels.clamp(min=0).long(), int(labels.max()) + 1).double()
    return torch.where(some[:, None], known, 0.0)
