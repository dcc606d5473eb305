"""Faults do what their names say, and what they need travels to workers."""

import pickle
import subprocess
import sys
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path

import pytest

import locdist.testing
from locdist.data.store import Store
from locdist.errors import LocdistError, MachineError, UsageError
from locdist.execute.executor import Executor, attempted, run
from locdist.execute.local import Local
from locdist.plan.records import history, temporary
from locdist.testing import ExecutorContract, Faults, Faulty, FaultyExecutor, Journal
from locdist.testing.faults import PASSING
from locdist.testing.tasks import SmallJob, Write, contents, finished, small_job

TASKS = [f"part-{number:05}" for number in range(12)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "journal").mkdir()
    return Journal(str(tmp_path / "journal"))


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "out")


def with_fault(folder: Store, journal: Journal, fault: str, tasks: int = 4) -> SmallJob:
    return small_job(folder, Faulty(Write(), Faults({"part-00001": (fault,)}), journal), tasks)


# ---- the table ----


def test_a_table_comes_from_its_seed_and_can_be_read():
    drawn = Faults.drawn(7, TASKS)
    assert drawn == Faults.drawn(7, TASKS) == pickle.loads(pickle.dumps(drawn))
    assert drawn != Faults.drawn(8, TASKS)
    assert 2 < len(drawn.table) < 12
    assert {fault for faults in drawn.table.values() for fault in faults} <= set(PASSING)
    lines = str(drawn).splitlines()
    assert lines == sorted(lines)
    assert lines[0] == f"{min(drawn.table)}: {', '.join(drawn.table[min(drawn.table)])}"


@pytest.mark.parametrize("fault", ["kill", "kill inise", "before kill", "twice inside"])
def test_a_fault_that_does_not_exist_is_refused(fault: str):
    with pytest.raises(UsageError, match=f"got '{fault}'"):
        Faults({"part-00001": (fault,)})


# ---- what happens ----


@pytest.mark.parametrize("moment, written", [("before", False), ("inside", False), ("after", True)])
def test_a_fault_comes_at_its_moment(folder: Store, journal: Journal, moment: str, written: bool):
    with pytest.raises(MachineError, match="Insert it"):
        run(with_fault(folder, journal, f"machine {moment}"), Local(1), attempts=1)
    assert folder.exists("part-00001.parquet") == written
    assert sorted(finished(folder, "write-0")) == ["part-00000", "part-00002", "part-00003"]
    run(with_fault(folder, journal, f"machine {moment}"), Local(1))  # its second start has no fault
    assert journal.repeated() == {"write-0/part-00001": 1}


def test_who_is_killed_inside_a_write_leaves_half_of_it(folder: Store, journal: Journal):
    job = with_fault(folder, journal, "kill inside")
    with pytest.raises(MachineError, match="SIGKILL"):
        run(job, Local(2, processes=True), attempts=1)
    (half,) = [name for name in history(folder).leftovers if temporary(name)]
    assert half.startswith(".part-00001.parquet.")
    assert folder.read(half) == b"PA"
    run(job, Local(1))
    assert history(folder).leftovers == ()


def test_a_twin_runs_and_commits_at_the_same_time(folder: Store, journal: Journal):
    report = run(with_fault(folder, journal, "twice"), Local(1))
    assert len(report["write-0"]) == 4
    calm = small_job(Store.at(f"{folder.uri}-calm"), Write(), tasks=4)
    run(calm, Local(1))
    assert contents(folder) == contents(calm.folder)


def test_what_hangs_goes_on_when_it_is_released(folder: Store, journal: Journal):
    job = with_fault(folder, journal, "hang inside")
    with pytest.raises(MachineError, match="in flight: part-00001"):
        run(job, Local(1), stall_after=0.5)
    (held,) = [start for start in journal.running() if start.held]
    assert (held.task, held.number) == ("part-00001", 1)
    journal.release()
    run(job, Local(1))
    assert len(contents(folder)) == 4


def test_a_table_of_faults_changes_no_byte(folder: Store, journal: Journal):
    """Any job, by its executor; it is run until it is through, and nothing is done twice that was done."""
    faults = Faults.drawn(3, TASKS, share=0.7, faults=(*PASSING, "full inside", "bug before"))
    faulty = FaultyExecutor(Local(2, processes=True), faults, journal)
    job = small_job(folder, Write(), tasks=len(TASKS))
    for _ in range(6):
        with suppress(LocdistError):
            run(job, faulty)
    calm = small_job(Store.at(f"{folder.uri}-calm"), Write(), tasks=len(TASKS))
    run(calm, Local(1))
    assert contents(folder) == contents(calm.folder)
    failed = {f"write-0/{task}": len(list(takewhile(fails, at))) for task, at in faults.table.items()}
    assert journal.repeated() == {task: times for task, times in failed.items() if times}
    assert sum(failed.values()) > 5


def fails(fault: str) -> bool:
    """Whether a start with this fault has to be repeated."""
    return fault.partition(" ")[0] not in ("slow", "twice")


def test_a_faulty_executor_is_otherwise_the_one_that_it_holds(folder: Store, journal: Journal):
    local = Local(2)
    faulty = FaultyExecutor(local, Faults(), journal)
    assert (faulty.capacity(), faulty.waiting(), faulty.patience) == (
        local.capacity(),
        local.waiting(),
        local.patience,
    )
    assert len(run(small_job(folder, Write()), faulty)["write-0"]) == 8
    assert len(journal.starts()) == 8


# ---- the contracts ----


class Greedy(Executor):
    """Takes all calls before it works."""

    def map(self, stage, calls):
        yield from (attempted(stage.function, *call) for call in list(calls))


class Stubborn(Executor):
    """Tries again by itself."""

    def map(self, stage, calls):
        for call in calls:
            first = attempted(stage.function, *call)
            yield first if first.record else attempted(stage.function, *call)


class Silent(Executor):
    """Says nothing while nothing ends."""

    def map(self, stage, calls):
        yield from (attempted(stage.function, *call) for call in calls)


class Stuttering(Executor):
    """Says twice how a call ended."""

    def map(self, stage, calls):
        for call in calls:
            yield from [attempted(stage.function, *call)] * 2


WRONG = [
    (Greedy, lambda at: at.test_a_call_is_taken_only_when_a_worker_is_free),
    (
        Silent,
        lambda at: lambda executor, folder, journal: at.test_it_says_that_nothing_ends(executor, folder),
    ),
    (Stuttering, lambda at: at.test_every_call_ends_once),
    (Stubborn, lambda at: partial(at.test_an_exception_is_a_failure_of_its_task, fault="machine")),
]


@pytest.mark.parametrize("wrong, test", WRONG, ids=[wrong.__name__ for wrong, _ in WRONG])
def test_the_contract_finds_what_is_wrong(folder: Store, journal: Journal, wrong, test):
    with pytest.raises(AssertionError):
        test(ExecutorContract())(wrong(), folder, journal)


# ---- the package ----


def test_tools_see_the_names_that_are_loaded():
    assert sorted(locdist.testing._HOMES) == locdist.testing.__all__
    for name in locdist.testing.__all__:
        assert getattr(locdist.testing, name).__module__ == locdist.testing._HOMES[name]
    with pytest.raises(AttributeError, match="no attribute 'Contract'"):
        _ = locdist.testing.Contract


def test_faults_do_not_need_pytest_and_contracts_say_that_they_do():
    code = """
import sys
sys.modules["pytest"] = None  # as if it were not installed
from locdist.testing import Faults, Faulty, Journal
try:
    from locdist.testing import ExecutorContract
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install pytest" in done.stdout
