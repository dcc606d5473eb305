"""What engines do to a job: copies, forks, threads, retries, repeated runs, other working directories."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.contract import Calls, Executor
from locdist.execute.executor import run
from locdist.execute.worker import Finished, attempted
from locdist.jobs.asking.ask import stage_of
from locdist.jobs.predict import asked
from locdist.plan.plan import Function, Resources, Stage, Task
from locdist.testing import Faults, Faulty, Journal
from locdist.testing.tasks import ROWS, SmallJob, Write, small_job
from tests.cases.arrangement import Arrangement
from tests.cases.conftest import in_parts
from tests.cases.tasks import CountThreads, LookUp, Tiny, brought_to_length_one
from tests.system.generated import parts, read

ROOT = Path(__file__).parents[2]


def job(folder: Path, function: Function, resources: Resources | None = None) -> SmallJob:
    """Three tasks that only say something."""
    tasks = tuple(Task(f"task-{number}", (), ()) for number in range(3))
    return SmallJob(Store.at(folder), (Stage("work", tasks, function, resources or Resources()),))


# ------------------------------------------------------------------------------------------------------ C13


def test_a_task_carries_an_address_and_not_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C13, measured where it is sent: what the driver pickles for a stage does not grow with the index, and a
    task is a few numbers, of 20 blocks as of 100.
    """
    rng = np.random.default_rng(0)
    sizes = []
    for rows in (100, 20_000):
        keys = rng.normal(size=(rows, 64)).astype("f4")
        index = ld.build_index(
            ld.dataset({"e": keys, "y": keys[:, 0]}, key="e", target="y"), tmp_path / str(rows)
        )
        queries = ld.dataset({"e": keys[:100]}, key="e").source.spill(Store.at(tmp_path / "queries"))
        _, question = asked(ld.knn(3), index, queries)
        ld.predict(ld.knn(3), index, queries)  # opened and searched in this process
        sizes.append(len(pickle.dumps(question)))
        for blocks in (20, 100):
            monkeypatch.setattr("locdist.jobs.asking.ask.rows_per_task", lambda *given, n=blocks: 100 // n)
            stage = stage_of("predict", question, 100)
            assert len(stage.tasks) == blocks
            assert max(len(pickle.dumps(task)) for task in stage.tasks) < 300
    assert max(sizes) < 10_000
    assert abs(sizes[1] - sizes[0]) < 100


def test_workers_share_the_pages_of_an_index_on_every_engine(placed: Arrangement) -> None:
    """C13: whichever process asks, the keys lie in the mapped file, of which a machine has one copy."""
    keys = np.random.default_rng(0).normal(size=(500, 64)).astype("f4")
    index = ld.build_index(ld.dataset({"e": keys}, key="e"), placed.place / "index")
    done = run(job(placed.place / "look", LookUp(index)), placed.executor)["work"]
    (shard,) = index.layout.shards
    assert {record.data["lies"] for record in done.values()} == {f"{index.folder}/{shard.name}"}


def test_a_job_that_no_worker_can_hold_is_refused_with_both_numbers(arrangement: Arrangement) -> None:
    """C13: before the first task."""
    keys = np.random.default_rng(0).normal(size=(500, 64)).astype("f4")
    index = arrangement.build({"e": keys, "y": keys[:, 0]}, key="e", target="y")
    with pytest.raises(UsageError, match=r"memory .*1,048,576|memory .*1\.0 MiB"):
        arrangement.ask(ld.knn(3), index, {"e": keys}, executor=Tiny())


# ------------------------------------------------------------------------------------------------------ C14


def test_a_child_forked_after_a_search_can_search() -> None:
    """C14: libraries use one thread in forked children; locdist itself forks nowhere."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "tests.cases.tasks"]
    done = subprocess.run(
        command, cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, timeout=60, check=False
    )
    assert done.returncode == 0


def test_jobs_run_after_the_driver_has_searched_on_every_engine(placed: Arrangement) -> None:
    """C14: worker processes are spawned, not forked from a driver that has used OpenMP."""
    keys = np.random.default_rng(0).normal(size=(500, 64)).astype("f4")
    here = ld.knn(3)(ld.Exact(keys, keys[:, 0]), keys).values[:, 0]
    index = placed.build({"e": keys, "y": keys[:, 0]}, key="e", target="y")
    answers = placed.ask(ld.knn(3), index, {"e": keys})
    np.testing.assert_allclose(answers["prediction"], here, 1e-12)


# ------------------------------------------------------------------------------------------------------ C15


@pytest.mark.parametrize("cpus", [1, 2])
def test_libraries_use_the_cores_of_their_task_on_every_engine(placed: Arrangement, cpus: int) -> None:
    """C15: neither all cores in each worker nor one where a task was given two."""
    done = run(job(placed.place / "count", CountThreads(), resources=Resources(cpus=cpus)), placed.executor)
    for record in done["work"].values():
        assert set(record.data["threads"].values()) == {cpus}


# ------------------------------------------------------------------------------------------------------ C17


def test_arrays_of_the_caller_are_not_brought_to_length_one_on_every_engine(placed: Arrangement) -> None:
    """C17: cosine builds from a read-only array, twice: the array is what it was, the indexes are one."""
    keys = np.arange(1, 9, dtype="f4").reshape(2, 4)
    keys.setflags(write=False)
    before, made = keys.copy(), []
    for name in ("one", "two"):
        support = ld.dataset({"e": keys}, key="e", metric="cosine")
        made.append(ld.build_index(support, placed.place / name, executor=placed.executor).fingerprint)
        ld.Exact(keys, metric="cosine")
        np.testing.assert_array_equal(keys, before)
    assert made[0] == made[1]


@pytest.mark.parametrize("engine", ["ray"], indirect=True)
def test_an_object_that_workers_share_stays_what_it_is(engine: Executor) -> None:
    """C17: an array in Ray's object store, of which all tasks see the same bytes."""
    ray = pytest.importorskip("ray")
    engine.start()
    keys = np.arange(1, 9, dtype="f4").reshape(2, 4)
    shared = ray.put(keys)
    search = ray.remote(brought_to_length_one)
    for _ in range(2):
        writeable, lengths = ray.get(search.remote(shared))
        assert not writeable
        np.testing.assert_allclose(lengths, np.linalg.norm(keys, axis=1))
    np.testing.assert_array_equal(ray.get(shared), keys)


# ------------------------------------------------------------------------------------------------------ C23


def test_paths_are_resolved_where_they_are_given_on_every_engine(
    placed: Arrangement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C23: relative, below a home, as an address: workers have another working directory and another home."""
    placed.write({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}).rename(placed.place / "data")
    monkeypatch.chdir(placed.place)
    monkeypatch.setenv("HOME", str(placed.place))
    support = ld.dataset("data", key="x", target="y", id="id", scaling="none")
    index = ld.build_index(support, "index", executor=placed.executor)
    assert Path(index.folder).is_absolute()
    for number, data in enumerate(("data", "~/data", f"file://{placed.place}/data", "data/*.parquet")):
        ld.predict(ld.knn(1), "index", data, f"out-{number}", executor=placed.executor)
        assert sorted(read(placed.place / f"out-{number}")["prediction"].to_pylist()) == [1, 2, 3]


class Unseen(Executor):
    """Workers that do not see a folder which the driver has just read."""

    def __init__(self, folder: Path, others: Executor) -> None:
        self.folder, self.others = folder, others

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        hidden = self.folder.rename(self.folder.with_name("hidden"))
        yield from self.others.map(stage, calls)
        hidden.rename(self.folder)


def test_a_path_that_workers_do_not_see_is_named_with_the_machine_on_every_engine(
    placed: Arrangement,
) -> None:
    """C23, on one machine: the folder is gone when tasks begin, as it is for a worker elsewhere. No second
    attempt; path, machine and remedy are told.
    """
    rows = {"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
    index, data = placed.build(rows, key="x", target="y"), placed.write(rows)
    starts: list[object] = []
    told = rf"{data}/part-\d\.parquet; got nothing there on {os.uname().nodename}. Check the path on every"
    with pytest.raises(DataError, match=told):
        ld.predict(
            ld.knn(1), index, data, placed.place / "out",
            executor=Unseen(data, placed.executor), listener=starts.append,
        )  # fmt: skip
    attempts = [event.attempt for event in starts if type(event).__name__ == "TaskStarted"]
    assert attempts == [1] * 3


class Elsewhere(Executor):
    """Workers of another machine, for which the path of the output is a disk of their own."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        for task, attempt in calls:
            yield attempted(stage.function, task, replace(attempt, folder=Store.at(self.disk)))


def test_an_output_that_workers_would_write_to_a_disk_of_their_own_is_told(arrangement: Arrangement) -> None:
    """C23, with a folder that stands for the disk of another machine: a worker looks for the claim of its
    driver before it gives a file its name, else every task would end well and nothing would be there.
    """
    rows = {"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
    index, out, disk = (
        arrangement.build(rows, key="x", target="y"),
        arrangement.folder("out"),
        arrangement.folder("disk"),
    )
    told = rf"output folder {disk} of the driver.* on {os.uname().nodename}\. Write to a folder that all"
    with pytest.raises(DataError, match=told):
        ld.predict(ld.knn(1), index, rows, out, executor=Elsewhere(disk))
    assert parts(disk) == {}
    ld.predict(ld.knn(1), index, rows, out)
    assert sorted(read(out)["prediction"].to_pylist()) == [1, 2, 3]


# ------------------------------------------------------------------------------------------------ C24 and C25


def test_tasks_that_die_and_are_repeated_write_once_on_every_engine(placed: Arrangement) -> None:
    """C24: a file is named by its task, appears when it is complete and counts when it is committed: three
    files of three tasks, of which each killed its process: before, inside and after its writing. Half of a
    file has a name that readers pass over, and is swept away when the run has ended well.
    """
    log, out = placed.folder("log"), placed.place / "out"
    log.mkdir()
    names = [f"part-{number:05}" for number in range(3)]
    faults = Faults(
        {name: (f"kill {when}",) for name, when in zip(names, ("before", "inside", "after"), strict=True)}
    )
    small = small_job(Store.at(out), Faulty(Write(), faults, Journal(str(log))), tasks=3)
    done = run(small, placed.executor)["write-0"]
    assert sorted(os.listdir(out)) == ["_locdist", *(f"{name}.parquet" for name in names)]
    assert read(out)["id"].to_pylist() == list(range(3 * ROWS))
    assert {record.attempt for record in done.values()} <= {
        2,
        3,
    }  # 3: it shared its worker with one that died


def test_the_same_job_again_adds_nothing_on_every_engine(
    placed: Arrangement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C25: the same request has the same answer, another one is refused, and overwriting leaves no file of an
    earlier run that had more partitions.
    """
    rows = {"x": np.arange(10.0), "y": np.arange(10.0)}
    index, queries = placed.build(rows, key="x", target="y"), placed.write(rows)
    out, words = placed.place / "out", {"executor": placed.executor}
    ld.predict(ld.knn(1), index, queries, out, **words)
    first = parts(out)
    assert len(first) == 3
    ld.predict(ld.knn(1), index, queries, out, **words)
    assert parts(out) == first
    with pytest.raises(UsageError, match=r"request that the folder answers.*method\.k 1.*method\.k 2"):
        ld.predict(ld.knn(2), index, queries, out, **words)
    in_parts(1, monkeypatch)
    ld.predict(ld.knn(1), index, queries, out, overwrite=True, **words)
    assert len(parts(out)) == 1
    assert read(out).sort_by("id")["prediction"].to_pylist() == list(range(10))


def test_a_folder_with_other_files_is_not_written_to(arrangement: Arrangement) -> None:
    """C25: results of somebody else are neither joined nor replaced."""
    rows = {"x": np.arange(10.0), "y": np.arange(10.0)}
    index = arrangement.build(rows, key="x", target="y")
    out = arrangement.folder("out")
    out.mkdir()
    pq.write_table(pa.table({"id": [1]}), out / "part-00000.parquet")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"holds 'part-00000\.parquet'"):
            ld.predict(ld.knn(1), index, rows, out, overwrite=overwrite)
    assert read(out)["id"].to_pylist() == [1]
