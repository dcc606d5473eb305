"""Labels that spread over graphs, against scikit-learn, direct solves, and loops written out."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import spsolve
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import Status
from locdist.local.targets import Reinforce, TargetLoop
from locdist.methods.labels import label_method, relaxation_labeling

ROWS, CLASSES = 200, 3
_RNG = np.random.default_rng(0)
POINTS = _RNG.normal(size=(ROWS, 2))
LABELS = np.full(ROWS, -1)
LABELS[_RNG.permutation(ROWS)[:15]] = np.arange(15) % CLASSES
GRAPH = ld.graph(ld.Exact(POINTS), k=8, kernel="gaussian", bandwidth=0.5, symmetrize="union")
ONES = np.eye(CLASSES)[LABELS] * (LABELS >= 0)[:, None]


def matrix(graph: ld.Graph) -> sp.csr_matrix:
    parts = (graph.weights.numpy(), graph.ends.numpy(), graph.starts.numpy())
    return sp.csr_matrix(parts, shape=(len(graph), graph.nodes))


WEIGHTS = matrix(GRAPH)
DEGREES = np.asarray(WEIGHTS.sum(1)).ravel()


def test_the_graph_of_the_tests_is_connected():
    assert not GRAPH.components().any()


def test_propagation_is_that_of_scikit_learn():
    peer = LabelPropagation(kernel=lambda one, other: WEIGHTS, max_iter=100_000, tol=1e-12).fit(
        POINTS, LABELS
    )
    found = ld.label_propagation(tolerance=1e-13, sweeps=100_000)(GRAPH, LABELS)
    np.testing.assert_allclose(found.values, peer.label_distributions_, atol=1e-9)
    assert not found.status.any()


def test_propagation_is_harmonic():
    walk, known = sp.diags(1 / DEGREES) @ WEIGHTS, LABELS >= 0
    inside, border = walk[~known][:, ~known], walk[~known][:, known]
    expected = spsolve(sp.csc_matrix(sp.eye((~known).sum()) - inside), border @ ONES[known])
    found = ld.label_propagation(tolerance=1e-13, sweeps=100_000)(GRAPH, LABELS).values.numpy()
    np.testing.assert_allclose(found[~known], expected, atol=1e-8)
    np.testing.assert_array_equal(found[known], ONES[known])


def test_a_shorter_step_ends_at_the_same():
    one, other = (ld.label_propagation(alpha, 1e-13, 100_000)(GRAPH, LABELS).values for alpha in (1.0, 0.5))
    torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


@pytest.mark.parametrize("alpha", [0.2, 0.9])
def test_spreading_is_that_of_scikit_learn_and_of_a_direct_solve(alpha: float):
    peer = LabelSpreading(kernel=lambda one, other: WEIGHTS, alpha=alpha, max_iter=10_000, tol=1e-13).fit(
        POINTS, LABELS
    )
    found = ld.label_spreading(alpha, 1e-14, 10_000)(GRAPH, LABELS).values
    np.testing.assert_allclose(found, peer.label_distributions_, atol=1e-9)
    size = sp.diags(DEGREES**-0.5)
    direct = spsolve(sp.csc_matrix(sp.eye(ROWS) - alpha * size @ WEIGHTS @ size), (1 - alpha) * ONES)
    np.testing.assert_allclose(found, direct / direct.sum(1, keepdims=True), atol=1e-8)


def test_poisson_learning_solves_its_equation():
    known = LABELS >= 0
    source = (ONES - ONES[known].mean(0)) * known[:, None]
    laplacian = np.diag(DEGREES) - WEIGHTS.toarray()
    expected = np.linalg.lstsq(np.vstack([laplacian, DEGREES]), np.vstack([source, np.zeros(CLASSES)]))[0]
    found = ld.poisson_learning(1e-12, 100_000)(GRAPH, LABELS)
    np.testing.assert_allclose(found.values, expected, atol=1e-8)
    assert not found.status.any()


def test_relaxation_is_the_loop_written_out():
    table = np.array([[1, 0.2, 0], [0.2, 1, 0.5], [0, 0.5, 1]])
    shares = np.where(ONES.any(1, keepdims=True), 0.7 * ONES + 0.1, 1 / 3)
    rises = []
    for _ in range(20):
        support = WEIGHTS @ shares @ table.T
        rises.append((shares * support).sum())
        shares = shares * support
        shares /= shares.sum(1, keepdims=True)
    method = ld.relaxation_labeling(table.tolist(), confidence=0.7, rule="change", tolerance=0.0, sweeps=20)
    found = method(GRAPH, LABELS)
    np.testing.assert_allclose(found.values, shares, atol=1e-12)
    assert set(found.status.tolist()) == {int(Status.NOT_CONVERGED)}
    assert (np.diff(rises) > 0).all()


def test_consistency_never_falls():
    """Identities, section 4: symmetric weights and compatibilities, from random shares."""
    rng = np.random.default_rng(3)
    table = rng.random((CLASSES, CLASSES))
    loop = TargetLoop(Reinforce(tuple(map(tuple, table + table.T))), "change", 0.0, 50)
    begun = torch.from_numpy(rng.dirichlet(np.ones(CLASSES), ROWS))
    told = []
    state = begun
    for _ in range(50):
        state, moved = loop.step(state, GRAPH.times(state), torch.zeros_like(state))
        told.append(moved.consistency)
    assert np.diff(told).min() > -1e-12 * told[0]
    assert told[-1] > 1.2 * told[0]


def test_the_local_mode_stops_when_no_label_changes():
    walk = sp.diags(1 / DEGREES) @ WEIGHTS
    states = [np.where(ONES.any(1, keepdims=True), 0.9 * ONES + 0.1 / 3, 1 / 3)]
    while len(states) < 200:
        states.append(walk @ states[-1])
    labels = [np.where(np.ptp(state, axis=1) > 1e-14, state.argmax(1), -1) for state in states]
    rests = next(sweep for sweep in range(1, 200) if (labels[sweep] == labels[sweep - 1]).all())
    found = ld.relaxation_labeling(form="mean", rule="labels")(GRAPH, LABELS)
    np.testing.assert_allclose(found.values, states[rests], atol=1e-12)
    assert rests > 2


def chain(links: list[tuple[int, int]], nodes: int, both: bool = True) -> ld.Graph:
    heads, tails = torch.tensor(links).T
    return ld.Graph.of_pairs(heads, tails, nodes=nodes, both=both)


@pytest.mark.parametrize(
    "method", [ld.label_propagation, ld.label_spreading, ld.relaxation_labeling, ld.poisson_learning]
)
def test_what_no_label_reaches_has_a_status_and_no_label(method: Callable[[], object]):
    """Two triangles with a label each, one with two, and one without any."""
    links = [(3 * part + a, 3 * part + b) for part in range(4) for a, b in ((0, 1), (1, 2), (2, 0))]
    labels = [0, -1, -1, 1, -1, -1, -1, -1, -1, 0, 1, -1]
    found = method()(chain(links, 12), labels)
    assert found.status.tolist()[6:9] == [int(Status.EMPTY)] * 3
    assert found.values[6:9].isnan().all()
    assert found.values[[0, 1, 2, 3, 4, 5, 9, 10]].argmax(1).tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert not found.values[:6].isnan().any()


def test_labels_follow_edges_that_lead_one_way():
    found = ld.label_propagation()(chain([(1, 0), (2, 1), (0, 3)], 4, both=False), [1, -1, -1, -1])
    assert found.status.tolist() == [0, 0, 0, int(Status.EMPTY)]
    with pytest.raises(UsageError, match="both ways"):
        ld.label_spreading()(chain([(1, 0)], 2, both=False), [0, -1])


def test_shares_are_taken_for_labels():
    found = ld.label_propagation()(chain([(0, 1), (1, 2)], 3), np.array([[0.25, 0.75], [0, 0], [1, 0]]))
    torch.testing.assert_close(found.values[1], torch.tensor([0.625, 0.375], dtype=torch.float64))


def test_a_method_is_made_again_from_its_spec():
    for method in (ld.label_spreading(0.5), relaxation_labeling([[1, 0.5], [0.5, 1]], rule="labels")):
        assert label_method(method.spec) == method
    with pytest.raises(UsageError, match="label-propagation"):
        label_method("label-propagaton")
    with pytest.raises(UsageError, match="'alpha'"):
        label_method({"name": "label-spreading", "alhpa": 1})
