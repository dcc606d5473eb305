"""Where a new query lies in an embedding: by the coordinates of its neighbors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers, Status
from locdist.local.models import (
    LinearSmoother,
    LocalModel,
    answered,
    flagged,
    known_targets,
    valued,
    weighted_sums,
)
from locdist.local.neighborhood import Neighborhood


@dataclass(frozen=True)
class Landing(LocalModel):
    """The prediction of a linear smoother, axis by axis times a number; a query at the place of rows of the
    support has the mean of their targets as they are.

    With the barycenter of the neighbors that is the extension of locally linear embedding (Saul and Roweis,
    2003); with the local mean, times 1 / eigenvalue of the random walk, the Nystroem extension of a spectral
    embedding (Bengio et al., 2004).

    Parameters
    ----------
    model : LinearSmoother
    scale : tuple of float, optional
        One for each target; 1 by default.
    """

    model: LinearSmoother
    scale: tuple[float, ...] = ()
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})

    @property
    def needs(self) -> frozenset[str]:
        return self.model.needs

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        return tuple(targets)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        targets = known_targets(hood, weights)
        rows, deficient = self.model.smoother(hood, weights)
        scale = torch.tensor(self.scale or (1.0,), dtype=torch.float64)
        at = (hood.distances == 0) & hood.found
        hit = at.any(1, keepdim=True)
        own = at / at.sum(1, keepdim=True).clamp(min=1)
        away = weighted_sums(rows, targets) * scale
        values = torch.where(hit, weighted_sums(own.double(), known_targets(hood, own)), away)
        status = flagged(deficient & ~hit[:, 0], Status.RANK_DEFICIENT)
        counted = torch.where(hit, own, rows)
        return valued(answered(values, counted, status, hood, torch.where(hit, own, weights), want))


def signed(vectors: Tensor) -> Tensor:
    """Columns [n, q] with the sign that makes the largest entry positive, of equally large ones the first."""
    sizes = vectors.abs()
    first = (sizes >= sizes.amax(0) * (1 - 1e-6)).to(torch.int8).argmax(0)
    return vectors * vectors.gather(0, first[None]).sign()
