"""Several kernels at once: weights on the simplex against SLSQP, and the mixture as a kernel."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import locdist as ld
from locdist.errors import UsageError
from locdist.jobs.chosen import read_method
from locdist.local.simplex import minimum, projected
from locdist.methods.named import method

_RNG = np.random.default_rng(0)
N = 150
X = _RNG.normal(size=(N, 3))
Y = np.sin(2 * X[:, 0]) + 0.2 * X[:, 1] + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(9, 3))
WIDTHS = (0.25, 0.5, 1.0, 2.5)
KERNELS = [{"kernel": "gaussian", "bandwidth": width} for width in WIDTHS]


def hollow(h: float) -> np.ndarray:
    """Leave-one-out residuals of the local mean with a Gaussian of width h."""
    weights = np.exp(-np.square(X[:, None] - X).sum(2) / (2 * h * h))
    np.fill_diagonal(weights, 0)
    return weights @ Y / weights.sum(1) - Y


def slsqp(gram: np.ndarray) -> float:
    """The smallest w'Aw on the simplex."""
    start, sums = np.full(len(gram), 1 / len(gram)), {"type": "eq", "fun": lambda w: w.sum() - 1}
    found = minimize(lambda w: w @ gram @ w, start, jac=lambda w: 2 * gram @ w, bounds=[(0, 1)] * len(gram),
                     constraints=sums, method="SLSQP", options={"ftol": 1e-14})  # fmt: skip
    return float(found.fun)


def test_weights_of_kernels_are_those_of_slsqp():
    """The identity of the theory: hollow kernels, the Gram matrix of residuals, the exact projection."""
    residuals = np.array([hollow(width) for width in WIDTHS])
    gram = residuals @ residuals.T / N
    mixed = ld.mix_kernels(KERNELS, ld.Exact(X, Y), k=N - 1, sample=N)
    shares = np.array([each["weight"] for each in mixed.kernels])
    np.testing.assert_allclose([each["error"] for each in mixed.kernels], gram.diagonal(), rtol=1e-10)
    np.testing.assert_allclose(shares @ gram @ shares, slsqp(gram), rtol=1e-9)
    np.testing.assert_allclose(mixed.error, slsqp(gram), rtol=1e-9)
    assert mixed.error <= gram.diagonal().min()
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 2**31))
def test_quadratic_forms_are_minimised_on_the_simplex(count: int, rank: int, seed: int):
    rows = np.random.default_rng(seed).normal(size=(count, rank))
    gram = rows @ rows.T
    shares = minimum(torch.from_numpy(gram)).numpy()
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert shares @ gram @ shares <= slsqp(gram) + 1e-9 * gram.diagonal().max()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9))
def test_the_projection_is_the_nearest_point_of_the_simplex(values: list[float]):
    point = torch.tensor(values, dtype=torch.float64)
    near = projected(point)
    assert float(near.sum()) == pytest.approx(1)
    assert float(near.min()) >= 0
    # the way back is normal to the simplex: the same for all that are positive, and less for the others
    back = point - near
    level = back[near > 0]
    assert float(level.max() - level.min()) < 1e-12
    assert float(back.max()) <= float(level.max()) + 1e-12


def test_the_local_mean_with_a_mixture_is_the_mean_of_local_means():
    mixed = ld.mix_kernels([*KERNELS, "tricube"], ld.Exact(X, Y), k=60)
    index = ld.Exact(X, Y)
    alone = [
        each["weight"] * ld.local_mean(60, each["kernel"], each["bandwidth"])(index, Q).values
        for each in mixed.kernels
        if each["weight"] > 0
    ]
    torch.testing.assert_close(mixed.method(index, Q).values, sum(alone), rtol=1e-9, atol=1e-12)
    weighted = ld.Exact(X, Y, weights=_RNG.integers(0, 3, N))
    alone = [
        each["weight"] * ld.local_mean(60, each["kernel"], each["bandwidth"])(weighted, Q).values
        for each in mixed.kernels
        if each["weight"] > 0
    ]
    torch.testing.assert_close(mixed.method(weighted, Q).values, sum(alone), rtol=1e-9, atol=1e-12)


def test_a_mixture_is_a_method_a_file_and_a_table(tmp_path):
    support = ld.dataset(pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y}), key=["a", "b"], target="y")
    mixed = ld.mix_kernels([*KERNELS, "tricube"], support, k=40)
    assert method(mixed.method.spec) == mixed.method
    mixed.write(tmp_path / "mixed.json")
    assert read_method(tmp_path / "mixed.json") == mixed.method
    assert mixed.table.column_names == ["weight", "kernel", "bandwidth", "error"]
    assert str(mixed).count("\n") == 5
    told = ld.transform(mixed.method, support, tmp_path / "out").diagnostics
    assert told.sigma2 == pytest.approx(mixed.error, rel=1e-9)


@pytest.mark.parametrize(
    "kernels, said",
    [
        ([], "a list of kernels"),
        ("tricube", "a list of kernels"),
        (["tricub"], "Did you mean 'tricube'"),
        (["dot-product"], "kernels of a distance"),
    ],
)
def test_kernels_that_cannot_be_mixed_are_refused(kernels: object, said: str):
    with pytest.raises(UsageError, match=said):
        ld.mix_kernels(kernels, ld.Exact(X, Y), k=20)


def test_a_mixture_without_weight_is_refused():
    with pytest.raises(UsageError, match="not all 0"):
        ld.local_mean(9, {"mixture": [{"weight": 0.0, "kernel": "tricube"}]})
    with pytest.raises(UsageError, match="the name of a kernel"):
        ld.local_mean(9, {"mixture": [{"share": 1.0}]})
