"""The eigenvectors of a graph that an embedding is made of: a few of the smallest of a large sparse matrix.

Small matrices are factored (shift and invert, Lanczos). Factors of the neighborhoods of many dimensions fill
up, so large ones are only multiplied by: LOBPCG, with a Chebyshev polynomial in the place of the inverse.
Both are SciPy's.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg
from torch import Tensor

from locdist.local.embedding import signed
from locdist.local.graph import Graph

Matrix = NDArray[np.float64]
DENSE, FACTORED = 300, 3000  # rows
DEGREE, SPREAD = 400, 1e5  # of the polynomial, and of the eigenvalues that it inverts
TOLERANCE, MOST = 1e-11, 100  # of a residual, relative to the largest eigenvalue; iterations
SPARE = 4  # vectors more than are asked for: the last ones of a block settle last


@dataclass(frozen=True, eq=False)
class Axes:
    """Coordinates.

    Attributes
    ----------
    vectors : Tensor [n, q]
    values : tuple of float
        Eigenvalues, smallest first.
    settled : bool
        Whether the residuals are small.
    """

    vectors: Tensor
    values: tuple[float, ...]
    settled: bool


def lle_axes(graph: Graph, components: int) -> Axes:
    """Eigenvectors 2, ..., q + 1 of (I - W)'(I - W), of length 1; W the weights of a connected graph."""
    away = (sp.eye_array(len(graph), format="csr") - _matrix(graph)).tocsr()
    back = away.T.tocsr()
    return _smallest(away, back, np.ones(len(graph)), components)


def spectral_axes(graph: Graph, components: int) -> Axes:
    """Eigenvectors 2, ..., q + 1 of I - D^-1 W, D^-½ times those of length 1 of I - D^-½ W D^-½."""
    root = graph.degrees.sqrt().numpy()
    laplacian = (sp.eye_array(len(graph), format="csr") - _matrix(graph.normalized("both"))).tocsr()
    found = _smallest(laplacian, None, root, components)
    return Axes(signed(found.vectors / torch.from_numpy(root)[:, None]), found.values, found.settled)


def _matrix(graph: Graph) -> Any:
    parts = (graph.weights.numpy(), graph.ends.numpy(), graph.starts.numpy())
    return sp.csr_array(parts, shape=(len(graph), graph.nodes))


def _smallest(right: Any, left: Any, null: Matrix, count: int) -> Axes:
    """The smallest eigenvectors but `null` of left right, or of a symmetric right alone."""
    rows, many = len(null), null / np.linalg.norm(null)

    def times(state: Matrix) -> Matrix:
        found: Matrix = right @ state if left is None else left @ (right @ state)
        return found

    top = _largest(times, rows)
    if rows <= FACTORED:
        whole = right if left is None else left @ right
        values, vectors = _factored(whole, many, count, top)
    else:
        values, vectors = _iterated(times, many, count, top)
    residuals = np.linalg.norm(times(vectors) - vectors * values, axis=0)
    settled = bool((residuals <= 1e3 * TOLERANCE * top).all())
    return Axes(signed(torch.from_numpy(vectors)), tuple(map(float, values)), settled)


def _factored(whole: Any, null: Matrix, count: int, top: float) -> tuple[Matrix, Matrix]:
    # the eigenvector that is known is moved out of the way
    if len(null) <= max(DENSE, 2 * count + 2):
        values, vectors = np.linalg.eigh(whole.toarray() + top * np.outer(null, null))
        return values[:count], vectors[:, :count]
    begin = _random(len(null), 1)[:, 0]
    values, vectors = eigsh(whole.tocsc(), count + 1, sigma=-TOLERANCE * top, v0=begin)
    order = np.argsort(values)
    values, vectors = values[order], vectors[:, order]
    other = np.argsort(np.abs(null @ vectors))[:count]  # the known one is not orthogonal to itself
    return values[np.sort(other)], vectors[:, np.sort(other)]


def _iterated(
    times: Callable[[Matrix], Matrix], null: Matrix, count: int, top: float
) -> tuple[Matrix, Matrix]:
    rows = len(null)

    def operator(multiply: Callable[[Matrix], Matrix]) -> Any:
        return LinearOperator((rows, rows), matvec=multiply, matmat=multiply, dtype=np.float64)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what does not settle is told by its residuals
        values, vectors = lobpcg(
            operator(times), _random(rows, count + SPARE), M=operator(_inverse(times, top)), Y=null[:, None],
            largest=False, tol=TOLERANCE * top, maxiter=MOST,
        )  # fmt: skip
    order = np.argsort(values)[:count]
    return values[order], vectors[:, order]


def _inverse(times: Callable[[Matrix], Matrix], top: float) -> Callable[[Matrix], Matrix]:
    """About the inverse for eigenvalues from top / SPREAD to top: Chebyshev's iteration, from 0."""
    middle, half = (top + top / SPREAD) / 2, (top - top / SPREAD) / 2

    def apply(residual: Matrix) -> Matrix:
        left, step = residual.copy(), 1 / middle
        toward = left.copy()
        found = step * toward
        for number in range(1, DEGREE):
            left = residual - times(found)
            back = (half * step) ** 2 / (2 if number == 1 else 4)
            step = 1 / (middle - back / step)
            toward = left + back * toward
            found += step * toward
        return found

    return apply


def _largest(times: Callable[[Matrix], Matrix], rows: int) -> float:
    """A bound of the largest eigenvalue, from a few steps of the power method."""
    state = _random(rows, 1)
    for _ in range(30):
        state = times(state / np.linalg.norm(state))
    return 1.2 * float(np.linalg.norm(state))


def _random(rows: int, columns: int) -> Matrix:
    return np.random.default_rng(0).standard_normal((rows, columns))
