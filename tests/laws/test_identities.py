"""The identities of the theory that concern what exists: one operation, many names.

Every left side is a method on `ld.Exact` with all n rows as neighbors; every right side is somebody else's
code, or a formula on dense matrices.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    KNeighborsRegressor,
    RadiusNeighborsRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from torch import Tensor

import locdist as ld
from locdist.local.kernels import Gaussian, kernel, weigh
from locdist.methods.method import Method

Array = NDArray[np.float64]
N, D = 120, 3
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, D))
Y = np.sin(X[:, 0]) + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(7, D))
AFFINE = np.array([1.0, -2.0, 0.5])
SMOOTH = ["gaussian", "laplace"]  # everybody counts, so the closed forms need no exceptions
every_smooth = pytest.mark.parametrize("name", SMOOTH)


def gauss(queries: Array, keys: Array, h: float = 1.0) -> Array:
    """Raw Gaussian weights [q, n]."""
    return np.exp(-((queries[:, None] - keys) ** 2).sum(axis=2) / (2 * h * h))


def laplace(queries: Array, keys: Array, h: float = 1.0) -> Array:
    """Raw Laplace weights [q, n]."""
    return np.exp(-np.linalg.norm(queries[:, None] - keys, axis=2) / h)


RAW = {"gaussian": gauss, "laplace": laplace}


def values(
    method: Method, keys: object, targets: object, queries: object, own: object = None, **index: object
) -> Array:
    answers = method(ld.Exact(keys, targets, **index), queries, own=own)
    return answers.values.numpy() if answers.values.shape[1] > 1 else answers.values[:, 0].numpy()


def mean(name: str = "gaussian", h: float = 1.0, k: int = N) -> Method:
    return ld.local_mean(k, name, bandwidth=h)


def linear(name: str = "gaussian", h: float = 1.0, k: int = N, ridge: float = 0.0) -> Method:
    return ld.local_linear(k, name, bandwidth=h, ridge=ridge)


def close(ours: object, theirs: object, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


# --------------------------------------------------------------------------- the localization trick


@every_smooth
def test_local_mean_minimises_the_localized_squared_loss(name: str):
    ours = values(mean(name), X, Y, Q)
    for weights, value in zip(RAW[name](Q, X), ours, strict=True):
        loss = minimize_scalar(lambda t, w=weights: (w * (Y - t) ** 2).sum(), bracket=(-2, 2), tol=1e-12)
        close(value, loss.x, 1e-6)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@every_smooth
def test_local_linear_is_a_global_model_with_sample_weights(name: str, ridge: float):
    peers = []
    for query, weights in zip(Q, RAW[name](Q, X), strict=True):
        peer = Ridge(ridge, solver="cholesky", tol=1e-14) if ridge else LinearRegression()
        peer.fit(X, Y, sample_weight=weights / weights.sum())
        peers.append(peer.predict(query[None])[0])
    close(values(linear(name, ridge=ridge), X, Y, Q), peers)


def test_local_linear_reproduces_affine_functions_and_local_mean_constants():
    close(values(linear(), X, X @ AFFINE + 3, Q), Q @ AFFINE + 3)
    close(values(mean(), X, np.full(N, 7.0), Q), 7.0, 1e-14)


def test_row_weights_are_repetitions():
    times = np.random.default_rng(1).integers(0, 4, N)
    for method in (mean, linear):
        weighted = values(method(), X, Y, Q, weights=times)
        close(weighted, values(method(k=int(times.sum())), X.repeat(times, axis=0), Y.repeat(times), Q))


# --------------------------------------------------------------------------- kernels with other names


def test_a_constant_kernel_is_the_global_model():
    close(values(linear("uniform", 1e6), X, Y, Q), LinearRegression().fit(X, Y).predict(Q))
    close(values(mean("uniform", 1e6), X, Y, Q), Y.mean())


def test_the_kernel_of_the_k_nearest_is_knn():
    close(values(ld.knn(9), X, Y, Q), KNeighborsRegressor(9).fit(X, Y).predict(Q))
    sign = (Y > 0).astype(int)
    peer = KNeighborsClassifier(9).fit(X, sign)
    close(values(ld.local_vote(9, "uniform"), X, sign, Q), peer.predict_proba(Q))


def test_the_flat_kernel_is_radius_neighbors():
    inside = (np.linalg.norm(Q[:, None] - X, axis=2) <= 1.5).any(axis=1)
    assert inside.any()
    ours = values(mean("uniform", 1.5), X, Y, Q)
    close(ours[inside], RadiusNeighborsRegressor(1.5).fit(X, Y).predict(Q[inside]))
    assert np.isnan(ours[~inside]).all()


def leaves(model: object, rows: Array, count: int) -> Array:
    """The leaf of each row as a point [n, leaves]: rows of one leaf are at distance 0, of two at 1.4."""
    return np.eye(count)[model.apply(rows)]


def test_the_leaf_kernel_is_a_decision_tree():
    tree = DecisionTreeRegressor(max_leaf_nodes=9, random_state=0).fit(X, Y)
    nodes = tree.tree_.node_count
    close(values(mean("uniform", 0.5), leaves(tree, X, nodes), Y, leaves(tree, Q, nodes)), tree.predict(Q))
    sign = (Y > 0).astype(int)
    tree = DecisionTreeClassifier(max_leaf_nodes=9, random_state=0).fit(X, sign)
    votes = ld.local_vote(N, "uniform", bandwidth=0.5)
    nodes = tree.tree_.node_count
    close(values(votes, leaves(tree, X, nodes), sign, leaves(tree, Q, nodes)), tree.predict_proba(Q))


def test_the_mean_of_leaf_kernels_is_a_random_forest():
    forest = RandomForestRegressor(20, bootstrap=False, max_features=1, max_leaf_nodes=9, random_state=0)
    forest.fit(X, Y)
    trees = [
        values(mean("uniform", 0.5), leaves(tree, X, nodes), Y, leaves(tree, Q, nodes))
        for tree in forest.estimators_
        if (nodes := tree.tree_.node_count)
    ]
    close(np.mean(trees, axis=0), forest.predict(Q))


@pytest.mark.parametrize("h", [0.5, 1.0, 3.0])
def test_the_normalizer_of_the_gaussian_is_a_density(h: float):
    """Σ K = exp(peak) / (largest normalized weight); over n (2π)^(d/2) h^d it is the kernel density."""
    hood = ld.Exact(X, Y).search(torch.from_numpy(Q), N)
    weights = weigh(Gaussian(h), hood)
    log_sum = (weights.peak - weights.weights.amax(dim=1).log()).numpy()
    close(weights.weights.sum(dim=1), 1.0, 1e-14)
    norm = np.log(N * (2 * np.pi) ** (D / 2) * h**D)
    close(log_sum - norm, KernelDensity(bandwidth=h).fit(X).score_samples(Q))


# --------------------------------------------------------------------------- leave-one-out


@pytest.mark.parametrize("make", [mean, linear], ids=["local-mean", "local-linear"])
@every_smooth
def test_the_hollow_kernel_is_leave_one_out(name: str, make: object):
    """By brute force over n data sets of n − 1 rows, and in closed form: residual / (1 − H_ii)."""
    hollow = values(make(name, k=N - 1), X, Y, X, own=np.arange(N))
    for row in range(0, N, 5):
        rest = np.delete(X, row, 0), np.delete(Y, row)
        close(hollow[row], values(make(name, k=N - 1), *rest, X[row : row + 1])[0])
    answers = make(name)(ld.Exact(X, Y), X, want={"neighbors"})
    diagonal = answers.smoother[answers.ids == torch.arange(N)[:, None]].numpy()
    close((Y - answers.values[:, 0].numpy()) / (1 - diagonal), Y - hollow, 1e-8)


def test_smoother_rows_are_the_equivalent_kernel():
    """Σ s = 1, Σ s x = x (local linear), and the values are linear in the targets."""
    index = ld.Exact(X, Y)
    for method, degree in ((mean(), 0), (linear(), 1)):
        answers = method(index, Q, want={"neighbors"})
        smoother, ids = answers.smoother.numpy(), answers.ids.numpy()
        close(smoother.sum(axis=1), 1.0)
        close((smoother * Y[ids]).sum(axis=1), answers.values[:, 0])
        if degree:
            close(np.einsum("qk,qkd->qd", smoother, X[ids]), Q)


# --------------------------------------------------------------------------- mean shift, denoising


@pytest.mark.parametrize("h", [0.5, 0.7, 2.0])
def test_gaussian_mean_shift_climbs_the_log_density(h: float):
    """m(x) − x = h² ∇ log Σ K, which is Tweedie's formula for the empirical prior."""
    at = torch.tensor(Q, requires_grad=True)
    away = (at[:, None] - torch.from_numpy(X)).square().sum(dim=2)
    torch.logsumexp(-away / (2 * h * h), dim=1).sum().backward()
    close(values(mean(h=h), X, X, Q) - Q, h * h * at.grad.numpy())


