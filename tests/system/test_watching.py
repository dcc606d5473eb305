"""What can be watched of a run: events, the log in its folder, the display, and how it stands meanwhile."""

import io
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import locdist as ld
from locdist.data.filesystems import redacted
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError
from locdist.execute import log, loop
from locdist.execute.events import (
    Audited,
    Event,
    RunEnded,
    RunStarted,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Tuning,
    Waiting,
)
from locdist.execute.executor import Calls, Executor, run
from locdist.execute.log import EVENTS, PIECES, last_events
from locdist.execute.progress import Lines, progress
from locdist.execute.worker import Finished, attempted
from locdist.jobs.status import status
from locdist.plan.lock import hold
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Stage, Task
from locdist.plan.records import Record, history
from locdist.plan.status import Counts, RunStatus, read_status, write_status
from locdist.testing.tasks import ROWS, contents, small_job
from tests.system.small_job import Write

SECRET = "wJalrXUtnFEMI/K7MDENG"


@dataclass(frozen=True)
class Place:
    """A job's folder, and the log that its tasks write."""

    folder: Store
    log: Path

    def job(self, fault: str = "", tasks: int = 5, once: bool = False, delay: float = 0.0):
        return small_job(self.folder, Write(str(self.log), delay, fault, once=once), tasks)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "log").mkdir()
    return Place(Store.at(tmp_path / "out"), tmp_path / "log")


def lines(folder: Store) -> list[dict]:
    return [json.loads(line) for line in folder.read(EVENTS).splitlines()]


# ---- the log ----


def test_each_event_is_a_line_of_the_folder(place):
    run(place.job("machine", once=True), ld.Local(1), command="locdist again")
    told = lines(place.folder)
    names = [line["event"] for line in told]
    assert names[:2] == ["run-started", "stage-started"]
    assert names[-2:] == ["stage-finished", "run-ended"]
    assert (names.count("task-started"), names.count("task-finished"), names.count("task-failed")) == (
        6,
        5,
        1,
    )
    assert (told[0]["executor"], told[0]["pid"], told[0]["command"]) == (
        "Local",
        os.getpid(),
        "locdist again",
    )
    (failed,) = [line for line in told if line["event"] == "task-failed"]
    assert (failed["task"], failed["attempt"], failed["final"], failed["lost"]) == (
        "part-00003",
        1,
        False,
        False,
    )
    assert failed["cause"] == "expected a disk; got none. Insert it."
    done = next(
        line for line in told if line.get("task") == "part-00003" and line["event"] == "task-finished"
    )
    size = place.folder.info("part-00003.parquet").size
    assert (done["attempt"], done["rows"], done["bad_rows"], done["bytes"]) == (2, ROWS, 0, size)
    assert done["seconds"] >= 0
    assert done["peak_memory"] > 1 << 20
    assert done["pid"] == os.getpid()
    assert told[-1] | {"time": 0} == {
        "time": 0,
        "event": "run-ended",
        "state": "finished",
        "exit_code": 0,
        "message": "",
    }
    assert [line["time"] for line in told] == sorted(line["time"] for line in told)


def test_the_log_knows_every_event():
    assert set(log._FIELDS) == set(get_args(Event))


def test_runs_append_and_half_a_line_of_a_dead_driver_is_passed_over(place):
    run(place.job(), ld.Local(1))
    before = place.folder.read(EVENTS)
    with open(place.folder.local / EVENTS, "ab") as log:
        log.write(b'{"time": "2026-')
    run(place.job(), ld.Local(1))
    assert place.folder.read(EVENTS).startswith(before)
    told = last_events(place.folder, 1000)
    assert [line["event"] for line in told].count("run-started") == 2
    assert told[-1]["event"] == "run-ended"


def test_a_log_that_cannot_be_written_is_no_failure(place):
    (place.folder.local / EVENTS).mkdir(parents=True)
    report = run(place.job(), ld.Local(2))
    assert len(report["write-0"]) == 5
    assert last_events(place.folder, 3) == []


def test_the_log_is_no_output_and_goes_when_the_folder_is_overwritten(place):
    with claimed(place.folder, Manifest("small", {})):
        run(place.job(), ld.Local(2))
    first = contents(place.folder)
    assert history(place.folder).unclaimed == ()
    with claimed(place.folder, Manifest("small", {"again": True}), overwrite=True):
        assert not place.folder.exists(EVENTS)
        run(place.job(), ld.Local(2))
    assert contents(place.folder) == first
    assert [line["event"] for line in lines(place.folder)].count("run-started") == 1


