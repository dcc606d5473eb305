"""A generation: one immutable index folder, built by `build_index`, mapped and shared by every worker of a
machine.

    manifest.json          written last: what the index holds, how it was made, sizes and hashes of every file
    lists.arrow            one row a list: centroid, rows, radius
    shards/shard-*.arrow   the rows, sorted by list, then by the user's id (else by content), one batch each

Arrow files are uncompressed IPC, which can be mapped.

Data only: JSON and Arrow, no pickle and no FAISS file. Row ids are positions over the shards.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.encoding import Encoding
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.local.moments import Batch
from locdist.local.neglected import Sample
from locdist.local.neighborhood import Neighborhood, smallest
from locdist.search.exact import exact_neighbors
from locdist.search.files import OpenFiles, opened
from locdist.search.layout import Layout, digest, read_layout, read_manifest
from locdist.search.reach import reached
from locdist.search.summary import Summary

_TILE = 1024  # queries ranked at once: few shards, few calls
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
        return read_layout(self.folder, self.fingerprint)

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

    @property
    def key(self) -> Encoding:
        """What makes a row's key."""
        return self.layout.key

    @property
    def features(self) -> Encoding | None:
        """What makes a row's features; None when they are the key."""
        return self.layout.features

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

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """All rows, with the columns that `needs` names."""
        return self._files.rows.batches(needs)

    @property
    def sample(self) -> Sample:
        """Some rows, always the same ones."""
        return self._files.rows.sample

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """The neighborhood with the columns that `needs` names."""
        hood = reached(hood, needs, self.layout.rows, self._files.reaches, self._near)
        return self._files.rows.gather(hood, needs)

    def _near(self, ids: Tensor, k: int) -> Neighborhood:
        """The k nearest others of stored rows, in their order."""
        hood = self.search(self.keys(ids), k, self.sources(ids))
        assert hood.order is not None
        return hood.rows(hood.order.argsort())

    def keys(self, ids: Tensor) -> Tensor:
        """Encoded keys [n, d] of stored rows `ids` [n]."""
        return self._files.rows.take("key", ids)

    def sources(self, ids: Tensor) -> Tensor:
        """Source row [q, k] of stored rows `ids`; −1 where missing."""
        return self._files.rows.take("row", ids).where(ids >= 0, -1)

    def stored(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The stored rows [s] that were rows [start, stop) of the source, and these [s], in its order."""
        return self._files.rows.of_source(start, stop)

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
        return None if told is None else told.array()

    def identify(self, ids: Tensor) -> pa.Array:
        """The user's ids (else the source rows) of stored rows `ids` [any shape], flattened; null where
        missing.
        """
        files = self._files
        flat = ids.reshape(-1).numpy()
        table = pa.chunked_array(
            [shard.batch.column("id" if self.layout.roles.id else "row") for shard in files.shards]
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
    def _files(self) -> OpenFiles:
        return opened(self.folder, self.fingerprint)


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