def test_flat_mean_shift_climbs_the_epanechnikov_density():
    """m(x) − x = (h²/2) ∇ p_L / p_K: the Epanechnikov kernel is the shadow of the flat one."""
    h = 1.8
    at = torch.tensor(Q, requires_grad=True)
    away = (at[:, None] - torch.from_numpy(X)).square().sum(dim=2) / h**2
    (1 - away).clamp(min=0).sum().backward()
    count = (away < 1).sum(dim=1, keepdim=True).numpy()
    assert (count > 0).all()
    close(values(mean("uniform", h), X, X, Q) - Q, h * h / 2 * at.grad.numpy() / count)


# --------------------------------------------------------------------------- attention


def attention(queries: Array, keys: Array, targets: Array, beta: float, bias: Array | None = None) -> Tensor:
    parts = (torch.from_numpy(part)[None] for part in (queries, keys, targets))
    mask = None if bias is None else torch.from_numpy(bias)
    return torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, scale=beta)[0]


@pytest.mark.parametrize("beta", [0.3, 2.0, 50.0])
def test_softmax_attention_is_a_local_mean(beta: float):
    """And with targets that are the keys, the update of a modern Hopfield network."""
    dot = ld.local_mean(N, "dot-product", bandwidth=1 / beta)
    close(values(dot, X, X, Q, metric="ip"), attention(Q, X, X, beta))
    several = np.column_stack([Y, Y**2])
    close(values(dot, X, several, Q, metric="ip"), attention(Q, X, several, beta))


