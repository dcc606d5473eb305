"""Exact neighbors in few dimensions: rows in boxes, of which a group of close queries sees the near ones.

Rows are split at the median of their widest column until a box holds few of them, and so are the queries of a
call. Where a group of queries is, a few posts are put up: the k-th distance of a post, and the way to it, are
a bound of a query's k-th distance; no row of a box beyond the largest of these bounds can be a neighbor. All
other rows are compared, so the answer is exact whatever the data; the boxes decide only how many that are.

Many groups are looked at together, since calls of NumPy that take microseconds keep threads waiting for each
other. What is shorter than others is filled up with a row that is infinitely far away.
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
LEAF, LEAVES = 32, 4  # rows of a box: at most, or where that is more, their root over the latter
BALL = {1: 2.0, 2: np.pi, 3: np.pi * 4 / 3}  # volume of a ball of radius 1
SIZES = np.array([8, 16, 32, 64, 128])  # queries of a group
BOX, POST = 5, 75  # rows that a query is compared with in the time of a group for a box, and for a neighbor
AMPLE = 3  # times k rows are looked at for the bound: with k alone it is far too large
ROUNDING = 1e-12  # relative, more than what sums of three squares and their roots lose
TINY = 1e-300  # more than what squares lose that are no longer normal numbers
MANY = 256  # queries that are worth building boxes for
_TOGETHER, _HELD = 64, 1 << 20  # groups that are bounded together, and numbers of boxes held for them
_COMPARED = 1 << 17  # distances held at once: they stay in the cache

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """The rows of a support, box by box.

    Attributes
    ----------
    keys : ndarray [d, n + 1]
        The last one is infinitely far away.
    members : ndarray [boxes, leaf]
        The rows of each box; n fills up.
    low, high : ndarray [d, boxes]
        Their corners.
    """

    keys: Floats
    members: Wholes
    low: Floats
    high: Floats

    @staticmethod
    def of(keys: Floats) -> "Boxes":
        """The boxes of keys [n, d]."""
        members = _split(keys, max(LEAF, int(len(keys) ** 0.5) // LEAVES))  # each group looks at each box
        corners = keys[members % len(keys)]
        placed = np.concatenate([keys.T, np.full((keys.shape[1], 1), np.inf)], 1)
        low, high = (np.ascontiguousarray(side.T) for side in (corners.min(1), corners.max(1)))
        return Boxes(placed, np.minimum(members, len(keys)), low, high)

    @property
    def rows(self) -> int:
        """Rows of all boxes."""
        return int(self.keys.shape[1]) - 1

    def search(self, queries: Tensor, k: int, metric: str) -> Neighborhood:
        """The k nearest rows of finite queries [q, d], in their order; k is at most n."""
        asked = queries.double().numpy()
        near, ids = np.empty((len(asked), k)), np.empty((len(asked), k), np.int64)
        groups = _split(asked, self._size(len(asked), k)) % len(asked)
        together = max(1, min(_TOGETHER, _HELD // max(len(self.members), AMPLE * k * 2 ** len(self.keys))))
        for start in range(0, len(groups), together):
            rows = groups[start : start + together]
            with np.errstate(over="ignore"):  # an infinite square is far away
                for part, *told in self._found(asked[rows].transpose(2, 0, 1), k, metric):
                    near[rows[part]], ids[rows[part]] = told
        found = Neighborhood(torch.from_numpy(near), torch.from_numpy(ids))
        if metric != "haversine":
            return found
        return Neighborhood(*smallest(arcs(found.distances), found.ids, k))

    def _size(self, queries: int, k: int) -> int:
        """Queries of a group: a large one sees many rows, and of small ones there are many. Rows and queries
        are taken to fill a cube of side 1.
        """
        d, n = len(self.keys), self.rows
        radius = (k / n / BALL[d]) ** (1 / d)
        seen = n * np.minimum(1.4 * (SIZES / queries) ** (1 / d) + 2 * radius, 1) ** d
        return int(SIZES[np.argmin(seen + (4 * seen + BOX * len(self.members) + POST * k) / SIZES)])

    def _found(self, queries: Floats, k: int, metric: str) -> Iterator[tuple[Wholes, Floats, Wholes]]:
        """Squared distances and ids [c, g, k] of some of the groups of close queries [d, c, g]; of equal ones
        the smaller id is first.
        """
        size = queries.shape[2]
        candidates, counts = self._candidates(queries, k)
        order = np.argsort(counts)  # groups that see about as many rows are filled up with few others
        begins = counts.cumsum() - counts
        while len(order):
            held = size * counts[order] * np.arange(1, 1 + len(order))  # by a part that ends here
            most = max(1, int(np.count_nonzero(held <= _COMPARED)))
            part, order = order[:most], order[most:]
            places = _filled(begins[part], counts[part])
            rows = np.sort(candidates[places], axis=1)
            squares = _squares(queries[:, part, :, None], self.keys[:, rows][:, :, None])
            near, places = _nearest(squares.reshape(-1, rows.shape[1]), k, metric)
            ids = taken(rows, places.reshape(len(rows), -1))
            yield part, near.reshape(-1, size, k), ids.reshape(-1, size, k)

    def _candidates(self, queries: Floats, k: int) -> tuple[Wholes, Wholes]:
        """The rows among which all neighbors of each group are, group by group and then the one that is
        infinitely far away, and their number for each group [c].
        """
        low, high = queries.min(2), queries.max(2)
        bounds = self._bounds(queries, low, high, k)
        near = _gaps(self.low[:, None], self.high[:, None], low[:, :, None], high[:, :, None])
        owners, boxes = np.nonzero(near <= bounds[:, None])
        rows, owners = self.members[boxes].reshape(-1), owners.repeat(self.members.shape[1])
        keys = self.keys[:, rows]
        inside = _gaps(keys, keys, low[:, owners], high[:, owners]) <= bounds[owners]
        counts = np.bincount(owners[inside], minlength=len(bounds))
        return np.append(rows[inside], self.rows), counts

    def _bounds(self, queries: Floats, low: Floats, high: Floats, k: int) -> Floats:
        """What no squared distance of a query of each group to its k-th neighbor is above [c]."""
        middle, quarter = low / 2 + high / 2, high / 4 - low / 4
        away = _gaps(self.low[:, None], self.high[:, None], middle[:, :, None], middle[:, :, None])
        enough = min(len(self.members), AMPLE * k // self.members.shape[1] + 2)
        boxes = np.argpartition(away, enough - 1, axis=1)[:, :enough]
        signs = np.array(list(product((-1, 1), repeat=len(low)))).T
        posts = middle[:, :, None] + quarter[:, :, None] * signs[:, None]
        here = self.keys[:, self.members[boxes].reshape(len(boxes), -1)]
        reach = np.sqrt(np.partition(_squares(posts[..., None], here[:, :, None]), k - 1, axis=2)[..., k - 1])
        ways = np.sqrt(_squares(posts[..., None], queries[:, :, None]))
        bounds: Floats = (reach[..., None] + ways).min(1).max(1) ** 2 * (1 + ROUNDING) + TINY
        return bounds


def _nearest(squares: Floats, k: int, metric: str) -> tuple[Floats, Wholes]:
    """The k smallest of each row of squared distances [q, r], of the same distance the first ones."""
    near, places = lowest(squares, k)
    if metric == "haversine" and np.count_nonzero(squares <= near[:, -1:] * (1 + ROUNDING)) > near.size:
        places = lowest(arcs(torch.from_numpy(squares)).numpy(), k)[1]  # arcs tie where chords do not
        near = taken(squares, places)
    return near, places


def _squares(queries: Floats, keys: Floats) -> Floats:
    """Squared distances of queries [d, ...] and keys [d, ...], added up column by column, as those of lists
    are; torch repeats numbers for others in half of NumPy's time.
    """
    parts = (torch.sub(*map(torch.from_numpy, pair)) for pair in zip(queries, keys, strict=True))
    total = next(parts).square_()
    for part in parts:
        total += part.square_()
    squares: Floats = total.numpy()
    return squares


def _gaps(low: Floats, high: Floats, least: Floats, most: Floats) -> Floats:
    """Squared distances of boxes with corners [d, ...] from others."""
    total: Floats = np.zeros(())
    for column in range(len(low)):
        gaps = np.maximum(low[column] - most[column], least[column] - high[column])
        total = total + np.square(np.maximum(gaps, 0, out=gaps), out=gaps)
    return total


def _filled(begins: Wholes, counts: Wholes) -> Wholes:
    """Numbers from `begins` on in rows of so many [len(counts), most], filled up with -1."""
    numbers = np.arange(counts.max())
    return np.where(numbers < counts[:, None], numbers + begins[:, None], -1)


def _split(points: Floats, most: int) -> Wholes:
    """Rows in parts of one size, at most `most` [parts, size], cut at the median of the widest column.

    Some rows are there twice, so that the parts have one size: row i again as n + i.
    """
    n = len(points)
    times = ((n - 1) // most).bit_length()
    parts = np.arange(-(-n >> times) << times)[None]
    for _ in range(times):
        here = points[parts % n]
        widest = np.argmax(here.max(1) - here.min(1), axis=1)
        values = np.take_along_axis(here, widest[:, None, None], 2)[:, :, 0]
        half = parts.shape[1] // 2
        order = np.argpartition(values, half, axis=1)
        parts = np.take_along_axis(parts, order, 1).reshape(-1, half)
    return parts
