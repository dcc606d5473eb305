"""Sums of local models, each with a bandwidth of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.local.multiscale import Backfitting
from locdist.methods.method import plain
from locdist.methods.spelled import spelled

WIDTHS = ("nearest", "fixed")


@dataclass(frozen=True)
class BackfitMethod:
    """A frozen choice of how parts are fitted, under a registered name, run by `ld.backfit`.

    Parameters
    ----------
    name : str
    parameters : tuple of (str, value)
        JSON-able and complete.
    loop : Backfitting
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    loop: Backfitting

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `backfit_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}


def mgwr(
    kernel: str = "bisquare",
    bandwidth: str = "nearest",
    criterion: str = "aicc",
    low: float | None = None,
    high: float | None = None,
    tolerance: float = 1e-5,
    sweeps: int = 200,
) -> BackfitMethod:
    """Multiscale geographically weighted regression: y = Σ_j x_j β_j(place) + ε, each coefficient a surface
    with a bandwidth of its own.

    The intercept is a term too. Target and features are standardized. It begins with `gwr` of one bandwidth;
    in a sweep each part x_j β_j in turn becomes the local regression of x_j on what the other parts leave,
    with the bandwidth of the smallest criterion.

    Parameters
    ----------
    kernel : str
        "bisquare", "gaussian", "exponential", ...
    bandwidth : {"nearest", "fixed"}
        Numbers of neighbors, the site itself counted, or distances in units of the key.
    criterion : {"aicc", "aic", "bic", "gcv"}
        Of the bandwidth of a part, which golden section minimises.
    low, high : float, optional
        The range of the bandwidths of parts, at least one neighbor or a distance over 0; by default 42
        neighbors to all, or half the smallest distance to twice the largest.
    tolerance : float
        It rests where a sweep changes the parts by less: sqrt(Σ_ij (Δ x_ij β_ij)² / n / Σ_i ŷ_i²).
    sweeps : int
        At most.

    Returns
    -------
    BackfitMethod

    References
    ----------
    Fotheringham, Yang, Kang, *Multiscale Geographically Weighted Regression (MGWR)*, Annals of the American
    Association of Geographers 107, 2017; Yu, Fotheringham, Li, Oshan, Kang, Wolf, *Inference in Multiscale
    Geographically Weighted Regression*, Geographical Analysis 52, 2020.
    """
    if bandwidth not in WIDTHS:
        raise UsageError("bandwidth 'nearest' or 'fixed'", repr(bandwidth), did_you_mean(bandwidth, WIDTHS))
    loop = Backfitting(kernel, bandwidth == "fixed", criterion, low, high, tolerance, sweeps)
    told = {"kernel": kernel, "bandwidth": bandwidth, "criterion": criterion, "low": low, "high": high}
    told |= {"tolerance": tolerance, "sweeps": sweeps}
    return BackfitMethod("mgwr", tuple(told.items()), loop)


BACKFIT_METHODS: Mapping[str, Callable[..., BackfitMethod]] = {"mgwr": mgwr}


def backfit_method(choice: BackfitMethod | str | Mapping[str, Any]) -> BackfitMethod:
    """A method by its name, or by its name and parameters: {"name": "mgwr", "kernel": "gaussian"}."""
    if isinstance(choice, BackfitMethod):
        return choice
    return spelled(choice, BACKFIT_METHODS, "a method of parts with bandwidths of their own")
