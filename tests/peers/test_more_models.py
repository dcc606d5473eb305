"""Polynomials, Gaussian processes, kernel ridge, generalized linear models: against peers, query by query."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.kernel_ridge import KernelRidge as PeerRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import PolynomialFeatures

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import WANTS, Answers, Status
from locdist.local.gp import GaussianProcess, KernelRidge
from locdist.local.kernels import kernel
from locdist.local.layer import Layer
from locdist.local.likeness import Likeness
from locdist.local.models import Linear, Polynomial
from locdist.methods.method import Method
from locdist.methods.named import METHODS, method
from tests.laws.brute import Brute, column

Array = NDArray[np.float64]
_RNG = np.random.default_rng(0)
N, D = 150, 3
X = _RNG.normal(size=(N, D))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(8, D))
ETA = 0.5 + X @ [0.8, -0.5, 0.2] + 0.3 * np.sin(2 * X[:, 0])


def ask(chosen: Method, targets: object) -> Answers:
    return chosen(ld.Exact(X, targets), Q, want=WANTS)


def close(ours: object, theirs: object, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def each(answers: Answers):
    """For each query: itself, its neighbors, their weights."""
    assert (answers.status == Status.OK).all()
    return zip(Q, answers.ids.numpy(), answers.weights.numpy(), strict=True)


# --------------------------------------------------------------------------- polynomials


@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("degree, cross", [(1, True), (2, True), (2, False), (3, True), (3, False)])
def test_polynomials_are_weighted_ridge_regression_on_centred_monomials(degree, cross, ridge):
    answers = ask(ld.local_polynomial(80, "gaussian", 2.0, degree, cross, ridge), Y)
    for row, (query, ids, weights) in enumerate(each(answers)):
        near = X[ids] - query
        if cross:
            terms = PolynomialFeatures(degree, include_bias=False).fit_transform(near)
        else:
            terms = np.hstack([near**power for power in range(1, degree + 1)])
        peer = Ridge(ridge, solver="svd").fit(terms, Y[ids], sample_weight=weights)
        close(answers.coefficients[row, :, 0], [peer.intercept_, *peer.coef_[:D]])
        close(answers.values[row, 0], peer.intercept_)


def test_standard_errors_of_a_quadric_with_equal_weights():
    answers = ask(ld.local_polynomial(60, "uniform"), Y)
    for row, (query, ids, _) in enumerate(each(answers)):
        peer = sm.OLS(Y[ids], PolynomialFeatures(2).fit_transform(X[ids] - query)).fit()
        close(answers.errors[row, :, 0], peer.bse[: 1 + D])
        close(answers.spread[row, 0], peer.bse[0])


def test_quadrics_reproduce_quadrics_with_their_gradients():
    bend = np.array([[1.0, 0.5, 0.0], [0.5, -2.0, 0.3], [0.0, 0.3, 0.1]])
    targets = 2 + X @ [1, 2, 3] + np.einsum("ni,ij,nj->n", X, bend, X)
    answers = ask(ld.local_polynomial(60), targets)
    close(answers.values[:, 0], 2 + Q @ [1, 2, 3] + np.einsum("ni,ij,nj->n", Q, bend, Q))
    close(answers.coefficients[:, 1:, 0], [1, 2, 3] + 2 * Q @ bend)


def test_a_polynomial_of_degree_one_is_linear_and_too_few_neighbors_are_told():
    index = Brute(torch.as_tensor(X), column(Y))
    for ridge in (0.0, 0.1):
        one, other = (Layer(40, kernel("tricube"), m) for m in (Polynomial(1, ridge=ridge), Linear(ridge)))
        close(one(index, torch.as_tensor(Q)).values, other(index, torch.as_tensor(Q)).values)
    few = Layer(7, kernel("uniform"), Polynomial())(index, torch.as_tensor(Q))
    assert (few.status == Status.RANK_DEFICIENT).all()
    assert few.values.isfinite().all()


# --------------------------------------------------------------------------- Gaussian processes

SCALES = (1.5, 0.7, 3.0)
PEERS = {
    "rbf": RBF(SCALES),
    "matern12": Matern(SCALES, nu=0.5),
    "matern32": Matern(SCALES, nu=1.5),
    "matern52": Matern(SCALES, nu=2.5),
}


@pytest.mark.parametrize("name", PEERS)
def test_a_gaussian_process_on_the_neighbors(name):
    answers = ask(ld.local_gp(40, "uniform", None, name, SCALES, 0.05, "zero", 2.0), Y)
    for row, (query, ids, _) in enumerate(each(answers)):
        peer = GaussianProcessRegressor(ConstantKernel(2.0) * PEERS[name], alpha=0.1, optimizer=None)
        mean, spread = peer.fit(X[ids], Y[ids]).predict(query[None], return_std=True)
        close(answers.values[row, 0], mean[0])
        close(answers.spread[row, 0], spread[0])


def test_weights_scale_the_noise():
    answers = ask(ld.local_gp(40, "gaussian", 1.5, "matern32", SCALES, 0.05, "zero", 2.0), Y)
    for row, (query, ids, weights) in enumerate(each(answers)):
        noise = 0.1 * weights.max() / weights
        peer = GaussianProcessRegressor(ConstantKernel(2.0) * PEERS["matern32"], alpha=noise, optimizer=None)
        mean, spread = peer.fit(X[ids], Y[ids]).predict(query[None], return_std=True)
        close(answers.values[row, 0], mean[0])
        close(answers.spread[row, 0], spread[0])


def test_ordinary_kriging_solves_the_bordered_system():
    answers = ask(ld.local_gp(30, covariance="matern52", scales=SCALES, nugget=0.02), Y)
    for row, (query, ids, _) in enumerate(each(answers)):
        covariance = PEERS["matern52"](X[ids]) + 0.02 * np.eye(30)
        cross = PEERS["matern52"](X[ids], query[None])[:, 0]
        ones = np.ones(30)
        bordered = np.block([[covariance, ones[:, None]], [ones[None], np.zeros((1, 1))]])
        solved = np.linalg.solve(bordered, [*cross, 1.0])
        close(answers.smoother[row], solved[:30])
        close(answers.values[row, 0], solved[:30] @ Y[ids])
        inverse = np.linalg.inv(covariance)
        rest = Y[ids] - (ones @ inverse @ Y[ids]) / (ones @ inverse @ ones)
        variance = rest @ inverse @ rest / 29
        close(answers.spread[row, 0] ** 2, variance * (1 - solved @ [*cross, 1.0]))


def test_rows_without_a_nugget_are_interpolated_and_equal_rows_averaged():
    exact = ld.local_gp(20, nugget=0.0)
    answers = exact(ld.Exact(X, Y), X[:9], want=WANTS)
    close(answers.values[:, 0], Y[:9])
    close(answers.spread[:, 0], np.zeros(9), 1e-6)
    keys, targets = np.array([[0.0], [0.0], [1.0]]), np.array([1.0, 3.0, 7.0])
    twice = ld.local_gp(3, nugget=0.0)(ld.Exact(keys, targets), np.array([[0.0], [1.0]]))
    assert twice.status.tolist() == [Status.RANK_DEFICIENT] * 2
    close(twice.values[:, 0], [2.0, 7.0], 1e-6)


def test_row_weights_are_repetitions_of_noisy_rows():
    times = np.random.default_rng(1).integers(1, 4, N)
    few = ld.local_gp(N, "gaussian", 2.0)(ld.Exact(X, Y, weights=times), Q)
    many = ld.local_gp(int(times.sum()), "gaussian", 2.0)
    close(few.values, many(ld.Exact(X.repeat(times, axis=0), Y.repeat(times)), Q).values)


# --------------------------------------------------------------------------- kernel ridge


@pytest.mark.parametrize("ridge", [1e-3, 0.5])
def test_kernel_ridge_with_sample_weights(ridge):
    answers = ask(ld.kernel_ridge(40, "gaussian", 1.5, scales=2.0, ridge=ridge), Y)
    for row, (query, ids, weights) in enumerate(each(answers)):
        peer = PeerRidge(alpha=ridge, kernel="rbf", gamma=1 / 8).fit(X[ids], Y[ids], sample_weight=weights)
        close(answers.values[row, 0], peer.predict(query[None])[0])
        close(answers.smoother[row].numpy() @ Y[ids], peer.predict(query[None])[0])


def test_the_spread_of_kernel_ridge_is_that_of_its_hat_matrix():
    answers = ask(ld.kernel_ridge(25, "tricube", scales=2.0, ridge=0.1), Y)
    for row, (_, ids, w) in enumerate(each(answers)):
        inside = w > 0
        ids, w = ids[inside], w[inside]
        covariance = RBF(2.0)(X[ids])
        rest = np.eye(len(ids)) - covariance @ np.linalg.inv(covariance + np.diag(0.1 / w))
        sigma2 = w @ (rest @ Y[ids]) ** 2 / np.trace(w[:, None] * rest @ rest.T)
        close(answers.spread[row, 0], np.sqrt(sigma2 * (answers.smoother[row].numpy() ** 2).sum()))


def test_heavy_ridge_makes_kernel_ridge_a_local_mean():
    """THEORY B1: the ratio of the fits of y and of 1 tends to the mean weighted by covariance and kernel."""
    both = np.column_stack([Y, np.ones(N)])
    answers = ask(ld.kernel_ridge(N, "uniform", scales=1.0, ridge=1e7), both)
    mean = ask(ld.local_mean(N, "gaussian", 1.0), Y)
    close(answers.values[:, 0] / answers.values[:, 1], mean.values[:, 0], 1e-5)


# --------------------------------------------------------------------------- generalized linear models

COUNTS = _RNG.poisson(np.exp(ETA)).astype(float)
AMOUNTS = _RNG.gamma(2.0, np.exp(ETA) / 2)
FAMILIES = {
    "local-poisson": (sm.families.Poisson(), COUNTS),
    "local-gamma": (sm.families.Gamma(sm.families.links.Log()), AMOUNTS),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_counts_and_amounts_with_weights(name):
    family, targets = FAMILIES[name]
    answers = ask(method(name, {"k": 80, "kernel": "gaussian", "bandwidth": 2.0}), targets)
    for row, (query, ids, weights) in enumerate(each(answers)):
        design = sm.add_constant(X[ids] - query)
        model = sm.GLM(targets[ids], design, family=family, freq_weights=weights)
        peer = model.fit(tol=1e-13, tol_criterion="params", maxiter=200)
        close(answers.coefficients[row, :, 0], peer.params)
        close(answers.values[row, 0], np.exp(peer.params[0]))


@pytest.mark.parametrize("name", FAMILIES)
def test_standard_errors_with_equal_weights(name):
    family, targets = FAMILIES[name]
    answers = ask(method(name, {"k": 80, "kernel": "uniform"}), targets)
    for row, (query, ids, _) in enumerate(each(answers)):
        model = sm.GLM(targets[ids], sm.add_constant(X[ids] - query), family=family)
        peer = model.fit(tol=1e-13, tol_criterion="params", maxiter=200)
        close(answers.errors[row, :, 0], peer.bse)
        close(answers.spread[row, 0], peer.bse[0] * peer.mu.dtype.type(np.exp(peer.params[0])))


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_two_classes(ridge):
    labels = np.where(_RNG.random(N) < 1 / (1 + np.exp(-ETA)), "yes", "no")
    answers = ask(ld.local_logistic(80, "gaussian", 2.0, ridge), labels)
    for row, (query, ids, weights) in enumerate(each(answers)):
        peer = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=1000, solver="newton-cholesky")
        peer.fit(X[ids], labels[ids], sample_weight=weights)
        close(answers.values[row], peer.predict_proba(query[None])[0])
        close(answers.coefficients[row, 1:, 1], peer.coef_[0])


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_more_classes(ridge):
    best = (X @ _RNG.normal(size=(D, 4)) + _RNG.gumbel(size=(N, 4))).argmax(axis=1)
    labels = np.array(["a", "b", "c", "d"])[best]
    answers = ask(ld.local_logistic(90, "gaussian", 2.0, ridge), labels)
    for row, (query, ids, weights) in enumerate(each(answers)):
        peer = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=1000, solver="newton-cholesky")
        peer.fit(X[ids], labels[ids], sample_weight=weights)
        close(answers.values[row], peer.predict_proba(query[None])[0], 1e-7)
        close(answers.coefficients[row, 1:].T, peer.coef_, 1e-6)


def test_standard_errors_of_classes():
    share = 1 / (1 + np.exp(-ETA))
    two = (_RNG.random(N) < share).astype(int)
    answers = ask(ld.local_logistic(90, "uniform", ridge=0.0), two)
    for row, (query, ids, _) in enumerate(each(answers)):
        peer = sm.Logit(two[ids], sm.add_constant(X[ids] - query)).fit(disp=0, method="newton", tol=1e-14)
        close(answers.errors[row, :, 1], peer.bse)
        chance = answers.values[row, 1].item()
        close(answers.spread[row], [chance * (1 - chance) * peer.bse[0]] * 2)
    three = (X @ _RNG.normal(size=(D, 3)) + _RNG.gumbel(size=(N, 3))).argmax(1)
    answers = ask(ld.local_logistic(110, "uniform", ridge=0.0), three)
    for row, (query, ids, _) in enumerate(each(answers)):
        peer = sm.MNLogit(three[ids], sm.add_constant(X[ids] - query)).fit(disp=0, method="newton", tol=1e-14)
        chances = answers.values[row].numpy()
        close(chances, peer.predict(np.eye(1, 1 + D))[0], 1e-7)
        rise = (np.diag(chances) - np.outer(chances, chances))[:, 1:]
        values = np.asarray(peer.cov_params())[:: 1 + D, :: 1 + D]  # of the constants of classes 1 and 2
        close(answers.spread[row], np.sqrt(np.diag(rise @ values @ rise.T)), 1e-6)


def test_neighbors_of_one_class_are_certain_and_separable_ones_are_told():
    keys = np.linspace(-1, 1, 40)[:, None]
    for labels, expected in ((np.zeros(40, int), [1.0]), ((keys[:, 0] > 2 / 3).astype(int), [1.0, 0.0])):
        answers = ld.local_logistic(20, ridge=0.0)(ld.Exact(keys, labels), [[-0.9]], want=WANTS)
        assert answers.values.tolist() == [expected]
        assert answers.status.tolist() == [Status.OK]
        assert answers.spread.tolist() == [[0.0] * len(expected)]
    apart = ld.Exact(keys, (keys[:, 0] > 0).astype(int))
    told = ld.local_logistic(40, ridge=0.0)(apart, [[0.5]])
    assert told.status.tolist() == [Status.NOT_CONVERGED]
    assert told.values[0, 1] > 0.999
    assert ld.local_logistic(40)(apart, [[0.5]]).status.tolist() == [Status.OK]


def test_no_counts_are_zero_and_impossible_targets_are_told():
    keys = np.linspace(-1, 1, 40)[:, None]
    none = ld.local_poisson(20)(ld.Exact(keys, np.zeros(40)), [[0.0]])
    assert (none.values.item(), none.status.item()) == (0.0, Status.OK)
    wrong = np.ones(40)
    wrong[0] = -1.0
    for make in (ld.local_poisson, ld.local_gamma):
        answers = make(10)(ld.Exact(keys, wrong), [[-1.0], [1.0]])
        assert answers.status.tolist() == [Status.NOT_FINITE, Status.OK]


# --------------------------------------------------------------------------- choices


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_made_again_from_its_spec(name):
    made = method(name, {"k": 12})
    assert method(made.spec) == made


def test_wrong_choices_are_refused():
    with pytest.raises(UsageError, match="degree of at least 1"):
        ld.local_polynomial(degree=0)
    with pytest.raises(UsageError, match="Did you mean 'matern52'"):
        ld.local_gp(covariance="matern50")
    for scales in (0.0, [1.0, -1.0], [], "1"):
        with pytest.raises(UsageError, match="length scales"):
            ld.local_gp(scales=scales)
    with pytest.raises(UsageError, match="3 length scales"):
        ask(ld.local_gp(scales=[1.0, 2.0]), Y)
    with pytest.raises(UsageError, match="mean of"):
        GaussianProcess(mean="linear")
    with pytest.raises(UsageError, match="positive variance"):
        GaussianProcess(variance=0.0)
    with pytest.raises(UsageError, match="ridge"):
        KernelRidge(Likeness(), -1.0)
    with pytest.raises(UsageError, match="ridge"):
        ld.local_logistic(ridge=-1.0)
