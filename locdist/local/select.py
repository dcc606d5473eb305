"""How well settings answer rows of the support itself: many settings, one search.

A setting is a `Layer`. The rows of a sample are searched once, with the largest k; every setting sees the
nearest of these neighbors. A row is judged in one of two ways:

    left out   it is not among its own neighbors, and y less the value is its leave-one-out residual
    counted    it is, with the weight s_ii in its own value; (y - value) / (1 - s_ii) is then the same in
               closed form (exact where the bandwidth does not depend on the row), and sum s_ii the trace of
               the hat matrix, the number of parameters that the criteria of information charge for
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.answers import Answers, Status
from locdist.local.glm import GeneralizedLinear
from locdist.local.gp import GaussianProcess, KernelRidge
from locdist.local.layer import Layer
from locdist.local.models import LinearSmoother, LocalModel
from locdist.local.neighborhood import Neighborhood

MEANS = ("loo", "log-likelihood")
INFORMATION = ("aicc", "aic", "bic", "gcv")
CRITERIA = (*MEANS, *INFORMATION)
RATIO = 0.38197  # of the golden section, 1 - (sqrt(5) - 1) / 2, to the digits of GWR software
_NOTHING = 1e-8  # a leverage of one, but for rounding
_CLIP = 1e-15  # no probability is nearer to 0 in a logarithm
_TRACED = (LinearSmoother, GaussianProcess, KernelRidge, GeneralizedLinear)


@dataclass(frozen=True)
class Asked:
    """Rows of a support that are asked of it.

    Attributes
    ----------
    hood : Neighborhood
        Their neighbors, sorted by distance, with what the settings need filled in.
    own : Tensor [s] int64
        The id of each row.
    truth : Tensor [s]
        Its target, or int64 code.
    """

    hood: Neighborhood
    own: Tensor
    truth: Tensor


@dataclass(frozen=True)
class Judged:
    """What a setting makes of each row.

    Attributes
    ----------
    loss : Tensor [s]
        The squared residual, or the negative log-likelihood; nan where there is no answer.
    leverage : Tensor [s]
        s_ii; 0 where the row is left out.
    effective : Tensor [s]
        Effective number of neighbors.
    """

    loss: Tensor
    leverage: Tensor
    effective: Tensor

    @staticmethod
    def concatenate(parts: Sequence["Judged"]) -> "Judged":
        """The rows of all parts."""
        return Judged(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Judged)))


@dataclass(frozen=True)
class Score:
    """A criterion of one setting: the smaller the better.

    Attributes
    ----------
    value, error : float
        The criterion and its standard error, from the spread over the rows of the sample.
    effective : float
        Mean effective number of neighbors.
    unanswered : int
        Rows of the sample without an answer. They are judged by the mean of the others' targets (classes: by
        their shares), so that silence is not rewarded.
    """

    value: float
    error: float
    effective: float
    unanswered: int


def check_criterion(criterion: str, model: LocalModel) -> None:
    """UsageError when a criterion is unknown, or says nothing about a model."""
    if criterion not in CRITERIA:
        raise UsageError("a criterion", repr(criterion), did_you_mean(criterion, CRITERIA))
    name = type(model).__name__
    if criterion in INFORMATION and not isinstance(model, _TRACED):
        raise UsageError(f"a model with a hat matrix for {criterion!r}", name, "Use the criterion 'loo'.")
    known = isinstance(model, LinearSmoother | GeneralizedLinear) or "codes" in model.needs
    if criterion == "log-likelihood" and not known:
        raise UsageError("a model whose spread is that of a smoother", name, "Use the criterion 'loo'.")


def left_out(layer: Layer, criterion: str) -> bool:
    """Whether a row is not among its own neighbors when a setting is judged."""
    return criterion in MEANS and layer.leave_one_out


def likelihoods(model: LocalModel, criterion: str) -> bool:
    """Whether losses are negative log-likelihoods and not squares."""
    likely = criterion == "log-likelihood" or "codes" in model.needs
    return likely or (criterion != "loo" and isinstance(model, GeneralizedLinear))


def judge(layer: Layer, asked: Asked, criterion: str) -> Judged:
    """What a setting makes of one tile of rows, which are asked as `left_out` says."""
    counted = not left_out(layer, criterion)
    want = {"effective"} | ({"neighbors"} if counted else set())
    want |= {"spread", "neighbors"} if criterion == "log-likelihood" else set()
    answers = layer.solve(asked.hood.first(layer.neighbors), frozenset(want))
    leverage = torch.zeros_like(answers.values[:, 0])
    if counted:
        assert answers.ids is not None
        assert answers.smoother is not None
        leverage = answers.smoother.where(answers.ids == asked.own[:, None], 0.0).sum(1)
    loss = _losses(layer.model, answers, asked.truth, leverage, criterion)
    loss = loss.masked_fill(answers.status >= int(Status.EMPTY), float("nan"))
    assert answers.effective is not None
    return Judged(loss, leverage.masked_fill(loss.isnan(), 0.0), answers.effective)


def _losses(model: LocalModel, answers: Answers, truth: Tensor, leverage: Tensor, criterion: str) -> Tensor:
    if "codes" in model.needs:
        return answers.values.gather(1, truth[:, None])[:, 0].clamp(min=_CLIP).log().neg()
    value = answers.values[:, 0]
    if isinstance(model, GeneralizedLinear) and likelihoods(model, criterion):
        return model.family.deviance(value, truth) / 2
    if criterion != "log-likelihood":
        return squares(value, truth, leverage, criterion)
    miss = truth - value
    # the next target varies by sigma2, its value by sigma2 sum s^2, which is the spread
    assert answers.spread is not None
    assert answers.smoother is not None
    variance = answers.spread[:, 0].square() * (1 + 1 / answers.smoother.square().sum(1))
    return (variance.log() + math.log(2 * math.pi) + miss.square() / variance) / 2


def squares(values: Tensor, truth: Tensor, leverage: Tensor, criterion: str) -> Tensor:
    """Squared residuals [s], leave-one-out where the criterion is a mean; nan where without the row itself
    nothing is left to fit.
    """
    if criterion not in MEANS:
        return (truth - values).square()
    left = 1 - leverage
    return ((truth - values) / left.masked_fill(left < _NOTHING, float("nan"))).square()


def score(judged: Judged, truth: Tensor, criterion: str, rows: int, likelihood: bool) -> Score:
    """The criterion of a setting.

    Parameters
    ----------
    judged : Judged
    truth : Tensor [s]
    criterion : str
    rows : int
        Of the support; sums over it are estimated from the sample.
    likelihood : bool
        Whether losses are negative log-likelihoods and not squares.
    """
    silent = judged.loss.isnan()
    loss = judged.loss.where(~silent, _fallback(truth, likelihood)) if silent.any() else judged.loss
    each, count = loss, len(loss)
    value = float(loss.mean())
    if criterion in INFORMATION:
        value, each = _information(loss, judged.leverage, criterion, rows, likelihood)
    # of a sample without replacement: nothing is uncertain when it is all there is
    error = float(each.std()) * math.sqrt((1 if criterion in MEANS else 1 - count / rows) / count)
    return Score(value, error, float(judged.effective.mean()), int(silent.sum()))


def _fallback(truth: Tensor, likelihood: bool) -> Tensor:
    if truth.is_floating_point():
        square = (truth - truth.mean()).square()
        return (
            (square / square.mean() + square.mean().log() + math.log(2 * math.pi)) / 2
            if likelihood
            else square
        )
    shares = torch.bincount(truth).to(torch.float64) / len(truth)
    return shares[truth].log().neg()


def _information(
    loss: Tensor, leverage: Tensor, criterion: str, rows: int, likelihood: bool
) -> tuple[float, Tensor]:
    """A criterion of information, and the derivative that each row of the sample has a share in, for its
    standard error.
    """
    mean, trace = loss.mean().requires_grad_(), leverage.mean().requires_grad_()
    total = _charged(mean, trace * rows, criterion, rows, likelihood)
    by_mean, by_trace = torch.autograd.grad(total, [mean, trace])
    return float(total.detach()), by_mean * loss + by_trace * leverage


def _charged(mean: Tensor, trace: Tensor, criterion: str, n: int, likelihood: bool) -> Tensor:
    # Hurvich, Simonoff and Tsai, 1998, for squares; Nakaya and others, 2005, for likelihoods
    if criterion == "gcv":
        return n * n * mean / (n - trace).square()
    twice = 2 * n * mean if likelihood else n * (mean.log() + math.log(2 * math.pi) + 1)
    parameters = trace if likelihood else trace + 1  # a variance is one more
    if criterion == "bic":
        return twice + math.log(n) * parameters
    if criterion == "aic":
        return twice + 2 * parameters
    if likelihood:
        return twice + 2 * trace + 2 * trace * (trace + 1) / (n - trace - 1)
    free = n - trace - 2
    return twice + 2 * n * parameters / free if free > 0 else twice + trace * torch.inf


def golden(
    function: Callable[[float], float], low: float, high: float, whole: bool, tolerance: float = 1e-6
) -> float:
    """Where a function of one hollow is smallest in [low, high], by golden section.

    Parameters
    ----------
    function : callable
        Asked at each place once.
    low, high : float
    whole : bool
        Whether only whole numbers are asked for.
    tolerance : float
        It ends where the values at both inner places differ by no more.

    References
    ----------
    Fotheringham, Brunsdon, Charlton, *Geographically Weighted Regression*, Wiley 2002, page 212.
    """
    known: dict[float, float] = {}

    def at(place: float) -> float:
        if place not in known:
            known[place] = function(place)
        return known[place]

    left, right = low + RATIO * (high - low), high - RATIO * (high - low)
    for _ in range(200):
        left, right = (float(round(left)), float(round(right))) if whole else (left, right)
        one, other = at(left), at(right)
        if one <= other:
            high, right = right, left
            left = low + RATIO * (high - low)
        else:
            low, left = left, right
            right = high - RATIO * (high - low)
        if not abs(one - other) > tolerance:
            break
    return min(known, key=known.__getitem__)
