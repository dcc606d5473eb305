"""Methods on a covariance of the targets: kriging, and kernel ridge regression."""

from collections.abc import Sequence

from locdist.local.gp import GaussianProcess, KernelRidge, Prior
from locdist.local.likeness import Likeness
from locdist.methods.method import Bandwidth, Method, local_method


def local_gp(
    k: int = 64,
    kernel: str = "uniform",
    bandwidth: Bandwidth | None = None,
    covariance: str = "matern32",
    scales: float | Sequence[float] = 1.0,
    nugget: float = 0.01,
    mean: str | float = "constant",
    variance: float | None = None,
    share: float = 0.5,
    ratio: float = 1.0,
    constant: float = 0.0,
    linear: float = 0.0,
    adaptive: float | None = None,
    predictive: bool = False,
) -> Method:
    """A Gaussian process on the neighbors of every query (kriging); the spread is its posterior's.

    The covariance of two rows is variance·(C(|z − z'|) + constant + linear·z·z'), z the features less those
    of the query in length scales. `tune` learns all of these numbers.

    Parameters
    ----------
    k : int
        Neighbors, at least 1.
    kernel, bandwidth
        As in `local_mean`: a neighbor of a smaller weight has more noise. Uniform: all have the nugget.
    covariance : {"rbf", "matern12", "matern32", "matern52", "mix"}
        C; "mix" is share·matern12(u) + (1 − share)·matern32(ratio·u).
    scales : float or sequence of float
        Length scales, in units of the scaled features; one for all, or one for each column.
    nugget : float
        Variance of the noise relative to the process, >= 0.
    mean : {"constant", "zero"} or float
        A constant is estimated in each neighborhood (ordinary kriging); a number is known.
    variance : float, optional
        Of the process, in squared units of the target; None estimates it in each neighborhood.
    share, ratio : float
        Of the covariance "mix".
    constant, linear : float
        Variances of the local mean and of each local slope relative to the process, >= 0.
    adaptive : float, optional
        This multiple of the variance that is estimated in each neighborhood is added to `variance`, >= 0.
    predictive : bool
        Whether the spread is that of a new target, with its noise, and not that of the function below it.

    Returns
    -------
    Method
    """
    prior = Prior(Likeness(covariance, scales, share, ratio), constant, linear)
    model = GaussianProcess(prior, nugget, mean, variance, adaptive, predictive)
    more = {
        "covariance": covariance,
        "scales": _listed(prior.likeness.scales),
        "nugget": model.nugget,
        "mean": model.mean,
        "variance": variance,
        "share": share,
        "ratio": ratio,
        "constant": prior.constant,
        "linear": prior.linear,
        "adaptive": adaptive,
        "predictive": predictive,
    }
    return local_method("local-gp", k, kernel, bandwidth, model, more)


def kernel_ridge(
    k: int = 64,
    kernel: str = "tricube",
    bandwidth: Bandwidth | None = None,
    covariance: str = "rbf",
    scales: float | Sequence[float] = 1.0,
    ridge: float = 0.01,
) -> Method:
    """Kernel ridge regression on the neighbors of every query.

    Parameters
    ----------
    k : int
        Neighbors, at least 1.
    kernel, bandwidth
        As in `local_mean`.
    covariance, scales
        As in `local_gp`: the kernel of the functions, not the one that weighs neighbors.
    ridge : float
        >= 0, relative to weights that sum to one; 0 interpolates.

    Returns
    -------
    Method
    """
    model = KernelRidge(Likeness(covariance, scales), ridge)
    more = {"covariance": covariance, "scales": _listed(model.likeness.scales), "ridge": model.ridge}
    return local_method("kernel-ridge", k, kernel, bandwidth, model, more)


def _listed(scales: float | Sequence[float]) -> float | list[float]:
    # as JSON has it
    return list(scales) if isinstance(scales, Sequence) else scales
