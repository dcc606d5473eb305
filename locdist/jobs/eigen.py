"""The eigenvectors of a graph that an embedding is made of: a few of the smallest of a large sparse matrix.

Where neighborhoods are those of a curve, a surface or a thin solid, factors of the matrix stay sparse, and a
few solves by Lanczos are enough. Of locally linear embedding I - W is factored, never (I - W)'(I - W), whose
condition is the square. Factors of neighborhoods in many dimensions fill up: such a large matrix is only
multiplied by: LOBPCG, with a Chebyshev polynomial in the place of the inverse. All of them are SciPy's.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg, splu
from torch import Tensor

from locdist.local.embedding import signed
from locdist.local.graph import Graph

Matrix = NDArray[np.float64]
Step = Callable[[Matrix], Matrix]
DENSE = 300  # rows
FACTOR, FEW, MANY = 13, 2 << 30, 32_000  # bytes of a factor: of a row and column, of any, of a row
SHIFT, EXACT = 1e-13, 1e-6  # of the largest eigenvalue; relative, of an eigenvalue that is found in two ways
DEGREE, SPREAD = 400, 1e5  # of the polynomial, and of the eigenvalues that it inverts
TOLERANCE, MOST = 1e-11, 100  # of a residual, relative to the largest eigenvalue; iterations
SPARE = 4  # vectors more than are asked for: the last ones of a block settle last
_ORDERED = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


@dataclass(frozen=True, eq=False)
class Axes:
    """Coordinates.

    Attributes
    ----------
    vectors : Tensor [n, q]
    values : tuple of float
        Eigenvalues, smallest first.
    settled : bool
        Whether they are exact to many digits.
    """

    vectors: Tensor
    values: tuple[float, ...]
    settled: bool


def lle_axes(graph: Graph, components: int) -> Axes:
    """Eigenvectors 2, ..., q + 1 of (I - W)'(I - W), of length 1; W the weights of a connected graph."""
    away = (sp.eye_array(len(graph), format="csr") - _matrix(graph)).tocsr()
    return _smallest(Squared(away, np.ones(len(graph)), away.T.tocsr()), components)


def spectral_axes(graph: Graph, components: int) -> Axes:
    """Eigenvectors 2, ..., q + 1 of I - D^-1 W, D^-½ times those of length 1 of I - D^-½ W D^-½."""
    root = graph.degrees.sqrt().numpy()
    laplacian = (sp.eye_array(len(graph), format="csr") - _matrix(graph.normalized("both"))).tocsr()
    found = _smallest(Squared(laplacian, root), components)
    return Axes(signed(found.vectors / torch.from_numpy(root)[:, None]), found.values, found.settled)


def factor_bytes(rows: int) -> int:
    """The memory that factors of so many rows may take; a matrix that wants more is not factored.

    min(24 rows², max(2 GiB, 32,000 rows))
    """
    return min(24 * rows**2, max(FEW, MANY * rows))


@dataclass(frozen=True, eq=False)
class Squared:
    """The matrix left right, or a symmetric right alone, and the vector that it makes 0."""

    right: Any
    null: Matrix
    left: Any = None

    def __call__(self, state: Matrix) -> Matrix:
        found: Matrix = self.right @ state if self.left is None else self.left @ (self.right @ state)
        return found

    @property
    def whole(self) -> Any:
        """Multiplied out."""
        return self.right if self.left is None else self.left @ self.right

    @property
    def aside(self) -> Step:
        """What takes the null vector out of states [n] or [n, c]."""
        unit = self.null / np.linalg.norm(self.null)
        return lambda state: state - np.multiply.outer(unit, unit @ state).reshape(state.shape)


def _matrix(graph: Graph) -> Any:
    parts = (graph.weights.numpy(), graph.ends.numpy(), graph.starts.numpy())
    return sp.csr_array(parts, shape=(len(graph), graph.nodes))


def _smallest(matrix: Squared, count: int) -> Axes:
    """The smallest eigenvectors but the null vector."""
    rows = len(matrix.null)
    top = _largest(matrix, rows)
    if rows <= max(DENSE, 2 * count + 2):
        unit = matrix.null / np.linalg.norm(matrix.null)
        values, vectors = np.linalg.eigh(matrix.whole.toarray() + top * np.outer(unit, unit))
        return _axes(values[:count], vectors[:, :count], True)
    found = None
    for inverse, shift in _inverses(matrix, top):
        found = _inverted(matrix, inverse, shift, count) or found
        if found is not None and found.settled:
            break
    return found or _iterated(matrix, count, top)


def _axes(values: Matrix, vectors: Matrix, settled: bool) -> Axes:
    return Axes(signed(torch.from_numpy(vectors)), tuple(map(float, values)), settled)


