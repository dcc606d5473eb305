"""The shape of the neighborhood: the plane that it lies along, and the query as a mean of its neighbors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.estimates import estimates
from locdist.local.models import Fit, LinearSmoother, LocalModel, answered, flagged, penalty, valued
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import design, offsets, smooth

ALIKE = 1e-6  # entries of an axis that are as large as the largest but for this


@dataclass(frozen=True)
class Tangent(LocalModel):
    """Local principal components: the plane through the weighted mean of the neighbors that is nearest to
    them.

    With the mean mu = sum_j w_j x_j and the axes V, the leading eigenvectors of the weighted covariance
    sum_j w_j (x_j - mu)(x_j - mu)', that is the right singular vectors of sqrt(w) (X - mu), the values are

        coordinates V'(x - mu),   variances (the eigenvalues),   projection mu + V V'(x - mu)

    An axis has the sign that makes its largest entry
    positive (of several the first). Where the neighbors spread over fewer dimensions the missing axes are 0,
    and the status is RANK_DEFICIENT.

    Parameters
    ----------
    components : int
        Dimensions of the plane, at least 1 and at most those of the features.

    Raises
    ------
    UsageError
        If it is no such number.
    """

    components: int = 1
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})
    places: ClassVar[bool] = True

    def __post_init__(self) -> None:
        count: object = self.components  # whatever users passed
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError("components, a whole number of at least 1", repr(count), "2 is a plane.")

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        each = range(1, self.components + 1)
        axes = [f"{name}_{number}" for name in ("coordinate", "variance") for number in each]
        return (*axes, *(f"projection_{name}" for name in features))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.features is not None
        assert hood.query_features is not None
        system = design(hood.features, hood.query_features, weights)
        if self.components > system.mean.shape[1]:
            given = f"{self.components} of {system.mean.shape[1]} features"
            raise UsageError("at most as many components as features", given, "Ask for fewer.")
        lost = ~system.rows.isfinite().all(2).all(1)
        rows = (weights.sqrt()[:, :, None] * system.rows).masked_fill(lost[:, None, None], 0.0)
        axes, variances = self._axes(rows)
        away = -torch.bmm(system.mean[:, None], axes)  # of the query from the mean, along the axes
        on_plane = hood.query_features.double() + system.mean + torch.bmm(away, axes.mT)[:, 0]
        values = torch.cat([away[:, 0], variances, on_plane], 1)
        values = values.masked_fill(lost[:, None], float("nan"))
        flat = flagged((variances == 0).any(1) & ~lost, Status.RANK_DEFICIENT)
        return valued(answered(values, weights, flat, hood, weights, want))

    def _axes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # [q, m, r] and [q, r]; of the smaller of X'X and XX'
        count, (k, m) = self.components, rows.shape[1:]
        wide = m > k
        squares, vectors = torch.linalg.eigh(torch.bmm(rows, rows.mT) if wide else torch.bmm(rows.mT, rows))
        squares, vectors = squares.flip(1), vectors.flip(2)
        squares = squares.masked_fill(squares <= squares[:, :1] * (k + m) * torch.finfo(rows.dtype).eps, 0.0)
        if wide:
            vectors = torch.bmm(rows.mT, vectors) / squares.sqrt()[:, None].masked_fill(
                squares[:, None] == 0, 1.0
            )
            missing = max(0, count - k)
            squares, vectors = (torch.nn.functional.pad(part, (0, missing)) for part in (squares, vectors))
        squares, vectors = squares[:, :count], vectors[:, :, :count]
        sizes = vectors.abs()
        first = (sizes >= sizes.amax(1, keepdim=True) * (1 - ALIKE)).to(torch.int8).argmax(1, keepdim=True)
        vectors = vectors * vectors.gather(1, first).sign()
        return vectors.masked_fill(squares[:, None] == 0, 0.0), squares


@dataclass(frozen=True)
class Barycenter(LinearSmoother):
    """The query as a mean of its neighbors, the weights of locally linear embedding.

    The rows s minimise |x - sum_j s_j x_j|^2 + R sum_j s_j^2 / (k w_j) with sum_j s_j = 1, where
    R = reg k sum_j w_j |x_j - x|^2 (Roweis and Saul, Nonlinear Dimensionality Reduction by Locally Linear
    Embedding, Science 290, 2000). With equal weights that is (C + reg tr(C) I) s = 1, scaled to sum to one,
    C_ij the inner product of x_i - x and x_j - x. They do not depend on where the neighborhood lies, how it
    is turned, and how large it is.

    Parameters
    ----------
    reg : float
        > 0, relative to the trace.
    """

    reg: float = 1e-3
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "features"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "reg", penalty(self.reg))
        if self.reg == 0:
            raise UsageError("a positive reg", "0", "1e-3 is usual; less follows the query more closely.")

    def fit(self, hood: Neighborhood, weights: Tensor, targets: Tensor | None = None) -> Fit:
        assert hood.features is not None
        assert hood.query_features is not None
        near = offsets(hood.features, hood.query_features, weights == 0)
        size = (weights * near.square().sum(2)).sum(1).sqrt()[:, None, None]
        near = near / size.masked_fill(size == 0, 1.0)
        here = near.new_zeros(near.shape[0], near.shape[2])
        if targets is None:
            return Fit(smooth(near, here, weights, self.reg))
        system = design(near, here, weights)
        return Fit(estimates(system, targets, self.reg), system, 0)


@dataclass(frozen=True)
class OfFeatures(LocalModel):
    """A model whose targets are the features themselves: of a local mean the self-local mean, of a barycenter
    the reconstruction of the query. It needs no other target.
    """

    model: LocalModel
    name: str = "mean"
    places: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return self.model.needs - {"targets"} | {"features"}

    @property
    def tells(self) -> frozenset[str]:
        return self.model.tells - {"coefficients", "spread"}  # a point has no standard error of its own

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{self.name}_{feature}" for feature in features)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.features is not None
        return self.model.predict(replace(hood, targets=hood.features.double()), weights, want)
