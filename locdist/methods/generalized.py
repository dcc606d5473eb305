"""Generalized linear models around every query: classes, counts, positive amounts."""

from locdist.local.families import Gamma, Poisson
from locdist.local.glm import GeneralizedLinear, Logistic
from locdist.methods.method import Bandwidth, Method, local_method


def local_logistic(
    k: int = 128, kernel: str = "tricube", bandwidth: Bandwidth | None = None, ridge: float = 0.01
) -> Method:
    """Local logistic regression: the probability of each class, from a weighted fit around every query.

    Minimises Σ w_j log-loss_j + ridge/2·|b|² with weights that sum to one and features as the dataset scales
    them. More than two classes have one linear predictor each (softmax). Neighbors of one class give it the
    probability 1.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of features.
    kernel, bandwidth
        As in `local_mean`.
    ridge : float
        Penalty of the slopes, >= 0: 1 / C of `sklearn.linear_model.LogisticRegression`. With 0, neighbors
        whose classes a plane separates have no finite fit, and the status says NOT_CONVERGED.

    Returns
    -------
    Method
    """
    model = Logistic(ridge)
    return local_method("local-logistic", k, kernel, bandwidth, model, {"ridge": model.ridge})


def local_poisson(
    k: int = 128, kernel: str = "tricube", bandwidth: Bandwidth | None = None, ridge: float = 0.0
) -> Method:
    """Local Poisson regression: the expected count, log-linear in the features around every query.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of features. Neighbors without any count give 0.
    kernel, bandwidth
        As in `local_mean`.
    ridge : float
        Penalty of the slopes, >= 0, beside the mean negative log-likelihood.

    Returns
    -------
    Method
    """
    model = GeneralizedLinear(Poisson(), ridge)
    return local_method("local-poisson", k, kernel, bandwidth, model, {"ridge": model.ridge})


def local_gamma(
    k: int = 128, kernel: str = "tricube", bandwidth: Bandwidth | None = None, ridge: float = 0.0
) -> Method:
    """Local gamma regression: the mean of a positive amount, log-linear in the features around every query.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of features.
    kernel, bandwidth
        As in `local_mean`.
    ridge : float
        Penalty of the slopes, >= 0, beside the mean negative log-likelihood.

    Returns
    -------
    Method
    """
    model = GeneralizedLinear(Gamma(), ridge)
    return local_method("local-gamma", k, kernel, bandwidth, model, {"ridge": model.ridge})
