"""Geographically weighted regression: local models of columns, weighed by place."""

from dataclasses import replace

from locdist.errors import UsageError, did_you_mean
from locdist.local.families import Bernoulli, Poisson
from locdist.local.glm import GeneralizedLinear
from locdist.local.models import Linear, LocalModel
from locdist.methods.method import Bandwidth, KernelChoice, Method, local_method

FAMILIES: dict[str, LocalModel] = {
    "gaussian": Linear(),
    "poisson": GeneralizedLinear(Poisson()),
    "binomial": GeneralizedLinear(Bernoulli()),
}


def gwr(
    k: int, kernel: KernelChoice = "bisquare", bandwidth: Bandwidth | None = None, family: str = "gaussian"
) -> Method:
    """Geographically weighted regression.

    The (generalized) linear model on `features`, weighed by the distance of the `key` (coordinates: declare
    the dataset with `scaling={"key": "none"}`, or with `metric="haversine"` for longitude and latitude), with
    the convention of GWR software: a site counts among its own neighbors. `transform` adds the diagnostics
    AICc, ENP and R², and with `extras=["listwise"]` the tables of GWR software.

    Parameters
    ----------
    k : int
        Neighbors, the site itself counted.
    kernel : str
        "bisquare", "gaussian", "exponential", ...
    bandwidth : float, "nearest", {"nearest": scale, "rank": k} or Nearest
        Default: adaptive, the distance to the k-th neighbor times 1.0000001. A number is a fixed bandwidth,
        in units of the key (kilometres for `metric="haversine"`), of which at most the k nearest sites weigh;
        with "rank" the distance to an earlier neighbor. GWR software lets all sites weigh: k is then their
        number.
    family : {"gaussian", "poisson", "binomial"}
        Of the target: numbers, counts (log link), or 0 and 1 and shares between (logit link). A column of the
        role `offset` is added to the linear predictor.

    Returns
    -------
    Method

    References
    ----------
    Fotheringham, Brunsdon, Charlton, *Geographically Weighted Regression*, Wiley 2002; Nakaya, Fotheringham,
    Brunsdon, Charlton, *Geographically weighted Poisson regression*, Statistics in Medicine 24, 2005.
    """
    if family not in FAMILIES:
        raise UsageError("a family", repr(family), did_you_mean(family, FAMILIES))
    chosen = local_method("gwr", k, kernel, bandwidth, FAMILIES[family], {"family": family})
    return replace(chosen, layer=replace(chosen.layer, leave_one_out=False))
