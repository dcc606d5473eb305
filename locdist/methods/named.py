"""The named methods. Each is one statement: a kernel, a model, and how many neighbors.

`method` finds them by their registered names, which are the Python names with hyphens.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.local.kernels import Nearest, kernel, spec
from locdist.local.layer import Layer
from locdist.local.models import Constant, Linear, LocalModel, Vote
from locdist.methods.method import Method, Registry

Bandwidth = float | str | Nearest | Mapping[str, float]


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
    return _method("local-mean", k, kernel, bandwidth, Constant())


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
    return Method("knn", (("k", k),), _layer(k, "uniform", None, Constant()))


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
    return _method("local-vote", k, kernel, bandwidth, Vote())


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
    return _method("local-linear", k, kernel, bandwidth, Linear(ridge), ridge=float(ridge))


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
    layer = _layer(k, kernel, Nearest(), Linear(), leave_one_out=False)
    return Method("gwr", (("k", k), ("kernel", kernel)), layer)


METHODS: Registry = {
    "local-mean": local_mean,
    "knn": knn,
    "local-vote": local_vote,
    "local-linear": local_linear,
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


def _method(
    name: str, k: int, kernel_name: str, bandwidth: Bandwidth | None, model: LocalModel, **more: float
) -> Method:
    layer = _layer(k, kernel_name, bandwidth, model)
    parameters = {"k": k, "kernel": kernel_name, "bandwidth": spec(layer.kernel.bandwidth), **more}
    return Method(name, tuple(parameters.items()), layer)


def _layer(
    k: int, kernel_name: str, bandwidth: object, model: LocalModel, leave_one_out: bool = True
) -> Layer:
    return Layer(k, kernel(kernel_name, bandwidth), model, leave_one_out)
