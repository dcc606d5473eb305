"""Which files a path means: a folder, a pattern, or a list of both.

Names that start with "_" or "." are nobody's data (Spark's markers, checksums, our own ``_locdist``),
whichever way they are reached. Anything else that is not a partition is skipped by its suffix and reported by
name, and so is what an earlier job wrote below a folder that is read: answers are no input unless they are
named.
"""

import functools
import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from locdist.data.folders import is_spelled
from locdist.data.store import FileInfo, Store, has_magic
from locdist.errors import DataError, UsageError

OUTPUT = "_locdist/manifest.json"  # what a job writes first
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
        Files and folders that are not partitions, and why.
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
    entries = [(found.root.path(info.path), info) for found in groups for info in found.files]
    named = {path: found.format for found in groups for path in found.named}
    formats = {path: FORMATS.get(_suffix(info.path), named.get(path, "")) for path, info in entries}
    kept = [(path, info) for path, info in entries if formats[path]]
    skipped = [
        *(each for found in groups for each in found.skipped),
        *((path, f"not one of {', '.join(FORMATS)}") for path, _ in entries if not formats[path]),
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
    root = groups[0].root if len(groups) == 1 else _common([path for path, _ in kept])
    files = tuple(_below(root, path, info) for path, info in kept)
    asked = tuple(Store.at(each).uri for each in places)
    return Listing(
        root, files, _one_format([(formats[path], path) for path, _ in kept]), tuple(skipped), asked
    )


def _suffix(path: str) -> str:
    return posixpath.splitext(path)[1].lower()


def _ignored(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


@dataclass(frozen=True)
class _Found:
    """The files of one place below its root that are not ignored, and what was skipped on the way.

    A file that is named itself is told by its first bytes when it has no suffix: `named` is its path and
    `format` what it is.
    """

    root: Store
    files: list[FileInfo]
    skipped: tuple[tuple[str, str], ...] = ()
    named: tuple[str, ...] = ()
    format: str = ""


def _found(place: Place) -> _Found:
    text = place.uri if isinstance(place, Store) else os.fspath(place)
    store = Store.at(place)
    if store.is_folder():
        return _walked(store, lambda path: True, lambda folder: True)
    root, name = _parent(store)
    info = root.info(name)
    if info is None and has_magic(_address(text)):
        return _matched(store)
    if info is None:
        raise DataError(
            f"a file or folder at {store.uri}", "nothing there", "Check the path on every machine of the run."
        )
    lifted = _lift(root)
    files = [] if _ignored(name) else [_below(lifted, store.uri, info)]
    return _Found(
        lifted, files, (), tuple(lifted.path(each.path) for each in files), _magic_format(root, info)
    )


def _walked(root: Store, wanted: Callable[[str], object], passed: Callable[[str], bool]) -> _Found:
    """The wanted files below a root; folders that an earlier job wrote, links that lead nowhere are skipped.

    `passed` says of a folder that it was passed through and not named.
    """
    found = root.files()
    written = {info.path.removesuffix("/" + OUTPUT) for info in found if info.path.endswith("/" + OUTPUT)}
    outputs = {folder for folder in written if not _ignored(folder) and passed(folder)}
    files = [info for info in found if not _ignored(info.path) and wanted(info.path)]
    left = [info for info in files if not outputs.intersection(_folders(info.path))]
    lost = [path for path in _dangling(root, found) if not _ignored(path) and wanted(path)]
    passed_by = {folder for info in files for folder in outputs.intersection(_folders(info.path))}
    skipped = [
        *((root.path(folder), "the output of an earlier job") for folder in sorted(passed_by)),
        *((root.path(path), "a link to nothing") for path in lost),
    ]
    return _Found(root, left, tuple(skipped))


def _folders(path: str) -> list[str]:
    """The folders that a file lies in, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _dangling(root: Store, found: Sequence[FileInfo]) -> list[str]:
    """Symbolic links of a local folder whose target does not exist, which no listing of files shows."""
    if root.local is None:
        return []
    places = (os.path.join(folder, name) for folder, _, names in os.walk(root.local) for name in names)
    others = {os.path.relpath(place, root.local) for place in places}.difference(each.path for each in found)
    return sorted(path for path in others if not os.path.exists(root.path(path)))


def _magic_format(root: Store, info: FileInfo) -> str:
    """What the first bytes of a file without a known suffix say that it is."""
    if _suffix(info.path) in FORMATS:
        return ""
    with root.open(info.path) as stream:
        start = bytes(stream.read(6))
    return "parquet" if start.startswith(b"PAR1") else "ipc" if start == b"ARROW1" else ""


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


def _matched(store: Store) -> _Found:
    """The files that a pattern matches, or whose folder it matches."""
    base, pattern = store, ""
    while not pattern or has_magic(_address(base.uri)):
        base, name = _parent(base)
        pattern = posixpath.join(name, pattern) if pattern else name
    return _walked(base, _pattern(pattern).fullmatch, functools.partial(_passed, pattern.split("/")))


def _passed(parts: list[str], folder: str) -> bool:
    """Whether a folder is no more than passed through by a pattern: none of its parts with a letter in it
    names the folder.
    """
    depth = folder.count("/")
    return "**" in parts or depth >= len(parts) or parts[depth] == "*"


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


def _one_format(files: Sequence[tuple[str, str]]) -> str:
    first = dict(reversed(files))
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
