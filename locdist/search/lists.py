"""Inverted lists that FAISS scans where they lie: in the mapped Arrow shards of a generation.

The rows of a generation are stored sorted by list, so a list is a contiguous stretch of a shard's buffer of
codes. FAISS's on-disk lists are a file, an offset and a size each, which is exactly that. Nothing is copied,
nothing is deserialised, processes of a machine share the pages, and float rows are not kept twice. The row
ids that FAISS would keep beside the codes are not needed: `store_pairs` answers with (list, position), and
rows are numbered by their position.
"""

import dataclasses
import functools

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import locdist.search.forks  # noqa: F401 - what children of this process may do
from locdist.local.neighborhood import smallest

_ENTRY = np.dtype(
    [("size", np.uint64), ("capacity", np.uint64), ("offset", np.uint64)]
)  # FAISS's OnDiskOneList
_PROBE_SLACK = 4  # probes proposed beyond nprobe, before exact distances decide
_REMAINDER = 1 / 16  # of the points: less than this is no half, and would make the recursion deep
_LABEL_BITS = 32  # FAISS packs (list, position) as list << 32 | position


@dataclasses.dataclass(frozen=True)
class CodeFile:
    """Where the codes of a run of lists lie.

    Parameters
    ----------
    path : str
        A local file.
    offset : int
        Byte of the first code.
    sizes : tuple of int
        Rows of each list, in order.
    """

    path: str
    offset: int
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
    """The lists of an index generation.

    Parameters
    ----------
    centroids : ndarray [nlist, d] float32
        In search space (centred and scaled like the codes).
    files : tuple of CodeFile
        One for each shard, lists in order.
    codes : {"fp16", "flat"}
        Half or single precision.
    """

    centroids: NDArray[np.float32]
    files: tuple[CodeFile, ...]
    codes: str

    @functools.cached_property
    def _quantizer(self) -> faiss.IndexFlatL2:
        quantizer = faiss.IndexFlatL2(self.centroids.shape[1])
        quantizer.add(self.centroids)
        return quantizer

    @functools.cached_property
    def _index(self) -> faiss.IndexIVF:
        nlist, width = self.centroids.shape
        if self.codes == "fp16":
            kind = faiss.ScalarQuantizer.QT_fp16
            index = faiss.IndexIVFScalarQuantizer(self._quantizer, width, nlist, kind, faiss.METRIC_L2, False)
        else:
            index = faiss.IndexIVFFlat(self._quantizer, width, nlist)
        index.is_trained = True  # neither code has parameters to learn
        index.replace_invlists(self._stack, False)
        return index

    @functools.cached_property
    def _mapped(self) -> tuple[faiss.OnDiskInvertedLists, ...]:
        """The lists of each file; FAISS borrows them, so they live as long as this object."""
        size = self.centroids.shape[1] * (2 if self.codes == "fp16" else 4)
        return tuple(_map(file, size) for file in self.files)

    def open(self) -> "Lists":
        """Map everything now, before threads share it."""
        _ = self._index, self._starts
        return self

    @functools.cached_property
    def _stack(self) -> faiss.InvertedLists:
        if len(self._mapped) == 1:
            return self._mapped[0]
        pointers = faiss.InvertedListsPtrVector()
        for part in self._mapped:
            pointers.push_back(part)
        return faiss.VStackInvertedLists(pointers.size(), pointers.data())

    @functools.cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(size for file in self.files for size in file.sizes)])

    def assign(
        self, queries: NDArray[np.float32], nprobe: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The `nprobe` nearest lists of each query: distances and lists [q, nprobe].

        FAISS's matrix product proposes a few more; sums of squared differences decide, ties to the smaller
        list. So a query's probes do not depend on the other queries of its batch.
        """
        width = min(nprobe + _PROBE_SLACK, len(self.centroids))
        _, lists = self._quantizer.search(queries, width)
        exact = np.empty(lists.shape, np.float32)
        pointer = faiss.swig_ptr
        faiss.fvec_L2sqr_by_idx(
            pointer(exact),
            pointer(queries),
            pointer(self.centroids),
            pointer(lists),
            queries.shape[1],
            *lists.shape,
        )
        near, ids = smallest(torch.from_numpy(exact), torch.from_numpy(lists), min(nprobe, width))
        return np.ascontiguousarray(near.numpy()), np.ascontiguousarray(ids.numpy())

    def scan(
        self, queries: NDArray[np.float32], near: NDArray[np.float32], lists: NDArray[np.int64], k: int
    ) -> Tensor:
        """Ids [q, k] of the k best codes in the given lists [q, nprobe]; −1 where the lists hold fewer.

        Runs in the calling thread's OpenMP team: workers set one thread each, and queries sorted by list keep
        its codes in cache.
        """
        labels = np.empty((len(queries), k), np.int64)
        unused = np.empty((len(queries), k), np.float32)
        arrays = (faiss.swig_ptr(values) for values in (lists, near, unused, labels))
        parameters = faiss.SearchParametersIVF(nprobe=lists.shape[1])
        self._index.search_preassigned_c(len(queries), faiss.swig_ptr(queries), k, *arrays, True, parameters)
        found = self._starts[labels >> _LABEL_BITS] + (labels & ((1 << _LABEL_BITS) - 1))
        return torch.from_numpy(np.where(labels < 0, -1, found))


def _map(file: CodeFile, code_size: int) -> faiss.OnDiskInvertedLists:
    """A run of lists as FAISS reads them from the file, without its ids."""
    entries = np.zeros(len(file.sizes), _ENTRY)
    entries["size"] = entries["capacity"] = file.sizes
    ends = np.cumsum(file.sizes, dtype=np.uint64) * np.uint64(code_size)
    entries["offset"] = np.uint64(file.offset) + np.concatenate([np.zeros(1, np.uint64), ends[:-1]])
    lists = faiss.OnDiskInvertedLists()
    lists.filename, lists.nlist, lists.code_size = file.path, len(file.sizes), code_size
    lists.read_only = True
    lists.prefetch_nthread = 0
    lists.totsize = int(file.offset + ends[-1])
    lists.lists.resize(len(file.sizes))
    faiss.memcpy(lists.lists.data(), faiss.swig_ptr(entries.view(np.uint64)), entries.nbytes)
    lists.do_mmap()
    return lists


def train(sample: NDArray[np.float32], nlist: int, seed: int) -> NDArray[np.float32]:
    """Centroids [nlist, d] of k-means on a sample [n, d], n >= nlist; the same for the same sample and seed
    on one machine type.
    """
    clustering = faiss.Kmeans(
        sample.shape[1], nlist, niter=10, seed=seed, min_points_per_centroid=1, max_points_per_centroid=256
    )
    clustering.train(np.ascontiguousarray(sample, dtype=np.float32))
    return np.ascontiguousarray(clustering.centroids[_neighborly(clustering.centroids)])


def _neighborly(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """An order [n] of points [n, d] in which neighbors stand close together.

    Splits them in two clusters, again and again. Lists are stored in this order, so that the lists near a
    query lie in few shards, and queries of consecutive home lists find each other's lists in the cache.
    """
    if len(points) <= 2:
        return np.arange(len(points))
    right = _halved(points)
    halves = np.flatnonzero(~right), np.flatnonzero(right)
    return np.concatenate([half[_neighborly(points[half])] for half in halves])


def _halved(points: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which points [n] belong to the second of two clusters; halves when one would be a small remainder."""
    two = faiss.Kmeans(points.shape[1], 2, niter=8, seed=0, min_points_per_centroid=1)
    two.train(np.ascontiguousarray(points))
    along = points @ (two.centroids[1] - two.centroids[0])
    right: NDArray[np.bool_] = along > two.centroids.mean(axis=0) @ (two.centroids[1] - two.centroids[0])
    if _REMAINDER <= right.mean() <= 1 - _REMAINDER:
        return right
    return np.argsort(np.argsort(along, kind="stable"), kind="stable") >= len(points) // 2
