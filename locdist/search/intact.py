"""Whether the files of an index hold what was written: asked before use, once a day on each machine.

A flipped bit in a shard is a wrong distance, a wrong target, or a neighbor that nobody finds, without a sign
of it. So whoever opens an index first hashes its files (blake2b, about 0.8 GB a second and core) and reads
them through once as Arrow; the other processes of the machine wait for it. What was found is noted by the
identity of the file (device, inode, size, times of change) and of the machine's start: a file that was
written to is read again, and so is every file a day later, because disks forget without telling. Small files
are read by each process, and so are all where no note can be kept.

The audit of a search reads all rows of the index as well, and takes longer.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pyarrow as pa

from locdist.data.footers import FETCH, POINTER, is_pointer
from locdist.errors import DataError
from locdist.search.layout import DAMAGED, ShardFile

NOTES = Path("~/.cache/locdist/verified")
SMALL = 64 << 20  # bytes below which a file is not worth a note
AGE = 86_400.0  # seconds that a note counts
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # another one after each start; containers share their host's
_THREADS = 4  # the other workers of the machine wait meanwhile
_CHUNK = 4 << 20
_GOOD = "good"


def verify(folder: Path, files: Sequence[ShardFile], remedy: str) -> None:
    """Hash the files of an index below a folder, unless this machine has done it.

    Raises
    ------
    DataError
        When one is missing, has another size or another content than its manifest says, or is no Arrow file.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda file: _verify(folder / file.name, file, remedy), files))


def _verify(path: Path, file: ShardFile, remedy: str) -> None:
    if not path.is_file() or path.stat().st_size != file.bytes:
        raise _damaged(path, file.bytes)
    with contextlib.nullcontext() if file.bytes < SMALL else _note(path, file) as note:
        if note is None or not _good(note):
            _read_through(path, file, remedy)
            if note is not None:
                note.seek(0)
                note.write(_GOOD)


def _damaged(path: Path, size: int) -> DataError:
    """What is wrong with a file that should have so many bytes."""
    wanted = f"{path.name} of {size:,} bytes in the index {path.parent}"
    if not path.is_file():
        return DataError(wanted, "no file", DAMAGED)
    with path.open("rb") as stream:
        content = stream.read(1024)
    if is_pointer(content):
        return DataError(wanted, POINTER, FETCH)
    given = f"{path.stat().st_size:,} bytes, it is cut off or another" if content else "an empty file"
    return DataError(wanted, given, DAMAGED)


def _read_through(path: Path, file: ShardFile, remedy: str) -> None:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != file.checksum:
        wanted = f"{path} with the checksum {file.checksum} of its manifest"
        raise DataError(wanted, digest.hexdigest(), remedy)
    try:
        one_batch(path).validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"an Arrow file of one batch at {path}", str(error)[:300], remedy) from error


def one_batch(path: Path) -> pa.RecordBatch:
    """The batch of an Arrow file, mapped."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    if reader.num_record_batches != 1:
        raise ValueError(f"{reader.num_record_batches} batches")
    return reader.get_batch(0)


@contextlib.contextmanager
def _note(path: Path, file: ShardFile) -> Iterator[IO[str] | None]:
    """The note of a file, locked while the body runs; None where none can be kept."""
    with contextlib.ExitStack() as stack:
        note = None
        with contextlib.suppress(OSError):
            note = stack.enter_context(_place(path, file).open("a+"))
            fcntl.flock(note, fcntl.LOCK_EX)
        yield note


def _place(path: Path, file: ShardFile) -> Path:
    told = path.stat()
    identity = (told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns, file.checksum)
    folder = NOTES.expanduser() / _BOOT.read_text().strip()
    if not folder.exists():
        for earlier in folder.parent.glob("*"):  # of earlier starts
            shutil.rmtree(earlier, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    return folder / hashlib.blake2b(repr(identity).encode(), digest_size=16).hexdigest()


def _good(note: IO[str]) -> bool:
    note.seek(0)
    return note.read() == _GOOD and time.time() - os.fstat(note.fileno()).st_mtime < AGE
