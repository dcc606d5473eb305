"""Distances that a kernel sees: between queries and single rows, from the rows themselves.

Sums of squared differences, never the expanded form |q|² − 2qx + |x|², which loses the digits that decide
between near neighbors; and never a code's approximation (DESIGN law 8). One arithmetic for exact search and
for lists: two would disagree in the last digit, and an audit would count that as missed neighbors.
"""

from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.local.sphere import arcs

_NUMBERS = 1 << 19  # gathered at once: 4 MiB of float64, which fit the cache


def distances(queries: Tensor, keys: NDArray[Any], ids: Tensor, metric: str) -> Tensor:
    """Distances of each query to its own rows.

    Parameters
    ----------
    queries : Tensor [q, d]
    keys : ndarray [n, d]
        float32 or float64, C-contiguous; may be mapped.
    ids : Tensor [q, k]
        Rows of `keys`; −1 where missing.
    metric : str
        "l2" and "cosine": squared Euclidean; "haversine": squared arcs between points of the sphere; "ip":
        minus the inner product.

    Returns
    -------
    Tensor [q, k]
        In the precision of the keys; inf where missing.
    """
    if keys.dtype == np.float32 and metric in ("l2", "cosine"):
        return _scanned(queries, keys, ids)
    found = torch.empty(ids.shape, dtype=torch.float32 if keys.dtype == np.float32 else torch.float64)
    tile = max(1, _NUMBERS // (ids.shape[1] * keys.shape[1]))
    for start in range(0, len(ids), tile):
        rows = slice(start, start + tile)
        found[rows] = _gathered(queries[rows], keys, ids[rows], metric)
    return found.where(ids >= 0, torch.inf)


def _scanned(queries: Tensor, keys: NDArray[np.float32], ids: Tensor) -> Tensor:
    """FAISS reads the rows where they lie."""
    asked = np.ascontiguousarray(queries.numpy(), dtype=np.float32)
    wanted = np.ascontiguousarray(ids.numpy())
    found = np.empty(wanted.shape, np.float32)
    pointers = [faiss.swig_ptr(values) for values in (found, asked, keys, wanted)]
    faiss.fvec_L2sqr_by_idx(*pointers, keys.shape[1], *wanted.shape)
    return torch.from_numpy(found)


def _gathered(queries: Tensor, keys: NDArray[Any], ids: Tensor, metric: str) -> Tensor:
    near = torch.from_numpy(np.take(keys, np.maximum(ids.numpy(), 0), axis=0))
    asked = queries.to(near.dtype).unsqueeze(1)
    if metric == "ip":
        return -(near * asked).sum(-1)
    squares = near.sub_(asked).square_().sum(-1)
    return arcs(squares) if metric == "haversine" else squares
