"""The localization trick as a method: any model, any smooth loss, around every query."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.local.estimated import Estimated
from locdist.local.kernels import Product, kernel_spec
from locdist.local.levels import Again, Resampled
from locdist.local.localized import Localized
from locdist.local.models import LocalModel
from locdist.local.parametric import FUNCTIONS, LOSSES, Named, function_of, loss_of
from locdist.methods.method import Bandwidth, KernelChoice, Method, local_method


def localize(
    model: Any = "linear",
    loss: str | Mapping[str, float] | Callable[..., Any] = "squared",
    *,
    k: int | None = None,
    kernel: KernelChoice | None = None,
    bandwidth: Bandwidth | None = None,
    parameters: int | Sequence[float] | None = None,
    ridge: float = 0.0,
    draws: int | None = None,
    seed: int = 0,
) -> Method:
    """Any model, localized: around every query the parameters θ that minimise
    Σ w_j l(f(x_j − x, θ), y_j) + ridge/2·|θ − θ₀|², and f(0, θ) as the prediction.

    Torch takes the derivatives: all queries of a tile take a step of Newton's method (up to 32 parameters) or
    L-BFGS together, and the status says where it did not settle.

    Parameters
    ----------
    model : str, callable, torch.nn.Module, estimator or Method
        - "linear" or "constant".
        - A function f(x, θ) of features [m] and parameters [c] to one number, with `parameters`; or a module
          that maps features [k, m] to one number each, which begins with the parameters that it has: a ridge
          then draws towards them. Where workers are processes they have to import it: give a function of a
          module, or "package.module:name" of either.
        - An estimator of scikit-learn that takes `sample_weight`. Queries are fitted one by one: slow, some
          hundred a second and core.
        - A local method, which is localized again: the neighbors count by Σ_k w_k K(x_k, x_j), K its own
          kernel.
    loss : str, mapping or callable
        "squared" (half of it), "huber" or {"huber": delta}, "logistic" (targets 0 and 1; the prediction is
        the probability), "poisson", "gamma", or a function l(number, target) in torch, smooth in the number.
    k : int, optional
        Neighbors: 64, or those of the local method.
    kernel : str or mapping, optional
        "tricube", or that of the local method, with its bandwidth.
    bandwidth
        As in `local_mean`.
    parameters : int or sequence of float, optional
        How many parameters the function has, beginning with 0; or where they begin.
    ridge : float
        >= 0; of the named models the constant is free.
    draws : int, optional
        The Monte-Carlo form: as many neighbors are drawn with replacement, by their weights, and count
        equally. The draws of a query follow from the query and the seed.
    seed : int

    Returns
    -------
    Method

    Examples
    --------
    >>> import locdist as ld
    >>> robust = ld.localize("linear", {"huber": 1.0}, k=3, kernel="uniform")
    >>> robust(ld.Exact([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]), [[0.5]]).values
    tensor([[0.5000]], dtype=torch.float64)
    """
    inner: LocalModel
    told: dict[str, Any] = {"model": _path(Named.of(model)), "draws": draws, "seed": seed}
    if isinstance(model, Method):
        inner, told["model"], own = _again(model, loss, parameters, ridge), model.spec, model.layer
        k = own.k if k is None else k
        if kernel is None:
            kernel = kernel_spec(own.kernel)
            bandwidth = bandwidth if isinstance(own.kernel, Product) else bandwidth or own.kernel.bandwidth
    elif hasattr(model, "fit") and hasattr(model, "get_params"):
        inner = estimated = Estimated.of(model)
        told |= {"model": _path(estimated.kind), "with": dict(estimated.choices)}
    else:
        inner = Localized(function_of(model, parameters), loss_of(loss), ridge)
        told |= {"loss": _path(Named.of(loss)), "ridge": inner.ridge}
        told |= {} if parameters is None else {"parameters": parameters}
    whole = inner if draws is None else Resampled(inner, draws, seed)
    return local_method("localize", 64 if k is None else k, kernel or "tricube", bandwidth, whole, told)


def _again(method: Method, loss: object, parameters: object, ridge: float) -> Again:
    if loss != "squared" or parameters is not None or ridge:
        given = f"loss={loss!r}, parameters={parameters!r}, ridge={ridge!r}"
        raise UsageError("a local method as it is", given, "It has a loss of its own: choose there.")
    return Again(method.layer.model, method.layer.kernel)


def _path(given: Any) -> Any:
    return given.path if isinstance(given, Named) else given


def localize_by_name(
    k: int = 64,
    kernel: KernelChoice = "tricube",
    bandwidth: Bandwidth | None = None,
    model: str | Mapping[str, Any] = "linear",
    loss: str | Mapping[str, float] = "squared",
    ridge: float = 0.0,
    draws: int | None = None,
    seed: int = 0,
) -> Method:
    """A model with a loss of your choice around every query: "linear" with {"huber": 1.0} is a robust local
    linear regression. A local method is localized again.

    In Python `ld.localize` takes functions, modules and estimators too; a file names no code.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of features.
    kernel, bandwidth
        As in `local_mean`.
    model : str or mapping
        "linear", "constant", or a local method: {name: local-linear, kernel: gaussian}.
    loss : str or mapping
        "squared", "huber" or {huber: delta}, "logistic", "poisson", "gamma".
    ridge : float
        Penalty of the slopes, >= 0.
    draws : int
        The Monte-Carlo form: as many neighbors are drawn by their weights and count equally.
    seed : int
        Of the draws.

    Returns
    -------
    Method
    """
    for given, known, what in ((model, FUNCTIONS, "model"), (loss, LOSSES, "loss")):
        if isinstance(given, str) and given not in known:
            remedy = f"{did_you_mean(given, known)} Code is given in Python: ld.localize."
            raise UsageError(f"a {what} that has a name", repr(given), remedy)
    return localize(model, loss, k=k, kernel=kernel, bandwidth=bandwidth, ridge=ridge, draws=draws, seed=seed)
