"""Lazy maps and the lazy autoencoder: unsupervised learning by local models of the rows, in memory."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.errors import UsageError
from locdist.jobs.request import is_whole
from locdist.local import lazy
from locdist.local.answers import Answers
from locdist.local.layer import Layer
from locdist.local.lazy import Rested, Walk
from locdist.methods.embedded import lazy_codes
from locdist.methods.method import ArrayLike, Method
from locdist.methods.named import local_mean
from locdist.search.exact import Exact, matrix

FEWEST, MOST_ROWS = 3, 10_000  # of an autoencoder, which holds all pairs of rows
_PAIRS = 4 << 20  # numbers of rows with gaps beside known ones, held at once


def lazy_map(
    method: Method,
    keys: ArrayLike | Tensor,
    start: ArrayLike | Tensor | None = None,
    *,
    dimensions: int = 2,
    keep: bool = False,
    tolerance: float = 1e-10,
    steps: int = 2000,
    seed: int = 0,
) -> Rested:
    """Iterate a linear local model of the rows themselves, Y ← T(X; X, Y), to where it rests.

    Without `keep` the map alone: weights make one value of all. With `keep` each step takes the mean away and
    the scale out, so that the leading eigenvectors besides the constant come up, the largest first: with a
    hollow, symmetric kernel they are Laplacian eigenmaps. With labels to start from, every row takes the
    label of the largest weight until none changes: local clustering.

    Parameters
    ----------
    method : Method
        Of k neighbors and linear in the targets: `ld.local_mean(10)`, `ld.barycenter(8)`, `ld.local_linear`.
        Whether rows are their own neighbors is the method's choice.
    keys : array [n, d]
    start : array [n, p] of float, or [n] of int, optional
        Values, or labels from 0; random values by default.
    dimensions : int
        Columns of random values.
    keep : bool
        Whether mean and scale are kept up.
    tolerance : float
        Largest change of a value (with `keep` of an eigenvalue) at which it rests.
    steps : int
        At most.
    seed : int
        Of random values.

    Returns
    -------
    Rested

    References
    ----------
    Belkin, Niyogi, *Laplacian Eigenmaps for Dimensionality Reduction*, Neural Computation 15, 2003.
    """
    if method.layer.k is None or method.loop is not None or not method.layer.model.traced:
        given = f"{method.name} with k={method.layer.k}"
        remedy = "Use ld.local_mean(10), say."
        raise UsageError("a method of k neighbors that is linear in the targets", given, remedy)
    if not (is_whole(steps) and steps >= 1 and is_whole(dimensions) and dimensions >= 1):
        raise UsageError("steps and dimensions of at least 1", f"{steps}, {dimensions}", "Correct them.")
    rows = _matrix(keys, "keys")
    index = Exact(rows, np.zeros(len(rows)))
    answers = method(index, rows, own=np.arange(len(rows)), want={"neighbors"})
    walk = Walk.of(answers)
    if start is None:
        begin = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(rows), dimensions)))
    else:
        begin = torch.as_tensor(np.asarray(start))
    if len(begin) != len(rows):
        raise UsageError(f"a start for each of {len(rows)} rows", f"{len(begin)}", "Align them.")
    if not begin.is_floating_point():
        return lazy.elected(walk, begin.long(), steps)
    begin = begin.double().reshape(len(rows), -1)
    iterate = lazy.settled if keep else lazy.repeated
    return iterate(walk, begin, tolerance, steps)


@dataclass(frozen=True, eq=False)
class LazyAutoencoder:
    """Codes of rows, and what they say of others; made by `lazy_autoencoder`.

    Parameters
    ----------
    rows : array [n, d]
    codes : array [n, p]
    encoder : Layer
        Of the codes, by distances of rows.
    decoder : Method
        Of the rows, by distances of codes.
    """

    rows: Tensor
    codes: Tensor
    encoder: Layer
    decoder: Method = field(default_factory=lambda: local_mean(None, "gaussian", 1.0))

    def encode(self, rows: ArrayLike | Tensor) -> Tensor:
        """Codes [q, p] of rows [q, d]: local means of the known ones, and of a known row its own."""
        return self.answers(torch.as_tensor(np.asarray(rows), dtype=torch.float64)).values

    def answers(self, rows: Tensor, bad: Tensor | None = None) -> Answers:
        """Codes and statuses of rows [q, d]; those that are `bad` [q] have none."""
        return self.encoder(Exact(self.rows, self.codes), rows, None, None, bad)

    def decode(self, codes: ArrayLike | Tensor) -> Tensor:
        """Rows [q, d] of codes [q, p]: local means of the known ones."""
        return self.decoder(Exact(self.codes, self.rows), codes).values

    def reconstruct(self, rows: ArrayLike | Tensor | None = None) -> Tensor:
        """Rows as their codes tell them; without any the known ones, each told by the others."""
        if rows is None:
            own = np.arange(len(self.rows))
            return self.decoder(Exact(self.codes, self.rows), self.codes, own=own).values
        return self.decode(self.encode(rows))

    def impute(self, rows: ArrayLike | Tensor, steps: int = 20, tolerance: float = 1e-6) -> Tensor:
        """Rows [q, d] with what is nan filled in: what the codes tell, again and again until it rests.

        They begin with the rows that are nearest in what is there.
        """
        given = torch.as_tensor(np.asarray(rows), dtype=torch.float64)
        if given.ndim != 2 or given.shape[1] != self.rows.shape[1] or given.isnan().all(1).any():
            told = f"shape {list(given.shape)}, or a row of nan alone"
            raise UsageError(f"rows [q, {self.rows.shape[1]}] with something in each", told, "Leave it out.")
        return self.filled(given, steps, tolerance)[0]

    def filled(self, rows: Tensor, steps: int = 20, tolerance: float = 1e-6) -> tuple[Tensor, Tensor]:
        """As `impute`, and which rows [q] rest; each moves on its own until it does."""
        missing = rows.isnan()
        found = torch.where(missing, self._nearest(rows), rows)
        moving = missing.any(1).nonzero()[:, 0]
        for _ in range(steps if len(moving) else 0):
            told = self.reconstruct(found[moving])
            after = torch.where(missing[moving], told, rows[moving])
            change = (after - found[moving]).abs().amax(1)
            found[moving] = after
            moving = moving[change > tolerance]
            if not len(moving):
                break
        rests = torch.ones(len(rows), dtype=torch.bool)
        rests[moving] = False
        return found, rests

    def _nearest(self, rows: Tensor) -> Tensor:
        """The known row that is nearest to each [q, d] in what is there; rows without gaps as they are."""
        found, gaps = rows.clone(), rows.isnan().any(1).nonzero()[:, 0]
        for part in torch.split(gaps, max(1, _PAIRS // max(1, self.rows.numel()))):
            squares = (rows[part, None] - self.rows).square().nan_to_num(0.0)
            found[part] = self.rows[squares.sum(2).argmin(1)]
        return found


def lazy_autoencoder(
    rows: ArrayLike | Tensor,
    dimensions: int = 2,
    *,
    k: int = 16,
    steps: int = 200,
    start: ArrayLike | Tensor | None = None,
) -> LazyAutoencoder:
    """An autoencoder without weights: each row has a code, and rows and codes are local means of each other.

    Codes z_i minimise Σ |x_i − x₋ᵢ(z_i)|², where x₋ᵢ(z) is the local mean of the other rows by the distances
    of their codes (unsupervised kernel regression); the own row is left out, or everything would be told by
    itself. All pairs of rows are held: give a sample of large data, and encode the rest.

    Parameters
    ----------
    rows : array [n, d]
    dimensions : int
        Of a code.
    k : int
        Neighbors of a row that its code is the local mean of.
    steps : int
        Of the descent.
    start : array [n, dimensions], optional
        Codes to begin with; by default the principal components. Where the rows lie folded,
        `lazy_map(..., keep=True)` begins better.

    Returns
    -------
    LazyAutoencoder

    References
    ----------
    Meinicke, Klanke, Memisevic, Ritter, *Principal Surfaces from Unsupervised Kernel Regression*, IEEE PAMI
    27, 2005.
    """
    values = torch.from_numpy(_matrix(rows, "rows").astype(np.float64))
    if not (is_whole(dimensions) and 1 <= dimensions <= values.shape[1]):
        given = f"{dimensions} of {values.shape[1]} columns"
        raise UsageError("dimensions from 1 to the columns of the rows", given, "Use 2, say.")
    if not FEWEST <= len(values) <= MOST_ROWS:
        raise UsageError(
            f"{FEWEST} to {MOST_ROWS:,} rows", f"{len(values):,}", "Give a sample, and encode the rest."
        )
    centred = values - values.mean(0)
    begin = torch.linalg.svd(centred, full_matrices=False)[0][:, :dimensions]
    if start is not None:
        begin = torch.as_tensor(np.asarray(start), dtype=torch.float64)
        if begin.shape != (len(values), dimensions):
            given = f"shape {list(begin.shape)}"
            raise UsageError(f"a start [{len(values)}, {dimensions}]", given, "Give a code for each row.")
    codes = lazy.unsupervised(values, begin, steps)
    return coder_of(values, codes, k)


def coder_of(rows: Tensor, codes: Tensor, k: int) -> LazyAutoencoder:
    """An autoencoder of rows [n, d] whose codes [n, p] are known."""
    return LazyAutoencoder(rows, codes, lazy_codes(codes.shape[1], min(k, len(rows))).extension(()))


def _matrix(given: ArrayLike | Tensor, name: str) -> NDArray[Any]:
    return matrix(given if isinstance(given, Tensor) else np.asarray(given), name)
