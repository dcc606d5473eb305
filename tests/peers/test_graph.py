"""Graphs in memory, against scikit-learn's and SciPy's."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.manifold._locally_linear import barycenter_kneighbors_graph
from sklearn.neighbors import kneighbors_graph, radius_neighbors_graph

import locdist as ld
from locdist.errors import UsageError
from locdist.local.graph import Edges, blocks

ROWS = 300
POINTS = np.random.default_rng(0).normal(size=(ROWS, 3))
INDEX = ld.Exact(POINTS)


def matrix(graph: ld.Graph) -> np.ndarray:
    parts = (graph.weights.numpy(), graph.ends.numpy(), graph.starts.numpy())
    return sp.csr_matrix(parts, shape=(len(graph), graph.nodes)).toarray()


def random(rows: int, density: float, seed: int = 0) -> tuple[ld.Graph, np.ndarray]:
    """A directed graph with a few edges, and its matrix."""
    found = sp.random(rows, rows, density, random_state=seed).tocoo()
    edges = Edges(*(torch.tensor(part) for part in (found.row, found.col)), torch.tensor(found.data))
    return ld.Graph.of(Edges(edges.heads.long(), edges.tails.long(), edges.weights), rows), found.toarray()


def test_nearest_neighbors_are_those_of_scikit_learn():
    assert (matrix(ld.graph(INDEX, k=7)) == kneighbors_graph(POINTS, 7).toarray()).all()


@pytest.mark.parametrize("radius", [0.5, 1.0, 20.0])
def test_everybody_in_the_radius_is_found(radius: float):
    with mock.patch("locdist.local.links.FIRST", 4):  # so that most rows are asked again, some several times
        found = ld.graph(INDEX, radius=radius)
    assert (matrix(found) == radius_neighbors_graph(POINTS, radius).toarray()).all()


def test_k_bounds_a_radius():
    expected = np.minimum(
        *(f(POINTS, n).toarray() for f, n in ((kneighbors_graph, 5), (radius_neighbors_graph, 0.6)))
    )
    assert (matrix(ld.graph(INDEX, k=5, radius=0.6)) == expected).all()


def test_edges_weigh_what_the_kernel_says():
    squares = ((POINTS[:, None] - POINTS) ** 2).sum(2)
    expected = np.exp(-squares / (2 * 0.5**2)) * radius_neighbors_graph(POINTS, 0.7).toarray()
    found = ld.graph(INDEX, radius=0.7, kernel="gaussian", bandwidth=0.5)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-15)


def test_edges_weigh_what_neighbors_count_in_a_method():
    expected = barycenter_kneighbors_graph(POINTS, 8, reg=1e-3).toarray()
    np.testing.assert_allclose(matrix(ld.graph(INDEX, method=ld.barycenter(8))), expected, rtol=1e-8)


def test_both_ways():
    graph, weights = random(80, 0.05)
    back = weights.T
    for how, expected in (
        ("union", np.maximum(weights, back)),
        ("mutual", np.minimum(weights, back)),
        ("mean", (weights + back) / 2),
    ):
        found = graph.symmetrized(how)
        np.testing.assert_array_equal(matrix(found), expected)
        assert found.symmetric
    assert not graph.symmetric


def test_a_negative_weight_is_not_less_than_no_edge():
    pairs = torch.tensor([0, 1, 1]), torch.tensor([1, 0, 2])
    graph = ld.Graph.of(Edges(*pairs, torch.tensor([-3.0, -1.0, -2.0]).double()), 3)
    expected = np.array([[0, -1, 0], [-1, 0, -2], [0, -2, 0]])
    np.testing.assert_array_equal(matrix(graph.symmetrized("union")), expected)


@pytest.mark.parametrize("density", [0.002, 0.01, 0.03])
def test_components_are_those_of_scipy(density: float):
    graph, weights = random(200, density)
    count, labels = connected_components(weights, directed=False)
    found = graph.components().numpy()
    assert len(set(found)) == count
    assert len(set(zip(found, labels, strict=True))) == count
    assert all(found[found] == found)


def test_a_long_chain_is_one_component():
    order = torch.from_numpy(np.random.default_rng(0).permutation(5000))
    chain = ld.Graph.of(Edges(order[1:], order[:-1], torch.ones(4999, dtype=torch.float64)), 5000)
    assert not chain.components().any()


def test_products_and_normalizations():
    graph, weights = random(60, 0.1)
    state = torch.from_numpy(np.random.default_rng(1).normal(size=(60, 4)))
    np.testing.assert_allclose(graph.times(state), weights @ state.numpy(), atol=1e-14)
    parts = [
        part.times(state[first : first + 20])
        for first, part in zip((0, 20, 40), blocks(graph, [0, 20, 40, 60]), strict=True)
    ]
    np.testing.assert_allclose(sum(parts), weights @ state.numpy(), atol=1e-14)
    degrees = weights.sum(1)
    rows = np.divide(weights, degrees[:, None], where=degrees[:, None] > 0, out=np.zeros_like(weights))
    np.testing.assert_allclose(matrix(graph.normalized("rows")), rows, atol=1e-15)
    both = (weights + weights.T) / 2
    size = 1 / np.sqrt(both.sum(1))
    found = graph.symmetrized("mean").normalized("both")
    np.testing.assert_allclose(matrix(found), both * size[:, None] * size, atol=1e-14)


@pytest.mark.parametrize(
    "asked, wrong",
    [
        ({"k": 0}, "k, a whole number"),
        ({"k": ROWS}, "the other rows"),
        ({"radius": -1.0}, "positive radius"),
        ({"symmetrize": "men"}, "union"),
        ({"bandwidth": 1.0}, "a kernel"),
        ({"method": "local-vote"}, "linear smoother"),
        ({"method": "barycenter", "k": 3}, "a method, or k"),
        ({"kernel": "dot-product"}, "metric 'ip'"),
    ],
)
def test_what_makes_no_edges_is_refused(asked: dict[str, object], wrong: str):
    with pytest.raises(UsageError, match=wrong):
        ld.graph(INDEX, **asked)
