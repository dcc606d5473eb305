"""Methods for series, which are explained by their own past."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from locdist.errors import UsageError
from locdist.local.series import Forecast
from locdist.methods.method import Bandwidth, Method, plain
from locdist.methods.named import method as named
from locdist.methods.spelled import spelled

NEIGHBORS = 16


@dataclass(frozen=True)
class SeriesMethod:
    """A frozen choice of windows and of a local model, under a registered name, run by `ld.forecast`.

    Parameters
    ----------
    name : str
    parameters : tuple of (str, value)
        JSON-able and complete.
    loop : Forecast
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    loop: Forecast

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple((name, plain(value)) for name, value in self.parameters))

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `series_method(spec)` makes it again."""
        return {"name": self.name, **dict(self.parameters)}


def local_ar(
    order: int = 8,
    lag: int = 1,
    k: int | None = None,
    model: str | Mapping[str, Any] | Method = "local-linear",
    kernel: str | None = None,
    bandwidth: Bandwidth | None = None,
    ridge: float | None = None,
    decay: float = 1.0,
    direct: bool = False,
) -> SeriesMethod:
    """Local autoregression: x_{t+1} is what a local model says of the k times s whose past looked like that
    of t: of the keys (x_s, x_{s−lag}, …) near (x_t, x_{t−lag}, …), and what followed them, x_{s+1}.

    Forecasts run freely: each is the newest value of the next key. Series are standardized.

    Parameters
    ----------
    order : int
        Values of a key.
    lag : int
        Steps from one value to the next.
    k : int, optional
        Neighbors; by default 16, or what `model` says.
    model : str, spec or Method
        Any local model of numbers: "local-linear", "local-mean", {"name": "local-gp", "k": 32, ...}.
    kernel, bandwidth, ridge
        Of the model, where they are given.
    decay : float
        Over 0 and at most 1: how much less a difference counts, from one value of a key to the next older
        one, when keys are compared.
    direct : bool
        Answers every step from what is known, the step h as x_{s+h}, instead of running freely.

    Returns
    -------
    SeriesMethod

    References
    ----------
    Farmer, Sidorowich, *Predicting Chaotic Time Series*, Physical Review Letters 59, 1987; Sauer, *Time
    Series Prediction by Using Delay Coordinate Embedding*, in Weigend, Gershenfeld (editors), 1993.
    """
    given = {"k": k, "kernel": kernel, "bandwidth": bandwidth, "ridge": ridge}
    more = {name: value for name, value in given.items() if value is not None}
    chosen = _model(model, more)
    told = {"order": order, "lag": lag, "model": chosen.spec, "decay": float(decay), "direct": direct}
    loop = Forecast(chosen.layer, order, lag, direct, float(decay))
    return SeriesMethod("local-ar", tuple(told.items()), loop)


def _model(model: str | Mapping[str, Any] | Method, more: Mapping[str, Any]) -> Method:
    """The model, with what else is said of it."""
    if isinstance(model, Method):
        chosen = model
    else:
        spec: dict[str, Any] = {"name": model} if isinstance(model, str) else dict(model)
        chosen = named({"k": NEIGHBORS, **spec, **more})
    if chosen.loop is not None:
        raise UsageError("a model without a loop of its own", chosen.name, "Use 'local-linear', say.")
    return chosen


SERIES_METHODS: Mapping[str, Callable[..., SeriesMethod]] = {"local-ar": local_ar}


def series_method(choice: SeriesMethod | str | Mapping[str, Any]) -> SeriesMethod:
    """A method by its name, or by its name and parameters: {"name": "local-ar", "order": 12}."""
    return (
        choice if isinstance(choice, SeriesMethod) else spelled(choice, SERIES_METHODS, "a method for series")
    )
