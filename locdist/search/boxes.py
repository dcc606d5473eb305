"""Exact neighbors in few dimensions: rows in boxes, of which a group of close queries sees the near ones.

Rows are split at the median of their widest column until a box holds few of them, and so are the queries of a
call. A group of queries first looks at the boxes nearest to it: the largest of its k-th distances there is a
bound, and no row of a box beyond that bound can be a neighbor. All other rows are compared, so the answer is
exact whatever the data; the boxes decide only how many that are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.local.neighborhood import Neighborhood, smallest
from locdist.local.sphere import arcs

WIDE = 3  # columns up to which boxes are small beside the space
ROWS = 2048  # from so many rows on there is something to leave out
LEAF = 32  # rows of a box
GROUP, FEW = 64, 16  # queries of a group, where there are as many as rows and where they are far apart
AMPLE = 3  # times k rows are looked at for the bound: with k alone it is far too large
MANY = 256  # queries that are worth building boxes for

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """The rows of a support, box by box.

    Attributes
    ----------
    keys : Tensor [n, d]
    ids : Tensor [n]
        The rows that they are, in ascending order inside of each box.
    starts : ndarray [boxes + 1]
        Where each box begins.
    low, high : ndarray [boxes, d]
        Its corners.
    """

    keys: Tensor
    ids: Tensor
    starts: NDArray[np.int64]
    low: Floats
    high: Floats

    @staticmethod
    def of(keys: Floats) -> "Boxes":
        """The boxes of keys [n, d]."""
        parts = [np.sort(part) for part in _split(keys, np.arange(len(keys)), LEAF)]
        corners = [(keys[part].min(0), keys[part].max(0)) for part in parts]
        ids = np.concatenate(parts)
        starts = np.cumsum([0, *map(len, parts)])
        low, high = (np.stack(side) for side in zip(*corners, strict=True))
        return Boxes(torch.from_numpy(keys[ids]), torch.from_numpy(ids), starts, low, high)

    def search(self, queries: Tensor, k: int, metric: str) -> Neighborhood:
        """The k nearest rows of finite queries [q, d], in their order; k is at most n."""
        asked = queries.double()
        found = Neighborhood(
            torch.empty(len(asked), k, dtype=torch.float64), torch.empty(len(asked), k, dtype=torch.int64)
        )
        size = GROUP if 4 * len(asked) > len(self.ids) else FEW
        for group in _split(asked.numpy(), np.arange(len(asked)), size):
            rows = torch.from_numpy(group)
            near, ids = self._near(asked[rows], k)
            if metric == "haversine":  # of equal arcs the smaller id comes first
                near, ids = smallest(arcs(near), ids, k)
            found.distances.index_copy_(0, rows, near)
            found.ids.index_copy_(0, rows, ids)
        return found

    def _near(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Squared distances and ids [g, k] of a group of close queries, sorted."""
        low, high = queries.amin(0), queries.amax(0)
        away = _gaps(torch.from_numpy(self.low), torch.from_numpy(self.high), low, high).numpy()
        order = np.argsort(away, kind="stable")
        enough = np.searchsorted(np.diff(self.starts)[order].cumsum(), AMPLE * k) + 1
        first = self._squares(queries, self._rows(order[:enough]))
        bound = float(np.partition(first.numpy(), k - 1, axis=1)[:, k - 1].max()) * (1 + 1e-12)
        rows = self._rows(np.flatnonzero(~(away > bound)))
        rows = rows[~(_gaps(self.keys[rows], self.keys[rows], low, high) > bound)]
        ids, sort = self.ids[rows].sort()
        return _smallest(self._squares(queries, rows[sort]), ids, k)

    def _rows(self, boxes: NDArray[np.int64]) -> Tensor:
        """The places of all rows of some boxes."""
        counts = np.diff(self.starts)[boxes]
        begins = np.repeat(self.starts[boxes] - np.concatenate([[0], counts.cumsum()[:-1]]), counts)
        return torch.from_numpy(begins + np.arange(counts.sum()))

    def _squares(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Squared distances [g, r], added up column by column, as those of lists are."""
        keys, total = self.keys[rows], torch.zeros(())
        for column in range(keys.shape[1]):
            part = (keys[:, column] - queries[:, column, None]).square_()
            total = part if column == 0 else total.add_(part)
        return total


def _gaps(low: Tensor, high: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """Squared distances [n] of boxes with corners [n, d] from the box with corners [d]."""
    return torch.maximum(low - most, least - high).clamp_(min=0).square_().sum(1)


def _smallest(distances: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest (distance, id) of [g, r] with ascending ids [r]. NumPy selects and sorts several times
    faster than torch.
    """
    values = distances.numpy()
    places = np.argpartition(values, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, places, 1), axis=1)
    chosen = torch.from_numpy(np.take_along_axis(places, order, 1))
    near, found = distances.gather(1, chosen), ids[chosen]
    if int((distances <= near[:, -1:]).sum()) > k * len(near):  # some have a row more at the k-th distance
        return smallest(distances, ids.expand_as(distances), k)
    tied = (near[:, 1:] == near[:, :-1]).any(1)
    if tied.any():
        near[tied], found[tied] = smallest(near[tied], found[tied], k)
    return near, found


def _split(points: Floats, rows: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Parts of at most so many rows, cut at the median of the widest column."""
    if len(rows) <= most:
        yield rows
        return
    here = points[rows]
    widest = int(np.argmax(here.max(0) - here.min(0)))
    order = np.argpartition(here[:, widest], len(rows) // 2)
    yield from _split(points, rows[order[: len(rows) // 2]], most)
    yield from _split(points, rows[order[len(rows) // 2 :]], most)
