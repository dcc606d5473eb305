"""What a folder holds: the request and the snapshot of its inputs, written once, before any work.

A folder answers one request. Asking again with the same request resumes; asking with another one is refused
and the difference is named, because half of a folder computed by another method or from other data is wrong
without a sign of it; as long as nothing is finished that could be wrong, it replaces the old one. Input files
are pinned (size, fingerprint of the footer, and where there is none the time of modification): one that
changed is an error, one that appeared later is reported and left out. Versions of the libraries are recorded
and differences reported: answers may then differ in the last bits, which is no reason to throw a finished
half away.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from uuid import uuid4

from locdist.data.artefacts import packed, peeked, unpacked
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.plan.clearing import MANIFEST as MANIFEST
from locdist.plan.clearing import OURS, anything_finished, check_ours, clear
from locdist.plan.lock import hold
from locdist.plan.records import CLAIM

FORMAT = 1
REMEDY = "Use --overwrite to replace what the folder holds, or write to another folder."
ELSEWHERE = "Write to another folder, or delete that one first."
ANSWERED = "the request that the folder answers: "


@dataclass(frozen=True)
class Pinned:
    """One input file as it was when the job began: `modified` in nanoseconds, `fingerprint` of its footer."""

    path: str
    size: int
    modified: int
    fingerprint: str = ""
    rows: int = 0


@dataclass(frozen=True)
class Manifest:
    """What was asked.

    Parameters
    ----------
    kind : str
        The verb: "predict", "build-index".
    request : mapping
        JSON-able: method, generation, roles, plan, ... whatever decides the answers.
    snapshot : tuple of Pinned
        The input files.
    versions : mapping of str to str
        Versions of locdist and of the libraries that compute.
    """

    kind: str
    request: Mapping[str, Any]
    snapshot: tuple[Pinned, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> str:
        """Indented JSON, for people as well."""
        return packed(asdict(self), indent=2).decode() + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> "Manifest":
        """Read `to_json`; DataError for one of another version, one that was changed, or something that is no
        manifest.
        """
        version = peeked(text, "format")
        if type(version) is int and version != FORMAT:
            raise DataError(
                f"a manifest of format {FORMAT}",
                f"one written by another version of locdist (format {version})",
                f"Continue with the version that wrote it. {REMEDY}",
            )
        return unpacked(Manifest, text, f"a manifest of format {FORMAT}", MANIFEST, REMEDY)


@dataclass(frozen=True)
class Claim:
    """A folder that is ours.

    `manifest` is the one in force: its snapshot is what to read, even when the source has more files now
    (`added`). `notes` are sentences for the user. `resumed` is False for a new, an overwritten or a replaced
    request.
    """

    manifest: Manifest
    resumed: bool
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@contextmanager
def claimed(
    folder: Store, manifest: Manifest, inputs: Iterable[str] = (), overwrite: bool = False
) -> Iterator[Claim]:
    """Check the folder, lock it, claim it, and hold the lock while the body runs.

    Nothing is written or deleted before the checks have passed. Raises what `check_folder`, `hold` and
    `claim` raise.
    """
    check_folder(folder, inputs)
    with hold(folder):
        yield claim(folder, manifest, overwrite)


def check_folder(folder: Store, inputs: Iterable[str] = ()) -> None:
    """UsageError when the folder is, contains or lies in an input (symlinks resolved), or holds something
    and is not ours. What lies below `_locdist/` is: a driver may have died before it wrote the manifest.
    """
    for name in inputs:
        _check_apart(folder.uri, name)
    if not folder.exists(MANIFEST):
        foreign = next((file.path for file in folder.files() if not file.path.startswith(OURS)), None)
        if foreign is not None and not folder.exists(MANIFEST):  # another driver may just have begun
            raise UsageError(
                "an empty folder, or one that locdist wrote",
                f"{folder.uri}, which has no {MANIFEST} but holds {foreign!r}",
                "Write to another folder; locdist deletes nothing that it did not write.",
            )


def claim(folder: Store, manifest: Manifest, overwrite: bool = False) -> Claim:
    """Write the manifest, or compare it with the one that is there; call it with the lock held.

    Raises
    ------
    UsageError
        The folder answers another request, of which something is finished: names the first entries that
        differ, what they were and what they are. Or `check_overwrite` refuses.
    DataError
        A pinned file changed or is gone, or the manifest cannot be read.
    """
    check_folder(folder)
    notes: tuple[str, ...] = ()
    if overwrite:
        check_overwrite(folder, manifest.kind)
    elif folder.exists(MANIFEST):
        standing = compared(folder, manifest)
        if standing.resumed:
            return standing
        notes = standing.notes
    folder.write(CLAIM, uuid4().hex.encode())  # first: attempts of earlier requests stop here
    clear(folder, manifest.kind)
    folder.write(MANIFEST, manifest.to_json().encode())
    return Claim(_reread(manifest), resumed=False, notes=notes)


def check_overwrite(folder: Store, kind: str) -> None:
    """UsageError when the folder answers a request of another kind, or holds a file that locdist did not
    write; reads only.
    """
    check_kind(folder, kind, " to overwrite")
    check_ours(folder, kind)


def check_kind(folder: Store, kind: str, purpose: str = "") -> None:
    """UsageError when the folder answers a request of another kind."""
    was = _kind(folder)
    if was not in (None, kind):
        raise UsageError(f"a folder of kind {kind!r}{purpose}", f"{folder.uri} of kind {was!r}", ELSEWHERE)


def read_manifest(folder: Store) -> Manifest:
    """The manifest of a folder; UsageError when it has none."""
    if not folder.exists(MANIFEST):
        raise UsageError("a folder that locdist wrote", f"{folder.uri} without {MANIFEST}", "Check the path.")
    return Manifest.from_json(folder.read(MANIFEST))


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The leaves in which two JSON values differ, as (path, old, new); None where one side has nothing."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}[{place}]")
    elif old != new or isinstance(old, bool) is not isinstance(new, bool):  # 1 is 1.0, and not True
        yield path, old, new


def compared(folder: Store, manifest: Manifest) -> Claim:
    """Compare a request with the one that a folder answers; reads only, and raises what `claim` raises.

    Another request is taken, not `resumed`, while nothing is finished.
    """
    old, new = read_manifest(folder), _reread(manifest)
    try:
        _check_same(old, new)
        added = _added(old.snapshot, new.snapshot)
    except (UsageError, DataError) as error:
        if old.kind != new.kind or anything_finished(folder):
            raise
        was = error.expected.removeprefix(ANSWERED)
        note = f"a request of which nothing was finished is replaced: {was}, now {error.given}"
        return Claim(new, resumed=False, notes=(note,))
    notes = (
        [f"{len(added)} input files appeared after the job began and are left out: {added[0]} ..."]
        if added
        else []
    )
    touched = _touched(old.snapshot, new.snapshot)
    if touched:
        notes.append(
            f"{len(touched)} input files were written or copied after the job began, with the same size and "
            f"footer, and are taken for the same: {touched[0]} ... If their rows changed, use --overwrite."
        )
    notes += [
        f"{path} was {before}, now {after}" for path, before, after in differences(old.versions, new.versions)
    ]
    return Claim(old, resumed=True, added=added, notes=tuple(notes))


def _check_same(old: Manifest, new: Manifest) -> None:
    asked = {"kind": old.kind, "request": old.request}, {"kind": new.kind, "request": new.request}
    changed = list(differences(*asked))
    if changed:
        was, now = (", ".join(f"{path} {change[side]!r}" for path, *change in changed[:3]) for side in (0, 1))
        raise UsageError(ANSWERED + was, now, REMEDY if old.kind == new.kind else ELSEWHERE)


def _kind(folder: Store) -> object:
    """The kind of the request that a folder answers, as far as its manifest can be read, by any version."""
    return peeked(folder.read(MANIFEST), "kind") if folder.exists(MANIFEST) else None


def _reread(manifest: Manifest) -> Manifest:
    """With lists for tuples, as it will be when it is read again."""
    return Manifest.from_json(manifest.to_json())


def _added(old: tuple[Pinned, ...], new: tuple[Pinned, ...]) -> tuple[str, ...]:
    """Files that appeared since; DataError for a pinned one that is gone or changed."""
    now = {file.path: file for file in new}
    for file in old:
        current = now.pop(file.path, None)
        if current is None:
            raise DataError(
                f"the input file {file.path!r} of this job", "a source without it", f"Restore it. {REMEDY}"
            )
        for path, before, after in differences(_compared(file, current), _compared(current, file)):
            raise DataError(
                f"{file.path!r} with {path} {before}",
                f"{path} {after}",
                f"It changed after the job began: repair or replace it, if that was not meant. {REMEDY}",
            )
    return tuple(now)


def _touched(old: tuple[Pinned, ...], new: tuple[Pinned, ...]) -> tuple[str, ...]:
    """Pinned files whose time is another, though nothing else is."""
    now = {file.path: file.modified for file in new}
    return tuple(file.path for file in old if now.get(file.path, file.modified) != file.modified)


def _compared(file: Pinned, other: Pinned) -> dict[str, Any]:
    """What is compared with another state of a file: when it was modified only where there is no footer that
    would tell, because files are copied and touched.
    """
    content = asdict(file)
    modified = datetime.fromtimestamp(content.pop("modified") / 1e9, UTC)
    told = file.fingerprint and other.fingerprint
    return content if told else content | {"modified": modified.isoformat(" ", timespec="milliseconds")}


def overlap(folder: str, name: str) -> str:
    """How a folder and another place, which may be a pattern, share files: "is", "contains", "lies in", or
    not at all.
    """
    out, source = _parts(folder), _parts(name)
    shared = zip(out, source, strict=False)
    if not all(mine == theirs or fnmatchcase(mine, theirs) for mine, theirs in shared):
        return ""
    return "is" if len(out) == len(source) else "contains" if len(out) < len(source) else "lies in"


def _check_apart(folder: str, name: str) -> None:
    if relation := overlap(folder, name):
        raise UsageError(
            "an output folder apart from the inputs",
            f"{folder}, which {relation} the input {name}",
            "Write to another folder: later runs would read output as input, --overwrite would delete input.",
        )


def _parts(uri: str) -> tuple[str, ...]:
    """Components of a path, an address or a pattern, up to a "**"; local ones absolute, symlinks resolved."""
    if "://" in uri and not uri.startswith("file:"):
        scheme, _, rest = uri.partition("?")[0].partition("://")
        return (scheme + ":", *posixpath.normpath(rest).split("/"))
    path = Path(uri.removeprefix("file://")).expanduser()
    if path.exists():  # also one with brackets in its name
        return path.resolve().parts
    parts = path.parts
    wild = next((place for place, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    below = parts[wild : parts.index("**") if "**" in parts else None]
    return (*Path(*parts[:wild]).resolve().parts, *below)
