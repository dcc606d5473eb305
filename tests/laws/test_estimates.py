"""Slopes and their errors from small matrices are those of the operator, and their limits are left to it."""

import pytest
import torch
from torch import Tensor

from locdist.local.estimates import _operated, estimates
from locdist.local.solve import Design, design

Q, K = 40, 30


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def system(m: int, spoil: str = "") -> Design:
    features, weights = normal(Q, K, m), normal(Q, K, seed=1).square()
    if spoil == "near":  # some queries' columns are almost the same
        features[::3, :, 1] = features[::3, :, 0] + 1e-3 * normal(Q, K, seed=2)[::3]
    if spoil == "same":
        features[::3, :, 1] = features[::3, :, 0]
    if spoil == "constant":
        features[::3, :, 1] = 7.0
    if spoil == "absent":
        weights[:, 5:] = 0
    if spoil == "tight":  # four neighbors decide, and next to no freedom is left
        weights[:, 4:] *= 1e-8
    if spoil == "scales":
        features *= torch.tensor([1e-120, 1e120, 1.0], dtype=torch.float64)[:m]
    return design(features, normal(Q, m, seed=3) * features[:, 0], weights / weights.sum(1, keepdim=True))


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("spoil", ["", "near", "same", "constant", "absent", "tight", "scales"])
def test_estimates_are_those_of_the_operator(spoil: str, ridge: float) -> None:
    parts, targets = system(3, spoil), normal(Q, K, 2, seed=4)
    found, expected = estimates(parts, targets, ridge), _operated(parts, targets, ridge)
    assert found.deficient.equal(expected.deficient)
    for name in ("smoother", "slopes", "norms", "freedom"):
        one, other = getattr(found, name), getattr(expected, name)
        size = other.abs().amax(tuple(range(1, other.ndim)), keepdim=True)
        one, other = (part / size.clamp(min=1e-300) for part in (one, other))
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_more_columns_than_neighbors_are_left_to_the_operator() -> None:
    features, weights = normal(Q, 4, 6), torch.full((Q, 4), 0.25, dtype=torch.float64)
    parts, targets = design(features, normal(Q, 6, seed=5), weights), normal(Q, 4, 1, seed=6)
    found, expected = estimates(parts, targets, 0.3), _operated(parts, targets, 0.3)
    assert found.slopes.equal(expected.slopes)
    assert found.norms.equal(expected.norms)
