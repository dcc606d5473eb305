"""The named methods. Each is one statement: a kernel, a model, and how many neighbors.

`method` finds them by their registered names, which are the Python names with hyphens.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.local.kernels import Nearest, Uniform
from locdist.local.layer import Layer
from locdist.local.models import Constant, Linear, Polynomial, Vote
from locdist.methods.covariance import kernel_ridge, local_gp
from locdist.methods.generalized import local_gamma, local_logistic, local_poisson
from locdist.methods.method import Bandwidth, Method, Registry, local_method


def local_mean(k: int = 32, kernel: str = "tricube", bandwidth: Bandwidth | None = None) -> Method:
    """The local mean (Nadaraya-Watson): Σ w_j y_j.

    Parameters
    ----------
    k : int
        Neighbors, at least 1.
    kernel : str
        "uniform", "triangular", "epanechnikov", "biweight" ("bisquare"), "tricube", "gaussian", "laplace" or
        "dot-product".
    bandwidth : float, "nearest", {"nearest": scale} or Nearest
        In units of the (scaled) key, or a multiple of the distance to the k-th neighbor. Default: "nearest"
        (1 for "dot-product").

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


def local_vote(k: int = 32, kernel: str = "tricube", bandwidth: Bandwidth | None = None) -> Method:
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
    k: int = 64, kernel: str = "tricube", bandwidth: Bandwidth | None = None, ridge: float = 0.0
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
    k: int = 128,
    kernel: str = "tricube",
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


def gwr(k: int, kernel: str = "bisquare") -> Method:
    """Geographically weighted regression with an adaptive kernel.

    The local linear model on `features`, weighed by the distance of the `key` (coordinates; declare the
    dataset with `scaling={"key": "none"}`), with the convention of GWR software: the bandwidth is the
    distance to the k-th neighbor times 1.0000001, and a site counts among its own neighbors. `transform` adds
    the diagnostics AICc, ENP and R².

    Parameters
    ----------
    k : int
        Neighbors, the site itself counted.
    kernel : str
        "bisquare", "gaussian", ...

    Returns
    -------
    Method

    References
    ----------
    Fotheringham, Brunsdon, Charlton, *Geographically Weighted Regression*, Wiley 2002.
    """
    chosen = local_method("gwr", k, kernel, Nearest(), Linear(), {})
    return replace(chosen, parameters=chosen.parameters[:2], layer=replace(chosen.layer, leave_one_out=False))


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
    "gwr": gwr,
}


def method(choice: str | Mapping[str, Any] | Method, parameters: Mapping[str, Any] | None = None) -> Method:
    """A method by its registered name and parameters, or from its `spec`.

    Parameters
    ----------
    choice : str, mapping or Method
        "local-linear", or {"name": "local-linear", "k": 64}.
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
    name = given.pop("name", None)
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
    return maker(**given)


def _known(name: str, names: Iterable[str], what: str) -> str:
    if name not in names:
        raise UsageError(f"a {what}", repr(name), did_you_mean(name, names))
    return name
