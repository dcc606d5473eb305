"""Minima of many small problems at once: Newton's method for few parameters, L-BFGS for more.

All queries take their steps together, and one that has settled stays as it is: the others in its tile do not
change its answer.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

NEWTON = 32  # most parameters whose second derivatives are taken
STEPS, LONG_STEPS = 100, 500  # of Newton, and of L-BFGS
EXACT = 1e-14  # decrease still to be had, relative to the loss, after which a last step of Newton is exact
CLOSE = 1e-12  # the same of L-BFGS, whose steps do not square what is left
SHORT = 1e-5  # a step, relative to the parameters: those that run away to infinity gain little, in long steps
FLAT = 1e-10  # curvature, relative to the largest, of a direction that is not determined
HISTORY = 10
HALVINGS = 40
ENOUGH = 1e-4  # share of the decrease that a line promises


class Objective(ABC):
    """One number to minimise for each query, smooth in its parameters."""

    @abstractmethod
    def loss(self, theta: Tensor) -> Tensor:
        """[q] at parameters [q, c]."""

    @abstractmethod
    def gradient(self, theta: Tensor) -> Tensor:
        """[q, c]."""

    @abstractmethod
    def hessian(self, theta: Tensor) -> Tensor:
        """[q, c, c]."""


@dataclass(frozen=True)
class Minimum:
    """Where the iteration ended.

    Attributes
    ----------
    theta : Tensor [q, c]
    settled : Tensor [q] bool
    flat : Tensor [q] bool
        Where a direction of the parameters changes nothing, as far as second derivatives tell.
    """

    theta: Tensor
    settled: Tensor
    flat: Tensor


def minimum(objective: Objective, start: Tensor) -> Minimum:
    """A minimum of every query from parameters [q, c]; where the loss is not finite it stays there."""
    return (newton if start.shape[1] <= NEWTON else lbfgs)(objective, start)


def newton(objective: Objective, start: Tensor) -> Minimum:
    """Newton's method with the absolute values of curvatures, damped as Levenberg and Marquardt do.

    A step that goes uphill is not taken, and the next one is shorter and steeper.
    """
    theta, loss = start, objective.loss(start)
    scale, damping = loss.abs(), torch.zeros_like(loss)
    settled = flat = torch.zeros_like(loss, dtype=torch.bool)
    lost = ~loss.isfinite()
    for _ in range(STEPS):
        curves, slopes, axes, bad = _directions(objective, theta)
        lost = lost | bad
        largest, steepest = curves.amax(1), slopes.abs().amax(1)
        damping = torch.where((largest == 0) & (damping == 0), steepest, damping)
        open_ = ~(settled | lost)
        flat = torch.where(open_, curves.amin(1) <= FLAT * largest, flat)
        bent = curves.clamp(min=torch.finfo(curves.dtype).tiny).maximum(FLAT * largest[:, None])
        near = (slopes.square() / bent).sum(1) <= EXACT * (scale + loss.abs())
        near = near & _is_short(slopes / bent, theta)
        length = slopes / (bent + damping[:, None] * ~near[:, None])
        new = theta - torch.bmm(axes, length[:, :, None])[:, :, 0]
        less = objective.loss(new)
        taken = open_ & (less <= loss + 1e-12 * (1 + loss.abs()))
        settled = settled | (open_ & near)
        theta, loss = torch.where(taken[:, None], new, theta), torch.where(taken, less, loss)
        if (settled | lost).all():
            break
        shorter = (10 * damping).maximum(1e-3 * largest).maximum(1e-3 * steepest)
        longer = (damping / 10).where(damping > FLAT * largest, 0.0)
        damping = torch.where(taken, longer, shorter)
    return Minimum(theta, settled, flat)


def _is_short(step: Tensor, theta: Tensor) -> Tensor:
    return step.abs().amax(1) <= SHORT * (1 + theta.abs().amax(1))


def _directions(objective: Objective, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # absolute curvatures and slopes along the axes [q, c], the axes [q, c, c], and where there are none [q]
    gradient, hessian = objective.gradient(theta), objective.hessian(theta)
    bad = ~(gradient.isfinite().all(1) & hessian.isfinite().all(2).all(1))
    hessian = hessian.masked_fill(bad[:, None, None], 0.0)
    curves, axes = torch.linalg.eigh((hessian + hessian.mT) / 2)
    slopes = torch.bmm(axes.mT, gradient.masked_fill(bad[:, None], 0.0)[:, :, None])[:, :, 0]
    return curves.abs(), slopes, axes, bad


@dataclass(frozen=True)
class Pair:
    """A step that was taken, the change of the gradient along it, both [q, c], and 1 over their product [q];
    0 where there was no step, or no curvature along it.
    """

    step: Tensor
    change: Tensor
    inverse: Tensor

    @staticmethod
    def of(step: Tensor, change: Tensor) -> "Pair":
        """Of a step and the change of the gradient."""
        bend = (step * change).sum(1)
        kept = bend > torch.finfo(step.dtype).eps * change.square().sum(1)
        return Pair(step, change, bend.reciprocal().where(kept, 0.0))


def lbfgs(objective: Objective, start: Tensor) -> Minimum:
    """L-BFGS (Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.5) with halved steps."""
    theta, loss, gradient = start, objective.loss(start), objective.gradient(start)
    scale, size = loss.abs(), 1 / (1 + gradient.square().sum(1).sqrt())
    ended = ~(loss.isfinite() & gradient.isfinite().all(1))
    settled = torch.zeros_like(ended)
    pairs: list[Pair] = []
    for _ in range(LONG_STEPS):
        step = _step(gradient, pairs, size).masked_fill(ended[:, None], 0.0)
        promise = (step * gradient).sum(1).masked_fill(ended, 0.0)
        close = (promise.abs() <= CLOSE * (scale + loss.abs())) & _is_short(step, theta)
        settled = settled | (close & ~ended)
        ended = ended | settled
        if ended.all():
            break
        new, less, taken = _along(objective, theta, step, loss, promise)
        ended = ended | ~taken  # where no part of a step leads down there is nothing to be had
        step = (new - theta).masked_fill(ended[:, None], 0.0)
        theta, loss = theta + step, torch.where(ended, loss, less)
        after = torch.where(ended[:, None], gradient, objective.gradient(theta))
        pair = Pair.of(step, after - gradient)
        size = torch.where(pair.inverse > 0, 1 / (pair.inverse * pair.change.square().sum(1)), size)
        pairs, gradient = [*pairs[1 - HISTORY :], pair], after
    return Minimum(theta, settled, torch.zeros_like(ended))


def _step(gradient: Tensor, pairs: list[Pair], size: Tensor) -> Tensor:
    # two loops over what is remembered: minus an approximate inverse of the Hessian times the gradient
    rest, shares = gradient, []
    for pair in reversed(pairs):
        share = pair.inverse * (pair.step * rest).sum(1)
        shares.append(share)
        rest = rest - share[:, None] * pair.change
    rest = rest * size[:, None]
    for pair, share in zip(pairs, reversed(shares), strict=True):
        back = pair.inverse * (pair.change * rest).sum(1)
        rest = rest + (share - back)[:, None] * pair.step
    return -rest


def _along(
    objective: Objective, theta: Tensor, step: Tensor, loss: Tensor, promise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    # the first of ever shorter steps that keeps some of its promise, its loss, and whether there is one
    share = torch.ones_like(loss)
    for _ in range(HALVINGS):
        new = theta + share[:, None] * step
        less = objective.loss(new)
        kept = less <= loss + ENOUGH * share * promise
        if kept.all():
            break
        share = torch.where(kept, share, share / 2)
    return new, less, kept
