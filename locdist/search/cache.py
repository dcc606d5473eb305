"""A node's own copies of index files that lie on an object store, so that they can be mapped and shared by
its workers.

Generations are immutable and named by their fingerprint: what is downloaded is checked against the hashes of
the manifest, and a copy that is there is right. A lock file lets one process of a node download while the
others wait; old generations make room for new ones, the longest unused first, except those that a process
has open.
"""

import fcntl
import hashlib
import os
import shutil
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from locdist.data.store import Store
from locdist.errors import MachineError
from locdist.search.layout import ShardFile

ROOT = Path("~/.cache/locdist/index")
SHARE = 0.8  # of the disk's free space and what the cache holds, for the cache
_OPEN = ".open"  # in each generation: whoever has it open holds a shared lock on this file
_CHUNK = 8 << 20


@dataclass(frozen=True, eq=False)
class Copy:
    """A local folder with the files of a generation; it stays there as long as this object lives."""

    folder: Path


def local_copy(store: Store, fingerprint: str, files: Sequence[ShardFile], root: Path | None = None) -> Copy:
    """The files of a generation on this machine: the store itself when it is local, else a copy.

    Parameters
    ----------
    store : Store
    fingerprint : str
        Of the generation.
    files : sequence of ShardFile
        Names, bytes and hashes.
    root : Path, optional
        The cache, `ROOT` by default.

    Raises
    ------
    MachineError
        When the disk cannot hold it, or what arrives is not what was written.
    """
    if store.local is not None:
        return Copy(Path(store.local))
    folder = (root or ROOT).expanduser() / fingerprint
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / "lock"):
        copy = _opened(folder)
        missing = [file for file in files if not _holds(folder / file.name, file.bytes)]
        _make_room(folder, sum(file.bytes for file in missing))
        for file in missing:
            _download(store, file, folder / file.name)
        os.utime(folder)  # used now
    return copy


def _opened(folder: Path) -> Copy:
    """The folder with a shared lock, which ends with the object."""
    descriptor = os.open(folder / _OPEN, os.O_RDWR | os.O_CREAT, 0o644)
    copy = Copy(folder)
    weakref.finalize(copy, os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return copy


def _holds(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size == size


def _make_room(folder: Path, wanted: int) -> None:
    """Remove the longest unused generations until `wanted` bytes fit into the cache's share of the disk."""
    root = folder.parent
    others = sorted((entry for entry in root.iterdir() if entry.is_dir() and entry != folder), key=_used)
    while (room := _room(root)) < wanted:
        if not others:
            raise MachineError(
                f"{wanted:,} bytes for a local copy of the index",
                f"{max(room, 0):,} in {root}, besides what is in use",
                "Free disk space, or keep the index on a file system that all nodes mount.",
            )
        _remove(others.pop(0))


def _room(root: Path) -> int:
    """Bytes that the cache may still take."""
    held = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    return int(SHARE * (shutil.disk_usage(root).free + held)) - held


def _remove(folder: Path) -> None:
    """Remove a generation, unless a process has it open."""
    descriptor = os.open(folder / _OPEN, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def _used(folder: Path) -> float:
    return folder.stat().st_mtime


def _download(store: Store, wanted: ShardFile, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp")
    hashed = hashlib.blake2b(digest_size=16)
    with store.open(wanted.name) as source, temporary.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            hashed.update(chunk)
            sink.write(chunk)
    if hashed.hexdigest() != wanted.checksum:
        temporary.unlink()
        raise MachineError(
            f"{store.path(wanted.name)} with the hash {wanted.checksum} of its manifest",
            hashed.hexdigest(),
            "Run the same again; if it stays so the index is damaged: build it again.",
        )
    temporary.replace(file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
