"""`status`: how a folder stands, from the folder alone; it reads and changes nothing.

Commit records say what is finished, `status.json` what the last run did, files of failed attempts why.
"""

import json
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from locdist.data.store import Store
from locdist.errors import MachineError, TooManyBadRows
from locdist.jobs.asking.ask import REPORT
from locdist.jobs.asking.places import INDEX
from locdist.jobs.telling.text import aligned, to_json
from locdist.jobs.telling.verify import altered
from locdist.plan.lock import held
from locdist.plan.manifest import read_manifest
from locdist.plan.records import ERRORS, History, history
from locdist.plan.status import Counts, RunStatus, read_status
from locdist.search.generation import open_index
from locdist.search.layout import MANIFEST
from locdist.search.summary import Summary

SILENT = 60.0  # seconds without a word after which a driver on another machine counts as dead


@dataclass(frozen=True)
class StageState:
    """One stage: tasks finished of `total` (None before it was planned), rows of the finished ones."""

    name: str
    finished: int
    total: int | None
    rows: int
    bad_rows: int


@dataclass(frozen=True)
class FailedTask:
    """A task that is not finished, and the cause of its last failure."""

    stage: str
    task: str
    cause: str


@dataclass(frozen=True)
class FolderStatus:
    """How a folder stands.

    Parameters
    ----------
    folder, kind : str
        The verb that fills it.
    state : {"finished", "running", "stopped", "failed", "died", "damaged", "not started"}
        "died": it was running and its driver is gone. "damaged": finished once, and
        outputs are missing or changed now.
    exit_code : int or None
        What the last run ended with.
    message : str
        The error of the last run.
    stages : tuple of StageState
    failures : tuple of FailedTask
    dropped : tuple of str
        Finished tasks whose outputs are missing or were changed: they run again.
    command : str
        The command that continues; empty when nobody said.
    notes : tuple of str
        What a finished folder holds.
    index : Summary or None
        Of an index that is finished.
    """

    folder: str
    kind: str
    state: str
    exit_code: int | None = None
    message: str = ""
    stages: tuple[StageState, ...] = ()
    failures: tuple[FailedTask, ...] = ()
    dropped: tuple[str, ...] = ()
    command: str = ""
    notes: tuple[str, ...] = ()
    index: Summary | None = None

    @property
    def code(self) -> int:
        """What `locdist status` exits with: the exit code of the last run, 4 when it died or its outputs are
        damaged, 0 while it is running or before it starts.
        """
        return MachineError.exit_code if self.state in ("died", "damaged") else self.exit_code or 0

    def to_json(self) -> bytes:
        """The status as JSON."""
        return to_json(asdict(self))

    def __str__(self) -> str:
        bad = self.state == "finished" and self.exit_code == TooManyBadRows.exit_code
        state = f"{self.state}, with too many bad rows" if bad else self.state
        lines = [f"{self.folder}: {self.kind}, {state}", *([str(self.index)] if self.index else [])]
        lines += self.notes
        lines += [self.message] if self.message else []
        told = [_cells(stage) for stage in self.stages]
        lines += aligned([("stage", "tasks", "rows", "bad rows"), *told]) if told else []
        lines += [f"failed: {each.task} of {each.stage}: {each.cause}" for each in self.failures]
        lines += [f"to run again: {each}" for each in self.dropped]
        if self.state not in ("finished", "running"):
            lines.append(f"to continue: {self.command or 'run the same command again'}")
        return "\n".join(lines)


def status(folder: str | Path, verify: bool = False) -> FolderStatus:
    """How a folder stands that `build_index`, `predict`, `neighbors` or `transform` writes.

    Parameters
    ----------
    folder : path or URI
    verify : bool
        Read every file that was written and compare its checksum; a file that changed makes it "damaged".

    Returns
    -------
    FolderStatus

    Raises
    ------
    UsageError
        For a folder that locdist did not write.
    """
    store = Store.at(folder)
    told = _standing(store)
    changed = altered(store) if verify else ()
    if not changed:
        return told
    remedy = "build it again with --overwrite" if told.index else "delete it and run the same command again"
    notes = tuple(f"{name} is not what was written: {remedy}" for name in changed)
    return replace(told, state="damaged", notes=told.notes + notes)


def _standing(store: Store) -> FolderStatus:
    kind, run = read_manifest(store).kind, read_status(store)
    if kind == "build-index" and store.exists(MANIFEST):
        return _index(store, kind)
    if kind == "transform" and run is None and store.child(INDEX).exists("_locdist/manifest.json"):
        return replace(_standing(store.child(INDEX)), folder=store.uri, kind="transform, its index")
    past = history(store)
    told = FolderStatus(
        store.uri,
        kind,
        _state(store, run, past),
        stages=_stages(run, past),
        failures=_failures(store, past),
        dropped=tuple(f"{each.task} of {each.stage}, {each.reason}" for each in past.dropped),
        notes=_report(store),
    )
    if run is None:
        return told
    return replace(told, exit_code=run.exit_code, message=run.message, command=run.command)


def _state(folder: Store, run: RunStatus | None, past: History) -> str:
    if run is None:
        return "not started"
    if run.state == "running" and not _alive(folder, run):
        return "died"
    return "damaged" if run.state == "finished" and past.dropped else run.state


def _alive(folder: Store, run: RunStatus) -> bool:
    """Whether the driver of a run that says "running" is still there: it has the lock. File systems that two
    machines share do not always share locks.
    """
    if run.host != socket.gethostname():
        return time.time() - run.updated < SILENT
    return held(folder)


def _stages(run: RunStatus | None, past: History) -> tuple[StageState, ...]:
    """Every stage that was planned or has records."""
    planned = dict(run.stages) if run else {}
    return tuple(_stage(name, past, planned.get(name)) for name in dict.fromkeys([*planned, *past.records]))


def _stage(name: str, past: History, counts: Counts | None) -> StageState:
    done = past.records.get(name, {}).values()
    rows, bad = sum(record.rows for record in done), sum(record.bad_rows for record in done)
    return StageState(name, len(done), counts.total if counts else None, rows, bad)


def _failures(folder: Store, past: History) -> tuple[FailedTask, ...]:
    """Tasks with a failed attempt and without a record."""
    found = []
    for file in folder.files(ERRORS):
        stage, task = file.path.removeprefix(ERRORS + "/").removesuffix(".txt").split("/")
        if task not in past.records.get(stage, {}):
            _, cause, *_ = [*folder.read(file.path).decode().splitlines(), "", ""]
            found.append(FailedTask(stage, task, cause))
    return tuple(found)


def _index(folder: Store, kind: str) -> FolderStatus:
    layout = open_index(folder.uri).layout
    notes = tuple(layout.source["notes"])
    return FolderStatus(folder.uri, kind, "finished", 0, notes=notes, index=Summary.of(layout))


def _report(folder: Store) -> tuple[str, ...]:
    if not folder.exists(REPORT):
        return ()
    told = json.loads(folder.read(REPORT))
    counts = ", ".join(f"{name} {count:,}" for name, count in told["status"].items())
    return (f"{told['rows']:,} rows: {counts}",)


def _cells(stage: StageState) -> tuple[str, ...]:
    total = "?" if stage.total is None else f"{stage.total:,}"
    return stage.name, f"{stage.finished:,}/{total}", f"{stage.rows:,}", f"{stage.bad_rows:,}"
