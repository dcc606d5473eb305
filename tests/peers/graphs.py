"""How far labels on a graph and embeddings are from other people's, for the README's table."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import spsolve
from sklearn.manifold import LocallyLinearEmbedding, spectral_embedding
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

import locdist as ld

ROWS, CLASSES = 200, 3
_RNG = np.random.default_rng(0)
POINTS = _RNG.normal(size=(ROWS, 2))
LABELS = np.full(ROWS, -1)
LABELS[_RNG.permutation(ROWS)[:15]] = np.arange(15) % CLASSES
ONES = np.eye(CLASSES)[LABELS] * (LABELS >= 0)[:, None]
GRAPH = ld.graph(ld.Exact(POINTS), k=8, kernel="gaussian", bandwidth=0.5, symmetrize="union")
WEIGHTS = sp.csr_matrix((GRAPH.weights.numpy(), GRAPH.ends.numpy(), GRAPH.starts.numpy()))
DEGREES = np.asarray(WEIGHTS.sum(1)).ravel()
SURE = {"tolerance": 1e-13, "sweeps": 100_000}
Array = NDArray[np.float64]


def _apart(ours: object, theirs: Array) -> float:
    return float((np.abs(np.asarray(ours) - theirs) / (1 + np.abs(theirs))).max())


def propagation() -> float:
    peer = LabelPropagation(kernel=lambda one, other: WEIGHTS, max_iter=100_000, tol=1e-13)
    theirs = peer.fit(POINTS, LABELS).label_distributions_
    return _apart(ld.label_propagation(**SURE)(GRAPH, LABELS).values, theirs)


def spreading() -> float:
    peer = LabelSpreading(kernel=lambda one, other: WEIGHTS, alpha=0.5, max_iter=100_000, tol=1e-14)
    theirs = peer.fit(POINTS, LABELS).label_distributions_
    return _apart(ld.label_spreading(0.5, **SURE)(GRAPH, LABELS).values, theirs)


def relaxation() -> float:
    shares = np.where(ONES.any(1, keepdims=True), 0.9 * ONES + 0.1 / CLASSES, 1 / CLASSES)
    for _ in range(30):
        shares = shares * (WEIGHTS @ shares)
        shares /= shares.sum(1, keepdims=True)
    return _apart(
        ld.relaxation_labeling(tolerance=0.0, sweeps=30, rule="change")(GRAPH, LABELS).values, shares
    )


def poisson() -> float:
    """A direct solve, with one unknown less: the sum weighted by degrees is zero."""
    known = LABELS >= 0
    source = (ONES - ONES[known].mean(0)) * known[:, None]
    laplacian = sp.csc_matrix(sp.diags(DEGREES) - WEIGHTS)
    theirs = np.zeros((ROWS, CLASSES))
    theirs[1:] = spsolve(laplacian[1:, 1:], source[1:])
    theirs -= DEGREES @ theirs / DEGREES.sum()
    return _apart(ld.poisson_learning(**SURE)(GRAPH, LABELS).values, theirs)


def lle() -> float:
    """Of the projections on the plane of the coordinates: they may be turned."""
    ours = ld.embed(ld.lle(10), ld.Exact(POINTS)).coordinates.numpy()
    theirs = LocallyLinearEmbedding(n_neighbors=10, reg=1e-3, eigen_solver="dense").fit(POINTS).embedding_
    return _apart(ours @ ours.T, theirs @ theirs.T)


def spectral() -> float:
    method = ld.spectral(8, 2, "gaussian", 0.5)
    both = ld.graph(ld.Exact(POINTS), **method.links)
    weights = sp.csr_matrix((both.weights.numpy(), both.ends.numpy(), both.starts.numpy()))
    theirs = spectral_embedding(weights, n_components=2, eigen_solver="arpack", random_state=0)
    ours = ld.embed(method, ld.Exact(POINTS)).coordinates.numpy()
    return _apart(ours * np.sign((ours * theirs).sum(0)), theirs)


DIFFERENCES: dict[str, Callable[[], float]] = {
    "label_propagation": propagation,
    "label_spreading": spreading,
    "relaxation_labeling": relaxation,
    "poisson_learning": poisson,
    "lle": lle,
    "spectral": spectral,
}
