"""`status`: how a folder stands, from the folder alone; it reads and changes nothing.

Commit records say what is finished, `status.json` what the last run did and, while it runs, how far it is,
files of failed attempts why, the lock who runs it, the log what happened last.
"""

import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from locdist.data.store import Store
from locdist.execute.log import last_events
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.report import Reported
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.telling.standing import FailedTask, FolderStatus, StageState
from locdist.jobs.telling.verify import altered
from locdist.plan.lock import Holder, held, holder
from locdist.plan.manifest import read_manifest
from locdist.plan.records import ERRORS, Record, committed, history
from locdist.plan.status import Counts, RunStatus, read_status
from locdist.search.generation import open_index
from locdist.search.layout import MANIFEST
from locdist.search.summary import Summary

SILENT = 60.0  # seconds without a word after which a driver on another machine counts as dead
FAILURES = 100  # whose causes are read
EVENTS = 20


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
    kind, run, who = read_manifest(store).kind, read_status(store), holder(store)
    if kind == "build-index" and store.exists(MANIFEST):
        return _index(store, kind)
    if kind == "transform" and run is None and store.child(INDEX).exists("_locdist/manifest.json"):
        return _below(store, who)
    told = FolderStatus(store.uri, kind, _state(store, run, who), notes=_report(store))
    told = replace(told, events=tuple(last_events(store, EVENTS)))
    told = _running(store, told, run, who) if told.state == "running" else _resting(store, told, run)
    return replace(told, command=run.command, audit=run.audit) if run else told


def _state(folder: Store, run: RunStatus | None, who: Holder | None) -> str:
    if run is None or run.state in ("stopped", "failed"):  # or a driver prepares the next run
        return "running" if who else run.state if run else "not started"
    return "died" if run.state == "running" and not _alive(folder, run) else run.state


def _alive(folder: Store, run: RunStatus) -> bool:
    """Whether the driver of a run that says "running" is still there: it has the lock. File systems that two
    machines share do not always share locks.
    """
    if run.host != socket.gethostname():
        return time.time() - run.updated < SILENT
    return held(folder)


def _running(folder: Store, told: FolderStatus, run: RunStatus | None, who: Holder | None) -> FolderStatus:
    """As the driver counts: reading a record for each task would take longer than they take."""
    if run is None or run.state != "running":
        message = "its driver prepares the first task"
        return replace(told, message=message, runner=who)
    stages = tuple(_counted(name, counts, run.updated) for name, counts in run.stages.items())
    runner = who or Holder(run.host, run.pid, run.updated)
    return replace(told, stages=stages, failures=_failures(folder, None), runner=runner)


def _resting(folder: Store, told: FolderStatus, run: RunStatus | None) -> FolderStatus:
    """As the records say."""
    past = history(folder)
    planned = dict(run.stages) if run else {}
    return replace(
        told,
        state="damaged" if told.state == "finished" and past.dropped else told.state,
        exit_code=run.exit_code if run else None,
        message=run.message if run else "",
        stages=tuple(
            _stage(name, past.records.get(name, {}), planned.get(name))
            for name in dict.fromkeys([*planned, *past.records])
        ),
        failures=_failures(folder, past.records),
        dropped=tuple(f"{each.task} of {each.stage}, {each.reason}" for each in past.dropped),
    )


def _counted(name: str, counts: Counts, now: float) -> StageState:
    """A stage as the driver counts it."""
    told = StageState(
        name, counts.finished, counts.total, counts.rows, counts.bad_rows, counts.bytes, counts.retried
    )
    fresh, seconds = counts.finished - counts.earlier, now - counts.began
    if not (counts.began and fresh and counts.finished < counts.total and seconds > 0):
        return told
    speed = (counts.rows - counts.earlier_rows) / seconds
    return replace(told, speed=speed, left=seconds * (counts.total - counts.finished) / fresh)


def _stage(name: str, records: Mapping[str, Record], counts: Counts | None) -> StageState:
    done = records.values()
    rows, bad = sum(record.rows for record in done), sum(record.bad_rows for record in done)
    size = sum(sum(record.bytes.values()) for record in done)
    total, retried = (counts.total, counts.retried) if counts else (None, 0)
    return StageState(name, len(done), total, rows, bad, size, retried)


def _failures(folder: Store, records: Mapping[str, Mapping[str, Record]] | None) -> tuple[FailedTask, ...]:
    """Tasks with a failed attempt and without a record; where nobody has read the records, each is asked
    for.
    """
    found: list[FailedTask] = []
    for file in folder.files(ERRORS):
        if len(found) == FAILURES:
            break
        stage, task = file.path.removeprefix(ERRORS + "/").removesuffix(".txt").split("/")
        done = committed(folder, stage, task) if records is None else records.get(stage, {}).get(task)
        if done is None:
            _, cause, *_ = [*folder.read(file.path).decode().splitlines(), "", ""]
            found.append(FailedTask(stage, task, cause))
    return tuple(found)


def _below(folder: Store, who: Holder | None) -> FolderStatus:
    """A `transform` that has not come to its own tasks: its index."""
    told = replace(_standing(folder.child(INDEX)), folder=folder.uri, kind="transform, its index")
    if told.state != "finished" or who is None:
        return told
    return replace(told, state="running", message="its driver prepares the first task", runner=who)


def _index(folder: Store, kind: str) -> FolderStatus:
    layout = open_index(folder.uri).layout
    return FolderStatus(folder.uri, kind, "finished", 0, notes=layout.source.notes, index=Summary.of(layout))


def _report(folder: Store) -> tuple[str, ...]:
    if not folder.exists(REPORT):
        return ()
    told = Reported.read(folder)
    counts = ", ".join(f"{name} {count:,}" for name, count in told.status.items())
    return (f"{told.rows:,} rows: {counts}" if counts else f"{told.rows:,} rows",)
