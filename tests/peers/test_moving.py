"""Queries that move over a support: mean shift, Hopfield retrieval, denoising; peers and brute force."""

import numpy as np
import pytest
import torch
from sklearn.cluster import MeanShift
from sklearn.datasets import make_blobs

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import Status
from locdist.local.kernels import kernel
from locdist.local.layer import Layer
from locdist.local.loops import QueryLoop, Replace, Soft
from locdist.local.models import Constant
from locdist.local.tangent import Tangent

X, _ = make_blobs(300, 2, centers=[[-4.0, 0.0], [4.0, 1.0], [0.0, 6.0]], cluster_std=1.0, random_state=0)
SEEDS = X[::10]


def close(ours: object, theirs: object, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_flat_modes_are_those_of_scikit_learn():
    peer = MeanShift(bandwidth=2.0, seeds=SEEDS).fit(X)
    found = ld.mean_shift(2.0, "uniform")(ld.Exact(X), SEEDS)
    assert (found.status == Status.OK).all()
    modes = np.unique(found.values.numpy().round(9), axis=0)
    for center in peer.cluster_centers_:
        assert np.abs(modes - center).max(1).min() < 1e-6


@pytest.mark.parametrize("alpha", [1.0, 0.4])
@pytest.mark.parametrize("k", [None, 300])
def test_gaussian_modes_are_fixed_points_of_the_brute_iteration(alpha, k):
    found = ld.mean_shift(1.2, alpha=alpha, k=k, tolerance=1e-10, steps=3000)(ld.Exact(X), SEEDS)
    assert (found.status == Status.OK).all()
    points = SEEDS.copy()
    for _ in range(3000):
        weights = np.exp(-0.5 * ((points[:, None] - X) ** 2).sum(2) / 1.2**2)
        points += alpha * (weights @ X / weights.sum(1, keepdims=True) - points)
    close(found.values, points, 1e-7)


def test_a_gaussian_step_goes_along_the_gradient_of_the_log_density():
    at = torch.tensor(SEEDS, requires_grad=True)
    squares = (at[:, None] - torch.tensor(X)).square().sum(2)
    torch.logsumexp(-0.5 * squares / 1.2**2, 1).sum().backward()
    step = ld.denoise(1.2)(ld.Exact(X), SEEDS).values - torch.tensor(SEEDS)
    close(step, 1.2**2 * at.grad, 1e-12)


def test_one_step_of_retrieval_is_attention_and_more_lower_the_energy():
    patterns = np.random.default_rng(0).normal(size=(64, 16))
    queries = patterns[:8] + 0.3 * np.random.default_rng(1).normal(size=(8, 16))
    index = ld.Exact(patterns, metric="ip")
    tensors = [torch.tensor(array)[None] for array in (queries, patterns, patterns)]
    theirs = torch.nn.functional.scaled_dot_product_attention(*tensors, scale=2.0)[0]
    for k in (None, 64):
        once = ld.hopfield(2.0, k, steps=1)(index, queries)
        close(once.values, theirs, 1e-12)
    energies = []
    for steps in (1, 2, 3, 5, 9):
        point = ld.hopfield(0.5, steps=steps)(index, queries).values.numpy()
        lse = np.log(np.exp(0.5 * point @ patterns.T).sum(1)) / 0.5
        energies.append(-lse + 0.5 * (point**2).sum(1))
    assert (np.diff(energies, axis=0) <= 1e-12).all()


@pytest.mark.parametrize("beta, k", [(2.0, 3000), (8.0, 1000), (16.0, 300), (30.0, 40)])
def test_the_mass_that_retrieval_neglects_is_bounded_and_with_it_the_error(beta, k):
    """Against the softmax over all 30,000 patterns, of which the sample has a third."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(30_000, 16))
    patterns /= np.linalg.norm(patterns, axis=1, keepdims=True)
    queries = patterns[:200] + 0.05 * rng.normal(size=(200, 16))
    index = ld.Exact(patterns, metric="ip")
    found = ld.hopfield(beta, k, steps=1)(index, queries, want={"neglected"})
    shares = np.sort(torch.softmax(torch.tensor(beta * queries @ patterns.T), 1).numpy(), axis=1)
    true, bound = shares[:, :-k].sum(1), found.neglected.numpy()
    assert (true <= bound).all()
    assert (bound <= 8 * true + 1e-3).all()
    whole = ld.hopfield(beta, steps=1)(index, queries, want={"neglected"})
    assert (whole.neglected == 0).all()
    error = np.linalg.norm(found.values - whole.values, axis=1)
    assert (error <= 2 * bound).all()


def test_a_sample_that_is_all_the_rows_tells_the_neglected_mass_exactly():
    index = ld.Exact(X)
    found = ld.denoise(0.7, 9)(index, SEEDS, want={"neglected"})
    squares = ((SEEDS[:, None] - X) ** 2).sum(2)
    weights = np.sort(np.exp(-squares / (2 * 0.7**2)), axis=1)
    close(found.neglected, weights[:, :-9].sum(1) / weights.sum(1), 1e-10)
    with pytest.raises(UsageError, match="a bandwidth that neighbors set"):
        ld.local_mean(9)(ld.Exact(X, X[:, 0]), SEEDS, want={"neglected"})
    weighed = ld.Exact(X, X[:, 0], weights=np.ones(len(X)))
    with pytest.raises(UsageError, match="rows of one weight"):
        ld.local_mean(9, "gaussian", 0.5)(weighed, SEEDS, want={"neglected"})


def test_the_neglected_mass_is_a_column_and_refused_before_any_task(tmp_path):
    rows = ld.dataset({"key": X, "y": X[:, 0]}, key="key", target="y", scaling="none")
    index = ld.build_index(rows, tmp_path / "index")
    told = ld.predict(ld.local_mean(9, "gaussian", 0.7), index, {"key": SEEDS}, extras=["neglected"])
    close(told["neglected"].to_numpy(), ld.denoise(0.7, 9)(ld.Exact(X), SEEDS, want={"neglected"}).neglected)
    with pytest.raises(UsageError, match="a bandwidth that neighbors set"):
        ld.predict("local-mean", index, {"key": SEEDS}, tmp_path / "out", extras=["neglected"])
    assert not (tmp_path / "out").exists()


def test_a_corrupted_pattern_is_recalled():
    patterns = np.random.default_rng(2).choice([-1.0, 1.0], size=(20, 64))
    queries = patterns.copy()
    queries[:, :10] *= -1
    found = ld.hopfield(1.0)(ld.Exact(patterns, metric="ip"), queries)
    assert (found.status == Status.OK).all()
    close(found.values, patterns, 1e-6)


def test_queries_that_rest_leave_the_batch_and_change_nobody():
    alone = torch.cat([ld.mean_shift(1.0)(ld.Exact(X), SEEDS[row : row + 1]).values for row in range(9)])
    close(ld.mean_shift(1.0)(ld.Exact(X), SEEDS[:9]).values, alone, 1e-12)


def test_too_few_steps_are_told_and_a_bad_query_stops_nobody():
    queries = np.vstack([SEEDS[:3], [[np.nan, 0.0]], [[500.0, 0.0]]])
    found = ld.mean_shift(1.0, "epanechnikov", steps=2, tolerance=1e-9)(ld.Exact(X), queries)
    assert found.status.tolist()[:3] == [int(Status.NOT_CONVERGED)] * 3
    assert found.status.tolist()[3:] == [int(Status.BAD_QUERY), int(Status.EMPTY)]
    assert found.values[:3].isfinite().all()
    assert found.values[3:].isnan().all()


def test_projections_onto_tangent_planes_come_to_rest_on_a_curve():
    angles = np.random.default_rng(3).uniform(0, 2 * np.pi, 2000)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    loop = QueryLoop(Layer(30, kernel("uniform"), Tangent(1)), Soft(1.0), 1e-6, 50)
    found = loop(ld.Exact(circle), torch.tensor([[0.7, 0.2], [-1.2, 0.5]], dtype=torch.float64))
    assert (found.status == Status.OK).all()
    close(found.values[:, -2:].norm(dim=1), [1.0, 1.0], 2e-3)


def test_no_query_is_an_empty_answer():
    assert ld.mean_shift(1.0)(ld.Exact(X), X[:0]).values.shape == (0, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Soft(0.0),
        lambda: Soft(1.5),
        lambda: ld.hopfield(-1.0),
        lambda: ld.mean_shift(1.0, steps=0),
        lambda: ld.mean_shift(-1.0),
        lambda: QueryLoop(Layer(3, kernel("uniform"), Constant())),
        lambda: QueryLoop(ld.denoise(1.0).layer, Replace(), -1.0),
        lambda: ld.mean_shift(1.0)(ld.Exact(X, features=X), X),
    ],
)
def test_what_cannot_move_is_refused(make):
    with pytest.raises(UsageError):
        make()
