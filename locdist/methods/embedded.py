"""Embeddings: coordinates in which neighbors stay neighbors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from locdist.errors import UsageError
from locdist.local.embedding import Landing
from locdist.local.kernels import kernel as chosen_kernel
from locdist.local.kernels import kernel_spec, spec
from locdist.local.layer import Layer
from locdist.local.models import Constant, LinearSmoother, LocalModel
from locdist.local.tangent import Barycenter, OfFeatures
from locdist.methods.method import Bandwidth, KernelChoice, Method, plain
from locdist.methods.named import local_mean
from locdist.methods.named import method as named
from locdist.methods.shape import barycenter
from locdist.methods.spelled import spelled


@dataclass(frozen=True)
class EmbedMethod:
    """A frozen choice of a graph and of what is preserved, under a registered name.

    Parameters
    ----------
    name : {"lle", "spectral", "lazy-map", "lazy-autoencoder"}
    parameters : tuple of (str, value)
        JSON-able and complete.
    components : int
        Coordinates of a row.
    links : mapping
        Arguments of `graph`.
    layer : Layer
        How a new query is weighed against its neighbors.
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    components: int
    links: Mapping[str, Any]
    layer: Layer

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))
        count: object = self.components  # whatever users passed
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError("components, a whole number of at least 1", repr(count), "2 can be plotted.")

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `embed_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}

    def extension(self, eigenvalues: tuple[float, ...]) -> Layer:
        """What places a new query, given those of the embedding."""
        model = self.layer.model
        left = {"spectral": [1 - value for value in eigenvalues], "lazy-map": eigenvalues}
        scale = tuple(1 / value for value in left.get(self.name, ()))
        assert isinstance(model, LinearSmoother)
        return Layer(self.layer.k, self.layer.kernel, Landing(model, scale))

    @property
    def codes(self) -> bool:
        """Whether coordinates are codes, which rows can be told from."""
        return self.name == "lazy-autoencoder"


def lle(k: int = 12, components: int = 2, reg: float = 1e-3) -> EmbedMethod:
    """Locally linear embedding: coordinates Z that each row's neighbors reconstruct with the weights that
    reconstruct the row itself, min ‖Z − W Z‖² with Z'Z = I: eigenvectors of (I − W)'(I − W).

    Parameters
    ----------
    k : int
        Neighbors.
    components : int
        Coordinates.
    reg : float
        Of the weights, as in `barycenter`.

    Returns
    -------
    EmbedMethod

    References
    ----------
    Roweis, Saul, *Nonlinear Dimensionality Reduction by Locally Linear Embedding*, Science 290, 2000.
    """
    told = {"k": k, "components": components, "reg": float(reg)}
    layer = Layer(k, chosen_kernel("uniform"), Barycenter(reg))
    return EmbedMethod("lle", tuple(told.items()), components, {"method": barycenter(k, reg=reg)}, layer)


def spectral(
    k: int = 15, components: int = 2, kernel: KernelChoice = "uniform", bandwidth: Bandwidth | None = None
) -> EmbedMethod:
    """Laplacian eigenmaps: the eigenvectors of the random walk D⁻¹ W on the graph of neighbors that decay
    slowest, without the constant one, W = (A + A') / 2. They are the fixed subspace of the local mean.

    Parameters
    ----------
    k : int
        Neighbors.
    components : int
        Coordinates.
    kernel, bandwidth
        What an edge weighs, as in `local_mean`.

    Returns
    -------
    EmbedMethod

    References
    ----------
    Belkin, Niyogi, *Laplacian Eigenmaps for Dimensionality Reduction and Data Representation*, Neural
    Computation 15, 2003.
    """
    shape = chosen_kernel(kernel, bandwidth)
    width = spec(shape.bandwidth)
    told = {"k": k, "components": components, "kernel": kernel_spec(shape), "bandwidth": width}
    links = {"k": k, "kernel": shape, "symmetrize": "mean"}
    return EmbedMethod("spectral", tuple(told.items()), components, links, Layer(k, shape, Constant()))


def lazy_coordinates(
    smoother: Method | str | Mapping[str, Any] = "local-mean",
    k: int = 15,
    components: int = 2,
    tolerance: float = 1e-10,
    steps: int = 2000,
    seed: int = 0,
) -> EmbedMethod:
    """The lazy map of a linear local model, Y ← S Y with mean and scale kept up: the eigenvectors of its
    matrix S besides the constant that a step leaves most of. What `lazy_map(..., keep=True)` finds in memory,
    as a method of `embed`; with a symmetric kernel they are Laplacian eigenmaps.

    Parameters
    ----------
    smoother : Method, name or spec
        Of k neighbors and linear in the targets, with weights that are not negative, or values may grow
        without end: "local-mean", "knn".
    k : int
        Neighbors, where the smoother is a name.
    components : int
        Coordinates.
    tolerance : float
        Change of the eigenvalues at which it rests.
    steps : int
        At most.
    seed : int
        Of the random values that it begins with.

    Returns
    -------
    EmbedMethod
    """
    if not isinstance(smoother, Method):
        smoother = named({"k": k} | ({"name": smoother} if isinstance(smoother, str) else dict(smoother)))
    model = smoother_of(smoother)
    _check_steps(steps)
    if not 0 <= tolerance < math.inf:
        raise UsageError("a tolerance of 0 or more", repr(tolerance), "1e-10 is usual.")
    told = {"smoother": smoother.spec, "components": components, "tolerance": tolerance, "steps": steps}
    layer = Layer(smoother.layer.k, smoother.layer.kernel, model)
    links = {"method": smoother}
    return EmbedMethod("lazy-map", (*told.items(), ("seed", seed)), components, links, layer)


def lazy_codes(components: int = 2, k: int = 16, steps: int = 200) -> EmbedMethod:
    """The codes of a lazy autoencoder, as a method of `embed`: see `lazy_autoencoder`.

    Parameters
    ----------
    components : int
        Numbers of a code.
    k : int
        Neighbors that the code of a new row is the local mean of.
    steps : int
        Of the descent.

    Returns
    -------
    EmbedMethod
    """
    _check_steps(steps)
    encoder = local_mean(k)
    layer = Layer(k, encoder.layer.kernel, Constant())
    told = {"components": components, "k": k, "steps": steps}
    return EmbedMethod("lazy-autoencoder", tuple(told.items()), components, {"k": k}, layer)


def _check_steps(steps: object) -> None:  # whatever users passed
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError("steps, a whole number of at least 1", repr(steps), "200 are usual.")


def smoother_of(chosen: Method) -> LinearSmoother:
    """The model of a method of k neighbors that is linear in the targets; UsageError for another."""
    if chosen.layer.k is None:
        raise UsageError("a method of k neighbors", f"{chosen.name} with k=None", "Choose k.")
    model: LocalModel = chosen.layer.model
    model = model.model if isinstance(model, OfFeatures) else model
    if not isinstance(model, LinearSmoother) or chosen.loop is not None:
        raise UsageError("a linear smoother", chosen.name, "Use barycenter or local-mean, say.")
    if not chosen.layer.leave_one_out:
        remedy = "Rows of a graph are not their own neighbors; ld.lazy_map can, in memory."
        raise UsageError("a method that leaves a row out of its own answer", "own=True", remedy)
    return model


EMBED_METHODS: Mapping[str, Callable[..., EmbedMethod]] = {
    "lle": lle,
    "spectral": spectral,
    "lazy-map": lazy_coordinates,
    "lazy-autoencoder": lazy_codes,
}


def embed_method(choice: EmbedMethod | str | Mapping[str, Any]) -> EmbedMethod:
    """A method by its name, or by its name and parameters: {"name": "lle", "k": 20}."""
    return (
        choice if isinstance(choice, EmbedMethod) else spelled(choice, EMBED_METHODS, "a method that embeds")
    )
