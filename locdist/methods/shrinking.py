"""Denoising by the Gaussian of a neighborhood."""

from locdist.local.kernels import bandwidth_spec
from locdist.local.kernels import kernel as chosen_kernel
from locdist.local.layer import Layer
from locdist.local.shrinkage import Shrinkage
from locdist.methods.method import Bandwidth, Method


def local_bayes(
    sigma: float = 0.5, k: int = 64, kernel: str = "uniform", bandwidth: Bandwidth | None = None
) -> Method:
    """Local Bayes: a row less its noise, if the rows around it are draws from one Gaussian and noise,
    μ + (C − σ² I)₊ C⁻¹ (x − μ): the local principal components, each shrunk by its share of the noise.

    Columns are "denoised_COLUMN". The step of non-local Bayes, of tables: `ld.transform` denoises all rows,
    each counted among its own neighbors.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in each column, in units of the scaled key; > 0.
    k : int
        Neighbors, more than there are columns.
    kernel : str
    bandwidth : float, "nearest", {"nearest": scale}, ..., optional
        As in `local_mean`.

    Returns
    -------
    Method

    References
    ----------
    Lebrun, Buades, Morel, *A Nonlocal Bayesian Image Denoising Algorithm*, SIAM J. Imaging Sciences 6, 2013.
    """
    layer = Layer(k, chosen_kernel(kernel, bandwidth), Shrinkage(sigma))
    told = {"sigma": float(sigma), "k": k, "kernel": kernel, "bandwidth": bandwidth_spec(layer.kernel)}
    return Method("local-bayes", tuple(told.items()), layer)
