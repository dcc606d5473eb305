"""Lazy maps and the lazy autoencoder: identities, and scikit-learn's embedding."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.manifold import spectral_embedding
from sklearn.metrics import adjusted_rand_score

import locdist as ld
from locdist.errors import UsageError
from locdist.local.graph import Edges, Graph
from locdist.local.lazy import Walk, reconstructed, settled

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 3))
HOLLOW = np.exp(-((X[:, None] - X) ** 2).sum(2) / (2 * 0.8**2)) * (1 - np.eye(N))
ALL = ld.local_mean(N - 1, "gaussian", 0.8)  # each row without itself


def matrix(method: object, rows: np.ndarray) -> np.ndarray:
    answers = method(ld.Exact(rows, np.zeros(len(rows))), rows, own=np.arange(len(rows)), want={"neighbors"})
    return Walk.of(answers)(torch.eye(len(rows), dtype=torch.float64)).numpy()


def test_the_map_is_the_matrix_of_the_smoother():
    np.testing.assert_allclose(matrix(ALL, X), HOLLOW / HOLLOW.sum(1, keepdims=True), atol=1e-12)


def test_weights_make_one_value_of_all():
    start = RNG.normal(size=(N, 2))
    found = ld.lazy_map(ALL, X, start, steps=20_000, tolerance=1e-13)
    degrees = HOLLOW.sum(1)
    assert found.rests
    np.testing.assert_allclose(found.values, np.tile(degrees @ start / degrees.sum(), (N, 1)), atol=1e-9)


def test_a_map_that_keeps_mean_and_scale_is_the_spectral_embedding():
    found = ld.lazy_map(ALL, X, keep=True, steps=20_000, tolerance=1e-13)
    theirs = spectral_embedding(
        HOLLOW, n_components=2, drop_first=True, eigen_solver="arpack", random_state=0
    )
    for column in range(2):
        assert abs(np.corrcoef(found.values[:, column], theirs[:, column])[0, 1]) > 1 - 1e-9
    shares = np.sort(np.linalg.eigvals(HOLLOW / HOLLOW.sum(1, keepdims=True)).real)[::-1]
    np.testing.assert_allclose(found.shares, shares[1:3], atol=1e-9)
    masses = HOLLOW.sum(1) / HOLLOW.sum()
    np.testing.assert_allclose(masses @ found.values.numpy(), 0, atol=1e-9)
    values = found.values.numpy()
    np.testing.assert_allclose((values.T * masses) @ values, np.eye(2), atol=1e-7)


def test_rows_that_are_nobodys_neighbor_have_values_too():
    rows = np.concatenate([[[6.0, 6.0, 6.0]], X])
    found, walk = ld.lazy_map(ld.local_mean(8), rows, keep=True), matrix(ld.local_mean(8), rows)
    assert (walk[:, 0] == 0).all()  # the walk never comes to the first
    values = found.values.numpy()
    np.testing.assert_allclose(walk @ values, values * found.shares.numpy(), atol=1e-4)


def walk_of(weights: np.ndarray) -> Walk:
    heads, tails = (torch.from_numpy(at) for at in weights.nonzero())
    return Walk(Graph.of(Edges(heads, tails, torch.from_numpy(weights)[heads, tails]), len(weights)))


def test_what_is_no_eigenvector_has_not_come_to_rest():
    around = np.roll(np.eye(3), 1, axis=1)  # eigenvalues besides 1: a pair of complex ones
    walk, start = walk_of((np.eye(3) + around) / 2), torch.eye(3, dtype=torch.float64)[:, :2]
    turning = settled(walk, start, 1e-10, 200)
    assert torch.linalg.matrix_rank(turning.values) == 2
    assert not turning.rests


def test_the_hat_matrix_applied_twice_is_itself():
    hat = matrix(ld.local_linear(N, "uniform", 100.0).counting(), X)
    np.testing.assert_allclose(hat @ hat, hat, atol=1e-9)
    start = RNG.normal(size=(N, 1))
    found = ld.lazy_map(ld.local_linear(N, "uniform", 100.0).counting(), X, start, tolerance=1e-9)
    assert found.steps == 2
    np.testing.assert_allclose(found.values, hat @ start, atol=1e-9)


def test_labels_settle_in_groups():
    rows, truth = make_blobs(300, centers=[[0, 0], [7, 0], [0, 7]], cluster_std=0.8, random_state=0)
    start = truth.copy()
    wrong = RNG.random(300) < 0.3
    start[wrong] = RNG.integers(0, 3, wrong.sum())
    found = ld.lazy_map(ld.local_mean(15), rows, start)
    assert found.rests
    assert adjusted_rand_score(truth, found.values.numpy()) == 1


def curve(rows: int) -> tuple[np.ndarray, np.ndarray]:
    along = RNG.uniform(0, 3, rows)
    return along, np.column_stack([np.cos(along), np.sin(along), 0.3 * along])


def test_codes_order_the_rows_of_a_curve():
    along, clean = curve(250)
    model = ld.lazy_autoencoder(clean + 0.02 * RNG.normal(size=clean.shape), 1)
    ranks = [values.argsort().argsort() for values in (along, model.codes[:, 0].numpy())]
    assert abs(np.corrcoef(*ranks)[0, 1]) > 0.99
    assert np.square(model.reconstruct().numpy() - clean).sum(1).mean() < 3 * 0.02**2
    _, new = curve(40)
    told = model.reconstruct(new).numpy()
    assert np.square(told - new).sum(1).mean() < 0.005
    assert model.encode(new).shape == (40, 1)
    assert model.decode([[0.0], [1.0]]).shape == (2, 3)


def test_a_row_does_not_tell_itself():
    codes, rows = torch.tensor(RNG.normal(size=(20, 2))), torch.tensor(RNG.normal(size=(20, 3)))
    found = reconstructed(codes, rows)
    for row in range(20):
        others = np.arange(20) != row
        weights = torch.exp(-0.5 * (codes[others] - codes[row]).square().sum(1))
        theirs = (weights[:, None] * rows[others]).sum(0) / weights.sum()
        np.testing.assert_allclose(found[row], theirs, atol=1e-12)


def test_gaps_are_filled_in_and_what_is_there_stays():
    _, clean = curve(300)
    model = ld.lazy_autoencoder(clean[:250], 1)
    gaps = clean[250:].copy()
    gaps[:, 1] = np.nan
    filled = model.impute(gaps).numpy()
    np.testing.assert_array_equal(filled[:, [0, 2]], clean[250:, [0, 2]])
    assert np.abs(filled[:, 1] - clean[250:, 1]).mean() < 0.2 * clean[:, 1].std()


def test_a_start_may_be_given():
    along, clean = curve(150)
    model = ld.lazy_autoencoder(clean, 1, start=along[:, None], steps=50)
    assert abs(np.corrcoef(along, model.codes[:, 0])[0, 1]) > 0.98


@pytest.mark.parametrize(
    "make",
    [
        lambda: ld.lazy_map(ld.local_mean(None, "gaussian", 1.0), X),
        lambda: ld.lazy_map(ld.local_vote(5), X),
        lambda: ld.lazy_map(ld.mean_shift(1.0, k=5), X),
        lambda: ld.lazy_map(ld.local_mean(5), X, np.zeros((7, 1))),
        lambda: ld.lazy_map(ld.local_mean(5), X, steps=0),
        lambda: ld.lazy_map(ld.barycenter(8), X, keep=True),
        lambda: ld.lazy_map(ld.local_mean(5, "uniform", 1e-9), X),
        lambda: ld.lazy_autoencoder(X, 4),
        lambda: ld.lazy_autoencoder(X[:2]),
        lambda: ld.lazy_autoencoder(X, 2, start=np.zeros((5, 2))),
        lambda: ld.lazy_autoencoder(X, 1, steps=2).impute(np.full((2, 3), np.nan)),
    ],
)
def test_what_is_no_map_is_refused(make):
    with pytest.raises(UsageError):
        make()
