"""Quantiles, variances, densities, tangent planes, barycenters: against peers, query by query."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.integrate import quad
from sklearn.manifold._locally_linear import barycenter_kneighbors_graph
from sklearn.neighbors import KernelDensity
from statsmodels.stats.weightstats import DescrStatsW

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import WANTS, Status
from locdist.local.kernels import KERNELS, kernel
from locdist.methods.named import method

_RNG = np.random.default_rng(0)
N, D = 150, 3
X = _RNG.normal(size=(N, D))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(8, D))
LEVELS = (0.05, 0.25, 0.5, 0.9)


def close(ours: object, theirs: object, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def each(answers: ld.Answers):
    """For each query: its neighbors and their weights."""
    assert (answers.status == Status.OK).all()
    return zip(answers.ids.numpy(), answers.weights.numpy(), strict=True)


# --------------------------------------------------------------------------- quantiles


@pytest.mark.parametrize("name", ["tricube", "gaussian", "uniform"])
def test_quantiles_are_weighted_quantiles(name):
    answers = ld.local_quantile(41, name, levels=LEVELS)(ld.Exact(X, Y), Q, want=WANTS)
    for row, (ids, weights) in enumerate(each(answers)):
        peer = DescrStatsW(Y[ids], weights=weights).quantile(LEVELS, return_pandas=False)
        close(answers.values[row], peer)
        used = weights > 0
        numpy = np.quantile(Y[ids][used], LEVELS, weights=weights[used], method="inverted_cdf")
        close(answers.values[row], numpy)


def test_a_quantile_minimises_the_check_loss_and_of_several_minima_it_is_the_middle():
    targets = np.round(Y, 1)  # with ties
    answers = ld.local_quantile(20, "uniform", levels=LEVELS)(ld.Exact(X, targets), Q, want=WANTS)
    for row, (ids, weights) in enumerate(each(answers)):
        near = targets[ids]
        at = np.unique(near)
        for column, level in enumerate(LEVELS):
            misses = near - at[:, None]
            losses = (weights * misses * (level - (misses < 0))).sum(1)
            best = at[losses <= losses.min() + 1e-12]
            close(answers.values[row, column], (best[0] + best[-1]) / 2)


def test_the_median_is_the_one_that_everybody_knows_and_its_smoother_names_its_rows():
    for k in (20, 21):
        answers = ld.local_quantile(k, "uniform")(ld.Exact(X, Y), Q, want=WANTS)
        ids = answers.ids.numpy()
        close(answers.values[:, 0], np.median(Y[ids], axis=1), 1e-14)
        close((answers.smoother.numpy() * Y[ids]).sum(1), answers.values[:, 0], 1e-14)
        assert ((answers.smoother > 0).sum(1) == 2 - k % 2).all()


# --------------------------------------------------------------------------- variance


def test_variances_are_weighted_variances():
    both = np.column_stack([Y, Y**2])
    answers = ld.local_variance(40, "gaussian", 1.0)(ld.Exact(X, both), Q, want=WANTS)
    for row, (ids, weights) in enumerate(each(answers)):
        peer = DescrStatsW(both[ids], weights=weights)
        close(answers.values[row], [*peer.mean, *peer.var])


def test_an_unbiased_variance_with_equal_weights_divides_by_one_less():
    answers = ld.local_variance(30, "uniform", unbiased=True)(ld.Exact(X, Y), Q, want=WANTS)
    close(answers.values[:, 1], Y[answers.ids.numpy()].var(axis=1, ddof=1))


def test_an_unbiased_variance_has_the_expectation_of_the_noise():
    noise = np.random.default_rng(1).normal(size=(N, 20_000)) * 3
    answers = ld.local_variance(12, "tricube", unbiased=True)(ld.Exact(X, noise), Q[:1])
    variances = answers.values[0, 20_000:].numpy()
    assert abs(variances.mean() - 9) < 4 * variances.std() / 20_000**0.5


def test_one_neighbor_has_a_mean_and_no_unbiased_variance():
    one = ld.local_variance(1, unbiased=True)(ld.Exact(X, Y), X[:1])
    assert one.status.tolist() == [Status.RANK_DEFICIENT]
    assert one.values[0, 0] == Y[0]
    assert one.values[0, 1].isnan()


# --------------------------------------------------------------------------- density

PEERS = {
    "gaussian": "gaussian",
    "uniform": "tophat",
    "epanechnikov": "epanechnikov",
    "laplace": "exponential",
    "triangular": "linear",
}


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("name", PEERS)
def test_a_density_over_all_rows(name, d):
    keys, at = (np.random.default_rng(d).normal(size=(n, d)) for n in (N, 20))
    weights = np.random.default_rng(2).uniform(0.5, 2, N)
    for given in (None, weights):
        peer = KernelDensity(bandwidth=1.7, kernel=PEERS[name], atol=0, rtol=0)
        theirs = np.exp(peer.fit(keys, sample_weight=given).score_samples(at))
        index = ld.Exact(keys, weights=given)
        close(ld.kde(N, name, 1.7)(index, at).values[:, 0], theirs, 1e-10)
        logs = ld.kde(N, name, 1.7, log=True)(index, at)
        there = theirs > 0
        close(logs.values[there, 0], np.log(theirs[there]), 1e-10)
        assert (logs.status[~there] == Status.EMPTY).all()


@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "dot-product"])
def test_kernels_over_their_integrals_have_volume_one(name, d):
    import torch

    from locdist.local.neighborhood import Neighborhood

    def raw(u: float) -> float:
        hood = Neighborhood(
            torch.tensor([[u * u]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.int64)
        )
        return float(kernel(name, 1.0).log_weights(hood).exp())

    sphere = 2 * math.pi ** (d / 2) / math.gamma(d / 2)
    integral = quad(lambda u: raw(u) * sphere * u ** (d - 1), 0, 1 if raw(1.5) == 0 else 60, epsabs=1e-11)[0]
    assert math.exp(kernel(name, 1.0).log_integral(d)) == pytest.approx(integral, rel=1e-7)


def test_a_density_without_anybody_in_reach_is_zero_and_counts_all_rows():
    keys = np.array([[0.0], [1.0], [10.0], [10.5]])
    answers = ld.kde(2, "uniform", 0.75)(ld.Exact(keys), [[0.1], [5.0], [10.2]])
    close(answers.values[:, 0], [1 / 1.5 / 4, 0.0, 2 / 1.5 / 4])
    assert answers.status.tolist() == [Status.OK, Status.LOW_SUPPORT, Status.OK]


def test_a_row_that_is_left_out_is_not_counted():
    whole = ld.kde(N, "gaussian", 0.8)(ld.Exact(X), X[:5], own=range(5)).values[:, 0]
    for row in range(5):
        rest = np.delete(X, row, axis=0)
        peer = KernelDensity(bandwidth=0.8).fit(rest)
        close(whole[row], np.exp(peer.score_samples(X[row : row + 1])[0]), 1e-10)


def test_an_adaptive_bandwidth_makes_the_balloon_estimate():
    answers = ld.kde(20, "uniform", "nearest")(ld.Exact(X), Q, want=WANTS)
    radius = np.sqrt(answers.distances[:, -1].numpy())
    close(answers.values[:, 0], 20 / N / (4 / 3 * math.pi * radius**3), 1e-6)


def test_a_density_wants_distances():
    with pytest.raises(UsageError, match="metric 'l2' for a density"):
        ld.kde(5)(ld.Exact(X, metric="cosine"), Q)
    with pytest.raises(UsageError, match="metric 'l2' for a density"):
        ld.kde(5, "dot-product")(ld.Exact(X, metric="ip"), Q)


# --------------------------------------------------------------------------- tangent planes


@pytest.mark.parametrize("k, d, components", [(40, 3, 2), (40, 3, 3), (9, 3, 1), (6, 12, 2), (3, 12, 2)])
def test_a_tangent_plane_is_the_svd_of_weighted_rows(k, d, components):
    keys, at = (np.random.default_rng(d).normal(size=(n, d)) for n in (N, 8))
    answers = ld.local_pca(k, "gaussian", 2.0, components)(ld.Exact(keys), at, want=WANTS)
    for row, (ids, weights) in enumerate(each(answers)):
        mean = weights @ keys[ids]
        _, sizes, axes = np.linalg.svd(np.sqrt(weights)[:, None] * (keys[ids] - mean), full_matrices=False)
        axes = axes[:components]
        axes = axes * np.sign(axes[np.arange(components), np.abs(axes).argmax(1)])[:, None]
        away = axes @ (at[row] - mean)
        close(answers.values[row], [*away, *sizes[:components] ** 2, *(mean + away @ axes)], 1e-9)


def test_a_query_beside_a_plane_is_projected_onto_it():
    plane = _RNG.normal(size=(N, 2)) @ [[1.0, 0.0, 1.0], [0.0, 1.0, -2.0]]  # z = x − 2 y
    normal = np.array([1.0, -2.0, -1.0]) / 6**0.5
    answers = ld.local_pca(30, components=2)(ld.Exact(plane), plane[:5] + 0.1 * normal)
    close(answers.values[:, 4:], plane[:5])
    flat = ld.local_pca(30, components=3)(ld.Exact(plane), plane[:5] + 0.1 * normal)
    assert (flat.status == Status.RANK_DEFICIENT).all()
    close(flat.values[:, [2, 5]], 0.0)
    close(flat.values[:, 6:], plane[:5])


def test_signs_do_not_depend_on_the_order_of_rows():
    order = np.random.default_rng(3).permutation(N)
    one, other = (ld.local_pca(30, components=2)(ld.Exact(rows), Q).values for rows in (X, X[order]))
    close(one, other)


# --------------------------------------------------------------------------- barycenters


@pytest.mark.parametrize("k, d", [(8, 3), (5, 12)])
@pytest.mark.parametrize("reg", [1e-3, 0.1])
def test_barycenters_are_those_of_locally_linear_embedding(k, d, reg):
    keys = np.random.default_rng(d).normal(size=(N, d))
    peer = barycenter_kneighbors_graph(keys, k, reg=reg).toarray()
    answers = ld.barycenter(k, reg=reg)(ld.Exact(keys, Y), keys, own=np.arange(N), want=WANTS)
    ours = np.zeros((N, N))
    np.put_along_axis(ours, answers.ids.numpy(), answers.smoother.numpy(), axis=1)
    close(ours, peer)
    close(answers.values[:, 0], peer @ Y)
    rebuilt = ld.barycenter(k, reg=reg, of="features")(ld.Exact(keys), keys, own=np.arange(N))
    close(rebuilt.values, peer @ keys)


def test_barycenters_with_weights_are_ridge_regression_towards_the_kernel():
    answers = ld.barycenter(20, "gaussian", 1.0, reg=0.01)(ld.Exact(X, Y), Q, want=WANTS)
    for row, (ids, weights) in enumerate(each(answers)):
        near = X[ids] - Q[row]
        ridge = 0.01 * (weights * (near**2).sum(1)).sum()
        solved = np.linalg.solve(near @ near.T + np.diag(ridge / weights), np.ones(20))
        close(answers.smoother[row], solved / solved.sum())


# --------------------------------------------------------------------------- files without a target


def columns(name: str, **parameters: object) -> list[str]:
    support = ld.dataset({"east": X[:, 0], "north": X[:, 1]}, key=["east", "north"], scaling="none")
    index = ld.build_index(support, parameters.pop("folder"))
    queries = pa.table({"east": Q[:, 0], "north": Q[:, 1]})
    chosen = method(name, parameters)
    found = ld.predict(chosen, index, queries, explain=2)
    assert found["status"].to_pylist() == ["ok"] * len(Q)
    answers = chosen(ld.Exact(X[:, :2]), Q[:, :2], want=["neighbors"])
    names = found.column_names[2:-2]
    close(np.column_stack([found[name] for name in names]), answers.values)
    shares = [[one["contribution"] for one in row] for row in found["neighbors"].to_pylist()]
    close(shares, answers.smoother[:, :2])
    return names


def test_models_without_a_target_work_on_an_index_without_targets(tmp_path):
    assert columns("kde", k=60, bandwidth=2.0, folder=tmp_path / "1") == ["density"]
    assert columns("kde", k=60, bandwidth=2.0, log=True, folder=tmp_path / "2") == ["log_density"]
    names = ["coordinate_1", "variance_1", "projection_east", "projection_north"]
    assert columns("local-pca", k=20, folder=tmp_path / "3") == names
    names = ["reconstruction_east", "reconstruction_north"]
    assert columns("barycenter", k=10, of="features", folder=tmp_path / "4") == names


def test_explain_and_transform_tell_outputs_by_their_names(tmp_path):
    rows = {"east": X[:, 0], "north": X[:, 1], "price": Y}
    pa.parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    without = ld.dataset(tmp_path / "rows.parquet", key=["east", "north"])
    ld.transform(ld.kde(60, bandwidth=1.0), without, tmp_path / "density")
    told = ld.explain(tmp_path / "density", row=3)
    assert list(told.prediction) == ["density"]
    assert told.stored_equal
    assert told.spread == {}
    assert {one.target for one in told.neighbors} == {None}
    assert "density" in str(told)
    support = ld.dataset(tmp_path / "rows.parquet", key=["east", "north"], target="price")
    report = ld.transform(ld.local_quantile(30), support, tmp_path / "median")
    assert report.diagnostics.n == N
    assert ld.evaluate(tmp_path / "median").metrics["mae"] < 1
    several = ld.transform(ld.local_quantile(30, levels=[0.1, 0.9]), support)
    assert several.column_names[-3:] == ["quantile_0.1", "quantile_0.9", "status"]
    variance = ld.transform("local-variance", support, tmp_path / "variance")
    assert ld.evaluate(tmp_path / "variance").metrics["r2"] == pytest.approx(variance.diagnostics.r2)


def test_what_a_model_does_not_tell_is_refused_before_any_work(tmp_path):
    support = ld.dataset({"key": X, "price": Y}, key="key", target="price")
    with pytest.raises(UsageError, match=r"extras that Quantile has \(effective, neighbors\); got spread"):
        ld.transform("local-quantile", support, tmp_path / "out", extras=["spread"])
    assert not (tmp_path / "out").exists()


def test_wrong_choices_are_refused():
    for levels in (0.0, 1.0, [], [0.5, 2.0], "half", True):
        with pytest.raises(UsageError, match="levels between 0 and 1"):
            ld.local_quantile(levels=levels)
    for components in (0, 1.5, True):
        with pytest.raises(UsageError, match="components, a whole number"):
            ld.local_pca(components=components)
    with pytest.raises(UsageError, match="as many components as features"):
        ld.local_pca(components=4)(ld.Exact(X), Q)
    with pytest.raises(UsageError, match="positive reg"):
        ld.barycenter(reg=0.0)
    with pytest.raises(UsageError, match="'target' or 'features'"):
        ld.barycenter(of="keys")
