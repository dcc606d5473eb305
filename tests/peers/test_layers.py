"""Supports that move: blurring, denoising, local models in layers, beside brute force and identities."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import Status
from locdist.local.loops import Replace, Soft
from locdist.local.support import Level, Steps, SupportLoop
from locdist.methods.layered import layered_method

BLOBS, _ = make_blobs(150, centers=[[0, 0], [6, 0], [0, 6]], cluster_std=0.6, random_state=0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=120)


def gaussian(queries: np.ndarray, rows: np.ndarray, h: float = 1.0) -> np.ndarray:
    kernel = np.exp(-((queries[:, None] - rows[None]) ** 2).sum(2) / (2 * h * h))
    return kernel / kernel.sum(1, keepdims=True)


def close(ours: object, theirs: object, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_blurring_is_the_brute_iteration_and_leaves_a_point_of_each_group():
    points = BLOBS.copy()
    for layers in range(1, 5):
        points = gaussian(points, points) @ points
        method = ld.blurring_mean_shift(1.0, tolerance=0, steady=0, layers=layers)
        close(method.loop(ld.Exact, torch.tensor(BLOBS)).keys, points)
    moved = ld.blurring_mean_shift(1.0, tolerance=0, steady=0, layers=40).loop(ld.Exact, torch.tensor(BLOBS))
    assert len(np.unique(moved.keys.numpy().round(4), axis=0)) == 3
    assert (moved.layers, moved.why) == (40, "")


def test_blurring_stops_when_rows_rest_or_only_travel():
    rests = ld.blurring_mean_shift(1.0, tolerance=1e-3, steady=0).loop(ld.Exact, torch.tensor(BLOBS))
    assert rests.why == "rows rest"
    assert rests.steps.mean <= 1e-3
    near = torch.tensor(BLOBS * 0.4)  # groups that attract each other
    travels = ld.blurring_mean_shift(0.8, tolerance=0, steady=0.01).loop(ld.Exact, near)
    assert travels.why == "rows only travel"
    assert len(np.unique(travels.keys.numpy().round(3), axis=0)) <= 3 < len(near)
    forever = ld.blurring_mean_shift(0.8, tolerance=0, steady=0, layers=150).loop(ld.Exact, near)
    assert len(np.unique(forever.keys.numpy().round(3), axis=0)) == 1


def test_a_layer_of_unit_rows_is_self_attention():
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    beta = 3.0
    method = ld.blurring_mean_shift(beta**-0.5, layers=1)
    theirs = torch.nn.functional.scaled_dot_product_attention(*(torch.tensor(rows)[None],) * 3, scale=beta)
    close(method.loop(ld.Exact, torch.tensor(rows)).keys, theirs[0])


def test_two_local_means_are_one_with_the_product_of_their_kernels():
    low, high = ld.local_mean(None, "gaussian", 2.0), ld.local_mean(None, "gaussian", 1.0)
    stack = ld.stack([low.counting(), high.counting()])
    moved = stack.loop(ld.Exact, torch.tensor(X), torch.tensor(Y)[:, None])
    both = gaussian(X, X, 1.0) @ gaussian(X, X, 2.0)
    close(moved.targets[:, 0], both @ Y)
    close(both.sum(1), 1.0)
    close(moved.keys, X)
    queries = RNG.normal(size=(7, 3))
    first = ld.stack([low.counting()]).loop(ld.Exact, torch.tensor(X), torch.tensor(Y)[:, None])
    found = high(ld.Exact(X, first.targets), queries).values[:, 0]
    close(found, gaussian(queries, X, 1.0) @ gaussian(X, X, 2.0) @ Y)


def test_many_layers_of_one_kernel_are_the_mean_by_degrees():
    method = ld.stack([ld.local_mean(None, "gaussian", 1.0).counting()], layers=400)
    moved = method.loop(ld.Exact, torch.tensor(X), torch.tensor(Y)[:, None])
    degrees = np.exp(-((X[:, None] - X[None]) ** 2).sum(2) / 2).sum(1)
    close(moved.targets[:, 0], np.full(len(X), degrees @ Y / degrees.sum()), 1e-8)


def test_denoising_brings_rows_to_a_circle_and_does_not_gather_them():
    angles = np.sort(RNG.uniform(0, 2 * np.pi, 1200))
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    noisy = circle + 0.08 * RNG.normal(size=circle.shape)
    clean = ld.denoise_manifold(1, k=60, layers=3).loop(ld.Exact, torch.tensor(noisy)).keys.numpy()
    off = [np.abs(np.linalg.norm(rows, axis=1) - 1) for rows in (noisy, clean)]
    assert off[1].mean() < 0.35 * off[0].mean()
    gaps = np.diff(np.sort(np.arctan2(clean[:, 1], clean[:, 0])))
    assert gaps.max() < 0.1


def test_a_step_of_denoising_is_that_of_mean_shift_across_the_plane():
    noisy = RNG.normal(size=(200, 3)) * [3.0, 2.0, 0.1]
    moved = ld.denoise_manifold(2, k=200, kernel="gaussian", bandwidth=1.5, layers=1)
    keys = moved.loop(ld.Exact, torch.tensor(noisy)).keys.numpy()
    weights = gaussian(noisy, noisy, 1.5)
    for row in range(0, 200, 40):
        mean = weights[row] @ noisy
        _, _, axes = np.linalg.svd(np.sqrt(weights[row])[:, None] * (noisy - mean))
        across = np.eye(3) - axes[:2].T @ axes[:2]
        close(keys[row], noisy[row] + across @ (mean - noisy[row]), 1e-9)


def test_a_bad_row_stays_and_is_nobodys_neighbor():
    rows = torch.tensor(np.vstack([BLOBS, [[np.nan, 0.0]]]))
    method = ld.blurring_mean_shift(1.0, layers=2)
    moved = method.loop(ld.Exact, rows)
    assert torch.equal(moved.keys[:-1], method.loop(ld.Exact, rows[:-1]).keys)
    assert moved.status[-1] == int(Status.BAD_QUERY)
    assert (moved.status[:-1] == int(Status.OK)).all()
    assert moved.keys[-1].isnan().tolist() == [True, False]


def test_a_row_alone_stays_where_it_is():
    rows = torch.tensor([[0.0], [0.1], [50.0]])
    level = Level(ld.local_mean(None, "uniform", 1.0).layer, Replace())
    moved = SupportLoop((level,), 1)(ld.Exact, rows, torch.tensor([[1.0], [3.0], [9.0]]))
    assert moved.targets.flatten().tolist() == [3.0, 1.0, 9.0]
    assert moved.status.tolist()[-1] == int(Status.EMPTY)


def test_steps_of_parts_are_those_of_the_whole():
    lengths = torch.tensor([0.0, 1e-30, 0.5, 0.51, 3.0, float("nan"), 1e30])
    whole = Steps.of(lengths)
    assert Steps.of(lengths[:3]).merge(Steps.of(lengths[3:])) == whole
    assert (whole.rows, sum(whole.bins)) == (6, 6)
    assert whole.differs(whole) == 0
    assert Steps.of(torch.tensor([1.0])).differs(Steps.of(torch.tensor([64.0]))) == 1


@pytest.mark.parametrize("name", ["blurring-mean-shift", "denoise-manifold"])
def test_a_spec_makes_the_method_again(name):
    made = layered_method(name)
    assert layered_method(made.spec) == made


def test_a_stack_is_made_again_from_its_spec():
    made = ld.stack(["local-mean", {"name": "local-linear", "k": 9}], layers=5, alpha=0.5)
    assert layered_method(made.spec) == made
    assert [made.loop.level(number).layer.k for number in range(5)] == [32, 9, 32, 9, 32]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ld.blurring_mean_shift(-1.0),
        lambda: ld.blurring_mean_shift(1.0, layers=0),
        lambda: ld.blurring_mean_shift(1.0, steady=-1),
        lambda: ld.denoise_manifold(0),
        lambda: ld.stack([]),
        lambda: ld.stack(["local-vote"]),
        lambda: ld.stack(["local-mean"]).loop(ld.Exact, torch.tensor(X)),
        lambda: ld.stack(["local-variance"]).loop(ld.Exact, torch.tensor(X), torch.tensor(X)),
        lambda: layered_method("blurring"),
        lambda: layered_method({"name": "stack", "methods": ["knn"], "depth": 3}),
        lambda: SupportLoop((Level(ld.knn(3).layer, Soft(1.0)),), 3, tolerance=-1.0),
    ],
)
def test_what_cannot_move_is_refused(make):
    with pytest.raises(UsageError):
        make()
