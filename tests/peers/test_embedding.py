"""Embeddings, against scikit-learn's and dense eigenvectors."""

from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding, spectral_embedding

import locdist as ld
from locdist.errors import UsageError
from locdist.jobs import eigen
from locdist.local.answers import Status
from locdist.methods.embedded import embed_method

ROLL = make_swiss_roll(700, random_state=0)[0]
SOLVERS = ("dense", "factored", "exchanged", "shifted", "iterated")


@pytest.fixture(params=SOLVERS)
def solver(request: pytest.FixtureRequest) -> str:
    """Each way to the eigenvectors, as if those before it were of no use."""
    named, whole = request.param, eigen._inverses

    def later(matrix: eigen.Squared, top: float) -> Iterator[tuple[eigen.Step, float]]:
        skipped = {"factored": 0, "exchanged": 1, "shifted": 2, "iterated": 3}[named]
        yield from list(whole(matrix, top))[skipped if matrix.left is not None else skipped // 3 :]

    with (
        mock.patch.object(eigen, "DENSE", 10_000 if named == "dense" else 10),
        mock.patch.object(eigen, "_inverses", whole if named == "dense" else later),
    ):
        yield named


@pytest.mark.parametrize("components", [1, 2, 3])
def test_lle_is_that_of_scikit_learn_up_to_a_rotation(solver: str, components: int):
    peer = LocallyLinearEmbedding(
        n_neighbors=10, n_components=components, reg=1e-3, eigen_solver="dense"
    ).fit(ROLL)
    found = ld.embed(ld.lle(10, components), ld.Exact(ROLL))
    assert sum(found.eigenvalues) == pytest.approx(peer.reconstruction_error_, rel=1e-5, abs=1e-14)
    cosines = np.linalg.svd(found.coordinates.numpy().T @ peer.embedding_)[1]
    assert 1 - cosines.min() < 1e-5
    torch.testing.assert_close(found.coordinates.norm(dim=0), torch.ones(components, dtype=torch.float64))
    assert not found.status.any()


def test_spectral_is_that_of_scikit_learn(solver: str):
    graph = ld.graph(ld.Exact(ROLL), k=10, kernel="gaussian", bandwidth=3.0, symmetrize="mean")
    weights = sp.csr_matrix((graph.weights, graph.ends, graph.starts))
    peer = spectral_embedding(weights, n_components=2, eigen_solver="arpack", random_state=0, drop_first=True)
    found = ld.embed(ld.spectral(10, 2, "gaussian", 3.0), ld.Exact(ROLL)).coordinates.numpy()
    np.testing.assert_allclose(found * np.sign((found * peer).sum(0)), peer, atol=1e-8)


def test_coordinates_are_fixed_by_the_random_walk():
    """THEORY B2: the lazy map's subspace. Each axis is its own local mean, but for its eigenvalue."""
    found = ld.embed(ld.spectral(10, 3), ld.Exact(ROLL))
    graph = ld.graph(ld.Exact(ROLL), k=10, symmetrize="mean").normalized("rows")
    walked = graph.times(found.coordinates)
    expected = found.coordinates * (1 - torch.tensor(found.eigenvalues, dtype=torch.float64))
    torch.testing.assert_close(walked, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("method", [ld.lle(10), ld.spectral(10)])
def test_a_row_of_the_support_is_placed_where_it_is(method: object):
    found = ld.embed(method, ld.Exact(ROLL))
    placed = found.transform(ROLL)
    torch.testing.assert_close(placed.values, found.coordinates, atol=1e-14, rtol=0)


def test_a_new_row_is_placed_as_scikit_learn_places_it():
    peer = LocallyLinearEmbedding(n_neighbors=10, n_components=2, reg=1e-3, eigen_solver="dense").fit(ROLL)
    new = make_swiss_roll(50, random_state=1)[0]
    found = ld.embed(ld.lle(10), ld.Exact(ROLL))
    turn = found.coordinates.numpy().T @ peer.embedding_
    np.testing.assert_allclose(found.transform(new).values.numpy() @ turn, peer.transform(new), atol=1e-6)


def test_a_new_row_is_placed_by_nystroem():
    new = make_swiss_roll(20, random_state=1)[0]
    found = ld.embed(ld.spectral(10), ld.Exact(ROLL))
    near = np.argsort(((new[:, None] - ROLL) ** 2).sum(2), axis=1)[:, :10]
    expected = found.coordinates.numpy()[near].mean(1) / (1 - np.array(found.eigenvalues))
    np.testing.assert_allclose(found.transform(new).values, expected, rtol=1e-10)


def test_what_is_not_connected_has_no_coordinates():
    two = np.concatenate([ROLL, ROLL[:50] + 1000])
    for method in (ld.lle(10), ld.spectral(10)):
        found = ld.embed(method, ld.Exact(two))
        assert found.status.tolist() == [0] * 700 + [int(Status.EMPTY)] * 50
        assert found.coordinates[700:].isnan().all()
        alone = ld.embed(method, ld.Exact(ROLL))
        torch.testing.assert_close(found.coordinates[:700], alone.coordinates, atol=1e-7, rtol=0)
        assert found.transform(two[-5:]).status.tolist() == [int(Status.EMPTY)] * 5


def test_a_method_is_made_again_from_its_spec():
    for method in (ld.lle(7, 3, 1e-2), ld.spectral(9, 1, "gaussian", 0.5)):
        assert embed_method(method.spec).spec == method.spec
    for wrong, given in (
        ("lle", "lllle"),
        ("'reg'", {"name": "lle", "regg": 1}),
        ("components", {"name": "lle", "components": 0}),
    ):
        with pytest.raises(UsageError, match=wrong):
            embed_method(given)


def test_factors_that_fill_up_are_not_made():
    """THEORY B6: what decides is how far near rows are apart when near rows are numbered together."""
    index = ld.Exact(np.random.default_rng(0).normal(size=(700, 16)))
    thick, thin = (
        ld.graph(index, method=ld.barycenter(10)),
        ld.graph(ld.Exact(ROLL), method=ld.barycenter(10)),
    )
    with mock.patch.object(eigen, "factor_bytes", lambda rows: 13 * 150 * rows):
        assert [eigen._fits(eigen._matrix(graph)) for graph in (thick, thin)] == [False, True]
    assert eigen.factor_bytes(500_000) == 16_000_000_000


def test_two_groups_without_a_way_back_are_told_apart():
    """I - W has two null vectors where two groups lead nowhere but to themselves: no inverse of it exists."""
    ring = np.arange(400)
    heads = np.concatenate([ring, ring, [400]] * 2)
    heads[801:] += 401
    tails = np.concatenate(
        [(ring + 1) % 400, (ring + 7) % 400, [0], 401 + (ring + 1) % 400, 401 + (ring + 7) % 400, [401]]
    )
    heads, tails = np.append(heads, [400, 801]), np.append(tails, [401, 0])
    graph = ld.Graph.of_pairs(heads, tails, nodes=802).normalized("rows")
    found = eigen.lle_axes(graph, 1)
    assert found.settled
    assert found.values[0] == pytest.approx(0, abs=1e-13)
    side = found.vectors[:, 0]
    assert side[:400].std() < 1e-6
    assert side[401:801].std() < 1e-6
    assert abs(float(side[0] - side[401])) > 0.01
