"""What models read off the sums over all rows of a support: k=None.

`summed` knows the models that sums suffice for, and learns others: register a function of the model, the sums
and what is wanted.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.density import Density
from locdist.local.fuzzy import Affine, slopes_of
from locdist.local.models import (
    FREE,
    Constant,
    Linear,
    LocalModel,
    Polynomial,
    flagged,
    standard_error,
    valued,
    with_errors,
)
from locdist.local.moments import Batch, Sums, regression
from locdist.local.quantile import Variance, Vote
from locdist.local.tangent import OfFeatures


@singledispatch
def summed(model: LocalModel, found: Sums, want: frozenset[str]) -> Answers:
    """Answers of a model from sums over all the support."""
    raise UsageError(
        "a model of sums for k=None: " + ", ".join(sorted(names())),
        type(model).__name__,
        "Choose how many neighbors count.",
    )


def names() -> set[str]:
    """The classes of models that sums suffice for."""
    return {known.__name__ for known in summed.registry if known not in (object, LocalModel)}


def is_summable(model: LocalModel) -> bool:
    """Whether sums suffice for a model."""
    if isinstance(model, OfFeatures):
        return is_summable(model.model)
    return summed.dispatch(type(model)) is not summed.dispatch(LocalModel)


def targeted(model: LocalModel, batch: Batch) -> Batch:
    """Rows with the targets that a model has of them."""
    if isinstance(model, Affine):
        assert batch.targets is not None
        assert batch.shapes is not None
        slopes = slopes_of(batch.shapes, batch.targets.shape[1], batch.keys.shape[1])
        return replace(batch, targets=torch.cat([batch.targets.double(), slopes.flatten(1)], 1))
    return replace(batch, targets=batch.features_or_keys) if isinstance(model, OfFeatures) else batch


def terms_of(model: LocalModel) -> Callable[[Tensor], Tensor] | None:
    """The terms [q, t, n] of a model besides the constant, of features [q, m, n] less those of the query."""
    if isinstance(model, OfFeatures):
        return terms_of(model.model)
    if isinstance(model, Polynomial):
        return lambda near: model.terms(near.mT).mT
    return (lambda near: near) if isinstance(model, Linear | Affine) else None


@summed.register
def _(model: Constant, found: Sums, want: frozenset[str]) -> Answers:
    return _regressed(found, 0.0, want)


@summed.register
def _(model: Linear, found: Sums, want: frozenset[str]) -> Answers:
    return _regressed(found, model.ridge, want)


@summed.register
def _(model: Affine, found: Sums, want: frozenset[str]) -> Answers:
    # targets are heights [p] and slopes [p d], of which `origin` was taken; the terms are 1 and c - x [d]
    d = found.features
    p = found.targets.shape[2] // (1 + d)
    sums = (found.targets + found.products[:, :, :1] * found.origin) / found.mass[:, None, None]
    slopes = sums[:, 1:, p:].reshape(-1, d, p, d).diagonal(dim1=1, dim2=3)
    values, lost = sums[:, 0, :p] - slopes.sum(2), torch.zeros_like(found.peak, dtype=torch.bool)
    return valued(_told(found, values, lost, _effective(found), want))


@summed.register
def _(model: Polynomial, found: Sums, want: frozenset[str]) -> Answers:
    return _regressed(found, model.ridge, want, found.features)


@summed.register
def _(model: Vote, found: Sums, want: frozenset[str]) -> Answers:
    fit = regression(found, 0.0)
    chances = fit.value.clamp(0.0, 1.0)
    answers = _told(found, chances, fit.deficient, fit.effective, want)
    if fit.effective is not None:
        square = fit.effective.reciprocal()[:, None]
        spread = standard_error(chances * (1 - chances), 1 - square, square)
        answers = with_errors(answers, chances[:, None], spread[:, None], want)
    return valued(answers)


@summed.register
def _(model: OfFeatures, found: Sums, want: frozenset[str]) -> Answers:
    return summed(model.model, found, want)


@summed.register
def _(model: Variance, found: Sums, want: frozenset[str]) -> Answers:
    fit = regression(found, 0.0)
    assert fit.variance is not None
    assert fit.freedom is not None
    freedom = fit.freedom[:, None] if model.unbiased else torch.ones_like(fit.variance[:, :1])
    lost = freedom <= FREE
    variance = fit.variance / freedom.masked_fill(lost, float("nan"))
    answers = _told(found, fit.value, flagged(lost[:, 0], Status.RANK_DEFICIENT), fit.effective, want)
    return valued(replace(answers, values=torch.cat([fit.value, variance], 1)))


@summed.register
def _(model: Density, found: Sums, want: frozenset[str]) -> Answers:
    assert found.volume is not None
    values = (found.total - found.volume - found.support.log())[:, None]
    fit = regression(found, 0.0)
    answers = _told(found, values if model.log else values.exp(), fit.deficient, fit.effective, want)
    if not model.log:  # nobody is an answer here
        empty = answers.status == int(Status.EMPTY)
        answers = replace(answers, status=answers.status.masked_fill(empty, int(Status.OK)))
    return valued(answers)


def _regressed(found: Sums, ridge: float, want: frozenset[str], slopes: int | None = None) -> Answers:
    fit = regression(found, ridge)
    answers = _told(found, fit.value, fit.deficient, fit.effective, want)
    if fit.squares is not None and fit.variance is not None and fit.freedom is not None:
        errors = standard_error(fit.variance[:, None], fit.freedom[:, None, None], fit.squares[:, :, None])
        coefficients = torch.cat([fit.value[:, None], fit.slopes], 1)
        told = None if slopes is None else 1 + slopes
        answers = with_errors(answers, coefficients[:, :told], errors[:, :told], want)
    return valued(answers)


def _effective(found: Sums) -> Tensor | None:
    """Kish's number of rows [q], where squares of weights were summed."""
    return None if found.doubled is None else found.mass.square() / found.doubled[:, 0, 0]


def _told(
    found: Sums, values: Tensor, deficient: Tensor, effective: Tensor | None, want: frozenset[str]
) -> Answers:
    status = flagged(deficient, Status.RANK_DEFICIENT)
    status = status.masked_fill(~values.isfinite().all(1), int(Status.NOT_FINITE))
    status = status.masked_fill(found.peak.isneginf(), int(Status.EMPTY))
    answers = Answers(values, status)
    if "effective" in want and effective is not None:
        answers = replace(answers, effective=effective.masked_fill(found.peak.isneginf(), 0.0))
    return answers
