"""Exact neighbors in few dimensions: rows in boxes, of which a group of close queries sees the near ones.

Rows are split at the median of their widest column until a box holds few of them, and so are the queries of a
call. Where a group of queries is, a few posts are put up: the k-th distance of a post, and the way to it, are
a bound of a query's k-th distance; no row of a box beyond the largest of these bounds can be a neighbor. All
other rows are compared, so the answer is exact whatever the data; the boxes decide only how many that are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.local.neighborhood import Neighborhood, smallest
from locdist.local.sphere import arcs
from locdist.search.lowest import lowest, taken

WIDE = 3  # columns up to which boxes are small beside the space
ROWS = 2048  # from so many rows on there is something to leave out
LEAF = 32  # rows of a box
GROUP, FEW = 64, 16  # queries of a group, where there are as many as rows and where they are far apart
AMPLE = 3  # times k rows are looked at for the bound: with k alone it is far too large
ROUNDING = 1e-12  # relative, more than what sums of three squares and their roots lose
TINY = 1e-300  # more than what squares lose that are no longer normal numbers
MANY = 256  # queries that are worth building boxes for

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """The rows of a support, box by box.

    Attributes
    ----------
    keys : ndarray [d, n]
    ids : ndarray [n]
        The rows that they are, in ascending order inside of each box.
    starts : ndarray [boxes + 1]
        Where each box begins.
    low, high : ndarray [d, boxes]
        Its corners.
    """

    keys: Floats
    ids: Wholes
    starts: Wholes
    low: Floats
    high: Floats

    @staticmethod
    def of(keys: Floats) -> "Boxes":
        """The boxes of keys [n, d]."""
        parts = [np.sort(part) for part in _split(keys, np.arange(len(keys)), LEAF)]
        corners = [(keys[part].min(0), keys[part].max(0)) for part in parts]
        ids = np.concatenate(parts)
        starts = np.cumsum([0, *map(len, parts)])
        low, high = (np.stack(side, 1) for side in zip(*corners, strict=True))
        return Boxes(np.ascontiguousarray(keys[ids].T), ids, starts, low, high)

    def search(self, queries: Tensor, k: int, metric: str) -> Neighborhood:
        """The k nearest rows of finite queries [q, d], in their order; k is at most n."""
        asked = queries.double().numpy()
        near, ids = np.empty((len(asked), k)), np.empty((len(asked), k), np.int64)
        size = GROUP if 4 * len(asked) > len(self.ids) else FEW
        for group in _split(asked, np.arange(len(asked)), size):
            with np.errstate(over="ignore"):  # an infinite square is far away
                near[group], ids[group] = self._near(asked[group].T, k, metric)
        found = Neighborhood(torch.from_numpy(near), torch.from_numpy(ids))
        if metric != "haversine":
            return found
        return Neighborhood(*smallest(arcs(found.distances), found.ids, k))

    def _near(self, queries: Floats, k: int, metric: str) -> tuple[Floats, Wholes]:
        """Squared distances and ids [g, k] of close queries [d, g]; of equal ones the smaller id is first."""
        low, high = queries.min(1), queries.max(1)
        bound = self._bound(queries, low, high, k)
        rows = self._rows(np.flatnonzero(_gaps(self.low, self.high, low, high) <= bound))
        keys = self.keys[:, rows]
        inside = _gaps(keys, keys, low, high) <= bound
        rows, keys = rows[inside], keys[:, inside]
        order = np.argsort(self.ids[rows])
        squares = _squares(queries, keys[:, order])
        near, places = lowest(squares, k)
        if metric == "haversine" and np.count_nonzero(squares <= near[:, -1:] * (1 + ROUNDING)) > near.size:
            places = lowest(arcs(torch.from_numpy(squares)).numpy(), k)[1]  # arcs tie where chords do not
            near = taken(squares, places)
        return near, self.ids[rows[order]].take(places)

    def _bound(self, queries: Floats, low: Floats, high: Floats, k: int) -> float:
        """What no squared distance of a query to its k-th neighbor is above."""
        middle, quarter = low / 2 + high / 2, high / 4 - low / 4
        away = _gaps(self.low, self.high, middle, middle)
        order = np.argpartition(away, min(AMPLE * k // LEAF + 1, len(away) - 1))
        enough = np.searchsorted(np.diff(self.starts)[order].cumsum(), AMPLE * k) + 1
        posts = np.array([middle + quarter * signs for signs in product((-1, 1), repeat=len(middle))]).T
        here = _squares(posts, self.keys[:, self._rows(order[:enough])])
        reach = np.sqrt(np.partition(here, k - 1, axis=1)[:, k - 1])
        ways = np.sqrt(_squares(queries, posts))
        return float((reach + ways).min(1).max() ** 2 * (1 + ROUNDING) + TINY)

    def _rows(self, boxes: Wholes) -> Wholes:
        """The places of all rows of some boxes."""
        counts = np.diff(self.starts)[boxes]
        begins = np.repeat(self.starts[boxes] - np.concatenate([[0], counts.cumsum()[:-1]]), counts)
        return begins + np.arange(counts.sum())


def _squares(queries: Floats, keys: Floats) -> Floats:
    """Squared distances [g, n] of queries [d, g] and keys [d, n], added up column by column, as those of
    lists are.
    """
    total: Floats = np.square(queries[0, :, None] - keys[0])
    for query, key in zip(queries[1:], keys[1:], strict=True):
        part = query[:, None] - key
        total += np.square(part, out=part)
    return total


def _gaps(low: Floats, high: Floats, least: Floats, most: Floats) -> Floats:
    """Squared distances [n] of boxes with corners [d, n] from the box with corners [d]."""
    total = np.zeros(low.shape[1])
    for column in range(len(low)):
        gaps = np.maximum(low[column] - most[column], least[column] - high[column])
        total += np.square(np.maximum(gaps, 0, out=gaps), out=gaps)
    return total


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
