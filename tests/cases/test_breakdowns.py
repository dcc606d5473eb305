"""What machines lack or lose: memory, disks, workers, and what no worker has."""

import os
import signal
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import locdist as ld
from locdist.errors import LocdistError, MachineError, UsageError
from locdist.execute.events import Event, TaskFailed, TaskFinished
from locdist.execute.executor import run
from locdist.jobs.asking import ask, questions
from locdist.jobs.plans import plan_predict
from locdist.jobs.status import status
from locdist.plan.plan import Resources
from locdist.testing import Faults, FaultyExecutor, Journal
from tests.cases.arrangement import Arrangement
from tests.cases.conftest import in_parts
from tests.cases.tasks import Tiny
from tests.system.generated import parts, read

RNG = np.random.default_rng(0)


def faulty(arrangement: Arrangement, delay: float = 0.0, **table: tuple[str, ...]) -> FaultyExecutor:
    """The executor of an arrangement with faults by task, `part_00003` for part-00003."""
    log = arrangement.folder("log")
    log.mkdir()
    faults = Faults({name.replace("_", "-"): each for name, each in table.items()})
    return FaultyExecutor(arrangement.executor, faults, Journal(str(log)), delay)


# -------------------------------------------------------------------------------------------------- memory


def test_neighbors_are_gathered_for_a_block_of_queries_and_memory_is_predicted_with_its_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C43, scaled down: 800 queries with 500 neighbors of 64 numbers are 205 MB at once; in blocks of 262
    they take no 100 MB more than a hundred queries do. A worker too small is refused with the formula.
    """
    monkeypatch.setattr(questions, "BLOCK_PAIRS", 1 << 17)
    keys = RNG.normal(size=(800, 64))
    index = ld.build_index(ld.dataset({"e": keys, "y": keys[:, 0]}, key="e", target="y"), tmp_path / "index")
    peaks = []
    for count in (100, 800):
        method, out = ld.local_linear(500, ridge=1.0), tmp_path / f"out-{count}"
        report = ld.predict(method, index, {"e": keys[:count]}, out, executor=ld.Local(1))
        peaks.append(report.peak_memory)
    assert peaks[1] - peaks[0] < 100 << 20
    plan = plan_predict(method, index, {"e": keys}, tmp_path / "more")
    assert peaks[1] < plan.memory + peaks[0]
    told = r"the largest worker has 1,048,576 \(the plan predicts base .* block 262 x \(8 d=64 .* 112 x k=500"
    with pytest.raises(UsageError, match=told):
        ld.predict(method, index, {"e": keys}, tmp_path / "more", executor=Tiny())


@pytest.mark.parametrize("engine", ["ray"], indirect=True)
def test_the_object_store_of_ray_stays_empty(placed: Arrangement) -> None:
    """C45, with three files of 4 MB: tasks read and write files themselves, so that nothing of their size is
    in Ray's store, which could spill, while they run; a function and records are.
    """
    import ray
    from ray._private.internal_api import memory_summary

    used: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, TaskFinished):
            used.append(memory_summary(ray.get_runtime_context().gcs_address, stats_only=True))

    keys = RNG.normal(size=(3000, 1024)).astype("f4")
    index, rows = (
        placed.build({"e": keys[:50], "y": keys[:50, 0]}, key="e", target="y"),
        placed.write({"e": keys}),
    )
    ld.predict(ld.knn(1), index, rows, placed.folder("out"), executor=placed.executor, listener=listener)
    assert len(used) == 3
    assert all("Plasma memory usage 0 MiB" in told and "Spilled" not in told for told in used)


def test_a_full_disk_is_one_error_with_machine_folder_and_bytes(arrangement: Arrangement) -> None:
    """C45: the disk is named with what is left of it; the other partitions are finished, and continuing
    when there is room again writes the rest. The fault is injected into a write.
    """
    rows = {"x": np.arange(6.0), "y": np.arange(6.0)}
    index, queries = arrangement.build(rows, key="x", target="y"), arrangement.write(rows)
    out, full = arrangement.folder("out"), faulty(arrangement, part_00000=("full inside",))
    free = r"the disk is full \([\d,]+ of [\d,]+ bytes are free\)"
    told = rf"{free} while writing to {out}.* from {os.uname().nodename}"
    with pytest.raises(MachineError, match=told):
        ld.predict(ld.knn(1), index, queries, out, executor=full)
    assert len(parts(out)) == arrangement.parts - 1
    ld.predict(ld.knn(1), index, queries, out, executor=arrangement.executor)
    assert read(out).sort_by("id")["prediction"].to_pylist() == list(range(6))


# -------------------------------------------------------------------------------------------------- workers

EIGHTY = {
    f"{number}.parquet": pa.table(
        {"id": np.arange(10 * number, 10 * number + 10), "x": np.arange(10.0), "y": np.arange(10.0) * number}
    )
    for number in range(8)
}


def test_a_worker_killed_in_the_middle_costs_one_attempt_on_every_engine(
    placed: Arrangement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C46: the process of the first finished block is killed in its second one. All 80 rows are there once,
    with the bytes of an undisturbed run; log and status say that a worker was lost.
    """
    in_parts(8, monkeypatch)
    files, calm, killed = placed.files(EIGHTY), placed.folder("calm"), placed.folder("killed")
    index = placed.build(files, key=["x", "id"], target="y")
    ld.predict(ld.knn(3), index, files, calm)
    failures, timers = [], []

    def listener(event: Event) -> None:
        if isinstance(event, TaskFinished) and not timers:
            timers.append(threading.Timer(0.15, os.kill, (event.record.pid, signal.SIGKILL)))
            timers[0].start()
        if isinstance(event, TaskFailed):
            failures.append(event)

    ld.predict(ld.knn(3), index, files, killed, executor=faulty(placed, delay=0.4), listener=listener)
    assert [(event.failure.lost, event.final) for event in failures] == [(True, False)]
    assert parts(killed) == parts(calm)
    assert read(killed).sort_by("id")["id"].to_pylist() == list(range(80))
    (stage,) = status(killed).stages
    assert stage.retried == 1
    assert not [path for path in killed.rglob(".*.tmp")]