def _inverses(matrix: Squared, top: float) -> Iterator[tuple[Step, float]]:
    """Inverses of the matrix plus a shift, without its null vector, the cheapest first: those that fit.

    A factor without exchanges of rows is the smallest, and of matrices like these it is nearly always exact
    enough; whether it was is seen by the eigenvalues.
    """
    if matrix.left is not None and _fits(matrix.right):
        for ordered in (_ORDERED, {}):
            yield from ((inverse, 0.0) for inverse in _halves(matrix, ordered))
    if _fits(matrix.whole):
        shift = SHIFT * top
        factor = splu((matrix.whole + shift * sp.eye_array(len(matrix.null))).tocsc(), **_ORDERED)
        yield lambda state: matrix.aside(factor.solve(matrix.aside(state))), shift


def _halves(matrix: Squared, ordered: Any) -> Iterator[Step]:
    """The inverse of A'A, from factors of A; none where they do not exist.

    A has rank n - 1, A 1 = 0 and u'A = 0. With 1 added to the diagonal at the row that leads the most others,
    it has an inverse, and that solves A x = y for all y that u is orthogonal to.
    """
    rows = len(matrix.null)
    pinned = int(np.bincount(matrix.right.indices, minlength=rows).argmax())
    one = np.zeros(rows)
    one[pinned] = 1.0
    try:
        factor = splu((matrix.right + sp.diags_array(one)).tocsc(), **ordered)
    except RuntimeError:  # exactly singular: there is another way
        return
    aside, unit = matrix.aside, factor.solve(one, trans="T")
    unit /= np.linalg.norm(unit)

    def apply(state: Matrix) -> Matrix:
        half = factor.solve(aside(state), trans="T")
        return aside(factor.solve(half - unit * (unit @ half)))

    yield apply


def _fits(matrix: Any) -> bool:
    """Whether factors of a square matrix are within `factor_bytes`.

    A row of them has about as many numbers as lie between it and its first neighbor when near rows are
    numbered together (reverse Cuthill-McKee), or fewer.
    """
    rows = matrix.shape[0]
    pattern = (abs(matrix) + abs(matrix).T).tocsr()
    order = reverse_cuthill_mckee(pattern, symmetric_mode=True)
    place = np.empty(rows, np.int64)
    place[order] = np.arange(rows)
    first = np.minimum.reduceat(place[pattern.indices], pattern.indptr[:-1])
    width = np.maximum(place - first, 0).sum(dtype=np.float64)
    return bool(FACTOR * width <= factor_bytes(rows))


def _inverted(matrix: Squared, inverse: Step, shift: float, count: int) -> Axes | None:
    """The largest eigenvectors of the inverse; None where it is none."""
    rows = len(matrix.null)
    try:
        turned, vectors = eigsh(_operator(inverse, rows), count, which="LA", v0=_random(rows, 1)[:, 0])
    except RuntimeError:  # of an inverse that is not finite
        return None
    vectors = np.linalg.qr(vectors[:, np.argsort(-turned)])[0]
    values = (vectors * matrix(vectors)).sum(0)
    apart = np.abs(1 / np.sort(turned)[::-1] - shift - values)
    return _axes(values, vectors, bool((apart <= EXACT * np.abs(values) + 0.01 * shift).all()))


def _iterated(matrix: Squared, count: int, top: float) -> Axes:
    rows = len(matrix.null)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what does not settle is told by its residuals
        values, vectors = lobpcg(
            _operator(matrix, rows), _random(rows, count + SPARE), M=_operator(_chebyshev(matrix, top), rows),
            Y=matrix.null[:, None], largest=False, tol=TOLERANCE * top, maxiter=MOST,
        )  # fmt: skip
    order = np.argsort(values)[:count]
    values, vectors = values[order], vectors[:, order]
    residuals = np.linalg.norm(matrix(vectors) - vectors * values, axis=0)
    return _axes(values, vectors, bool((residuals <= 1e-5 * values + 1e-14 * top).all()))


def _operator(multiply: Step, rows: int) -> Any:
    return LinearOperator((rows, rows), matvec=multiply, matmat=multiply, dtype=np.float64)


def _chebyshev(times: Step, top: float) -> Step:
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


def _largest(times: Step, rows: int) -> float:
    """A bound of the largest eigenvalue, from a few steps of the power method."""
    state = _random(rows, 1)
    for _ in range(30):
        state = times(state / np.linalg.norm(state))
    return 1.2 * float(np.linalg.norm(state))


def _random(rows: int, columns: int) -> Matrix:
    return np.random.default_rng(0).standard_normal((rows, columns))
