"""What every job settles before its first task: checked words, pinned inputs, versions, and task sizes."""

import json
import numbers
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from locdist.data.memory import PATH
from locdist.data.schema import TEXT_BYTES, row_bytes
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.plan.manifest import Pinned

READERS = 8  # small files read at a time: reading is waiting, on object stores above all
OURS = "_locdist"
_NAME, _SUMS = b"written as", b"crc32 of each batch"


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


def check_told(asked: Mapping[str, Any]) -> None:
    """UsageError when a file cannot say what was asked, such as a function of this process alone."""
    try:
        json.dumps(asked)
    except TypeError as error:
        wanted, remedy = "parameters that a file can tell", "Give code of your own as 'package.module:name'."
        raise UsageError(wanted, str(error), remedy) from error


def left_out(source: Source) -> tuple[str, ...]:
    """A sentence for the user when files or folders of a source are not read."""
    told = [f"{path} ({why[:200]})" for path, why in source.skipped]
    more = "; ..." if told[3:] else ""
    return (f"{len(told)} left out of the input: {'; '.join(told[:3])}{more}",) if told else ()


def rows_told(source: Source, start: int, stop: int) -> str:
    """Rows [start, stop) of a source in words, by the files that hold them."""
    if stop <= start:
        return "no rows"
    (file, first), (other, last) = source.locate(start), source.locate(stop - 1)
    if file == other:
        return f"rows {first} to {last} of {file}"
    return f"row {first} of {file} to row {last} of {other}"


def refuse_grown(folder: Store, added: Sequence[str]) -> None:
    """DataError when a finished index is asked for again with files that it was not built from."""
    if added:
        raise DataError(
            f"the files that the index in {folder.uri} was built from",
            f"{len(added)} more: {', '.join(added[:3])}" + (", ..." if added[3:] else ""),
            "Build it in another folder, or here with --overwrite; ld.open_index opens it as it is.",
        )


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


def each_file(folder: Store, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of small files in order, a few in memory."""
    with ThreadPoolExecutor(READERS) as pool:
        for begin in range(0, len(names), READERS):
            some = names[begin : begin + READERS]
            yield from zip(some, pool.map(folder.read, some), strict=True)


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


def ipc(name: str, batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC file of one uncompressed batch."""
    sink = pa.BufferOutputStream()
    write_ipc(sink, name, batch)
    return bytes(sink.getvalue())


def write_ipc(sink: pa.NativeFile, name: str, *batches: pa.RecordBatch) -> None:
    """Write an Arrow IPC file of uncompressed batches (at least one), which can be mapped. It knows the name
    that it is written under, and a checksum of each batch.
    """
    schema = batches[0].schema
    sums = json.dumps([_sum(batch) for batch in batches])
    schema = schema.with_metadata({**(schema.metadata or {}), _NAME: name, _SUMS: sums})
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def read_batches(
    source: pa.NativeFile, name: str, numbers: Callable[[pa.Schema], range] = lambda schema: range(1)
) -> list[pa.RecordBatch]:
    """Batches of the file that `write_ipc` wrote under a name, the first by default; DataError when they are
    not what was written.
    """
    try:
        reader = pa.ipc.open_file(source)
        told = reader.schema.metadata
        sums, wrote = json.loads(told[_SUMS]), told[_NAME].decode()
        wanted = numbers(reader.schema)
        batches = [reader.get_batch(number) for number in wanted]
        good = [_sum(batch) for batch in batches] == [sums[number] for number in wanted]
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise _changed(name, str(error)[:300]) from error
    if not good or wrote != name:
        raise _changed(name, "another content" if wrote == name else f"what was written as {wrote!r}")
    return batches


def _sum(batch: pa.RecordBatch) -> int:
    """CRC-32 of a batch and its types, about 3 GB a second; the same for a slice and for the file that holds
    it.
    """
    plain = batch.replace_schema_metadata(None)
    return zlib.crc32(plain.serialize(), zlib.crc32(plain.schema.serialize()))


def _changed(name: str, given: str) -> DataError:
    remedy = "Delete that file and run the same command again, which writes it again."
    return DataError(f"{name} of the job as it was written", given, remedy)


def column_bytes(source: Source, names: Sequence[str]) -> int:
    """About how many bytes these columns of one row have in memory; without any, the address of a row."""
    if not names:
        return TEXT_BYTES + 8
    return row_bytes(source.schema, names)