def test_on_an_object_store_the_log_is_pieces(bucket, tmp_path):
    (tmp_path / "log").mkdir()
    folder = Store.at(bucket.format("out"))
    run(small_job(folder, Write(str(tmp_path / "log")), 3), ld.Local(2))
    pieces = folder.files(PIECES)
    assert len(pieces) == 2  # at the end of the stage, and of the run
    told = last_events(folder, 1000)
    assert (told[0]["event"], told[-1]["event"], len(told)) == ("run-started", "run-ended", 2 + 3 * 2 + 2)
    assert [
        record.rows for record in run(small_job(folder, Write(""), 3), ld.Local(1))["write-0"].values()
    ] == [ROWS] * 3


@dataclass(frozen=True)
class Leak:
    """Fails with an address that holds a secret."""

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        raise ValueError(
            f"cannot open s3://AKIA:{SECRET}@bucket/x?token={SECRET}&region=eu, secret_key='{SECRET}'"
        )


def test_no_secret_is_kept(place):
    job = small_job(place.folder, Leak(), 1)
    with pytest.raises(LocdistError, match="ValueError"):
        run(job, ld.Local(1), command=f"locdist predict s3://key:{SECRET}@bucket/index new/ --key lon,lat")
    for file in place.folder.files("_locdist"):
        assert SECRET[:8].encode() not in place.folder.read(file.path), file.path
    told = lines(place.folder)
    assert told[0]["command"] == "locdist predict s3://***@bucket/index new/ --key lon,lat"
    (failed,) = [line for line in told if line["event"] == "task-failed"]
    assert (
        failed["cause"] == "ValueError: cannot open s3://***@bucket/x?token=***&region=eu, secret_key='***'"
    )


@pytest.mark.parametrize("text", [
    "locdist index data/ --key lon,lat --param key=3", "abfss://container@account/x?region=eu",
    "s3://bucket/new/?endpoint_override=127.0.0.1:9&scheme=http", "me@host: a password is wanted",
])  # fmt: skip
def test_what_is_no_secret_stays(text):
    assert redacted(text) == text


# ---- events ----


def test_a_lost_worker_is_told_from_a_failed_one(place):
    events: list[Event] = []
    run(place.job("kill", once=True), ld.Local(1, processes=True), listener=events.append)
    (failed,) = [event for event in events if isinstance(event, TaskFailed)]
    assert (failed.failure.lost, failed.failure.kind, failed.final) == (True, "machine", False)
    assert max(event.attempt for event in events if isinstance(event, TaskStarted)) == 2
    run_status = read_status(place.folder)
    assert run_status is not None
    counts = run_status.stages["write-0"]
    written = sum(event.record.bytes["part-00000.parquet"] for event in events
                  if isinstance(event, TaskFinished) and event.task.name == "part-00000")  # fmt: skip
    assert (counts.retried, counts.finished, counts.failed) == (1, 5, 0)
    assert counts.bytes > 4 * written > 0


def test_recall_is_told_before_the_tasks_and_kept(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=2000), "y": rng.normal(size=2000)}
    index = ld.build_index(ld.dataset(rows, key="x", target="y"), tmp_path / "index", codes="flat", nlist=16)
    for told in ([Tuning(900, 2000)], []):  # running again measures nothing again
        events: list[Event] = []
        report = ld.predict("knn", index, rows, tmp_path / "out", listener=events.append)
        names = [type(event) for event in events[: len(told) + 2]]
        assert [event for event in events if isinstance(event, Tuning)] == told
        assert names == [*(type(event) for event in told), RunStarted, Audited]
        audit = next(event.audit for event in events if isinstance(event, Audited))
        assert (audit.mean, audit.nprobe, audit.queries) == (report.recall.mean, report.nprobe, 600)
        assert read_status(Store.at(tmp_path / "out")).audit == audit
    told = status(tmp_path / "out")
    assert told.audit == audit
    assert str(audit) in str(told)
    assert json.loads(told.to_json())["audit"]["mean"] == audit.mean
    assert "audited" in [line["event"] for line in last_events(Store.at(tmp_path / "out"), 100)]


@dataclass(frozen=True)
class Slow(Executor):
    """Ends nothing for some pulses, and says why."""

    pulses: int

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        for task, attempt in calls:
            for _ in range(self.pulses):
                time.sleep(0.01)
                yield None
            yield attempted(stage.function, task, attempt)

    def waiting(self) -> str:
        return "no node has 64 cores"


def test_when_nothing_ends_it_is_told_what_is_awaited(place, monkeypatch):
    monkeypatch.setattr(loop, "WAITED", 0.05)
    events: list[Event] = []
    stream = io.StringIO()
    display = Lines(stream)
    run(place.job(tasks=2), Slow(20), listener=lambda event: (events.append(event), display(event)))
    told = [event for event in events if isinstance(event, Waiting)]
    assert 2 <= len(told) <= 8
    assert (told[0].stage, told[0].in_flight, told[0].reason) == (
        "write-0",
        ("part-00000",),
        "no node has 64 cores",
    )
    assert told[0].seconds >= 0.05
    assert "waiting since 0.1 s for part-00000 to end; no node has 64 cores" in stream.getvalue()
    assert "waiting" in [line["event"] for line in lines(place.folder)]


