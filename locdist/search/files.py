"""The files of a generation in one process: mapped once, shared by its threads."""

import dataclasses
import functools
import threading
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
from locdist.search.layout import LISTS, Layout, read_layout
from locdist.search.lists import CodeFile, Lists
from locdist.search.rows import Rows

_MOST_OPEN = 8  # indexes at once in one process


@dataclasses.dataclass(frozen=True, eq=False)
class OpenFiles:
    """The mapped files of a generation, opened once in a process."""

    layout: Layout
    copy: Copy

    def open(self) -> "OpenFiles":
        """Map everything now, before threads share it."""
        _ = self.rows.starts, self.center, self.layout.nlist and self.lists.open()
        return self

    @functools.cached_property
    def shards(self) -> tuple["MappedFile", ...]:
        return tuple(
            MappedFile.open(self.copy.folder / shard.name, shard.bytes) for shard in self.layout.shards
        )

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
        table = MappedFile.open(self.copy.folder / LISTS, self.layout.sizes[LISTS]).batch
        shard_of, sizes = array(table.column("shard")), array(table.column("rows"))
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
    def open(path: Path, size: int) -> "MappedFile":
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
        return MappedFile(path, start, pa.ipc.open_file(mapped).get_batch(0))

    def codes(self, sizes: tuple[int, ...]) -> CodeFile:
        """The lists of this shard as FAISS reads them."""
        column = self.batch.column("codes" if "codes" in self.batch.schema.names else "key")
        return CodeFile(str(self.path), column.values.buffers()[1].address - self.start, sizes)


_OPEN: dict[tuple[str, str], OpenFiles] = {}
_OPENING = threading.Lock()  # threads share what is open; each file is mapped once


def opened(folder: str, fingerprint: str) -> OpenFiles:
    """The files of an index, opened once in this process."""
    key = folder, fingerprint
    with _OPENING:
        if key not in _OPEN:
            layout = read_layout(folder, fingerprint)
            copy = local_copy(Store.at(folder), fingerprint, (*layout.shards, layout.lists))
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
