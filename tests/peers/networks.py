"""How far networks of models are from other people's code, for the README's table."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

import locdist as ld

NODES, WIDTH, EACH = 6, 3, 12
_RNG = np.random.default_rng(0)
OWNERS = np.repeat(np.arange(NODES), EACH)
FEATURES = _RNG.normal(size=(NODES * EACH, WIDTH))
TARGETS = (FEATURES * np.where(OWNERS[:, None] < 3, 1.0, [1, -1, 2])).sum(1) + 0.3 * _RNG.normal(size=72)
HEADS, TAILS = np.triu_indices(NODES, 1)
WEIGHTS = _RNG.uniform(0.2, 2.0, len(HEADS))
GRAPH = ld.Graph.of_pairs(HEADS, TAILS, WEIGHTS, nodes=NODES)
SHARED = _RNG.normal(size=(9, WIDTH))
Array = NDArray[np.float64]


def _apart(ours: object, theirs: Array) -> float:
    return float((np.abs(np.asarray(ours) - theirs) / (1 + np.abs(theirs))).max())


def _solved(strength: float, adjacency: Array, metric: Array) -> Array:
    """The minimum of squares of the nodes and of strength A_ij u'Gu / 2, by one dense solve."""
    whole = np.kron(strength * (np.diag(adjacency.sum(1)) - adjacency), metric)
    right = np.zeros(len(whole))
    for node in range(NODES):
        here, own = slice(node * WIDTH, (node + 1) * WIDTH), node == OWNERS
        whole[here, here] += FEATURES[own].T @ FEATURES[own]
        right[here] = FEATURES[own].T @ TARGETS[own]
    return np.linalg.solve(whole, right).reshape(NODES, WIDTH)


def _adjacency() -> Array:
    found = np.zeros((NODES, NODES))
    found[HEADS, TAILS] = found[TAILS, HEADS] = WEIGHTS
    return found


def gtvmin() -> float:
    """Squares by a dense solve, norms of one parameter by the bounded least squares of their dual."""
    squared = ld.gtvmin(2.0, "squared", intercept=False, tolerance=1e-12)
    one = _apart(squared(GRAPH, OWNERS, FEATURES, TARGETS).values, _solved(2.0, _adjacency(), np.eye(WIDTH)))
    ends = np.zeros((len(HEADS), NODES))
    ends[np.arange(len(HEADS)), HEADS], ends[np.arange(len(HEADS)), TAILS] = 1, -1
    levels = np.array([TARGETS[node == OWNERS].mean() for node in range(NODES)])
    dual = lsq_linear(ends.T, levels, (-0.1 * WEIGHTS, 0.1 * WEIGHTS), method="bvls", tol=1e-14)
    norm = ld.gtvmin(0.1, intercept=False, tolerance=1e-12)
    found = norm(GRAPH, np.arange(NODES), np.ones((NODES, 1)), levels).values[:, 0]
    return max(one, _apart(found, levels - ends.T @ dual.x))


def fed_relax() -> float:
    method = ld.fed_relax(LinearRegression(fit_intercept=False), 1.7, tolerance=1e-13, rounds=5000)
    slopes = [each.coef_ for each in method(GRAPH, OWNERS, FEATURES, TARGETS, SHARED).fitted]
    return _apart(slopes, _solved(1.7, _adjacency(), SHARED.T @ SHARED / len(SHARED)))


def dem_learn() -> float:
    groups = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    alike = groups[:, :, None] == groups[:, None]
    adjacency = (alike / alike.sum(2, keepdims=True) ** 2).sum(0) * (1 - np.eye(NODES))
    found = ld.dem_learn(3.0, intercept=False, tolerance=1e-14)(groups, OWNERS, FEATURES, TARGETS).values
    return _apart(found, _solved(3.0, adjacency, np.eye(WIDTH)))


def logifold() -> float:
    labels = np.digitize(TARGETS, [-1.0, 1.0])
    named = [(str(strength), LogisticRegression(C=strength)) for strength in (0.01, 0.1, 1.0)]
    peer = VotingClassifier(named, voting="soft").fit(FEATURES, labels)
    return _apart(ld.logifold(peer.estimators_)(SHARED).values, peer.predict_proba(SHARED))