def test_a_stall_is_told_with_the_reason_of_the_scheduler(place):
    with pytest.raises(MachineError, match="in flight: part-00000; no node has 64 cores"):
        run(place.job(tasks=2), Slow(1000), stall_after=0.1)


# ---- the display ----


def test_a_thousand_failures_are_few_lines(place):
    stream = io.StringIO()
    job = small_job(place.folder, Leak(), 60)
    with pytest.raises(LocdistError):
        run(job, ld.Local(2), listener=progress(stream))
    told = stream.getvalue().splitlines()
    assert len(told) == 3  # the first failure, how many more, the end of the stage
    assert "failed in attempt 1, given up" in told[0]
    assert told[1].startswith("and 59 more failures")
    assert told[2].endswith("failed tasks: 60")


def test_lines_count_retries_bytes_and_lost_workers(place):
    stream = io.StringIO()
    run(place.job("kill", once=True), ld.Local(1, processes=True), listener=Lines(stream, every=0.0))
    last = [line for line in stream.getvalue().splitlines() if "tasks," in line and "ended" not in line][-1]
    assert last.startswith("write-0: 5/5 tasks, 50/50 rows, ")
    assert last.endswith("1 retried, 1 workers lost")
    assert "KiB written" in last


# ---- how it stands ----


def begun(place: Place, state: str = "running", **changes) -> Store:
    """A folder ten seconds after its driver began: 20 of 50 tasks are done, 10 of them before."""
    now = time.time()
    with claimed(place.folder, Manifest("small", {})):
        pass
    counts = Counts(50, 20, 1, 200, 3, 4000, 2, earlier=10, earlier_rows=100, began=now - 10)
    write_status(
        place.folder,
        replace(RunStatus(state, None, "", "locdist again", {"write-0": counts}, updated=now), **changes),
    )
    return place.folder


def test_a_running_folder_tells_how_fast_and_how_long(place):
    folder = begun(place)
    with hold(folder):
        told = status(folder.uri)
        (stage,) = told.stages
        assert (told.state, stage.finished, stage.total, stage.bytes, stage.retried) == (
            "running",
            20,
            50,
            4000,
            2,
        )
        assert stage.speed == pytest.approx(10, rel=0.01)
        assert stage.left == pytest.approx(30, rel=0.01)
        assert (told.runner.pid, told.command) == (os.getpid(), "locdist again")
        assert f"run by process {os.getpid()} on host" in str(told)
        assert "write-0: 10 rows/s, about 0:30 left" in str(told)
    assert status(folder.uri).state == "died"
    assert "to continue: locdist again" in str(status(folder.uri))


def test_while_it_runs_no_records_are_read(place, monkeypatch):
    folder = begun(place)
    monkeypatch.setattr("locdist.jobs.status.history", lambda store: 1 // 0)
    folder.write("_locdist/errors/write-0/part-00003.txt", b"attempt 1\na cause\n")
    folder.write("_locdist/errors/write-0/part-00004.txt", b"attempt 1\nanother\n")
    folder.write(
        "_locdist/commits/write-0/part-00004.json",
        Record(stage="write-0", task="part-00004").to_json().encode(),
    )
    with hold(folder):
        assert [(each.task, each.cause) for each in status(folder.uri).failures] == [
            ("part-00003", "a cause")
        ]


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_driver_that_has_only_just_begun_is_running(place, state):
    folder = begun(place, state)
    assert status(folder.uri).state == state
    with hold(folder):
        told = status(folder.uri)
    assert (told.state, told.runner.pid) == ("running", os.getpid())
    assert "prepares the first task" in str(told)


def test_what_failed_last_is_told_with_its_events(place):
    with claimed(place.folder, Manifest("small", {})), pytest.raises(DataError):
        run(place.job("data"), ld.Local(1), command="locdist again")
    told = status(place.folder.uri)
    assert (told.state, told.stages[0].finished, told.runner) == ("failed", 4, None)
    assert [line["event"] for line in told.events[-2:]] == ["stage-finished", "run-ended"]
    assert "run-ended: state failed, exit_code 3" in str(told)
    assert json.loads(told.to_json())["events"][-1]["exit_code"] == 3


def test_events_end_with_how_the_run_ended(place):
    events: list[Event] = []
    run(place.job(), ld.Local(2), listener=events.append)
    assert isinstance(events[0], RunStarted)
    assert events[-1] == RunEnded("finished", 0, "")