def test_keys_of_equal_norm_make_attention_a_gaussian():
    """h = β^(−1/2): self-attention on unit tokens is a step of blurring mean shift."""
    unit, beta = X / np.linalg.norm(X, axis=1, keepdims=True), 3.0
    close(values(mean(h=beta**-0.5), unit, unit, unit), attention(unit, unit, unit, beta))


def test_a_bias_of_the_keys_makes_up_for_their_norms():
    """−β|x|²/2 in the exponent is a row weight exp(−β|x|²/2) of the dot-product kernel."""
    beta = 1.3
    bias = -beta * (X**2).sum(axis=1) / 2
    dot = ld.local_mean(N, "dot-product", bandwidth=1 / beta)
    biased = values(dot, X, Y, Q, metric="ip", weights=np.exp(bias))
    close(biased, attention(Q, X, Y[:, None], beta, np.tile(bias, (len(Q), 1)))[:, 0])
    close(biased, values(mean(h=beta**-0.5), X, Y, Q))


# --------------------------------------------------------------------------- levels, limits, invariances


def test_two_levels_are_one_level_with_the_product_of_the_kernels():
    smoothed = values(mean(h=2.0), X, Y, X)
    first, second = gauss(Q, X), gauss(X, X, 2.0)
    product = (first / first.sum(1, keepdims=True)) @ (second / second.sum(1, keepdims=True))
    close(values(mean(), X, smoothed, Q), product @ Y)


def test_many_levels_end_in_the_degree_weighted_mean():
    degree, layer = gauss(X, X, 3.0).sum(axis=1), Y
    for _ in range(20):
        layer = values(mean(h=3.0), X, layer, X)
    close(layer, (degree @ Y) / degree.sum(), 1e-8)


def test_bandwidth_to_zero_and_to_infinity():
    nearest = np.linalg.norm(Q[:, None] - X, axis=2).argmin(axis=1)
    for name in SMOOTH:
        close(values(mean(name, 1e-3), X, Y, Q), Y[nearest], 1e-12)
        close(values(mean(name, 1e9), X, Y, Q), Y.mean(), 1e-8)
    close(values(linear(h=1e5), X, Y, Q), LinearRegression().fit(X, Y).predict(Q), 1e-6)
    close(values(linear(ridge=1e12), X, Y, Q), values(mean(), X, Y, Q), 1e-6)


def test_far_queries_are_decided_by_the_nearest_row():
    """All raw weights underflow: no division of zero by zero, and the status says so."""
    far = np.full((1, D), 1e3)
    answers = mean()(ld.Exact(X, Y), far)
    assert ld.Status(int(answers.status[0])) is ld.Status.LOW_SUPPORT
    close(answers.values[0, 0], Y[np.linalg.norm(X - far, axis=1).argmin()])


@pytest.mark.parametrize("name", ["tricube", "gaussian", "uniform", "triangular"])
def test_motions_and_scalings_of_the_keys_change_nothing(name: str):
    """A rotation, a shift and a unit; the bandwidth follows by itself when it is adaptive."""
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(D, D)))[0]
    moved, asked = (2.7 * points @ rotation + 5.0 for points in (X, Q))
    for adaptive, fixed, wider in (
        (ld.local_mean(30, name), mean(name, 2.0), mean(name, 2.7 * 2.0)),
        (ld.local_linear(30, name), linear(name, 2.0), linear(name, 2.7 * 2.0)),
    ):
        close(values(adaptive, moved, Y, asked), values(adaptive, X, Y, Q), 1e-8)
        if name != "uniform":  # whose edge may cross a row by rounding
            close(values(wider, moved, Y, asked), values(fixed, X, Y, Q), 1e-8)


