"""Methods whose support moves: blurring mean shift, denoising towards a manifold, local models in layers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locdist.errors import UsageError
from locdist.local.kernels import bandwidth_spec
from locdist.local.kernels import kernel as chosen_kernel
from locdist.local.layer import Layer
from locdist.local.loops import Soft
from locdist.local.models import Constant
from locdist.local.support import Level, SupportLoop
from locdist.local.tangent import OfFeatures, Tangent
from locdist.methods.method import Bandwidth, Method, plain
from locdist.methods.named import method as named
from locdist.methods.spelled import spelled


@dataclass(frozen=True)
class LayeredMethod:
    """A frozen choice of a support loop under a registered name, run by `ld.move`.

    Parameters
    ----------
    name : str
    parameters : tuple of (str, value)
        JSON-able and complete.
    loop : SupportLoop
        Called with `ld.Exact`, keys and targets it works in memory.

    Examples
    --------
    >>> import locdist as ld, torch
    >>> keys = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> ld.blurring_mean_shift(1.0).loop(ld.Exact, keys).keys.flatten().tolist()
    [0.5, 0.5, 9.5, 9.5]
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    loop: SupportLoop

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `layered_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}


def blurring_mean_shift(
    bandwidth: float = 1.0,
    kernel: str = "gaussian",
    k: int | None = None,
    alpha: float = 1.0,
    tolerance: float = 1e-3,
    steady: float = 1e-2,
    layers: int = 50,
) -> LayeredMethod:
    """Blurring mean shift: all rows move to the local means of all rows, X ← X + α (D⁻¹ K(X) X − X).

    Clusters draw together at a superlinear rate; then they travel towards each other. With the rows of one
    length and a Gaussian kernel a layer is self-attention without projections.

    Parameters
    ----------
    bandwidth : float
        In units of the scaled key: the standard deviation of the Gaussian, the radius of the others.
    kernel : str
    k : int, optional
        Neighbors that count at most, the row itself among them; by default all rows.
    alpha : float
        Share of the way of each step, over 0 and at most 1.
    tolerance : float
        Mean length of a step, in bandwidths, at which it stops.
    steady : float
        It stops too when no larger share of the rows makes steps of another length than in the layer before.
    layers : int
        At most.

    Returns
    -------
    LayeredMethod

    References
    ----------
    Cheng, *Mean Shift, Mode Seeking, and Clustering*, IEEE PAMI 17, 1995; Carreira-Perpiñán, *Fast
    Nonparametric Clustering with Gaussian Blurring Mean-Shift*, ICML 2006.
    """
    level = Level(Layer(k, chosen_kernel(kernel, bandwidth), OfFeatures(Constant(), "moved")), Soft(alpha))
    told = {"bandwidth": float(bandwidth), "kernel": kernel, "k": k, "alpha": alpha}
    told |= {"tolerance": tolerance, "steady": steady, "layers": layers}
    loop = SupportLoop((level,), layers, tolerance * float(bandwidth), steady)
    return LayeredMethod("blurring-mean-shift", tuple(told.items()), loop)


def denoise_manifold(
    components: int = 1,
    k: int = 32,
    kernel: str = "gaussian",
    bandwidth: Bandwidth | None = None,
    alpha: float = 1.0,
    tolerance: float = 0.0,
    layers: int = 5,
) -> LayeredMethod:
    """Denoising towards a manifold: all rows move to their projections on the planes through their neighbors,
    x ← x + α (I − V V') (m(x) − x), V the leading eigenvectors of the neighbors' weighted covariance.

    A step of mean shift without its part along the plane: rows come to the manifold and do not gather on it.

    Parameters
    ----------
    components : int
        Dimensions of the manifold.
    k : int
        Neighbors, the row itself among them.
    kernel : str
    bandwidth : float, "nearest", {"nearest": scale}, ..., optional
        As in `local_mean`.
    alpha : float
        Share of the way of each step, over 0 and at most 1.
    tolerance : float
        Mean length of a step, in units of the scaled key, at which it stops.
    layers : int
        At most; few, or the manifold shrinks where it is curved.

    Returns
    -------
    LayeredMethod

    References
    ----------
    Wang, Carreira-Perpiñán, *Manifold Blurring Mean Shift Algorithms for Manifold Denoising*, CVPR 2010.
    """
    chosen = chosen_kernel(kernel, bandwidth)
    level = Level(Layer(k, chosen, Tangent(components)), Soft(alpha))
    told = {"components": components, "k": k, "kernel": kernel, "bandwidth": bandwidth_spec(chosen)}
    told |= {"alpha": alpha, "tolerance": tolerance, "layers": layers}
    return LayeredMethod("denoise-manifold", tuple(told.items()), SupportLoop((level,), layers, tolerance))


def stack(
    methods: Sequence[Method | str | Mapping[str, Any]], layers: int | None = None, alpha: float = 1.0
) -> LayeredMethod:
    """Local models in layers: what one answers at the rows are the targets of the next, or, of a model whose
    values are points, its keys.

    Two local means are the local mean with the product of their kernels, K₁K₂: depth alone adds range. What
    makes it more is other kernels or models in each layer, or a step of a part of the way. Rows are left out
    of their own neighbors, but their targets come back in the answers at those: how well a stack fits its
    own rows says nothing.

    Parameters
    ----------
    methods : list of Method, name or spec
        One for each layer, the lowest first.
    layers : int, optional
        In all: after the last of the methods comes the first again. By default one of each.
    alpha : float
        Share of the way of each step, over 0 and at most 1.

    Returns
    -------
    LayeredMethod
    """
    chosen = [named(each) for each in methods]
    for each in chosen:
        if "codes" in each.layer.needs:
            raise UsageError("methods for numbers, in layers", each.name, "Give classes as numbers.")
    most = len(chosen) if layers is None else layers
    loop = SupportLoop(tuple(Level(each.layer, Soft(alpha)) for each in chosen), most)
    told = {"methods": [each.spec for each in chosen], "layers": most, "alpha": alpha}
    return LayeredMethod("stack", tuple(told.items()), loop)


LAYERED_METHODS: Mapping[str, Callable[..., LayeredMethod]] = {
    "blurring-mean-shift": blurring_mean_shift,
    "denoise-manifold": denoise_manifold,
    "stack": stack,
}


def layered_method(choice: LayeredMethod | str | Mapping[str, Any]) -> LayeredMethod:
    """A method by its name, or by its name and parameters: {"name": "denoise-manifold", "components": 2}."""
    return (
        choice
        if isinstance(choice, LayeredMethod)
        else spelled(choice, LAYERED_METHODS, "a method whose support moves")
    )
