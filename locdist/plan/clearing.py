"""Emptying a folder for another run: what locdist wrote there, and nothing else.

People keep notes beside their results, so a file is deleted only when it lies below `_locdist/`, when a
commit record names it, or when it has the name of an output whose record was not written any more.
"""

import re
from collections.abc import Iterator

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.plan.lock import LOCK
from locdist.plan.records import CLAIM, COMMITS, named_outputs, temporary

MANIFEST = "_locdist/manifest.json"
FINISHED = ("manifest.json", "report.json")  # the files that are written last, of an index and of answers
OURS = "_locdist/"
_INDEX = re.compile(
    r"manifest\.json|lists\.arrow|shards/(part|shard)-\d{5,}\.arrow"
    r"|build/(trained\.arrow|[a-z]+/part-\d{5,}\.(arrow|json))"
)
_ANSWERS = re.compile(
    r"part-\d{5,}\.parquet|_models/(shared|[a-z]+-\d{5,})\.arrow"
    r"|passing/[a-z0-9-]+/([a-z-]+\d{5,}|fit)\.(arrow|json)"
)
_LEARNED = re.compile(r"part-\d{5,}\.parquet|method\.json")
_LIKE = {"build-index": _INDEX} | dict.fromkeys(("rules", "tune", "select"), _LEARNED)  # by kind
_COMMITTED = re.compile(rf"(?:.*/)?{COMMITS}/([^/]+?)(?:\.jsonl|/[^/.][^/]*\.json)")
_INDEPENDENT = "profile"  # the stage whose records cost little and decide nothing


def check_ours(folder: Store, kind: str) -> None:
    """UsageError naming the first file of a folder that no run of this `kind` wrote."""
    ours = set(_ours(folder, kind))
    foreign = next((file.path for file in folder.files() if file.path not in ours), None)
    if foreign is not None:
        raise UsageError(
            "nothing but files of locdist in a folder to overwrite",
            f"{folder.uri}, which holds {foreign!r}",
            "Move it away; locdist deletes nothing that it did not write.",
        )


def clear(folder: Store, kind: str) -> None:
    """Delete what runs of this `kind` wrote, but the lock, the claim and, until it is replaced, the manifest:
    who dies here leaves a folder that is still ours, and in which nothing is said to be finished that is
    gone.
    """
    for name in sorted(_ours(folder, kind), key=_turn):
        if name not in (LOCK, MANIFEST, CLAIM):
            folder.delete(name)


def anything_finished(folder: Store) -> bool:
    """Whether a task is committed, below too (`transform` keeps its index there), whose work would be lost
    with the request; the profile of an index is not.
    """
    return any(_finished(file.path) for file in folder.files())


def _finished(name: str) -> bool:
    if f"/{name}".endswith(f"/{MANIFEST}"):
        return False
    committed = _COMMITTED.fullmatch(name)
    return name.rpartition("/")[2] in FINISHED or (committed is not None and committed[1] != _INDEPENDENT)


def _ours(folder: Store, kind: str) -> Iterator[str]:
    names = [file.path for file in folder.files()]
    recorded, like = named_outputs(folder, names), _LIKE.get(kind, _ANSWERS)
    for name in names:
        if name.startswith(OURS) or name in recorded or like.fullmatch(name) or temporary(name):
            yield name


def _turn(name: str) -> int:
    """When a file is deleted: first what says that all is finished, then what says it of a task, then
    outputs, last the manifests that make a folder ours (`transform` keeps its index in a folder below).
    """
    if f"/{name}".endswith(f"/{MANIFEST}"):
        return 3
    if name.rpartition("/")[2] in FINISHED:
        return 0
    return 1 if f"/{COMMITS}/" in f"/{name}" else 2
