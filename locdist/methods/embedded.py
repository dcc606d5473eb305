"""Embeddings: coordinates in which neighbors stay neighbors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from locdist.errors import UsageError
from locdist.local.embedding import Landing
from locdist.local.kernels import kernel as chosen_kernel
from locdist.local.kernels import kernel_spec, spec
from locdist.local.layer import Layer
from locdist.local.models import Constant
from locdist.local.tangent import Barycenter
from locdist.methods.method import Bandwidth, KernelChoice, plain
from locdist.methods.shape import barycenter
from locdist.methods.spelled import spelled


@dataclass(frozen=True)
class EmbedMethod:
    """A frozen choice of a graph and of what is preserved, under a registered name.

    Parameters
    ----------
    name : {"lle", "spectral"}
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
        scale = tuple(1 / (1 - value) for value in eigenvalues) if self.name == "spectral" else ()
        assert isinstance(model, Barycenter | Constant)
        return Layer(self.layer.k, self.layer.kernel, Landing(model, scale))


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


EMBED_METHODS: Mapping[str, Callable[..., EmbedMethod]] = {"lle": lle, "spectral": spectral}


def embed_method(choice: EmbedMethod | str | Mapping[str, Any]) -> EmbedMethod:
    """A method by its name, or by its name and parameters: {"name": "lle", "k": 20}."""
    return (
        choice if isinstance(choice, EmbedMethod) else spelled(choice, EMBED_METHODS, "a method that embeds")
    )
