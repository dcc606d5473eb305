"""The local executor and the loop around all executors: attempts, stops, stalls, threads, displays."""

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from threadpoolctl import threadpool_info

from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError, TooManyBadRows, UsageError
from locdist.execute import machine
from locdist.execute.events import (
    RecordDropped,
    RunEnded,
    RunStarted,
    StageFinished,
    StageStarted,
    TaskFailed,
    TaskFinished,
)
from locdist.execute.executor import Executor, Finished, Stopped, attempted, run
from locdist.execute.local import Local
from locdist.execute.progress import Lines, progress
from locdist.execute.worker import METER, anonymous_memory
from locdist.plan.lock import WORKER
from locdist.plan.plan import Attempt, Resources, Stage, Task
from locdist.plan.status import Counts, read_status
from locdist.testing import Journal, real
from locdist.testing.tasks import ROWS, Call, SmallJob, small_job
from tests.system.small_job import Write


@dataclass
class Place:
    """A folder for outputs and one for the log of starts."""

    folder: Store
    log: Path

    def starts(self, name: str = "") -> int:
        return len(Journal(str(self.log)).starts(name))

    def rows(self) -> list[int]:
        assert self.folder.local is not None
        return sorted(
            i
            for file in self.folder.local.rglob("part-*.parquet")
            for i in pq.read_table(file)["id"].to_pylist()
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "log").mkdir()
    return Place(Store.at(tmp_path / "out"), tmp_path / "log")


@pytest.fixture(params=[False, True], ids=["threads", "processes"])
def local(request: pytest.FixtureRequest) -> Iterator[Local]:
    executor = Local(2, request.param)
    yield executor
    executor.close()
    assert [child for child in multiprocessing.active_children() if child.name == WORKER] == []


def test_all_tasks_are_done_once_and_never_again(place: Place, local: Local):
    job = small_job(place.folder, Write(str(place.log)), tasks=6, stages=2)
    report = run(job, local)
    assert {name: len(stage) for name, stage in report.items()} == {"write-0": 6, "write-1": 6}
    assert place.rows() == sorted(2 * list(range(60)))
    record = report["write-0"]["part-00002"]
    assert (record.rows, record.attempt, record.data, record.stage) == (ROWS, 1, {"first": 20}, "write-0")
    assert (record.pid != os.getpid()) == local.processes
    assert record.seconds > 0
    assert record.peak_memory > 1 << 20
    assert run(job, local) == report
    assert place.starts() == 12
    status = read_status(place.folder)
    assert status is not None
    assert (status.state, status.exit_code) == ("finished", 0)
    for name, done in report.items():
        size = sum(sum(record.bytes.values()) for record in done.values())
        assert status.stages[name] == Counts(6, 6, 0, 60, 0, size, earlier=6, earlier_rows=60)


def test_only_what_is_missing_is_done_again(place: Place):
    job = small_job(place.folder, Write(str(place.log)), tasks=5)
    before = run(job, Local(2))["write-0"]
    place.folder.delete("part-00002.parquet")
    events: list[object] = []
    after = run(job, Local(2), listener=events.append)["write-0"]
    assert place.starts() == 6
    assert place.rows() == list(range(50))
    assert {name: after[name] for name in after if name != "part-00002"} == {
        name: before[name] for name in before if name != "part-00002"
    }
    assert [event.dropped.task for event in events if isinstance(event, RecordDropped)] == ["part-00002"]
    assert run(job, Local(2))["write-0"] == after


