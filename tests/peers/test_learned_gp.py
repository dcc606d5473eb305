"""The Gaussian process that `tune` learns, against a dense posterior and scikit-learn, query by query."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import WANTS, Status

_RNG = np.random.default_rng(5)
N, D, K = 160, 3, 40
X, Q = _RNG.normal(size=(N, D)), _RNG.normal(size=(7, D))
Y = 20 + 3 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * _RNG.normal(size=N)
SHARE, RATIO, CONSTANT, LINEAR, NUGGET, VARIANCE, MEAN = 0.3, 0.4, 1.7, 0.2, 0.05, 2.5, 19.0
SCALES = (1.5, 0.7, 3.0)
GP = {
    "k": K, "covariance": "mix", "share": SHARE, "ratio": RATIO, "constant": CONSTANT, "linear": LINEAR,
    "nugget": NUGGET, "variance": VARIANCE, "mean": MEAN, "scales": SCALES,
}  # fmt: skip


def close(ours: object, theirs: object, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def ask(**changed: object) -> ld.Answers:
    return ld.local_gp(**(GP | changed))(ld.Exact(X, Y), Q, want=WANTS)


def each(answers: ld.Answers):
    assert (answers.status == Status.OK).all()
    return enumerate(zip(Q, answers.ids.numpy(), strict=True))


def covariance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of points relative to the query, in length scales."""
    away = np.linalg.norm(one[:, None] - other[None], axis=2)
    smooth = np.sqrt(3) * RATIO * away
    stationary = SHARE * np.exp(-away) + (1 - SHARE) * (1 + smooth) * np.exp(-smooth)
    return VARIANCE * (stationary + CONSTANT + LINEAR * one @ other.T)


@pytest.mark.parametrize("predictive", [False, True])
def test_the_posterior_is_that_of_dense_matrices(predictive):
    answers = ask(predictive=predictive)
    noise = VARIANCE * NUGGET
    for row, (query, ids) in each(answers):
        near, here = (X[ids] - query) / SCALES, np.zeros((1, D))
        inverse = np.linalg.inv(covariance(near, near) + noise * np.eye(K))
        cross = covariance(near, here)[:, 0]
        smoother = cross @ inverse
        close(answers.smoother[row], smoother)
        close(answers.values[row, 0], MEAN + smoother @ (Y[ids] - MEAN))
        left = covariance(here, here)[0, 0] - smoother @ cross + predictive * noise
        close(answers.spread[row, 0] ** 2, left)


def test_scikit_learn_with_the_same_kernel():
    smooth = [scale / RATIO for scale in SCALES]
    stationary = ConstantKernel(SHARE) * Matern(SCALES, nu=0.5) + ConstantKernel(1 - SHARE) * Matern(
        smooth, nu=1.5
    )
    answers = ask(scales=1.0, ratio=1.0)
    one = ConstantKernel(SHARE) * Matern(1.0, nu=0.5) + ConstantKernel(1 - SHARE) * Matern(1.0, nu=1.5)
    for scales, kernel, told in (((1.0,) * D, one, answers), (SCALES, stationary, ask(linear=0.0))):
        linear = LINEAR if told is answers else 0.0
        for row, (query, ids) in each(told):
            whole = kernel + ConstantKernel(CONSTANT)
            if linear:
                whole = whole + ConstantKernel(linear) * DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
            whole = ConstantKernel(VARIANCE) * whole
            peer = GaussianProcessRegressor(whole, alpha=VARIANCE * NUGGET, optimizer=None)
            peer.fit(X[ids] - query, Y[ids] - MEAN)
            mean, spread = peer.predict(np.zeros((1, D)), return_std=True)
            close(told.values[row, 0], MEAN + mean[0])
            close(told.spread[row, 0], spread[0])
        assert len(scales) == D


def test_an_adaptive_variance_is_that_of_the_targets_in_each_neighborhood():
    fixed, own = ask(), ask(variance=None)
    for row, (query, ids) in each(own):
        near = (X[ids] - query) / SCALES
        inverse = np.linalg.inv(covariance(near, near) / VARIANCE + NUGGET * np.eye(K))
        rest = Y[ids] - MEAN
        ratio = rest @ inverse @ rest / K / VARIANCE
        close(own.spread[row, 0] ** 2, ratio * fixed.spread[row, 0] ** 2)
    both = ask(variance=0.5 * VARIANCE, adaptive=0.3)
    close(both.spread**2, 0.5 * fixed.spread**2 + 0.3 * own.spread**2)
    close(ask(variance=0.0, adaptive=2.0).spread ** 2, 2 * own.spread**2)


def test_a_vague_constant_is_ordinary_kriging_and_vague_slopes_reproduce_planes():
    plain = {"covariance": "matern32", "scales": 1.0, "nugget": 0.1, "linear": 0.0}
    vague = ask(**plain, constant=1e7)
    ordinary = ask(**plain, constant=0.0, mean="constant")
    close(vague.values, ordinary.values, 1e-5)
    close(vague.spread, ordinary.spread, 1e-5)
    plane = 5 + X @ [1.0, -2.0, 0.5]
    answers = ld.local_gp(**(GP | {"linear": 1e7, "constant": 1e7}))(ld.Exact(X, plane), Q)
    close(answers.values[:, 0], 5 + Q @ [1.0, -2.0, 0.5], 1e-4)


def test_the_mix_has_its_parts_as_limits():
    for share, name in ((1.0, "matern12"), (0.0, "matern32")):
        close(ask(share=share, ratio=1.0).values, ask(covariance=name).values)


def test_wrong_numbers_are_refused():
    for wrong, told in (
        ({"share": 1.5}, "share from 0 to 1"),
        ({"ratio": 0.0}, "positive ratio"),
        ({"mean": "linear"}, "mean of"),
        ({"mean": float("nan")}, "mean of"),
        ({"mean": True}, "mean of"),
        ({"variance": 0.0}, "positive variance"),
        ({"adaptive": -1.0}, "positive variance"),
        ({"constant": -1.0}, "0 or more"),
    ):
        with pytest.raises(UsageError, match=told):
            ld.local_gp(**(GP | wrong))
