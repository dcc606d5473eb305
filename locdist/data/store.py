"""Where partitions live: a folder on a local disk or a prefix in an object store, behind one small class.

A store is a word (its address) and nothing else, so it travels in a plan; each process opens the file system
when it first needs it, with the credentials that it finds there. Everything written appears whole or not at
all: on a local disk through a temporary name, a sync and a rename; in an object store through one upload that
starts when the data is complete. No name leads out of the folder (`locdist.data.paths`).
"""

import contextlib
import errno
import glob
import os
import pathlib
import re
import secrets
import shutil
import tempfile
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from locdist.data.filesystems import open_root, refuse_credentials, reported
from locdist.data.paths import below, check_links, check_loops, check_steps, real
from locdist.errors import MachineError

_CHUNK = 16 << 20
_REPLACED = 20  # times that a file may be replaced while it is read
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True)
class FileInfo:
    """A file of a store.

    Parameters
    ----------
    path : str
        Relative to the root of the store, with "/" between folders.
    size : int
        In bytes.
    modified : int
        In nanoseconds since 1970; 0 where the store does not say.
    """

    path: str
    size: int
    modified: int


@dataclass(frozen=True)
class Store:
    """A folder, local or remote.

    Parameters
    ----------
    uri : str
        An absolute local path, or an address like ``s3://bucket/prefix?endpoint_override=...``. Use
        `Store.at` to make one.
    """

    uri: str

    @staticmethod
    def at(place: "str | os.PathLike[str] | Store") -> "Store":
        """The store at a path or an address.

        Local paths are made absolute, with ``~`` and symbolic links resolved. Addresses of pyarrow (``s3``,
        ``gs``, ``abfss``, ``hdfs``) and of any installed fsspec implementation are accepted.

        Raises
        ------
        UsageError
            When nothing installed can open addresses of this scheme, or for an address with credentials in
            it, which would be written to places, statuses and errors.
        """
        if isinstance(place, Store):
            return place
        text = os.fspath(place)
        scheme, _, rest = text.partition("://")
        if not rest and not text.startswith("file:"):
            return Store(real(os.path.expanduser(text)))
        if scheme.split(":")[0] == "file":
            return Store(real(urllib.parse.unquote(urllib.parse.urlsplit(text).path)))
        refuse_credentials(text)
        store = Store(_without_slash(text))
        open_root(store._root)
        return store

    @property
    def local(self) -> pathlib.Path | None:
        """The folder on this machine, or None for an object store."""
        return None if "://" in self.uri else pathlib.Path(self.uri)

    def child(self, name: str) -> "Store":
        """The store at a folder below this one."""
        if self.local is not None:
            check_links(self.uri, self._key(name))
        return Store(self.path(name))

    def path(self, name: str) -> str:
        """The address of a file of this store, as it is shown to people and as `Store.at` reads it."""
        if self.local is not None:
            return self._key(name)
        check_steps(self.uri, name)
        address, question, query = self.uri.partition("?")
        return _without_slash(address.rstrip("/") + "/" + _quoted(name.strip("/"))) + question + query

    def files(self, prefix: str = "", recursive: bool = True) -> list[FileInfo]:
        """The files below a folder of this store, "part-2" before "part-10"; none when the folder does not
        exist.
        """
        base = self._key("")
        if self.local is not None and recursive:
            check_loops(self._key(prefix))
        selector = pafs.FileSelector(self._key(prefix), allow_not_found=True, recursive=recursive)
        with reported(self.path(prefix)):
            found = self._system.get_file_info(selector)
        files = [_info(entry, base) for entry in found if entry.type == pafs.FileType.File]
        return sorted(files, key=lambda info: natural(info.path))

    def info(self, name: str) -> FileInfo | None:
        """What is known about one file, or None when it does not exist."""
        with reported(self.path(name)):
            entry = self._system.get_file_info(self._key(name))
        return _info(entry, self._key("")) if entry.type == pafs.FileType.File else None

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self.info(name) is not None

    def is_folder(self, name: str = "") -> bool:
        """Whether there is a folder of this name, or in an object store anything below it."""
        with reported(self.path(name)):
            return bool(self._system.get_file_info(self._key(name)).type == pafs.FileType.Directory)

    def read(self, name: str) -> bytes:
        """The content of a file, of one version: an object store would give the length of the one that it had
        when it was asked first, and the bytes of another that has come since.
        """
        with reported(self.path(name)):
            stream = self._system.open_input_file(self._key(name))
            for _ in range(_REPLACED):
                before = _version(stream)
                with stream:
                    content = bytes(stream.read())
                if self.local is not None:  # who has opened a file of a disk goes on reading it
                    return content
                stream = self._system.open_input_file(self._key(name))
                if _version(stream) == before:
                    stream.close()
                    return content
            stream.close()
        raise MachineError(
            f"{self.path(name)} to stay for as long as it is read",
            f"{_REPLACED} others in its place meanwhile",
            "Run the same again.",
        )

    def open(self, name: str, mmap: bool = False) -> pa.NativeFile:
        """A file opened for random access; memory mapped when asked for and local."""
        with reported(self.path(name)):
            if mmap and self.local is not None:
                return pa.memory_map(self._key(name))
            return self._system.open_input_file(self._key(name))

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole: readers see the old content or the new one, never a part."""
        with self.writer(name) as stream:
            stream.write(data)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[pa.NativeFile]:
        """A stream whose content becomes the file when the block ends well, and vanishes when it fails."""
        if self.local is None:
            with self._spooled(name) as stream:
                yield stream
            return
        with self._temporary(name) as (stream, temporary, final):
            yield stream
            _synced(stream, temporary)
            os.replace(temporary, final)
            _sync_folder(final)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists.

        On a local disk exactly one of several writers succeeds. An object store is asked first and written
        second: two writers in the same instant may both succeed, so what they write must be equivalent.

        Returns
        -------
        bool
            False when the file was there already; its content is left alone.
        """
        if self.local is None:
            if self.exists(name):
                return False
            self.write(name, data)
            return True
        with self._temporary(name) as (stream, temporary, final):
            stream.write(data)
            _synced(stream, temporary)
            created = _linked(temporary, final)
            _sync_folder(final)
        return created

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens when it does not exist."""
        if self.exists(name):
            with reported(self.path(name)):
                self._system.delete_file(self.target(name))

    def remove_all(self) -> None:
        """Remove the folder with everything in it."""
        with reported(self.uri):
            if self.local is not None:
                shutil.rmtree(self.local, onerror=_unless_missing)
            elif self.is_folder():
                self._system.delete_dir(self._key(""))

    @contextlib.contextmanager
    def _temporary(self, name: str) -> Iterator[tuple[pa.NativeFile, str, str]]:
        final = self.target(name)
        folder, base = os.path.split(final)
        temporary = os.path.join(folder, f".{base}.{secrets.token_hex(6)}.tmp")
        with reported(final):
            os.makedirs(folder, exist_ok=True)
            stream = pa.OSFile(temporary, "wb")
        try:
            with stream, reported(final):
                yield stream, temporary, final
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    @contextlib.contextmanager
    def _spooled(self, name: str) -> Iterator[pa.NativeFile]:
        # A stream into an object store commits what it has when it is closed, also after a failure. So the
        # data is completed on the local disk first, and the upload starts when there is nothing left to fail
        # but the upload.
        with tempfile.NamedTemporaryFile(prefix="locdist-") as spool:
            with pa.OSFile(spool.name, "wb") as stream:
                yield stream
            with reported(self.path(name)), self._system.open_output_stream(self._key(name)) as upload:
                while data := spool.read(_CHUNK):
                    upload.write(data)

    @property
    def _root(self) -> str:
        parts = urllib.parse.urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc}/" + (f"?{parts.query}" if parts.query else "")

    @property
    def _system(self) -> Any:
        return _LOCAL if self.local is not None else open_root(self._root)[0]

    def target(self, name: str) -> str:
        """Where a file is written or deleted: its key, on a local disk a path that no link leads out of the
        folder.
        """
        if self.local is not None:
            check_links(self.uri, os.path.dirname(self._key(name)))
        return self._key(name)

    def _key(self, name: str) -> str:
        if self.local is not None:
            return below(self.uri, name)
        check_steps(self.uri, name)
        base = open_root(self._root)[1]
        inner = urllib.parse.unquote(urllib.parse.urlsplit(self.uri).path)
        return "/".join(part.strip("/") for part in (base, inner, name) if part.strip("/"))


_LOCAL = pafs.LocalFileSystem()


def natural(path: str) -> tuple[list[str | int], str]:
    """A sort key that reads digits as numbers: "part-2" comes before "part-10"."""
    pieces = re.split(r"([0-9]+)", path)
    return [int(piece) if position % 2 else piece for position, piece in enumerate(pieces)], path


def has_magic(path: str) -> bool:
    """Whether a path is a pattern (``*``, ``?``, ``[...]``)."""
    return glob.has_magic(path)


def _version(stream: pa.NativeFile) -> tuple[int, Any]:
    """What tells the versions of an object from each other: its size, and its tag where the store has one."""
    try:
        return stream.size(), stream.metadata()
    except (NotImplementedError, pa.ArrowException):
        return stream.size(), None


def _info(entry: Any, base: str) -> FileInfo:
    relative = entry.path.lstrip("/")[len(base.lstrip("/")) :].lstrip("/")
    return FileInfo(relative, int(entry.size or 0), int(entry.mtime_ns or 0))


def _quoted(name: str) -> str:
    """A name inside an address, where three characters mean something else."""
    return name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def _without_slash(address: str) -> str:
    path, question, query = address.partition("?")
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{rest.rstrip('/')}" + question + query


def _synced(stream: pa.NativeFile, temporary: str) -> None:
    stream.close()
    _sync(temporary, os.O_RDWR)


def _sync_folder(path: str) -> None:
    _sync(os.path.dirname(path), os.O_RDONLY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _linked(temporary: str, final: str) -> bool:
    """Give a complete file its name unless the name is taken: what a hard link does in one step."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.exists(final):
            return False
        os.replace(temporary, final)
    return True


def _unless_missing(function: object, path: str, info: Any) -> None:
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]
