"""How far each row of a support is from its own nearest rows: for bandwidths that belong to rows.

It is searched for when it is first asked, and remembered by each process: a job that meets every row has
joined the support with itself once.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.local.bandwidths import rank_of
from locdist.local.neighborhood import Neighborhood

_ROWS = 4096  # searched at once

Known = dict[int, NDArray[np.float64]]
Search = Callable[[Tensor, int], Neighborhood]


def reached(
    hood: Neighborhood, needs: frozenset[str], rows: int, known: Known, search: Search
) -> Neighborhood:
    """The neighborhood with `reach` filled in, if it is among what is needed.

    Parameters
    ----------
    hood : Neighborhood
    needs : frozenset of str
    rows : int
        Of the support.
    known : dict of int to array [n]
        By rank the squared distances that were found before, nan for others; filled in here.
    search : callable (ids [r], k) -> Neighborhood
        The k nearest rows of stored rows, themselves left out, in their order.
    """
    rank = rank_of(needs)
    if rank is None:
        return hood
    squares = known.setdefault(rank, np.full(rows, np.nan))
    ids = hood.ids.clamp(min=0)
    wanted = np.unique(ids.numpy())
    unknown = wanted[np.isnan(squares[wanted])]
    for start in range(0, len(unknown), _ROWS):
        part = unknown[start : start + _ROWS]
        near = search(torch.from_numpy(part), rank).distances.double()
        # a row with fewer others reaches to the last of them
        squares[part] = near.masked_fill(near.isinf(), 0.0).amax(1).numpy()
    return dataclasses.replace(hood, reach=torch.from_numpy(squares[ids.numpy()]))
