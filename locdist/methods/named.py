"""The named methods. Each is one statement: a kernel, a model, and how many neighbors.

`method` finds them by their registered names, which are the Python names with hyphens.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.local.boosted import Boosted
from locdist.local.kernels import Product, Uniform, kernel_spec
from locdist.local.layer import Layer
from locdist.local.models import Constant, Linear, LinearSmoother, Polynomial
from locdist.local.quantile import Vote
from locdist.methods.covariance import kernel_ridge, local_gp
from locdist.methods.distribution import kde, local_quantile, local_variance
from locdist.methods.fuzzy import fuzzy_inference
from locdist.methods.generalized import local_gamma, local_logistic, local_poisson
from locdist.methods.gwr import gwr
from locdist.methods.localized import localize_by_name
from locdist.methods.method import Bandwidth, KernelChoice, Method, Registry, local_method
from locdist.methods.moving import denoise, hopfield, mean_shift
from locdist.methods.shape import barycenter, local_pca
from locdist.methods.shrinking import local_bayes


def local_mean(
    k: int | None = 32, kernel: KernelChoice = "tricube", bandwidth: Bandwidth | None = None
) -> Method:
    """The local mean (Nadaraya-Watson): Σ w_j y_j.

    Parameters
    ----------
    k : int or None
        Neighbors, at least 1; None sums over all the support, exactly, with a kernel of a bandwidth of its
        own.
    kernel : str or mapping
        "uniform", "triangular", "epanechnikov", "biweight" ("bisquare"), "tricube", "gaussian", "laplace"
        ("exponential") or "dot-product". {"product": [{"columns": 2, "kernel": "tricube", "bandwidth": 0.5},
        ...]} multiplies kernels, each of the distance in the next columns of the key. {"mixture": [{"weight":
        0.3, "kernel": "gaussian", "bandwidth": 0.5}, ...]} is the mean of normalized kernels (`mix_kernels`
        finds the weights).
    bandwidth : float, "nearest", {"nearest": scale}, {"sample-point": rank}, Nearest or SamplePoint
        In units of the (scaled) key; a multiple of the distance to the k-th neighbor (with "rank" to an
        earlier one); or of each row's distance to its own rank-th nearest row. Default: "nearest" (1 for
        "dot-product").

    Returns
    -------
    Method
    """
    return local_method("local-mean", k, kernel, bandwidth, Constant(), {})


def knn(k: int = 10) -> Method:
    """The mean of the k nearest neighbors, all with the same weight.

    Parameters
    ----------
    k : int
        Neighbors, at least 1.

    Returns
    -------
    Method
    """
    return Method("knn", (("k", k),), Layer(k, Uniform(), Constant(), leave_one_out=True))


def local_vote(
    k: int | None = 32, kernel: KernelChoice = "tricube", bandwidth: Bandwidth | None = None
) -> Method:
    """The local mode: the probability of each class is the weight of its neighbors, the label is the class
    with the largest.

    Ties go to the class that comes first in sorted order. With `kernel="uniform"` this is the
    k-nearest-neighbors classifier.

    Parameters
    ----------
    k : int
        Neighbors, at least 1.
    kernel, bandwidth
        As in `local_mean`.

    Returns
    -------
    Method
    """
    return local_method("local-vote", k, kernel, bandwidth, Vote(), {})


def local_linear(
    k: int | None = 64,
    kernel: KernelChoice = "tricube",
    bandwidth: Bandwidth | None = None,
    ridge: float = 0.0,
) -> Method:
    """Local linear regression: a weighted least-squares plane around every query, read at the query.

    Minimises Σ w_j (y_j − a − b·(x_j − x))² + ridge·|b|² with weights that sum to one and features as the
    dataset scales them. With no ridge and fewer neighbors than features the minimum-norm plane is taken, and
    the status says RANK_DEFICIENT.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of features.
    kernel, bandwidth
        As in `local_mean`.
    ridge : float
        Penalty of the slopes, >= 0.

    Returns
    -------
    Method
    """
    model = Linear(ridge)
    return local_method("local-linear", k, kernel, bandwidth, model, {"ridge": model.ridge})


def local_polynomial(
    k: int | None = 128,
    kernel: KernelChoice = "tricube",
    bandwidth: Bandwidth | None = None,
    degree: int = 2,
    cross: bool = True,
    ridge: float = 0.0,
) -> Method:
    """Local polynomial regression: for degree 2 a weighted least-squares quadric around every query.

    Coefficients are the value and the slopes at the query.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of terms, m (m + 3) / 2 for a full quadric.
    kernel, bandwidth
        As in `local_mean`.
    degree : int
        At least 1.
    cross : bool
        Whether products of different features are terms; without them the quadric is diagonal.
    ridge : float
        Penalty of all terms but the constant, >= 0.

    Returns
    -------
    Method
    """
    model = Polynomial(degree, cross, ridge)
    more = {"degree": degree, "cross": cross, "ridge": model.ridge}
    return local_method("local-polynomial", k, kernel, bandwidth, model, more)


def boosted(
    base: str | Mapping[str, Any] | Method = "local-mean",
    rounds: int = 1,
    k: int | None = None,
    kernel: KernelChoice | None = None,
    bandwidth: Bandwidth | None = None,
) -> Method:
    """A linear smoother that smooths what it missed at the neighbors and adds that, again and again: L2
    boosting; one round is twicing.

    Parameters
    ----------
    base : str, mapping or Method
        "local-mean", "local-linear", "local-polynomial", "knn" or "barycenter", with their parameters:
        {name: local-linear, ridge: 0.1}.
    rounds : int
        At least 0. Each takes bias away and adds variance; many interpolate the neighbors.
    k : int
        Neighbors, at least 1; by default, as kernel and bandwidth, those of the base.
    kernel : str or mapping
        As in `local_mean`.
    bandwidth
        As in `local_mean`.

    Returns
    -------
    Method
    """
    given = {"k": k, "kernel": kernel, "bandwidth": bandwidth}
    changed = {name: value for name, value in given.items() if value is not None}
    chosen = method(method(base).spec | changed)
    layer, told = chosen.layer, {"base": chosen.spec, "rounds": rounds}
    if not isinstance(layer.model, LinearSmoother):
        raise UsageError("a linear smoother to boost", chosen.name, "'local-mean' and 'local-linear' are.")
    model = Boosted(layer.model, layer.kernel, rounds)
    width = None if isinstance(layer.kernel, Product) else layer.kernel.bandwidth
    return local_method("boosted", layer.k, kernel_spec(layer.kernel), width, model, told)


METHODS: Registry = {
    "local-mean": local_mean,
    "knn": knn,
    "local-vote": local_vote,
    "local-linear": local_linear,
    "local-polynomial": local_polynomial,
    "local-logistic": local_logistic,
    "local-poisson": local_poisson,
    "local-gamma": local_gamma,
    "local-gp": local_gp,
    "kernel-ridge": kernel_ridge,
    "local-quantile": local_quantile,
    "local-variance": local_variance,
    "kde": kde,
    "local-pca": local_pca,
    "barycenter": barycenter,
    "boosted": boosted,
    "localize": localize_by_name,
    "mean-shift": mean_shift,
    "hopfield": hopfield,
    "denoise": denoise,
    "local-bayes": local_bayes,
    "fuzzy-inference": fuzzy_inference,
    "gwr": gwr,
}


def method(choice: str | Mapping[str, Any] | Method, parameters: Mapping[str, Any] | None = None) -> Method:
    """A method by its registered name and parameters, or from its `spec`.

    Parameters
    ----------
    choice : str, mapping or Method
        "local-linear", or {"name": "local-linear", "k": 64}; with "own": true rows of the support count
        themselves.
    parameters : mapping, optional
        Parameters besides the name.

    Raises
    ------
    UsageError
        For an unknown name or parameter, with the one that was probably meant.
    """
    kind: object = choice  # whatever users passed
    if isinstance(choice, Method):
        return choice
    if not isinstance(kind, str | Mapping):
        hint = "Methods are made by a call, ld.knn(k=5); arguments are method, index, queries."
        raise UsageError("a method, its name or its spec", type(choice).__name__, hint)
    given = dict(choice) if isinstance(choice, Mapping) else {"name": choice}
    given.update(parameters or {})
    given = {key: method(each) if _is_method(each) else each for key, each in given.items()}
    name, intervals = given.pop("name", None), given.pop("intervals", ())
    own, map = given.pop("own", False), given.pop("map", "")
    maker = METHODS[_known(str(name), METHODS, "method")]
    known = inspect.signature(maker).parameters
    for parameter in given:
        _known(parameter, known, f"parameter of {name}")
    required = [
        name
        for name, parameter in known.items()
        if parameter.default is parameter.empty and name not in given
    ]
    if required:
        raise UsageError(
            f"{name} with {', '.join(required)}", f"only {sorted(given)}", f"Give {required[0]}."
        )
    made = maker(**given).counting() if own else maker(**given)
    learned = tuple((level, multiple) for level, multiple in intervals)
    return replace(made, intervals=learned, map=map) if learned or map else made


def _is_method(given: object) -> bool:
    """Whether a parameter is a method itself, told by its spec."""
    return isinstance(given, Mapping) and "name" in given


def _known(name: str, names: Iterable[str], what: str) -> str:
    if name not in names:
        raise UsageError(f"a {what}", repr(name), did_you_mean(name, names))
    return name