def test_cosine_is_l2_on_unit_rows_whatever_their_lengths():
    lengths = np.random.default_rng(3).uniform(0.1, 10, (N, 1))
    unit, asked = (points / np.linalg.norm(points, axis=1, keepdims=True) for points in (X, Q))
    close(
        values(ld.local_mean(20), X * lengths, Y, Q * 3, metric="cosine"),
        values(ld.local_mean(20), unit, Y, asked),
    )


def test_the_adaptive_bandwidth_is_the_fixed_one_of_each_query():
    index = ld.Exact(X, Y)
    hood = index.search(torch.from_numpy(Q), 25)
    adaptive = weigh(kernel("tricube", "nearest"), hood).weights
    for row in range(len(Q)):
        h = float(hood.distances[row, -1].sqrt()) * 1.0000001
        alone = replace(
            hood, distances=hood.distances[row : row + 1], ids=hood.ids[row : row + 1], queries=None
        )
        close(weigh(kernel("tricube", h), replace(alone, order=None)).weights[0], adaptive[row], 1e-12)


# --------------------------------------------------------------------------- other losses, maps, rules


@every_smooth
def test_the_absolute_loss_makes_the_local_median(name: str):
    ours = values(ld.local_quantile(N, name, bandwidth=1.0), X, Y, Q)
    for weights, value in zip(RAW[name](Q, X), ours, strict=True):
        losses = (weights * np.abs(Y - Y[:, None])).sum(axis=1)
        close((weights * np.abs(Y - value)).sum(), losses.min(), 1e-12)


def test_two_kernels_of_one_target_are_their_product():
    """1/h² = 1/h₁² + 1/h₂²: a row weight is a kernel, too."""
    one, two = 0.9, 1.4
    both = (1 / one**2 + 1 / two**2) ** -0.5
    for row, query in enumerate(Q):
        weighted = values(mean(h=one), X, Y, Q[row : row + 1], weights=gauss(query[None], X, two)[0])
        close(weighted, values(mean(h=both), X, Y, Q[row : row + 1]))


@pytest.mark.parametrize("h", [0.5, 1.0, 3.0])
def test_the_density_is_the_normalizer_over_its_volume(h: float):
    close(
        values(ld.kde(N, "gaussian", h), X, None, Q),
        np.exp(KernelDensity(bandwidth=h).fit(X).score_samples(Q)),
    )


def test_the_lazy_map_of_a_global_plane_is_a_projection():
    answers = linear("uniform", 1e6)(ld.Exact(X, Y), X, want={"neighbors"})
    hat = np.zeros((N, N))
    np.put_along_axis(hat, answers.ids.numpy(), answers.smoother.numpy(), axis=1)
    close(hat @ hat, hat)
    close(np.trace(hat), 1 + D)


def test_a_positive_lazy_map_has_one_eigenvalue_one_and_forgets():
    answers = mean()(ld.Exact(X, Y), X, want={"neighbors"})
    hat = np.zeros((N, N))
    np.put_along_axis(hat, answers.ids.numpy(), answers.smoother.numpy(), axis=1)
    sizes = np.sort(np.abs(np.linalg.eigvals(hat)))
    close(sizes[-1], 1.0)
    assert sizes[-2] < 1 - 1e-6


@pytest.fixture(scope="module")
def rules() -> tuple[Array, Array, Array]:
    """Prototypes of six rules, their answers, and what they are asked."""
    rng = np.random.default_rng(5)
    return rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=(9, 2))


def test_fuzzy_rules_with_gaussian_memberships_are_a_local_mean_over_rules(rules: tuple[Array, Array, Array]):
    """Zero-order TSK with the product as the norm; Mamdani with triangles of one area and centroids."""
    centers, answers, asked = rules
    fired = np.prod(np.exp(-((asked[:, None] - centers) ** 2) / (2 * 0.8**2)), axis=2)
    ours = values(mean(h=0.8, k=6), centers, answers, asked)
    close(ours, (fired @ answers) / fired.sum(axis=1))
    grid = np.linspace(-6, 6, 60_001)
    triangles = np.clip(1 - np.abs(grid - answers[:, None]) / 0.5, 0, None)
    joined = fired @ triangles
    close(ours, (joined @ grid) / joined.sum(axis=1), 1e-6)


def test_rules_that_answer_with_planes_are_a_local_mean_of_planes(rules: tuple[Array, Array, Array]):
    """First-order TSK."""
    centers, constants, asked = rules
    slopes = np.random.default_rng(6).normal(size=(6, 2))
    fired = gauss(asked, centers, 0.8)
    expected = (fired * (asked @ slopes.T + constants)).sum(axis=1) / fired.sum(axis=1)
    planes = values(mean(h=0.8, k=6), centers, np.column_stack([slopes, constants]), asked)
    close((planes[:, :2] * asked).sum(axis=1) + planes[:, 2], expected)
