"""Boosting of a linear smoother: what it misses is smoothed again, and added."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.kernels import Kernel, weigh
from locdist.local.levels import surroundings
from locdist.local.models import (
    LinearSmoother,
    LocalModel,
    answered,
    flagged,
    known_targets,
    standard_error,
    valued,
    weighted_sums,
    with_errors,
)
from locdist.local.neighborhood import Neighborhood

_ENTRIES = 1 << 22  # numbers of the neighbors of neighbors that are held at once


@dataclass(frozen=True)
class Boosted(LocalModel):
    """L2 boosting of a linear smoother on the neighborhood (Buhlmann and Yu, Boosting with the L2 Loss, JASA
    98, 2003); one round is twicing (Tukey, Exploratory Data Analysis, 1977).

    With s the rows of the smoother at the query and S [k, k] those at its neighbors, among themselves, the
    residuals after t rounds are (I - S)^(t + 1) y, and the value is

        s (I + (I - S) + ... + (I - S)^rounds) y

    So it has less bias and more variance with every round, and where the eigenvalues of I - S are inside of
    the unit circle it ends in an interpolation of the neighbors. It stays linear in the targets: the rows
    are its own smoother, and the spread is that of a linear smoother, with the variance of the residuals at
    the neighbors over sum_j w_j sum_l M_jl^2, M = (I - S)^(rounds + 1).

    Parameters
    ----------
    model : LinearSmoother
    kernel : Kernel
        Of the smoother, around the query and around each neighbor.
    rounds : int
        At least 0; 0 is the smoother itself.
    """

    model: LinearSmoother
    kernel: Kernel
    rounds: int = 1
    traced: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rounds: object = self.rounds  # whatever users passed
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
            raise UsageError("rounds, a whole number of at least 0", repr(rounds), "1 is twicing.")

    @property
    def needs(self) -> frozenset[str]:
        return self.model.needs | self.kernel.needs | {"keys"}

    def columns(self, k: int, m: int) -> int:
        return k  # for each of them a system

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        targets = known_targets(hood, weights)
        rows, deficient = self.model.smoother(hood, weights)
        inner, rest = self._inner(hood, weights), rows
        for _ in range(self.rounds):
            rest = rest - torch.bmm(rest[:, None], inner)[:, 0]
            rows = rows + rest
        values = weighted_sums(rows, targets)
        answers = answered(values, rows, flagged(deficient, Status.RANK_DEFICIENT), hood, weights, want)
        if want & {"spread", "coefficients"}:
            errors = self._errors(inner, rows, targets, weights)[:, None]
            answers = with_errors(answers, values[:, None], errors, want)
        return valued(answers)

    def _inner(self, hood: Neighborhood, weights: Tensor) -> Tensor:
        # S [q, k, k], 0 from and to absent neighbors; a few queries at a time
        width = 1 if hood.features is None else 1 + hood.features.shape[2]
        most = max(1, _ENTRIES // (hood.ids.shape[1] ** 2 * width))
        parts = [self._part(hood.rows(slice(at, at + most))) for at in range(0, len(weights), most)]
        absent = weights == 0
        return torch.cat(parts).masked_fill_(absent[:, :, None] | absent[:, None], 0.0)

    def _part(self, hood: Neighborhood) -> Tensor:
        around = surroundings(self.kernel, hood)
        rows, _ = self.model.smoother(around, weigh(self.kernel, around).weights)
        return rows.reshape(*hood.ids.shape, -1)

    def _errors(self, inner: Tensor, rows: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        left = torch.eye(inner.shape[1], dtype=inner.dtype, device=inner.device) - inner
        misses = torch.linalg.matrix_power(left, self.rounds + 1)
        variance = weighted_sums(weights, torch.bmm(misses, targets).square())
        freedom = (weights * misses.square().sum(2)).sum(1, keepdim=True)
        return standard_error(variance, freedom, rows.square().sum(1, keepdim=True))
