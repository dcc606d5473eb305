"""What every job pins before its first task: input files, versions, and a word of progress."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from locdist.data.schema import is_text, is_vector, plain
from locdist.data.source import Source
from locdist.errors import UsageError
from locdist.plan.manifest import Pinned

TEXT_BYTES = 32  # of a name, assumed
_LIBRARIES = ("locdist", "torch", "faiss-cpu", "numpy", "pyarrow")


def snapshot(source: Source) -> tuple[Pinned, ...]:
    """The files of a source as they are now."""
    return tuple(
        Pinned(**{name: value for name, value in asdict(file).items() if name != "groups"})
        for file in source.files
    )


def check_recall(recall: float) -> None:
    """UsageError when no share of the neighbors can be that large, or that small."""
    if not 0 < recall <= 1:
        raise UsageError("recall above 0, at most 1", str(recall), "0.99 is the default.")


def inputs(source: Source) -> tuple[str, ...]:
    """Where a source lies, so that no output is written there."""
    return source.places


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {name: _version(name) for name in _LIBRARIES}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def rows_per_task(
    rows: int, row_bytes: int, task_bytes: int = 256 << 20, most: int = 262_144, least: int = 4096
) -> int:
    """Rows of a task: at most `most` and `task_bytes`, in a multiple of eight tasks, so that 1, 2, 4 or 8
    workers end together.

    Depends on the data alone, never on the workers: the same tasks whoever runs them.
    """
    most = max(1, min(most, task_bytes // max(row_bytes, 1)))
    tasks = 8 * -(-rows // (8 * most))
    return max(-(-rows // max(tasks, 1)), min(least, most), 1)


def ipc(batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC file of one uncompressed batch."""
    sink = pa.BufferOutputStream()
    write_ipc(sink, batch)
    return bytes(sink.getvalue())


def write_ipc(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    """Write an Arrow IPC file of one uncompressed batch, which can be mapped."""
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def random(seed: int) -> np.random.Generator:
    """Seeded random numbers."""
    return np.random.default_rng(seed)


def column_bytes(source: Source, names: Sequence[str]) -> int:
    """About how many bytes these columns of one row have in memory; without any, the address of a row."""
    if not names:
        return TEXT_BYTES + 8
    return sum(_bytes(plain(source.schema.field(name).type)) for name in names)


def _bytes(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * 8
    return TEXT_BYTES if is_text(kind) else 1024 if is_vector(kind) else 8