SIX = {
    f"{number}.parquet": pa.table({"id": [number], "x": [float(number)], "y": [float(number)]})
    for number in range(6)
}


def test_a_file_that_kills_every_worker_is_named_and_the_others_are_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C47: the worker that reads 3.parquet dies in each attempt (two here, to be quick). The file is named,
    no other task failed for it, five rows are there and nothing half-written, and continuing without the
    fault does that one alone. Every engine has the same in its contract; FAISS's memory is in the plan (C13).
    """
    in_parts(6, monkeypatch)
    monkeypatch.setattr(ask, "run", partial(run, attempts=2))
    here = Arrangement(6, True, tmp_path, ld.Local(1, processes=True))
    files = here.files(SIX)
    index, out = ld.build_index(ld.dataset(files, key="x", target="y"), tmp_path / "index"), tmp_path / "out"
    poison = f"part_{[file.name for file in files].index('3.parquet'):05}"
    events: list[Event] = []
    with (
        here.executor.kept(),
        pytest.raises(MachineError, match=r"SIGKILL.*\[inputs rows 0 to 0 of 3\.parquet\]"),
    ):
        ld.predict(
            ld.knn(1), index, files, out, keep="id", listener=events.append,
            executor=faulty(here, **{poison: ("kill inside", "kill inside")}),
        )  # fmt: skip
    failed = [(event.task.name, event.failure.lost) for event in events if isinstance(event, TaskFailed)]
    assert failed == [(poison.replace("_", "-"), True)] * 2
    assert sorted(read(out)["id"].to_pylist()) == [0, 1, 2, 4, 5]
    events.clear()
    ld.predict(ld.knn(1), index, files, out, keep="id", listener=events.append)
    assert [event.task.name for event in events if isinstance(event, TaskFinished)] == [
        poison.replace("_", "-")
    ]
    assert read(out)["prediction"].to_pylist() == read(out)["id"].to_pylist()


def test_a_fault_of_the_code_is_not_repeated_and_what_is_unfinished_is_listed(
    arrangement: Arrangement,
) -> None:
    """C46: an exception would only come again, so there is no second attempt; the exit code is not 0, the
    status lists what is unfinished, and the same call afterwards does only that.
    """
    rows = {"x": np.arange(6.0), "y": np.arange(6.0)}
    index, queries = arrangement.build(rows, key="x", target="y"), arrangement.write(rows)
    out, events = arrangement.folder("out"), []
    with pytest.raises(LocdistError, match=r"task 'part-00000' .*ZeroDivisionError") as raised:
        ld.predict(
            ld.knn(1), index, queries, out, listener=events.append,
            executor=faulty(arrangement, part_00000=("bug before", "bug before")),
        )  # fmt: skip
    assert raised.value.exit_code == 1
    assert sum(isinstance(event, TaskFailed) for event in events) == 1
    assert [each.task for each in status(out).failures] == ["part-00000"]
    events.clear()
    ld.predict(ld.knn(1), index, queries, out, listener=events.append)
    assert [event.task.name for event in events if isinstance(event, TaskFinished)] == ["part-00000"]


@pytest.mark.parametrize("asked, told", [
    (Resources(gpus=1), r"gpus 1 asked where the largest worker has 0\b"),
    (Resources(memory=10 << 40), r"memory 10,995,116,277,760 asked where the largest worker has [\d,]+"),
    (Resources(custom={"licence": 1}), r"licence 1 asked where the largest worker has 0\b"),
], ids=["gpus", "memory", "custom"])  # fmt: skip
def test_what_no_worker_has_is_refused_on_every_engine(
    placed: Arrangement, asked: Resources, told: str
) -> None:
    """C48: what was asked and what the largest worker has, before the first task; on a cluster that may grow
    the wait is bounded, and said (`test_executors`).
    """
    rows = {"x": [0.0], "y": [0.0]}
    index = ld.build_index(ld.dataset(rows, key="x", target="y"), placed.place / "index")
    with pytest.raises(UsageError, match=rf"stage 'predict' to fit a worker; got {told}.*wait forever"):
        ld.predict(ld.knn(1), index, rows, placed.place / "out", executor=placed.executor, resources=asked)
