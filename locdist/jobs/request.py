"""What every job settles before its first task: checked words, pinned inputs, versions, and task sizes."""

import importlib.metadata
import numbers
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pyarrow as pa

from locdist.data.memory import PATH
from locdist.data.schema import TEXT_BYTES, row_bytes
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.plan.manifest import Pinned

READERS = 8  # small files read at a time: reading is waiting, on object stores above all
OURS = "_locdist"
_LIBRARIES = ("locdist", "torch", "faiss-cpu", "numpy", "pyarrow")


def snapshot(source: Source) -> tuple[Pinned, ...]:
    """The files of a source as they are now."""
    return tuple(
        Pinned(**{name: value for name, value in asdict(file).items() if name != "groups"})
        for file in source.files
    )


def is_number(value: object) -> bool:
    """Whether a value that users gave is a real number; nan is none."""
    return isinstance(value, numbers.Real) and value == value


def is_whole(value: object) -> bool:
    """Whether a value that users gave is a whole number."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_recall(recall: float) -> None:
    """UsageError when no share of the neighbors can be that large, or that small."""
    if not (is_number(recall) and 0 < recall <= 1):
        raise UsageError("recall above 0, at most 1", repr(recall), "0.99 is the default.")


def inputs(source: Source) -> tuple[str, ...]:
    """Where a source lies, so that no output is written there."""
    return source.places


def settled(source: Source, folder: Store) -> Source:
    """A source that tasks can carry: data in memory are written below the claimed folder of a job, once, and
    read from there.

    Rows, paths and fingerprint stay those of the data in memory, so the job is pinned and resumed the same.
    """
    return source.spill(folder.child(OURS))


def unsettle(folder: Store) -> None:
    """Remove what `settled` wrote, when no task is left."""
    folder.delete(f"{OURS}/{PATH}")


def each_file(folder: Store, names: Sequence[str]) -> Iterator[bytes]:
    """The contents of small files in order, a few in memory."""
    with ThreadPoolExecutor(READERS) as pool:
        for begin in range(0, len(names), READERS):
            yield from pool.map(folder.read, names[begin : begin + READERS])


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


def write_ipc(sink: pa.NativeFile, *batches: pa.RecordBatch) -> None:
    """Write an Arrow IPC file of uncompressed batches (at least one), which can be mapped."""
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def column_bytes(source: Source, names: Sequence[str]) -> int:
    """About how many bytes these columns of one row have in memory; without any, the address of a row."""
    if not names:
        return TEXT_BYTES + 8
    return row_bytes(source.schema, names)
