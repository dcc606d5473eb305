"""Local models against independent peers, and the mathematical cases of public bug reports (C..)."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from statsmodels.api import OLS, WLS, add_constant
from statsmodels.nonparametric.kernel_regression import KernelReg
from torch import Tensor

from locdist.local.answers import WANTS, Answers, Status
from locdist.local.kernels import Nearest, kernel
from locdist.local.layer import Layer
from locdist.local.models import Constant, Linear, LocalModel
from locdist.local.quantile import Vote
from locdist.local.solve import design, solve
from tests.laws.brute import Brute, column

Array = NDArray[np.float64]


def data(n: int, d: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Keys [n, d], targets [n], 25 queries [25, d]."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(n, d))
    return keys, np.sin(keys[:, 0]) + 0.1 * rng.normal(size=n), rng.normal(size=(25, d))


def ask(
    layer: Layer, keys: Array, targets: Array, queries: Array, want: frozenset[str] = frozenset()
) -> Answers:
    return layer(Brute(torch.as_tensor(keys), column(targets)), torch.as_tensor(queries), want=want)


def close(ours: Tensor, theirs: object, tolerance: float) -> None:
    torch.testing.assert_close(
        ours, torch.as_tensor(theirs, dtype=torch.float64), rtol=tolerance, atol=tolerance
    )


def test_knn_mean() -> None:
    keys, targets, queries = data(80, 3)
    ours = ask(Layer(7, kernel("uniform"), Constant()), keys, targets, queries).values[:, 0]
    close(ours, KNeighborsRegressor(7).fit(keys, targets).predict(queries), 1e-12)


@pytest.mark.parametrize("k", [1, 4, 6])
def test_knn_vote_with_string_labels_and_ties(k: int) -> None:
    keys, _, queries = data(80, 2)
    labels = np.array(["pear", "apple", "fig", "an unusually long name"])[np.arange(80) % 4]
    names, codes = np.unique(labels, return_inverse=True)
    index = Brute(torch.as_tensor(keys), column(codes, torch.int64), classes=len(names))
    values = Layer(k, kernel("uniform"), Vote())(index, torch.as_tensor(queries)).values
    peer = KNeighborsClassifier(k).fit(keys, labels)
    close(values, peer.predict_proba(queries), 1e-12)
    assert names[values.argmax(1).numpy()].tolist() == peer.predict(queries).tolist()


@pytest.mark.parametrize("reg_type, model, tolerance", [("lc", Constant(), 1e-10), ("ll", Linear(), 1e-8)])
def test_kernel_regression(reg_type: str, model: LocalModel, tolerance: float) -> None:
    keys, targets, queries = data(70, 2)
    answers = ask(Layer(70, kernel("gaussian", 0.8), model), keys, targets, queries, WANTS)
    rng = np.random.default_rng(0)
    mean, slopes = KernelReg(targets, keys, "cc", reg_type=reg_type, bw=[0.8, 0.8], rng=rng).fit(queries)
    close(answers.values[:, 0], mean, tolerance)
    assert answers.coefficients is not None
    if reg_type == "ll":
        close(answers.coefficients[:, 1:, 0], slopes, tolerance)


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 2.0])
@pytest.mark.parametrize("k, d", [(30, 3), (12, 20)])
def test_ridge_with_sample_weights(alpha: float, k: int, d: int) -> None:
    keys, targets, queries = data(60, d)
    answers = ask(Layer(k, kernel("gaussian", 3.0), Linear(alpha)), keys, targets, queries, WANTS)
    assert answers.ids is not None
    assert answers.weights is not None
    assert answers.coefficients is not None
    if alpha == 0 and d > k:
        assert (answers.status == Status.RANK_DEFICIENT).all()
        return
    assert (answers.status == Status.OK).all()
    for query, ids, weights, ours in zip(
        queries, answers.ids.numpy(), answers.weights.numpy(), answers.coefficients, strict=True
    ):
        peer = Ridge(alpha, solver="svd").fit(keys[ids], targets[ids], sample_weight=weights)
        close(ours[:, 0], np.r_[peer.predict(query[None]), peer.coef_], 1e-10)


def random_system(k: int, m: int, q: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k * m)
    features, queries = (
        torch.randn(q, k, m, generator=generator).double(),
        torch.randn(q, m, generator=generator).double(),
    )
    weights = torch.rand(q, k, generator=generator).double()
    weights[:, 0] = 0.0
    return features, queries, weights / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("ridge", [1e-4, 1.0])
def test_primal_and_dual_agree(ridge: float) -> None:
    features, queries, weights = random_system(12, 11)
    narrow = solve(design(features, queries, weights), ridge, True)
    wide = [
        torch.nn.functional.pad(tensor, (0, 5)) for tensor in (features, queries)
    ]  # columns of zeros change nothing
    dual = solve(design(*wide, weights), ridge, True)
    torch.testing.assert_close(narrow.smoother, dual.smoother, rtol=1e-9, atol=1e-11)
    assert narrow.operator is not None
    assert dual.operator is not None
    torch.testing.assert_close(narrow.operator, dual.operator[:, :11], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", ["wide", "repeated rows", "collinear", "few weights", "far and flat"])
def test_minimum_norm_equals_lstsq(shape: str) -> None:
    k, m = (10, 25) if shape in ("wide", "repeated rows") else (30, 5)
    features, queries, weights = random_system(k, m)
    if shape == "repeated rows":
        features[:, 4:8] = features[:, 3:4]
    if shape == "collinear":
        features[:, :, 4] = features[:, :, 0] - 2 * features[:, :, 1]
    if shape == "few weights":
        weights[:, 4:] = 0.0
        weights /= weights.sum(1, keepdim=True)
    if shape == "far and flat":
        features[:, :, 2], queries[:, 2] = 1e6, 1e6 + 0.1
    solution = solve(design(features, queries, weights), 0.0, True)
    assert solution.deficient.all()
    assert solution.operator is not None
    targets = features[:, :, 0].sin() + features[:, :, 1]
    ours = (solution.smoother * targets).sum(1)
    slopes = torch.bmm(solution.operator, targets[:, :, None])[:, :, 0]
    centred = features - queries[:, None]
    for x, w, y, value, slope in zip(centred, weights, targets, ours, slopes, strict=True):
        root, mean, height = w.sqrt()[:, None], w @ x, w @ y
        system = (root * torch.cat([x - mean, (y - height)[:, None]], 1)).numpy()
        peer = np.linalg.lstsq(system[:, :-1], system[:, -1], rcond=1e-10)[0]
        close(slope, peer, 1e-8)
        close(value, height - mean @ torch.as_tensor(peer), 1e-8)


def test_standard_errors_of_equal_weights() -> None:
    keys, targets, queries = data(40, 3)
    for model, names in ((Linear(), 4), (Constant(), 1)):
        answers = ask(Layer(40, kernel("uniform"), model), keys, targets, queries, WANTS)
        assert answers.errors is not None
        assert answers.spread is not None
        for query, errors, spread in zip(queries, answers.errors, answers.spread, strict=True):
            peer = OLS(targets, add_constant(keys - query)[:, :names]).fit()
            close(errors[:, 0], peer.bse, 1e-9)
            close(spread[0], peer.bse[0], 1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_standard_errors_of_unequal_weights(ridge: float) -> None:
    # explicit matrices: E sum w e^2 = sigma2 tr(W (I - H)(I - H)') for the hat matrix H of the fit
    keys, targets, queries = data(40, 3)
    answers = ask(Layer(20, kernel("tricube"), Linear(ridge)), keys, targets, queries, WANTS)
    assert answers.ids is not None
    assert answers.weights is not None
    assert answers.errors is not None
    for query, ids, w, ours in zip(
        queries, answers.ids.numpy(), answers.weights.numpy(), answers.errors, strict=True
    ):
        x, y = add_constant(keys[ids] - query), targets[ids]
        operator = np.linalg.solve(x.T @ (w[:, None] * x) + ridge * np.diag([0, 1, 1, 1]), x.T * w)
        rest = np.eye(20) - x @ operator
        sigma2 = w @ (rest @ y) ** 2 / np.trace(w[:, None] * rest @ rest.T)
        close(ours[:, 0], np.sqrt(sigma2 * (operator**2).sum(1)), 1e-9)
        if ridge == 0:
            peer = WLS(y, x, weights=w).fit()
            close(torch.as_tensor(operator @ y), peer.params, 1e-9)


def test_hat_matrix_of_geographically_weighted_regression() -> None:
    rng = np.random.default_rng(3)
    places, features = (
        rng.uniform(0, 100, size=(159, 2)),
        rng.normal(size=(159, 4)) * [1, 50, 0.1, 7] + [10, 500, 1, 0],
    )
    index = Brute(torch.as_tensor(places), column(rng.normal(size=159)), torch.as_tensor(features))
    layer = Layer(121, kernel("bisquare", Nearest(1.0000001)), Linear())
    answers = layer(index, index.keys, index.features, want=WANTS)
    assert answers.smoother is not None
    own = answers.ids == torch.arange(159)[:, None]
    trace = 0.0
    for place, at in zip(places, features, strict=True):
        distance = np.sqrt(((places - place) ** 2).sum(1))
        u = distance / (np.sort(distance)[120] * 1.0000001)
        root = np.where(u < 1, 1 - u**2, 0)  # the square root of the weights
        scaled = add_constant((features - at) / features.std(0)) * root[:, None]
        q, r = np.linalg.qr(scaled)
        row = np.linalg.solve(r, (q * root[:, None]).T)[0]
        trace += row[distance == 0].sum()
    assert (answers.smoother * own).sum().item() == pytest.approx(trace, rel=1e-11)


def test_c60_collinear_neighbors() -> None:
    keys, targets = np.array([[1.0, 1], [2, 2], [3, 3]]), np.array([1.0, 2, 3])
    answers = ask(Layer(3, kernel("uniform"), Linear()), keys, targets, np.zeros((1, 2)), WANTS)
    assert answers.smoother is not None
    close(answers.smoother.sum(), 1.0, 1e-12)
    close(answers.values[:, 0], [0.0], 1e-9)
    assert answers.status.item() == Status.RANK_DEFICIENT
    same = ask(Layer(3, kernel("gaussian"), Linear()), np.zeros((3, 2)), targets, np.zeros((1, 2)), WANTS)
    assert same.smoother is not None
    close(same.smoother[0], [1 / 3] * 3, 1e-12)


def test_c62_ties_in_x_and_a_far_query() -> None:
    rng = np.random.default_rng(0)
    x = np.repeat([1.0, 2.0, 3.0], 20)
    y = x + 0.1 * rng.normal(size=60)
    answers = ask(Layer(12, kernel("tricube"), Linear()), x[:, None], y, np.array([[1.0], [2.0], [3.0]]))
    close(answers.values[:, 0], [y[start : start + 12].mean() for start in (0, 20, 40)], 1e-12)
    t = np.linspace(0, 1, 20)
    far = ask(Layer(20, kernel("gaussian", 0.05), Linear()), t[:, None], t, np.array([[50.0]]))
    assert far.status.item() >= Status.LOW_SUPPORT
    assert far.values.item() == pytest.approx(1.0)
    compact = ask(Layer(20, kernel("tricube", 0.05), Linear()), t[:, None], t, np.array([[50.0]]))
    assert compact.status.item() == Status.EMPTY
    assert compact.values.isnan().all()
