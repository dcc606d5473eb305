"""A node's own copies of index files that lie on an object store, so that they can be mapped and shared by
its workers.

Generations are immutable and named by their fingerprint: a copy that is there is right. A lock file lets one
process of a node download while the others wait; old generations make room for new ones, the longest unused
first.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from locdist.data.store import Store
from locdist.errors import MachineError

ROOT = Path("~/.cache/locdist/index")
SHARE = 0.8  # of the disk's free space and what the cache holds, for the cache
_CHUNK = 8 << 20


def local_copy(store: Store, fingerprint: str, sizes: Mapping[str, int], root: Path = ROOT) -> Path:
    """A local folder that holds the files of a generation: the store itself when it is local, else a copy.

    Parameters
    ----------
    store : Store
    fingerprint : str
        Of the generation.
    sizes : mapping of str to int
        Names and bytes of its files.
    root : Path
        The cache.

    Raises
    ------
    MachineError
        When the disk cannot hold it.
    """
    if store.local is not None:
        return Path(store.local)
    folder = root.expanduser() / fingerprint
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / "lock"):
        missing = [name for name, size in sizes.items() if not _holds(folder / name, size)]
        _make_room(folder, sum(sizes[name] for name in missing))
        for name in missing:
            _download(store, name, folder / name)
        os.utime(folder)  # used now
    return folder


def _holds(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size == size


def _make_room(folder: Path, wanted: int) -> None:
    """Remove the longest unused generations until `wanted` bytes fit into the cache's share of the disk."""
    others = sorted(
        (entry for entry in folder.parent.iterdir() if entry.is_dir() and entry != folder), key=_used
    )
    while (room := SHARE * shutil.disk_usage(folder.parent).free) < wanted:
        if not others:
            raise MachineError(
                f"{wanted:,} bytes for a local copy of the index",
                f"{int(room):,} in {folder.parent}",
                "Free disk space, or keep the index on a file system that all nodes mount.",
            )
        shutil.rmtree(others.pop(0))
    folder.mkdir(exist_ok=True)


def _used(folder: Path) -> float:
    return folder.stat().st_mtime


def _download(store: Store, name: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp")
    with store.open(name) as source, temporary.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            sink.write(chunk)
    temporary.replace(file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
