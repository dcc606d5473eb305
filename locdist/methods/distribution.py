"""How targets and rows are distributed around every query: quantiles, variance, density."""

from collections.abc import Sequence

from locdist.local.density import Density
from locdist.local.quantile import Quantile, Variance
from locdist.methods.method import Bandwidth, KernelChoice, Method, local_method, plain


def local_quantile(
    k: int = 64,
    kernel: KernelChoice = "tricube",
    bandwidth: Bandwidth | None = None,
    levels: float | Sequence[float] = 0.5,
) -> Method:
    """Local quantiles, by default the median: the minimum of Σ w_j r_a(y_j − t), r_a the check loss.

    One level is a prediction; several are columns "quantile_LEVEL".

    Parameters
    ----------
    k : int
        Neighbors, at least 1.
    kernel, bandwidth
        As in `local_mean`.
    levels : float or sequence of float
        Between 0 and 1. Where a share of exactly that many targets lies at or below one, the quantile is the
        midpoint between this and the next.

    Returns
    -------
    Method
    """
    model = Quantile(tuple(map(plain, levels)) if isinstance(levels, Sequence) else (plain(levels),))
    told = list(model.levels) if isinstance(levels, Sequence) else model.levels[0]
    return local_method("local-quantile", k, kernel, bandwidth, model, {"levels": told})


def local_variance(
    k: int | None = 64,
    kernel: KernelChoice = "tricube",
    bandwidth: Bandwidth | None = None,
    unbiased: bool = False,
) -> Method:
    """The local mean and the variance around it, Σ w_j (y_j − mean)², in columns "prediction" and "variance".

    Parameters
    ----------
    k, kernel, bandwidth
        As in `local_mean`.
    unbiased : bool
        Whether the variance is divided by 1 − Σ w_j².

    Returns
    -------
    Method
    """
    return local_method("local-variance", k, kernel, bandwidth, Variance(unbiased), {"unbiased": unbiased})


def kde(
    k: int | None = 256, kernel: KernelChoice = "epanechnikov", bandwidth: Bandwidth = 1.0, log: bool = False
) -> Method:
    """The density of the support's rows at every query: a kernel of volume one around each neighbor, over all
    rows.

    It needs no target, and is per unit of the (scaled) key. The answer is in a column "density".

    Parameters
    ----------
    k : int or None
        Neighbors, at least 1: as many as are in the kernel's reach, farther ones do not count. None sums over
        all rows.
    kernel : str or mapping
        As in `local_mean`, of distances.
    bandwidth
        In units of the (scaled) key; adaptive ones make the balloon or the sample-point estimate.
    log : bool
        Whether the logarithm is told, in a column "log_density", which does not underflow.

    Returns
    -------
    Method
    """
    return local_method("kde", k, kernel, bandwidth, Density(log), {"log": log})
