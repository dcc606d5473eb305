"""A generation: one immutable index folder, built by `build_index`, mapped and shared by every worker of a
machine.

    manifest.json          written last: what the index holds, how it was made, sizes and hashes of every file
    lists.arrow            one row a list: centroid, rows, radius
    shards/part-*.arrow    the rows, sorted by list, then by the user's id (else by content): uncompressed
    Arrow IPC, one batch each

Data only: JSON and Arrow, no pickle and no FAISS file. Row ids are positions over the shards.
"""

import dataclasses
import functools
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.encoding import Encoding
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.local.neighborhood import Neighborhood, smallest
from locdist.search.cache import Copy, local_copy
from locdist.search.exact import exact_neighbors
from locdist.search.layout import LISTS, Layout, digest, read_manifest
from locdist.search.lists import CodeFile, Lists
from locdist.search.rows import Rows
from locdist.search.summary import Summary

_TILE = 256  # queries ranked at once: their gathered keys fit the cache
_MOST_OPEN = 8  # indexes at once in one process
_WIDEN = 4  # factor on nprobe for queries whose lists hold fewer than k rows


@dataclasses.dataclass(frozen=True)
class Generation:
    """An opened index generation; a small object that opens its files when first used, in each process.

    Parameters
    ----------
    folder : str
        Where `build_index` wrote it.
    fingerprint : str
        Hash of its manifest, which carries the hashes of all its files.
    nprobe : int
        Lists searched for each query; 0 takes √nlist, a cautious number, where nobody has tuned it.
    """

    folder: str
    fingerprint: str
    nprobe: int = 0

    def __str__(self) -> str:
        return f"{self.folder}\n{Summary.of(self.layout)}"

    def __getstate__(self) -> dict[str, str | int]:
        """The fields alone: what is opened stays in its process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @functools.cached_property
    def layout(self) -> Layout:
        """What the index holds."""
        text = read_manifest(self.folder)
        if digest(text) != self.fingerprint:
            raise DataError(
                f"the index that the job was planned with ({self.fingerprint})",
                f"another one in {self.folder} ({digest(text)})",
                "Start a new job in another folder, or with --overwrite.",
            )
        return Layout.from_json(text, self.folder)

    @property
    def metric(self) -> str:
        """How rows are compared."""
        return self.layout.metric

    @property
    def apart(self) -> bool:
        """Whether rows have features apart from their keys."""
        return self.layout.features is not None

    @property
    def probes(self) -> int:
        """Lists searched for each query."""
        return min(self.nprobe or math.ceil(math.sqrt(self.layout.nlist)), self.layout.nlist)

    def probing(self, nprobe: int) -> "Generation":
        """The same index searched with `nprobe` lists a query."""
        return dataclasses.replace(self, nprobe=nprobe)

    @property
    def exact(self) -> bool:
        """Whether every search is exact."""
        return self.layout.codes == "exact"

    @functools.cached_property
    def key(self) -> Encoding:
        """What makes a row's key."""
        return Encoding.from_json(self.layout.key)

    @functools.cached_property
    def features(self) -> Encoding | None:
        """What makes a row's features; None when they are the key."""
        return Encoding.from_json(self.layout.features) if self.layout.features else None

    def search(self, queries: Tensor, k: int, own: Tensor | None = None) -> Neighborhood:
        """The k nearest rows of encoded `queries` [q, d], sorted by home list; `own` [q] are source rows to
        leave out.
        """
        wanted = k + (own is not None)
        files = self._files
        if queries.ndim != 2 or queries.shape[1] != self.layout.width:
            raise UsageError(
                f"encoded queries [q, {self.layout.width}] to match the index",
                str(list(queries.shape)),
                "Pass tables or files to predict, which encodes them.",
            )
        if self.exact:
            hood = exact_neighbors(files.rows, queries, wanted, self.layout.metric, files.center)
            order = torch.arange(len(queries))
        else:
            asked = self._search_space(queries)
            near, lists = files.lists.assign(asked, self.probes)
            sort = np.argsort(lists[:, 0], kind="stable")
            order = torch.from_numpy(sort)
            hood = self._probe(queries[order], asked[sort], near[sort], lists[sort], wanted)
        if own is not None:
            hood = self._without(hood, own[order], k)
        return dataclasses.replace(hood, queries=queries[order], order=order)

    def exactly(self, queries: Tensor, k: int, own: Tensor | None = None) -> Neighborhood:
        """The exact k nearest rows, in the order of the queries, by a pass over all rows."""
        files = self._files
        hood = exact_neighbors(files.rows, queries, k + (own is not None), self.layout.metric, files.center)
        return hood if own is None else self._without(hood, own, k)

    def _without(self, hood: Neighborhood, own: Tensor, k: int) -> Neighborhood:
        """The k nearest besides each query's own source row [q]."""
        mine = self.sources(hood.ids) == own[:, None]
        return hood.without(hood.ids.where(mine, -2).amax(dim=1)).nearest(k)

    def probed(self, queries: Tensor, k: int, own: Tensor | None, nprobe: int) -> Neighborhood:
        """`search` with `nprobe` lists a query."""
        return self.probing(nprobe).search(queries, k, own)

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """The neighborhood with the columns that `needs` names."""
        return self._files.rows.gather(hood, needs)

    def sources(self, ids: Tensor) -> Tensor:
        """Source row [q, k] of stored rows `ids`; −1 where missing."""
        return self._files.rows.take("row", ids).where(ids >= 0, -1)

    def outcomes(self, ids: Tensor) -> Tensor:
        """First target [q, k] of stored rows `ids`; nan where missing."""
        return self._files.rows.take("target", ids)[..., 0].where(ids >= 0, torch.nan)

    @property
    def numeric(self) -> bool:
        """Whether rows have targets that can be averaged."""
        return "target" in self._files.rows.shards[0]

    @functools.cached_property
    def id_type(self) -> pa.DataType:
        """Arrow type of what `identify` returns."""
        return self.identify(torch.zeros(0, dtype=torch.int64)).type

    @functools.cached_property
    def vocabulary(self) -> pa.Array | None:
        """Sorted classes that a vote can choose from."""
        told = self.layout.vocabulary
        return None if told is None else pa.array(told["values"], pa.type_for_alias(told["type"]))

    def identify(self, ids: Tensor) -> pa.Array:
        """The user's ids (else the source rows) of stored rows `ids` [any shape], flattened; null where
        missing.
        """
        files = self._files
        flat = ids.reshape(-1).numpy()
        table = pa.chunked_array(
            [shard.batch.column("id" if self.layout.roles["id"] else "row") for shard in files.shards]
        )
        taken = table.take(pa.array(np.maximum(flat, 0)))
        missing = pa.scalar(None, taken.type)
        return pa.compute.if_else(pa.array(flat >= 0), taken, missing).combine_chunks()

    def _search_space(self, queries: Tensor) -> NDArray[np.float32]:
        space = (queries - self._files.center.to(queries.dtype)) * self.layout.scale
        return np.ascontiguousarray(space.float().numpy())

    def _probe(
        self,
        queries: Tensor,
        asked: NDArray[np.float32],
        near: NDArray[np.float32],
        lists: NDArray[np.int64],
        k: int,
    ) -> Neighborhood:
        """Scan lists, rank by exact distances, and widen the search of queries whose lists hold fewer than k
        rows.
        """
        files = self._files
        spare = max(4, k // 8) if self.layout.codes == "fp16" else 0  # half precision rounds the k-th
        hood = self._rank(queries, files.lists.scan(asked, near, lists, k + spare), k)
        short = (~hood.found[:, -1]).nonzero().flatten()
        if len(short):
            again = asked[short.numpy()]  # NumPy takes a tensor of one element for a number
            rest = self._wider(queries[short], again, lists.shape[1], k)
            hood.distances[short], hood.ids[short] = rest.distances.to(hood.distances.dtype), rest.ids
        return hood

    def _wider(self, queries: Tensor, asked: NDArray[np.float32], nprobe: int, k: int) -> Neighborhood:
        """Neighbors of queries whose `nprobe` lists hold too few. After all lists a pass over all rows:
        FAISS finds nobody for queries so far away that their distances overflow.
        """
        if nprobe == self.layout.nlist:
            return self.exactly(queries, k)
        return self._probe(queries, asked, *self._files.lists.assign(asked, _WIDEN * nprobe), k)

    def _rank(self, queries: Tensor, ids: Tensor, k: int) -> Neighborhood:
        """The k smallest (distance, id) of FAISS's candidates [q, >= k]."""
        tiles = [slice(start, start + _TILE) for start in range(0, len(ids), _TILE)]
        exact = [self._files.rows.distances(queries[tile], ids[tile], self.layout.metric) for tile in tiles]
        near, ids = smallest(torch.cat(exact), ids, k)
        return Neighborhood(distances=near, ids=ids)

    @property
    def _files(self) -> "_Files":
        return _opened(self.folder, self.fingerprint)


@dataclasses.dataclass(frozen=True, eq=False)
class _Files:
    """The mapped files of a generation, opened once in a process."""

    layout: Layout
    copy: Copy

    def open(self) -> "_Files":
        """Map everything now, before threads share it."""
        _ = self.rows.starts, self.center, self.layout.nlist and self.lists.open()
        return self

    @functools.cached_property
    def shards(self) -> tuple["_Mapped", ...]:
        return tuple(_Mapped.open(self.copy.folder / shard.name, shard.bytes) for shard in self.layout.shards)

    @functools.cached_property
    def rows(self) -> Rows:
        vocabulary = self.layout.vocabulary
        shards = tuple(
            {name: array(shard.batch.column(name)) for name in shard.batch.schema.names if name != "id"}
            for shard in self.shards
        )
        return Rows(shards, classes=len(vocabulary["values"]) if vocabulary else 0)

    @functools.cached_property
    def center(self) -> Tensor:
        return torch.tensor(self.layout.center, dtype=torch.float64)

    @functools.cached_property
    def lists(self) -> Lists:
        table = _Mapped.open(self.copy.folder / LISTS, self.layout.sizes[LISTS]).batch
        shard_of, sizes = array(table.column("shard")), array(table.column("rows"))
        files = tuple(
            shard.codes(tuple(sizes[shard_of == number].tolist())) for number, shard in enumerate(self.shards)
        )
        return Lists(array(table.column("centroid")), files, self.layout.codes)


@dataclasses.dataclass(frozen=True, eq=False)
class _Mapped:
    """One Arrow IPC file of one batch, mapped at address `start`."""

    path: Path
    start: int
    batch: pa.RecordBatch

    @staticmethod
    def open(path: Path, size: int) -> "_Mapped":
        actual = path.stat().st_size if path.exists() else -1
        if actual != size:
            raise DataError(
                f"{path.name} of {size} bytes in the index {path.parent}",
                "no file" if actual < 0 else f"{actual} bytes",
                "The index is damaged; build it again.",
            )
        mapped = pa.memory_map(str(path))
        start = mapped.read_buffer(1).address
        mapped.seek(0)
        return _Mapped(path, start, pa.ipc.open_file(mapped).get_batch(0))

    def codes(self, sizes: tuple[int, ...]) -> CodeFile:
        """The lists of this shard as FAISS reads them."""
        column = self.batch.column("codes" if "codes" in self.batch.schema.names else "key")
        return CodeFile(str(self.path), column.values.buffers()[1].address - self.start, sizes)


_OPEN: dict[tuple[str, str], _Files] = {}
_OPENING = threading.Lock()  # threads share what is open; each file is mapped once


def _opened(folder: str, fingerprint: str) -> _Files:
    key = folder, fingerprint
    with _OPENING:
        if key not in _OPEN:
            layout = Generation(folder, fingerprint).layout
            copy = local_copy(Store.at(folder), fingerprint, (*layout.shards, layout.lists))
            _OPEN[key] = _Files(layout, copy).open()
            if len(_OPEN) > _MOST_OPEN:
                _OPEN.pop(next(iter(_OPEN)))
        return _OPEN[key]


def release(index: Generation) -> None:
    """Close the files of an index in this process, when nobody uses it any more."""
    with _OPENING:
        _OPEN.pop((index.folder, index.fingerprint), None)


def open_index(folder: str | Path) -> Generation:
    """Open an index generation.

    Parameters
    ----------
    folder : str or Path
        What `build_index` wrote.

    Returns
    -------
    Generation

    Raises
    ------
    DataError
        When there is no index, an unfinished one, or one of another format.
    """
    place = Store.at(folder).uri
    text = read_manifest(place)
    Layout.from_json(text, place)
    return Generation(place, digest(text))


def array(column: pa.Array) -> NDArray[Any]:
    """[n] or [n, d] view of a column without nulls, no copy."""
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        flat: NDArray[Any] = column.values.to_numpy(zero_copy_only=True)
        return flat[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
    return np.asarray(column.to_numpy(zero_copy_only=True))