def test_what_another_version_planned_is_refused(place: Place):
    write = Write(str(place.log))
    run(small_job(place.folder, write, tasks=6), Local(2))
    for name in ("part-00004.parquet", "part-00002.parquet"):
        place.folder.delete(name)
    for tasks in (2, 4):
        with pytest.raises(UsageError, match=r"part-0000\d.*planned by another version.*--overwrite"):
            run(small_job(place.folder, write, tasks=tasks), Local(2))
    shifted = small_job(place.folder, write, tasks=6).stages[0]
    tasks = tuple(replace(task, inputs=(task.inputs[0] + 1,)) for task in shifted.tasks)
    with pytest.raises(UsageError, match=r"part-00000.*inputs \[0\], planned by another version"):
        run(SmallJob(place.folder, (replace(shifted, tasks=tasks),)), Local(2))
    assert place.rows() == [i for i in range(60) if i // 10 not in (2, 4)]


def test_outputs_that_another_version_did_not_commit_are_removed(place: Place):
    kept = ("notes.txt", "part-9.parquet", "other/part-00009.parquet", "_locdist/part-00009.parquet")
    for name in ("part-00009.parquet", "part-00001.parquet", *kept):
        place.folder.write(name, b"of an earlier version")
    run(small_job(place.folder, Write(str(place.log)), tasks=2), Local(1))
    names = {file.path for file in place.folder.files() if not file.path.startswith("_locdist/")}
    assert names == {"part-00000.parquet", "part-00001.parquet", *kept[:3]}
    assert place.folder.exists(kept[3])


def test_outputs_of_an_earlier_stage_are_kept(place: Place):
    for name in (
        "part-00000.parquet",
        "1/part-00000.parquet",
        "2/part-00001.parquet",
        "2/part-00007.parquet",
    ):
        place.folder.write(name, b"half of an earlier run")
    run(small_job(place.folder, Write(str(place.log)), tasks=2, stages=3), Local(1))
    assert place.rows() == sorted(3 * list(range(20)))


def test_too_many_bad_rows_are_told_after_everything_is_finished(place: Place):
    @dataclass(frozen=True)
    class Strict(SmallJob):
        def finish(self, records):
            raise TooManyBadRows("none", "some", "Mend them.")

    events: list[object] = []
    job = Strict(place.folder, small_job(place.folder, Write(str(place.log)), tasks=1).stages)
    with pytest.raises(TooManyBadRows):
        run(job, Local(1), listener=events.append)
    told = "expected none; got some. Mend them."
    assert events[-1] == RunEnded("finished", 5, told)
    status = read_status(place.folder)
    assert status is not None
    assert (status.state, status.exit_code, status.message) == ("finished", 5, told)


OUTCOMES = [
    ("machine", MachineError, 3, "Insert it"),
    ("memory", MachineError, 3, "MemoryError: no more"),
    ("data", DataError, 1, "expected good rows"),
    ("bug", LocdistError, 1, "ZeroDivisionError"),
]


@pytest.mark.parametrize("fault, error, attempts, cause", OUTCOMES)
def test_a_task_that_fails_is_named_and_the_others_are_done(place: Place, fault, error, attempts, cause):
    events: list[object] = []
    job = small_job(place.folder, Write(str(place.log), fault=fault), tasks=6)
    with pytest.raises(LocdistError) as raised:
        run(job, Local(2), listener=events.append, command="locdist again")
    assert type(raised.value) is error
    for word in ("part-00003", "write-0", "inputs [3]", cause, "_locdist/errors/write-0/part-00003.txt"):
        assert word in str(raised.value)
    assert place.rows() == [i for i in range(60) if i // 10 != 3]
    assert place.starts("part-00003") == attempts
    assert place.starts() == 5 + attempts
    assert [event.final for event in events if isinstance(event, TaskFailed)] == [False] * (attempts - 1) + [
        True
    ]
    assert b"Traceback" in place.folder.read("_locdist/errors/write-0/part-00003.txt")
    status = read_status(place.folder)
    assert status is not None
    assert (status.state, status.exit_code, status.command) == ("failed", error.exit_code, "locdist again")
    assert (status.stages["write-0"].finished, status.stages["write-0"].failed) == (5, 1)


@pytest.mark.parametrize("fault", ["machine", "memory"])
def test_what_passes_is_tried_again(place: Place, fault: str):
    job = small_job(place.folder, Write(str(place.log), fault=fault, once=True), tasks=4)
    report = run(job, Local(2))["write-0"]
    assert {name: record.attempt for name, record in report.items() if record.attempt > 1} == {
        "part-00003": 2
    }
    assert place.rows() == list(range(40))
    run(job, Local(2))
    assert not any("errors" in file.path or "tmp" in file.path for file in place.folder.files())


@pytest.mark.parametrize("fault, told", [("full", "the disk is full"), ("read-only", "can only be read")])
def test_a_full_disk_is_met_once_and_the_others_go_on(place: Place, fault: str, told: str):
    job = small_job(place.folder, Write(str(place.log), fault=fault), tasks=6)
    with pytest.raises(MachineError, match=told) as raised:
        run(job, Local(2))
    assert f"while writing to {place.folder.uri}" in str(raised.value)
    assert place.starts("part-00003") == 1
    assert place.rows() == [i for i in range(60) if i // 10 != 3]


def test_a_disk_too_full_for_a_status_still_tells_the_cause(place: Place, monkeypatch: pytest.MonkeyPatch):
    write = Store.write

    def full(self: Store, name: str, data: bytes) -> None:
        if name.startswith(("_locdist/status", "_locdist/errors")):
            raise MachineError("space", "none", "Make some.")
        write(self, name, data)

    monkeypatch.setattr(Store, "write", full)
    with pytest.raises(MachineError, match="the disk is full"):
        run(small_job(place.folder, Write(str(place.log), fault="full"), tasks=4), Local(1))
    assert place.starts() == 4


def test_a_repaired_job_continues(place: Place):
    with pytest.raises(LocdistError):
        run(small_job(place.folder, Write(str(place.log), fault="bug"), tasks=4), Local(1))
    run(small_job(place.folder, Write(str(place.log)), tasks=4), Local(1))
    assert place.rows() == list(range(40))
    assert place.starts() == 5


def test_a_lost_process_is_told_with_its_signal(place: Place):
    job = small_job(place.folder, Write(str(place.log), fault="kill"), tasks=4)
    with pytest.raises(MachineError, match="ended by SIGKILL, often sent when memory runs out"):
        run(job, Local(2, processes=True), attempts=1)


def test_slots_respect_cores_and_memory():
    assert Local(8).slots(Resources()) == 8
    assert Local(8).slots(Resources(cpus=3)) == 2
    assert Local(8).slots(Resources(cpus=0.5)) == 8
    assert Local(8).slots(Resources(memory=machine.memory() // 2 - 1)) == 2
    assert Local().slots(Resources()) == machine.cpus() <= len(os.sched_getaffinity(0))
    with pytest.raises(UsageError, match="whole number >= 1"):
        Local(0)


@pytest.mark.parametrize("workers", ["2", 1.5, True, 0, -1])
def test_workers_are_counted(workers: object):
    with pytest.raises(UsageError, match=f"got {workers!r}"):
        Local(workers)


@pytest.mark.parametrize(
    "call", ["run(job, {})", "with claimed(job.folder, Manifest('m', {{}})): run(job, {})"]
)
def test_a_script_without_a_guard_is_told_so(tmp_path: Path, call: str):
    script = tmp_path / "script.py"
    script.write_text(
        "from locdist.data.store import Store\nfrom locdist.execute.executor import run\n"
        "from locdist.execute.local import Local\nfrom locdist.testing.tasks import small_job\n"
        "from tests.system.small_job import Write\n"
        "from locdist.plan.manifest import Manifest, claimed\n"
        f"job = small_job(Store({str(tmp_path / 'out')!r}), Write({str(tmp_path)!r}))\n"
        + call.format("Local(1, processes=True)")
    )
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert "start it below `if __name__ == '__main__':`" in ended.stderr
    assert ended.stderr.count("Traceback") == 1


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def test_a_second_signal_abandons_what_is_in_flight(place: Place):
    job = small_job(place.folder, Write(str(place.log), fault="hang", victim="part-00000"), tasks=3)

    def interrupt() -> None:
        while place.starts("part-00000") == 0:
            time.sleep(0.01)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Stopped):
        run(job, Local(1, processes=True))
    thread.join()
    assert [child for child in multiprocessing.active_children() if child.name == WORKER] == []
    run(small_job(place.folder, Write(str(place.log)), tasks=3), Local(1))
    assert place.rows() == list(range(30))


# ---- contract ----


class Twice(Executor):
    """Does every call twice and says so twice, as engines do that retry on their own."""

    def map(self, stage, calls):
        for task, attempt in calls:
            first = attempted(stage.function, task, attempt)
            assert attempted(stage.function, task, attempt).record == first.record
            yield first


def test_a_twin_does_not_write_again(place: Place):
    """C24."""
    report = run(small_job(place.folder, Write(str(place.log)), tasks=3), Twice())
    assert place.starts() == 3
    assert len(report["write-0"]) == 3


class Idle(Executor):
    """Never ends anything."""

    def map(self, stage, calls):
        next(calls)
        while True:
            time.sleep(0.01)
            yield None


def test_any_executor_can_stall(place: Place):
    with pytest.raises(MachineError, match="in flight: part-00000"):
        run(small_job(place.folder, Write(str(place.log))), Idle(), stall_after=0.05)


def test_a_job_that_does_not_advance_is_a_fault(place: Place):
    @dataclass(frozen=True)
    class Stuck(SmallJob):
        def next_stage(self, records):
            return self.stages[0]

    job = Stuck(place.folder, small_job(place.folder, Write(str(place.log)), tasks=1).stages)
    with pytest.raises(RuntimeError, match="again"):
        run(job, Local(1))


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"stall_after": 0}])
def test_a_wrong_run_is_refused(place: Place, wrong):
    with pytest.raises(UsageError, match="attempts >= 1"):
        run(small_job(place.folder, Write(str(place.log))), Local(1), **wrong)


# ---- threads ----


def test_libraries_use_the_cores_of_the_task_and_the_users_settings_come_back(place: Place):
    """C15; with one core, for all executors: ExecutorContract."""
    torch.set_num_threads(1)
    before = (threadpool_info(), torch.get_num_threads(), faiss.omp_get_max_threads())
    stage = Stage("count", (Task("count", (), ()),), Call(real.threads), Resources(cpus=2))
    seen = dict(run(SmallJob(place.folder, (stage,)), Local(2))["count"]["count"].data)
    seen.pop("new")
    assert set(seen.values()) == {2}
    assert (threadpool_info(), torch.get_num_threads(), faiss.omp_get_max_threads()) == before


def test_the_peak_of_a_task_is_seen():
    before, slot = anonymous_memory(), METER.start()
    block = np.ones(200 << 20, np.uint8)
    time.sleep(0.15)
    del block
    assert 180 << 20 < METER.stop(slot) - before < 300 << 20
    assert anonymous_memory() - before < 100 << 20


# ---- progress ----


def test_without_a_terminal_there_are_lines(place: Place):
    stream = io.StringIO()
    job = small_job(place.folder, Write(str(place.log), fault="machine", once=True), tasks=4)
    run(job, Local(1), listener=Lines(stream, every=0.0))
    lines = stream.getvalue().splitlines()
    counts = r"write-0: 1/4 tasks, 10/40 rows, [\d,]+ rows/s, [\d.]+ [KiB]+ written, [\d.]+ s left"
    assert re.fullmatch(counts, lines[0])
    assert any("part-00003 of write-0 failed in attempt 1, it will be tried again" in line for line in lines)
    assert re.fullmatch(r"write-0: ended after [\d.]+ s, 4 tasks, 40 rows", lines[-1])
    assert isinstance(progress(stream), Lines)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_and_what_goes_wrong(place: Place):
    screen = Screen()
    job = small_job(place.folder, Write(str(place.log), delay=0.15, fault="data"), tasks=4)
    with pytest.raises(DataError):
        run(job, Local(1), listener=progress(screen))
    assert "3/4 tasks" in screen.getvalue()
    assert "given up" in screen.getvalue()


def test_events_tell_the_whole_story(place: Place):
    events: list[object] = []
    run(small_job(place.folder, Write(str(place.log)), tasks=3), Local(1), listener=events.append)
    started, ended = events[1], events[-2]
    assert events[-1] == RunEnded("finished", 0, "")
    assert events[0] == RunStarted("Local", "")
    assert isinstance(started, StageStarted)
    assert (started.finished, started.rows, started.expected) == (0, 0, 30)
    assert isinstance(ended, StageFinished)
    assert (ended.tasks, ended.failed, ended.rows) == (3, 0, 30)
    assert [event.task.name for event in events if isinstance(event, TaskFinished)] == [
        f"part-0000{i}" for i in range(3)
    ]
    assert isinstance(attempted(Write("/nowhere"), Task("x", (), ()), Attempt(place.folder, "s")), Finished)
