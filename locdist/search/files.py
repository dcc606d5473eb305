"""The files of a generation in one process: mapped once, shared by its threads."""

import dataclasses
import functools
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.store import Store
from locdist.errors import DataError
from locdist.search.cache import Copy, local_copy
from locdist.search.intact import verify
from locdist.search.layout import DAMAGED, LISTS, Layout, read_layout
from locdist.search.lists import CodeFile, Lists
from locdist.search.reach import Known
from locdist.search.rows import Rows

AGAIN = "Delete that copy and run the same again; if it stays so, the index is damaged: build it again."
_MOST_OPEN = 8  # indexes at once in one process


@dataclasses.dataclass(frozen=True, eq=False)
class OpenFiles:
    """The mapped files of a generation, opened once in a process."""

    layout: Layout
    copy: Copy

    def open(self) -> "OpenFiles":
        """Map everything now, before threads share it, and see that it fits together: FAISS and NumPy read
        where they are told to.
        """
        try:
            _ = self.rows.starts, self.center, self.layout.nlist and self.lists.open()
        except (pa.ArrowException, KeyError, ValueError) as error:
            given = f"{type(error).__name__}: {error}"
            raise DataError(f"an index as its manifest says in {self.copy.folder}", given, DAMAGED) from error
        return self

    @functools.cached_property
    def shards(self) -> tuple["MappedFile", ...]:
        return tuple(MappedFile.open(self.copy.folder / shard.name) for shard in self.layout.shards)

    @functools.cached_property
    def rows(self) -> Rows:
        vocabulary = self.layout.vocabulary
        shards = tuple(
            {name: array(shard.batch.column(name)) for name in shard.batch.schema.names if name != "id"}
            for shard in self.shards
        )
        rows = Rows(shards, classes=len(vocabulary.values) if vocabulary else 0)
        for shard, file in zip(rows.shards, self.layout.shards, strict=True):
            _check_shard(shard, file.rows, self.layout, rows.classes)
        return rows

    @functools.cached_property
    def center(self) -> Tensor:
        return torch.tensor(self.layout.center, dtype=torch.float64)

    @functools.cached_property
    def reaches(self) -> Known:
        """Distances of rows to their own nearest rows, as far as they were asked."""
        return {}

    @functools.cached_property
    def lists(self) -> Lists:
        table = MappedFile.open(self.copy.folder / LISTS).batch
        shard_of, sizes = array(table.column("shard")), array(table.column("rows"))
        _check_lists(shard_of, sizes, array(table.column("centroid")), self.layout)
        files = tuple(
            shard.codes(tuple(sizes[shard_of == number].tolist())) for number, shard in enumerate(self.shards)
        )
        return Lists(array(table.column("centroid")), files, self.layout.codes)


@dataclasses.dataclass(frozen=True, eq=False)
class MappedFile:
    """One Arrow IPC file of one batch, mapped at address `start`."""

    path: Path
    start: int
    batch: pa.RecordBatch

    @staticmethod
    def open(path: Path) -> "MappedFile":
        mapped = pa.memory_map(str(path))
        start = mapped.read_buffer(1).address
        mapped.seek(0)
        return MappedFile(path, start, pa.ipc.open_file(mapped).get_batch(0))

    def codes(self, sizes: tuple[int, ...]) -> CodeFile:
        """The lists of this shard as FAISS reads them."""
        column = self.batch.column("codes" if "codes" in self.batch.schema.names else "key")
        codes = column.values.buffers()[1]
        offset = codes.address - self.start
        if not 0 <= offset <= self.path.stat().st_size - codes.size:
            raise ValueError(f"{self.path.name} is compressed")
        return CodeFile(str(self.path), offset, sizes)


def _check_shard(shard: Mapping[str, NDArray[Any]], rows: int, layout: Layout, classes: int) -> None:
    """ValueError for columns other than the manifest says."""
    roles, needed = layout.roles, {"key", "row"}
    needed |= {"feature"} if layout.features else set()
    needed |= {"label"} if layout.vocabulary else set()
    needed |= {"weight"} if roles.weight else set()
    needed |= {"offset"} if roles.offset else set()
    needed |= {"shape"} if roles.shape else set()
    if needed - shard.keys():
        raise ValueError(f"columns {', '.join(shard)} without {', '.join(sorted(needed - shard.keys()))}")
    features = layout.features.width if layout.features else 0
    widths = {"key": layout.width, "feature": features, "target": len(roles.target), "label": 1}
    widths |= {"codes": layout.width, "shape": len(roles.shape)}
    for name, values in shard.items():
        kind = "i" if name in ("row", "label") else "f"
        shape = (rows,) if name in ("row", "weight", "offset") else (rows, widths[name])
        if values.dtype.kind != kind or values.shape != shape:
            raise ValueError(f"{name!r} of {values.dtype} {list(values.shape)}, not {list(shape)}")
    if "label" in shard and rows and not 0 <= shard["label"].min() <= shard["label"].max() < classes:
        raise ValueError(f"labels outside of the {classes} classes")


def _check_lists(
    shard_of: NDArray[Any], sizes: NDArray[Any], centroids: NDArray[Any], layout: Layout
) -> None:
    """ValueError for lists that do not lie where the manifest says."""
    held = np.bincount(shard_of, sizes, len(layout.shards))  # refuses what is negative
    wanted = [file.rows for file in layout.shards]
    if held.tolist() != wanted or sizes.min() < 0 or (np.diff(shard_of) < 0).any():
        raise ValueError(f"lists of {held.tolist()[:5]} rows in shards of {wanted[:5]}")
    if centroids.dtype != np.float32 or centroids.shape != (layout.nlist, layout.width):
        raise ValueError(f"centroids of {centroids.dtype} {list(centroids.shape)}")


_OPEN: dict[tuple[str, str], OpenFiles] = {}
_OPENING = threading.Lock()  # threads share what is open; each file is mapped once


def opened(folder: str, fingerprint: str) -> OpenFiles:
    """The files of an index, opened once in this process."""
    key = folder, fingerprint
    with _OPENING:
        if key not in _OPEN:
            layout = read_layout(folder, fingerprint)
            store, files = Store.at(folder), (*layout.shards, layout.lists)
            copy = local_copy(store, fingerprint, files)
            verify(copy.folder, files, DAMAGED if store.local is not None else AGAIN)
            _OPEN[key] = OpenFiles(layout, copy).open()
            if len(_OPEN) > _MOST_OPEN:
                _OPEN.pop(next(iter(_OPEN)))
        return _OPEN[key]


def release(folder: str, fingerprint: str) -> None:
    """Close the files of an index in this process, when nobody uses it any more."""
    with _OPENING:
        _OPEN.pop((folder, fingerprint), None)


def array(column: pa.Array) -> NDArray[Any]:
    """[n] or [n, d] view of a column without nulls, no copy."""
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        flat: NDArray[Any] = column.values.to_numpy(zero_copy_only=True)
        return flat[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
    return np.asarray(column.to_numpy(zero_copy_only=True))
