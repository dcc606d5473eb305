"""Exact neighbors, in memory and over shards.

FAISS proposes: its float32 matrix products find a few more than k candidates per block of rows, or where rows
lie near a surface the nearest of their cells do. The rows decide: candidates are ranked by sums of squared
differences in the rows' own precision, ties to the smaller id. And a certificate checks that nothing was
missed: a row that was not proposed lies at least as far as the last proposal, less the rounding error of the
product. Queries without certificate (ties, many equal rows) are asked again with more candidates, in the end
with all rows. So the answer is exact whatever the data.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import locdist.search.forks  # noqa: F401 - what children of this process may do
from locdist.data.columns import directions
from locdist.errors import DataError, UsageError
from locdist.local.moments import Batch
from locdist.local.neglected import Sample
from locdist.local.neighborhood import Neighborhood, smallest
from locdist.local.sphere import arcs, points
from locdist.search import cells
from locdist.search.pairs import distances
from locdist.search.reach import Known, reached
from locdist.search.rows import Rows

METRICS = ("l2", "cosine", "haversine", "ip")
_MOST = 0.25  # of a block's rows as candidates: beyond, looking at all of them costs less
_PAIRS = 1 << 20  # candidates ranked at once


def exact_neighbors(
    rows: Rows, queries: Tensor, k: int, metric: str = "l2", center: Tensor | None = None
) -> Neighborhood:
    """The k nearest rows of each query.

    Parameters
    ----------
    rows : Rows
        The support.
    queries : Tensor [q, d]
        Finite; normalized where the metric is cosine.
    k : int
        Neighbors wanted; a support of fewer rows leaves the rest missing (id −1, distance inf).
    metric : str
        "l2" and "cosine" (squared Euclidean distances), "haversine" (squared arcs between points of the
        sphere), or "ip" (minus the inner product).
    center : Tensor [d], optional
        Subtracted before FAISS sees single precision, so that a large common offset costs no digits.

    Returns
    -------
    Neighborhood
        Sorted by (distance, id), in the order of the queries.
    """
    if rows.boxed(len(queries), k, metric):
        return dataclasses.replace(rows.boxes.search(queries, k, metric), queries=queries)
    found = Neighborhood(
        distances=torch.full((len(queries), k), torch.inf, dtype=torch.float64),
        ids=torch.full((len(queries), k), -1),
    )
    for first, keys in rows.blocks():
        near = _block_neighbors(keys, first, queries, k, metric, center)
        found = found.merge(near).nearest(k) if first else near
    return dataclasses.replace(found.pad(k), queries=queries)


def _block_neighbors(
    keys: NDArray[Any], first: int, queries: Tensor, k: int, metric: str, center: Tensor | None
) -> Neighborhood:
    """The k nearest of one block of rows, whose first has id `first`."""
    kept = min(k, len(keys))
    found = Neighborhood(
        distances=torch.empty(len(queries), kept, dtype=torch.float64),
        ids=torch.empty(len(queries), kept, dtype=torch.int64),
    )
    small_keys, small_queries = (
        _single(values, center, metric) for values in (torch.from_numpy(np.array(keys)), queries)
    )
    most = (_norms(small_queries) + _norms(small_keys).max()).square()
    # of FAISS's product, of the sums that rank candidates, and of those of rows that were not proposed; the
    # smallest of them have few digits
    slack = 3 * (keys.shape[1] + 8) * (2.0**-24 * most + 2.0**-126)
    asked, width = torch.arange(len(queries)), kept + max(8, kept // 4)
    celled = metric in ("l2", "cosine") and bool(most.float().isfinite().all())
    begun = cells.propose(small_queries, small_keys, kept, width) if celled else None
    while len(asked):
        everything = width >= _MOST * len(keys)
        ids, horizon = begun or (
            (torch.arange(len(keys)).expand(len(asked), -1), torch.full((len(asked),), torch.inf))
            if everything
            else _propose(small_queries[asked], small_keys, width, metric)
        )
        begun = None
        near, ids = _rank(queries[asked], keys, ids, kept, metric)
        bound = horizon - slack[asked]
        certain = near[:, -1] < (arcs(bound.clamp(min=0)) if metric == "haversine" else bound)
        certain |= everything  # also where distances overflow
        found.distances[asked[certain]], found.ids[asked[certain]] = (
            near[certain].double(),
            ids[certain] + first,
        )
        asked, width = asked[~certain], 4 * width
    return found


def _single(values: Tensor, center: Tensor | None, metric: str) -> Tensor:
    """Centred float32 copy; an inner product is not invariant to the center, so it stays."""
    centred = values if center is None or metric == "ip" else values - center.to(values.dtype)
    return centred.float().contiguous()


def _norms(values: Tensor) -> Tensor:
    """[n] lengths, rounded up."""
    return values.square().sum(dim=1).sqrt().double() * (1 + values.shape[1] * 2.0**-24)


def _propose(queries: Tensor, keys: Tensor, width: int, metric: str) -> tuple[Tensor, Tensor]:
    """FAISS's candidates [q, width] and the distance beyond which all other rows lie, by its own arithmetic
    [q].
    """
    kind = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
    values, ids = faiss.knn(queries.numpy(), keys.numpy(), width, metric=kind)
    last, found = torch.from_numpy(values[:, -1]).double(), torch.from_numpy(ids)
    last = -last if metric == "ip" else last
    # where squares overflow single precision FAISS finds nobody, which proves nothing
    return found.clamp(min=0), last.masked_fill((found < 0).any(dim=1), -torch.inf)


def _rank(queries: Tensor, keys: NDArray[Any], ids: Tensor, k: int, metric: str) -> tuple[Tensor, Tensor]:
    """The k smallest (distance, id) of the candidates, by exact distances [q, k]."""
    tile = max(1, _PAIRS // ids.shape[1])
    found = []
    for start in range(0, len(ids), tile):
        near = ids[start : start + tile]
        found.append(smallest(distances(queries[start : start + tile], keys, near, metric), near, k))
    return torch.cat([part[0] for part in found]), torch.cat([part[1] for part in found])


@dataclasses.dataclass(frozen=True, eq=False)
class Exact:
    """A support in memory, searched exactly.

    Parameters
    ----------
    keys : array [n, d]
        What is retrieved and weighed: NumPy or torch, float32 stays, everything else becomes float64. Finite.
    targets : array [n] or [n, p], optional
        Numbers for regression; strings, integers or booleans can also be voted on (`vocabulary` lists the
        classes).
    features : array [n, m], optional
        What a local model is fitted on; the keys by default.
    weights : array [n], optional
        Nonnegative weights of the rows.
    offsets : array [n], optional
        What is added to the linear predictor of generalized linear models.
    shapes : array [n, c], optional
        Numbers of each row for its own kernel and model, as `fuzzy_inference` takes them.
    metric : {"l2", "cosine", "haversine", "ip"}
        "haversine": keys are longitude and latitude in degrees, distances kilometres on the earth. "ip" goes
        with the dot-product kernel only.

    Examples
    --------
    >>> import locdist as ld
    >>> index = ld.Exact([[0.0], [1.0], [2.0]], [10.0, 20.0, 30.0])
    >>> ld.knn(k=2)(index, [[0.1]]).values
    tensor([[15.]], dtype=torch.float64)
    """

    keys: ArrayLike | Tensor
    targets: ArrayLike | Tensor | None = None
    features: ArrayLike | Tensor | None = None
    weights: ArrayLike | Tensor | None = None
    metric: str = "l2"
    offsets: ArrayLike | Tensor | None = None
    shapes: ArrayLike | Tensor | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise UsageError(f"metric one of {', '.join(METRICS)}", repr(self.metric), "Choose one of these.")
        for name, length in ((name, len(values)) for name, values in self.rows.shards[0].items()):
            if length != len(self.rows):
                raise UsageError(
                    f"{len(self.rows)} {name}s, one for each key",
                    str(length),
                    "Pass one row of each for every key.",
                )

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows as one shard."""
        keys = matrix(self.keys, "keys")
        if self.metric == "haversine":
            keys = self._encoded(torch.from_numpy(keys)).numpy()
        if self.metric == "cosine":
            keys = _unit(keys)
            _require_finite(keys, "keys with a direction (none all zero)")
        shard: dict[str, NDArray[Any]] = {"key": keys}
        if self.targets is not None:
            shard |= self._outcomes(self.targets)
        if self.features is not None:
            shard["feature"] = matrix(self.features, "features")
        if self.weights is not None:
            shard["weight"] = _nonnegative(matrix(self.weights, "weights").reshape(-1).astype(np.float64))
        if self.shapes is not None:
            shard["shape"] = matrix(self.shapes, "shapes").astype(np.float64)
        if self.offsets is not None:
            shard["offset"] = matrix(self.offsets, "offsets").reshape(-1).astype(np.float64)
        return Rows((shard | {"row": np.arange(len(keys))},), classes=len(self.vocabulary))

    def _outcomes(self, targets: ArrayLike | Tensor) -> dict[str, NDArray[Any]]:
        """Targets as numbers where they are numbers, as codes where they can be classes."""
        if isinstance(_values(targets), np.ma.MaskedArray):
            raise UsageError("targets of all rows", "a masked array", "Leave out the rows without a target.")
        outcomes: dict[str, NDArray[Any]] = {}
        if _values(targets).dtype.kind in "fiub":
            outcomes["target"] = matrix(targets, "targets").astype(np.float64)
        if len(self.vocabulary):
            outcomes["label"] = np.searchsorted(self.vocabulary, _values(targets).reshape(-1))[:, None]
        return outcomes

    @functools.cached_property
    def vocabulary(self) -> NDArray[Any]:
        """[classes] sorted distinct labels; empty when the targets are floats, several, or absent."""
        labels = np.empty(0) if self.targets is None else _values(self.targets)
        return labels[:0] if labels.dtype.kind == "f" or labels.size != len(labels) else np.unique(labels)

    @functools.cached_property
    def center(self) -> Tensor:
        """[d] mean of the keys."""
        return torch.from_numpy(np.asarray(self.rows.shards[0]["key"].mean(axis=0, dtype=np.float64)))

    @property
    def apart(self) -> bool:
        """Whether rows have features apart from their keys."""
        return self.features is not None

    def search(self, queries: Tensor, k: int, own: Tensor | None = None) -> Neighborhood:
        """The k nearest rows of `queries` [q, d], without each query's `own` row."""
        queries = self._encoded(queries)
        if queries.ndim != 2 or queries.shape[1] != self.rows.width:
            raise UsageError(
                f"queries [q, {self.rows.width}] to match the keys",
                str(list(queries.shape)),
                "Pass one row a query, in the keys' columns.",
            )
        asked = torch.from_numpy(_unit(queries.numpy())) if self.metric == "cosine" else queries
        finite = torch.isfinite(asked).all(dim=1)
        hood = exact_neighbors(
            self.rows,
            asked if finite.all() else asked.where(finite[:, None], 0),
            k + (own is not None),
            self.metric,
            self.center,
        )
        if not finite.all():
            hood.distances[~finite], hood.ids[~finite] = torch.inf, -1
        hood = hood if own is None else hood.without(own).nearest(k)
        return dataclasses.replace(hood, queries=asked)

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """All rows, with the columns that `needs` names."""
        return self.rows.batches(needs)

    @property
    def sample(self) -> Sample:
        """Some rows, always the same ones."""
        return self.rows.sample

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """The neighborhood with the columns that `needs` names."""
        hood = reached(hood, needs, len(self.rows), self._reaches, self._near)
        return self.rows.gather(hood, needs)

    def _encoded(self, places: Tensor) -> Tensor:
        """Longitudes and latitudes [n, 2] as points; what is no place stays as it is."""
        places_given = self.metric == "haversine" and places.ndim == 2 and places.shape[1] == 2
        return points(places) if places_given else places

    def _near(self, ids: Tensor, k: int) -> Neighborhood:
        return self.search(self.rows.take("key", ids), k, own=ids)

    @functools.cached_property
    def _reaches(self) -> Known:
        return {}


