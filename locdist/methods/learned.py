"""What can be learned: for each method the objective of its map, and how the numbers become a method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from locdist.local.learn import Learned
from locdist.local.objectives import Kriging, LinearError, MeanError, Objective, VoteLoss
from locdist.methods.covariance import local_gp
from locdist.methods.method import Method
from locdist.methods.named import local_linear, local_mean, local_vote

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Standard:
    """How targets were standardized: y is mean + deviation times what was learned from."""

    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True)
class Learnable:
    """A method that can be learned.

    Parameters
    ----------
    objective : callable (options) -> Objective
    made : callable (k, options, learned, standard) -> Method
        On an index with the learned map.
    k : int
        Neighbors where nobody says.
    classes : bool
        Whether targets are classes.
    covariances : tuple of str
        Tried where nobody says; empty where the method has none.
    """

    objective: Callable[[Options], Objective]
    made: Callable[[int, Options, Learned, Standard], Method]
    k: int = 64
    classes: bool = False
    covariances: tuple[str, ...] = ()


def _gp(k: int, options: Options, learned: Learned, standard: Standard) -> Method:
    told = {"share": 0.5, "ratio": 1.0, **learned.parameters}
    return local_gp(
        k,
        covariance=options["covariance"],
        nugget=told["nugget"],
        mean=standard.mean,
        variance=told["variance"] * standard.deviation**2,
        share=told["share"],
        ratio=told["ratio"],
        constant=told["constant"],
        linear=told["linear"],
        predictive=True,
    )


def _linear(k: int, options: Options, learned: Learned, standard: Standard) -> Method:
    return local_linear(k, "gaussian", 1.0, learned.parameters["ridge"])


LEARNABLE: Mapping[str, Learnable] = {
    "local-gp": Learnable(
        lambda options: Kriging(options["covariance"]), _gp, k=128, covariances=("matern32", "mix")
    ),
    "local-linear": Learnable(lambda _: LinearError(), _linear),
    "local-mean": Learnable(lambda _: MeanError(), lambda k, *_: local_mean(k, "gaussian", 1.0)),
    "local-vote": Learnable(lambda _: VoteLoss(), lambda k, *_: local_vote(k, "gaussian", 1.0), classes=True),
}
