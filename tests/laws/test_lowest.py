"""The k smallest of each row are those of a stable sort: many rows, ties, and distances that only their last
bits tell apart.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locdist.search.lowest import LANE, lowest


def rows(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "ties":
        return rng.integers(0, 5, (6, n)).astype(float)
    if kind == "last bits":  # neighboring numbers, in any order
        return (np.ones((6, n)).view(np.int64) + rng.permuted(np.tile(np.arange(n), (6, 1)), axis=1)).view(
            float
        )
    if kind == "extreme":
        return rng.choice([0.0, 5e-324, 1e-300, 1.0, 1e300, np.inf], (6, n))
    return rng.random((6, n))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["random", "ties", "last bits", "extreme"]), st.integers(1, 3 * LANE + 5),
    st.floats(0, 1), st.integers(0, 99),
)  # fmt: skip
def test_the_smallest_of_a_stable_sort(kind: str, n: int, share: float, seed: int):
    distances = rows(kind, n, seed)
    kept = distances.copy()
    k = 1 + int(share * (n - 1))
    near, places = lowest(distances, k)
    order = np.argsort(kept, axis=1, kind="stable")[:, :k]
    assert np.array_equal(places, order)
    assert np.array_equal(near, np.take_along_axis(kept, order, 1))
    assert np.array_equal(distances, kept)


@pytest.mark.parametrize("k", [1, LANE - 1, LANE, LANE + 1, 3 * LANE])
def test_lanes_that_are_full(k: int):
    distances = rows("random", 3 * LANE, 0)
    assert np.array_equal(lowest(distances, k)[1], np.argsort(distances, axis=1)[:, :k])