def _values(array: ArrayLike | Tensor | None) -> NDArray[Any]:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asanyarray(array)


def matrix(array: ArrayLike | Tensor, name: str) -> NDArray[Any]:
    """A finite, C-contiguous [n, d] matrix of float32 or float64; one dimension becomes one column."""
    values = _values(array)
    if values.dtype.kind not in "fiubO" or isinstance(values, np.ma.MaskedArray):
        raise UsageError(
            f"{name} as real numbers", f"{type(values).__name__} of {values.dtype}", "Convert them first."
        )
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    values = np.ascontiguousarray(values, dtype=np.float32 if single else np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not len(values):
        raise UsageError(
            f"{name} [n, d] with at least one row", f"shape {list(values.shape)}", "Pass one row each."
        )
    _require_finite(values, f"finite {name}")
    return values


def _require_finite(values: NDArray[Any], expected: str) -> None:
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(expected, f"{values[row].tolist()} in row {row}", "Drop or repair such rows first.")


def _unit(values: NDArray[Any]) -> NDArray[Any]:
    """Rows of length 1; a row without direction becomes nan and is near nobody."""
    unit, zero = directions(values)
    unit[zero] = np.nan
    return unit


def _nonnegative(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise DataError("weights of 0 or more", f"{weights[row]} in row {row}", "Repair the weights.")
    return weights
