"""The local solves against 60 digits where they are nearly singular, and where LAPACK gives up."""

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.local.answers import WANTS, Status
from locdist.local.models import Linear
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import design, smooth, solve

Array = NDArray[np.float64]


def systems(k: int, m: int, q: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features [q, k, m], those of the queries [q, m], weights [q, k]."""
    generator = torch.Generator().manual_seed(k * m)
    features = torch.randn(q, k, m, generator=generator, dtype=torch.float64)
    queries = torch.randn(q, m, generator=generator, dtype=torch.float64)
    weights = torch.rand(q, k, generator=generator, dtype=torch.float64) + 0.01
    return features, queries, weights / weights.sum(1, keepdim=True)


def near(ours: Tensor, theirs: Array) -> None:
    size = np.abs(theirs).max()
    np.testing.assert_allclose(ours.numpy() / size, theirs / size, rtol=0, atol=1e-9)


def exact(features: Tensor, query: Tensor, weights: Tensor, ridge: float) -> tuple[Array, Array]:
    """Smoother [k] and operator [m, k] of one query by 60 digits: normal equations, or kriging if m >= k."""
    k, m = features.shape
    with mpmath.workdps(60):
        x = mpmath.matrix(features.tolist()) - mpmath.ones(k, 1) * mpmath.matrix(query.tolist()).T
        one, w = mpmath.ones(k, 1), mpmath.diag(weights.tolist()) / mpmath.fsum(weights.tolist())
        if m < k:
            z = mpmath.matrix(k, m + 1)
            z[:, 0], z[:, 1:] = one, x
            penalty = mpmath.diag([0] + [ridge] * m)
            inverse = (z.T * w * z + penalty) ** -1 * z.T * w
            rows = np.array(inverse.tolist(), dtype=float)
            return rows[0], rows[1:]
        saddle = mpmath.zeros(k + 1)
        saddle[:k, :k], saddle[:k, k], saddle[k, :k] = x * x.T + ridge * w**-1, one, one.T
        inverse = saddle**-1
        slopes = x.T * inverse[:k, :k]
        row = np.array(inverse[k, :k].tolist(), dtype=float)[0]
        return row, np.array(slopes.tolist(), dtype=float)


def nearly(shape: str, size: float, k: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """Systems that are singular but for `size`; "far": the query is 1 / size away."""
    features, queries, weights = systems(k, m, 3)
    if shape == "far":
        queries /= size
    if shape == "collinear":
        for x in (features, queries):
            x[..., 2] = x[..., 0] - 2 * x[..., 1] + size * x[..., 2]
    if shape == "twin rows":
        features[:, 3] = features[:, 2] + size * features[:, 3]
    if shape == "flat":
        for x in (features, queries):
            x[..., 3:] *= size
    return features, queries, weights


CASES = [
    ("collinear", 12, 3, 0.0, 3e-6),
    ("collinear", 12, 3, 1e-12, 3e-6),
    ("far", 12, 3, 0.0, 3e-6),
    ("far", 6, 8, 0.0, 3e-6),
    ("far", 6, 8, 1e-3, 3e-6),
    ("twin rows", 6, 8, 0.0, 1e-5),  # closer ones suffer from the rounding of the centred features
    ("twin rows", 6, 8, 1e-12, 1e-5),
    ("flat", 6, 8, 0.0, 3e-6),
]
SIZES = [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 3e-6]


@pytest.mark.parametrize(
    "shape, k, m, ridge, size",
    [(*case, size) for *case, smallest in CASES for size in SIZES if size >= smallest],
)
def test_nearly_singular_systems_are_good_to_nine_digits(
    shape: str, k: int, m: int, ridge: float, size: float
) -> None:
    system = nearly(shape, size, k, m)
    quick, full = smooth(*system, ridge), solve(design(*system), ridge, True)
    assert full.operator is not None
    for features, query, weights, one, other, operator in zip(
        *system, quick.smoother, full.smoother, full.operator, strict=True
    ):
        row, slopes = exact(features, query, weights, ridge)
        near(one, row)
        near(other, row)
        near(operator, slopes)


def test_exact_twins_beside_others_have_slopes() -> None:
    features, queries, weights = systems(6, 8, 5)
    alone = solve(design(features, queries, weights), 0.0, True)
    features[2, 3] = features[2, 4]
    solution = solve(design(features, queries, weights), 0.0, True)
    assert solution.operator is not None
    assert alone.operator is not None
    assert solution.operator.isfinite().all()
    others = torch.tensor([0, 1, 3, 4])
    assert solution.operator[others].equal(alone.operator[others])


def test_one_decomposition_that_does_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    features, queries, weights = systems(12, 3, 6)
    features[:4, :, 2] = features[:4, :, 1]  # the first four need a decomposition
    blank = torch.zeros(6, 12)
    hood = Neighborhood(
        blank, blank.long(), features=features, query_features=queries, targets=features[:, :, :1].sin()
    )
    expected = Linear().predict(hood, weights, WANTS)
    svd, asked = torch.linalg.svd, []

    def stubborn(matrix: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
        asked.append(len(matrix))
        if len(asked) in (1, 3):  # all four, then the second alone
            raise torch.linalg.LinAlgError("linalg.svd: the algorithm failed to converge")
        return tuple(svd(matrix, full_matrices=full_matrices))

    monkeypatch.setattr(torch.linalg, "svd", stubborn)
    answers = Linear().predict(hood, weights, WANTS)
    assert asked == [4, 1, 1, 1, 1]
    deficient, ok = Status.RANK_DEFICIENT, Status.OK
    assert expected.status.tolist() == [deficient] * 4 + [ok] * 2
    assert answers.status.tolist() == [deficient, Status.NOT_FINITE, deficient, deficient, ok, ok]
    assert answers.values[1].isnan().all()
    others = torch.tensor([0, 2, 3, 4, 5])
    torch.testing.assert_close(answers.values[others], expected.values[others], rtol=1e-12, atol=1e-12)
