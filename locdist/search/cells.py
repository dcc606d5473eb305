"""Candidates from the few cells of the rows that are nearest to a query, with a bound of all other rows.

Rows are cut in cells around centers, and no row of a cell is nearer to a query than the cell's center less
the cell's reach. Where rows lie near a curve or a surface, whatever the number of their columns, a few cells
hold all neighbors, and the bound says so; where they fill the space it does not, which some queries tell.
"""

from dataclasses import dataclass

import faiss
import numpy as np
import torch
from torch import Tensor

ROWS, QUERIES = 16_384, 4096  # from so many of both on
NEAREST, TRIED, ENOUGH = 10, 256, 0.9  # cells of a query; queries that try, and the share that must succeed
_ASKED = 4096  # queries at once


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows in cells.

    Parameters
    ----------
    centers : Tensor [c, d] float64
    reach : Tensor [c]
        Distance of the farthest row of each.
    lists : faiss.IndexIVFFlat
    """

    centers: Tensor
    reach: Tensor
    lists: faiss.IndexIVFFlat

    @staticmethod
    def of(keys: Tensor) -> "Cells":
        """The cells of rows [n, d] float32, about as many as rows in each."""
        rows, count = keys.numpy(), int(len(keys) ** 0.5)
        width = rows.shape[1]
        means = faiss.Kmeans(width, count, niter=5, seed=0, max_points_per_centroid=40)
        means.train(rows)
        coarse = faiss.IndexFlatL2(width)
        coarse.add(means.centroids)
        home = np.ascontiguousarray(coarse.search(rows, 1)[1][:, 0])
        lists = faiss.IndexIVFFlat(coarse, width, count)
        lists.is_trained = True
        lists.add_core(len(rows), faiss.swig_ptr(rows), None, faiss.swig_ptr(home))
        lists.nprobe = NEAREST
        centers, own = torch.from_numpy(means.centroids.astype(np.float64)), torch.from_numpy(home)
        away = (keys - centers[own]).square().sum(1).sqrt()
        reach = torch.zeros(count, dtype=torch.float64).scatter_reduce_(0, own, away, "amax")
        return Cells(centers, reach, lists)

    def propose(self, queries: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates [q, width] of queries float32, their squared distances, and the one beyond which all
        other rows lie [q].
        """
        away = torch.cdist(queries.double(), self.centers)
        nearest, cells = away.topk(NEAREST, largest=False)
        values, ids = self.lists.search_preassigned(
            queries.numpy(), width, cells.numpy(), nearest.float().numpy()
        )
        found, squares = torch.from_numpy(ids), torch.from_numpy(values).double()
        others = (away - self.reach).clamp(min=0).scatter(1, cells, torch.inf).amin(1).square()
        horizon = torch.minimum(squares[:, -1], others)
        horizon = horizon.masked_fill((found < 0).any(1), -torch.inf)  # too few rows prove nothing
        return found.clamp(min=0), squares, horizon


def propose(queries: Tensor, keys: Tensor, k: int, width: int) -> tuple[Tensor, Tensor] | None:
    """Candidates [q, width] from cells and the squared distance beyond which all other rows lie [q]; None
    where cells do not pay for finding k neighbors.
    """
    if len(keys) < ROWS or len(queries) < QUERIES or 4 * width > len(keys) ** 0.5:
        return None
    cells = Cells.of(keys)
    _, squares, horizon = cells.propose(queries[:: len(queries) // TRIED].contiguous(), width)
    if (squares[:, k - 1] < horizon).double().mean() < ENOUGH:
        return None
    parts = [cells.propose(part, width) for part in torch.split(queries, _ASKED)]
    return torch.cat([ids for ids, _, _ in parts]), torch.cat([horizon for _, _, horizon in parts])
