"""Which files a path means: a folder, a pattern, or a list of both.

Names that start with "_" or "." are nobody's data (Spark's markers, checksums, our own ``_locdist``),
whichever way they are reached. Anything else that is not a partition is skipped by its suffix and reported by
name.
"""

import os
import posixpath
import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

from locdist.data.folders import is_spelled
from locdist.data.store import FileInfo, Store, has_magic
from locdist.errors import DataError, UsageError

FORMATS = {".parquet": "parquet", ".parq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
Place = str | os.PathLike[str] | Store
PLACES = (str, os.PathLike, Store)


@dataclass(frozen=True)
class Listing:
    """The partitions below one root.

    Parameters
    ----------
    root : Store
        The folder that all of them lie in.
    files : tuple of FileInfo
        In order; paths relative to the root.
    format : str
        "parquet" or "ipc".
    skipped : tuple of (str, str)
        Files that are not partitions, and why.
    places : tuple of str
        What was asked for, absolute.
    """

    root: Store
    files: tuple[FileInfo, ...]
    format: str
    skipped: tuple[tuple[str, str], ...]
    places: tuple[str, ...]


def listing(place: Place | Sequence[Place]) -> Listing:
    """The partitions that a path, a pattern or a list of both means.

    A folder is read recursively, in the natural order of its paths; a list keeps its order.

    Raises
    ------
    DataError
        When nothing is there, or nothing that is a partition, or partitions of two formats.
    UsageError
        When a list names a file twice or mixes file systems.
    """
    places = [place] if isinstance(place, PLACES) else list(place)
    wanted = ", ".join(str(getattr(each, "uri", each)) for each in places[:5]) or "an empty list"
    groups = [_found(each) for each in places]
    entries = [(root.path(info.path), info) for root, infos in groups for info in infos]
    kept = [(path, info) for path, info in entries if _suffix(info.path) in FORMATS]
    skipped = [
        (path, f"not one of {', '.join(FORMATS)}")
        for path, info in entries
        if _suffix(info.path) not in FORMATS
    ]
    if not kept:
        seen = f"no such file in {wanted}" + (
            f", only {', '.join(path for path, _ in skipped[:5])}" if skipped else ""
        )
        raise DataError(
            f"files that end in {', '.join(FORMATS)}",
            seen,
            "Names starting with '_' or '.' are ignored; check the path.",
        )
    _refuse_twice([path for path, _ in kept])
    root = groups[0][0] if len(groups) == 1 else _common([path for path, _ in kept])
    files = tuple(_below(root, path, info) for path, info in kept)
    asked = tuple(Store.at(each).uri for each in places)
    return Listing(root, files, _one_format(files), tuple(skipped), asked)


def _suffix(path: str) -> str:
    return posixpath.splitext(path)[1].lower()


def _ignored(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _found(place: Place) -> tuple[Store, list[FileInfo]]:
    """The root of one place and the files below it that are not ignored."""
    text = place.uri if isinstance(place, Store) else os.fspath(place)
    store = Store.at(place)
    if store.is_folder():
        return store, [info for info in store.files() if not _ignored(info.path)]
    root, name = _parent(store)
    info = root.info(name)
    if info is None and has_magic(_address(text)):
        return _matched(store)
    if info is None:
        raise DataError(
            f"a file or folder at {store.uri}", "nothing there", "Check the path on every machine of the run."
        )
    lifted = _lift(root)
    return lifted, [] if _ignored(name) else [_below(lifted, store.uri, info)]


def _address(uri: str) -> str:
    """An address without its options: on a local disk a question mark is part of a name or of a pattern."""
    return uri.partition("?")[0] if "://" in uri else uri


def _parent(store: Store) -> tuple[Store, str]:
    address, question, query = store.uri.partition("?") if store.local is None else (store.uri, "", "")
    folder, _, name = address.rpartition("/")
    return Store((folder or "/") + question + query), name


def _lift(root: Store) -> Store:
    """The folder above the ``name=value`` folders that a file lies in, so that a single file has the columns
    its folder has.
    """
    parent, name = _parent(root)
    return _lift(parent) if is_spelled(name) else root


def _matched(store: Store) -> tuple[Store, list[FileInfo]]:
    """The files that a pattern matches, or whose folder it matches."""
    base, pattern = store, ""
    while not pattern or has_magic(_address(base.uri)):
        base, name = _parent(base)
        pattern = posixpath.join(name, pattern) if pattern else name
    matches = _pattern(pattern)
    return base, [info for info in base.files() if matches.fullmatch(info.path) and not _ignored(info.path)]


def _pattern(pattern: str) -> re.Pattern[str]:
    parts = ["(?:.*/)?" if part == "**" else _component(part) + "/" for part in pattern.split("/")]
    return re.compile("".join(parts).removesuffix("/") + "(?:/.*)?")


def _component(part: str) -> str:
    """One component of a path as a regular expression; like a shell's, and unlike fnmatch's, its stars do not
    cross folders.
    """
    pieces = re.split(r"(\*|\?|\[[^\]]+\])", part)
    return "".join(
        _magic(piece) if position % 2 else re.escape(piece) for position, piece in enumerate(pieces)
    )


def _magic(piece: str) -> str:
    return {"*": "[^/]*", "?": "[^/]"}.get(piece) or piece.replace("[!", "[^", 1)


def _common(paths: Sequence[str]) -> Store:
    queries = {path.partition("?")[2] for path in paths if "://" in path}
    hosts = {path.split("/")[2] if "://" in path else "" for path in paths}
    if len(queries) > 1 or len(hosts) > 1:
        raise UsageError(
            "files of one file system", f"{paths[0]} and {paths[-1]}", "Read them as separate data sets."
        )
    query = "".join("?" + each for each in queries)
    folders = [posixpath.dirname(_address(path)) for path in paths]
    shared = (
        posixpath.commonpath([folder.replace("://", ":/", 1) for folder in folders])
        if "://" in folders[0]
        else ""
    )
    base = shared.replace(":/", "://", 1) if shared else posixpath.commonpath(folders)
    return _lift(Store(base + query))


def _below(root: Store, path: str, info: FileInfo) -> FileInfo:
    name = _address(path)[len(_address(root.uri)) :].lstrip("/")
    name = name if root.local is not None else urllib.parse.unquote(name)
    return FileInfo(name, info.size, info.modified)


def _one_format(files: Sequence[FileInfo]) -> str:
    first = {FORMATS[_suffix(info.path)]: info.path for info in reversed(files)}
    if len(first) > 1:
        listed = " and ".join(f"{path} ({kind})" for kind, path in sorted(first.items()))
        raise DataError("files of one format", listed, "Name the files of one format with a pattern.")
    return next(iter(first))


def _refuse_twice(paths: Sequence[str]) -> None:
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UsageError(
            "each file once", f"{twice} more than once", "Remove it from the list: every row is read once."
        )
