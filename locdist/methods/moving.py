"""Methods whose queries move: mean shift, retrieval from a memory, denoising."""

from locdist.errors import UsageError
from locdist.local.kernels import kernel as chosen_kernel
from locdist.local.layer import Layer
from locdist.local.loops import QueryLoop, Soft
from locdist.local.models import Constant
from locdist.local.tangent import OfFeatures
from locdist.methods.method import Method


def mean_shift(
    bandwidth: float = 1.0,
    kernel: str = "gaussian",
    k: int | None = None,
    alpha: float = 1.0,
    tolerance: float = 1e-3,
    steps: int = 300,
) -> Method:
    """Mean shift: every query climbs to a mode of the density, by x ← x + α (m(x) − x), m(x) the local mean
    Σ w_j x_j.

    Columns are "mode_COLUMN". With a Gaussian kernel a step goes along the gradient of the logarithm of the
    density: m(x) − x = h² ∇ log p(x).

    Parameters
    ----------
    bandwidth : float
        h, in units of the scaled key: the standard deviation of the Gaussian, the radius of the others.
    kernel : str
        "gaussian", "uniform" (the flat kernel), "epanechnikov", ...
    k : int, optional
        Neighbors that count at most, the nearest ones; by default all the support, which is exact and costs
        a pass over it for each step.
    alpha : float
        Share of the way of each step, over 0 and at most 1.
    tolerance : float
        Length of a step, in bandwidths, at which a query rests.
    steps : int
        At most; the status says where they were not enough.

    Returns
    -------
    Method

    References
    ----------
    Comaniciu, Meer, *Mean Shift: A Robust Approach Toward Feature Space Analysis*, IEEE PAMI 24, 2002.
    """
    layer = Layer(k, chosen_kernel(kernel, bandwidth), OfFeatures(Constant(), "mode"))
    loop = QueryLoop(layer, Soft(alpha), tolerance * float(bandwidth), steps)
    told = {"bandwidth": float(bandwidth), "kernel": kernel, "k": k, "alpha": alpha}
    return Method(
        "mean-shift", tuple((told | {"tolerance": tolerance, "steps": steps}).items()), layer, loop=loop
    )


def hopfield(beta: float = 1.0, k: int | None = None, tolerance: float = 1e-6, steps: int = 100) -> Method:
    """Retrieval from a modern Hopfield network: x ← Σ_j softmax(β x·x_j) x_j, until it rests.

    The stored patterns are the support, indexed with metric "ip". Columns are "pattern_COLUMN". One step is
    an attention of the query to the patterns, as keys and as values.

    Parameters
    ----------
    beta : float
        Positive; large ones retrieve single patterns, small ones mixtures.
    k : int, optional
        Patterns that count at most, those of the largest products; by default all of them.
    tolerance : float
        Length of a step at which a query rests.
    steps : int
        At most; 1 is attention.

    Returns
    -------
    Method

    References
    ----------
    Ramsauer et al., *Hopfield Networks is All You Need*, ICLR 2021.
    """
    if isinstance(beta, bool) or not 0 < beta < float("inf"):
        raise UsageError("a positive beta", repr(beta), "It is the inverse of a temperature.")
    layer = Layer(k, chosen_kernel("dot-product", 1 / beta), OfFeatures(Constant(), "pattern"))
    told = {"beta": float(beta), "k": k, "tolerance": tolerance, "steps": steps}
    return Method(
        "hopfield", tuple(told.items()), layer, loop=QueryLoop(layer, tolerance=tolerance, most=steps)
    )


def denoise(sigma: float = 0.5, k: int | None = None, steps: int = 1) -> Method:
    """The optimal denoiser of Gaussian noise, E(z | x) for z a row of the support and x ~ N(z, σ²): the local
    mean Σ w_j x_j with a Gaussian kernel (Tweedie's formula: x + σ² ∇ log p(x)).

    Columns are "denoised_COLUMN".

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise, in units of the scaled key.
    k : int, optional
        Neighbors that count at most; by default all the support.
    steps : int
        How often it is applied; many are a mean shift.

    Returns
    -------
    Method

    References
    ----------
    Robbins, *An Empirical Bayes Approach to Statistics*, 1956; Efron, *Tweedie's Formula and Selection Bias*,
    JASA 106, 2011.
    """
    layer = Layer(k, chosen_kernel("gaussian", sigma), OfFeatures(Constant(), "denoised"))
    told = {"sigma": float(sigma), "k": k, "steps": steps}
    loop = QueryLoop(layer, tolerance=0.0, most=steps, settles=False)
    return Method("denoise", tuple(told.items()), layer, loop=loop)
