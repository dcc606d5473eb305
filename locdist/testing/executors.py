"""What `execute.contract.Executor` promises, as tests."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from locdist.data.store import Store
from locdist.errors import MachineError, UsageError
from locdist.execute.events import Failure, TaskFinished
from locdist.execute.executor import Executor, Finished, Stopped, run
from locdist.execute.local import Local
from locdist.plan.plan import Attempt, Resources, Stage, Task
from locdist.plan.records import Record
from locdist.plan.status import read_status
from locdist.testing import real
from locdist.testing.calls import SOON, beating, calls_of, data_of, ended, left_early, settings, until
from locdist.testing.faults import Faults, Faulty
from locdist.testing.journal import Journal
from locdist.testing.tasks import Call, Large, Pulse, SmallJob, Write, contents, finished, small_job

FAILURES = {  # what is raised inside a task: its kind, and a word of the cause
    "machine": ("machine", "Insert it"),
    "read": ("machine", "Input/output error"),
    "memory": ("machine", "MemoryError: no more"),
    "full": ("machine", "the disk is full"),
    "data": ("data", "expected good rows"),
    "usage": ("usage", "expected right use"),
    "bug": ("internal", "ZeroDivisionError: division by zero"),
    "exit": ("internal", "SystemExit: 3"),
}
UNOBTAINABLE = {
    "cpus": Resources(cpus=4096),
    "gpus": Resources(gpus=64),
    "memory": Resources(memory=10**15),
    "custom": Resources(custom={"unobtainable": 1.0}),
}
VICTIM = "part-00003"
FIRST = "write-0"


class ExecutorContract:
    """The tests of an executor; subclass it in a test module and say how to make one.

    Attributes
    ----------
    workers : int
        Workers of one core each that the executor has.
    isolated : bool
        Whether a worker is a process that can be killed without harm to the driver. False for threads.
    abandons : bool
        Whether a task that is abandoned ends at once. False where it runs to its end, and nobody listens.

    Examples
    --------
    >>> class TestLocal(ExecutorContract):
    ...     def executor(self):
    ...         return Local(2, processes=True)
    """

    workers = 2
    isolated = True
    abandons = True

    def executor(self) -> Executor:
        """A new executor."""
        raise NotImplementedError

    @pytest.fixture
    def subject(self) -> Iterator[Executor]:
        """The executor of one test."""
        made = self.executor()
        made.start()
        with made.kept():
            yield made
        made.close()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Store:
        """Where a job writes."""
        return Store.at(tmp_path / "out")

    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        """Where its starts are noted."""
        (tmp_path / "log").mkdir()
        journal = Journal(str(tmp_path / "log"))
        yield journal
        journal.release()

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """A folder for what tasks say."""
        (tmp_path / "said").mkdir()
        return tmp_path / "said"

    def only_isolated(self) -> None:
        """Skip where a worker cannot die alone."""
        if not self.isolated:
            pytest.skip("its workers die with the driver")

    # ---- calls ----

    def test_every_call_ends_once(self, subject: Executor, folder: Store, journal: Journal) -> None:
        (stage,) = small_job(folder, Faulty(Write(), Faults(), journal), tasks=9).stages
        ends = ended(subject, stage, folder)
        assert sorted(end.task.name for end in ends) == [task.name for task in stage.tasks]
        assert {end.task: end.outcome.data["first"] for end in ends if isinstance(end.outcome, Record)} == {
            task: 10 * task.inputs[0] for task in stage.tasks
        }
        assert len(journal.starts()) == 9
        assert len(contents(folder)) == 9

    def test_no_calls_are_no_ends(self, subject: Executor, folder: Store) -> None:
        (stage,) = small_job(folder, Write(), tasks=1).stages
        assert [end for end in subject.map(stage, iter(())) if end is not None] == []

    def test_a_call_is_taken_only_when_a_worker_is_free(
        self, subject: Executor, folder: Store, journal: Journal
    ) -> None:
        (stage,) = small_job(folder, Faulty(Write(pause=0.1), Faults(), journal), tasks=10).stages
        taken: list[int] = []
        done: list[Finished] = []

        def calls() -> Iterator[tuple[Task, Attempt]]:
            for task in stage.tasks:
                taken.append(len(done))
                yield task, Attempt(folder, stage.name)

        for end in subject.map(stage, calls()):
            done += [] if end is None else [end]
        assert max(number + 1 - before for number, before in enumerate(taken)) == self.workers

    def test_it_says_that_nothing_ends(self, subject: Executor, folder: Store) -> None:
        ended(subject, small_job(folder, Write(), tasks=2).stages[0], folder)  # starting may take long
        (stage,) = small_job(folder, Write(pause=3.5), tasks=1, stages=2).stages[1:]
        times, words = [time.monotonic()], []
        for end in subject.map(stage, calls_of(stage, folder)):
            times.append(time.monotonic())
            words.append(end)
        assert words.count(None) >= 3
        assert max(after - before for before, after in pairwise(times)) < 1.5

    def test_each_stage_runs_its_own_function(self, subject: Executor, folder: Store) -> None:
        for stage, mark in zip(small_job(folder, Write(), stages=3).stages, "abc", strict=True):
            own = Stage(stage.name, stage.tasks, Write(mark=mark))
            assert {data_of(end)["mark"] for end in ended(subject, own, folder)} == {mark}

    def test_it_works_again_after_it_was_closed(self, subject: Executor, folder: Store) -> None:
        first, second = small_job(folder, Write(), tasks=3, stages=2).stages
        assert len(ended(subject, first, folder)) == 3
        subject.close()
        subject.close()
        subject.start()
        assert len(ended(subject, second, folder)) == 3

    # ---- failures ----

    @pytest.mark.parametrize("fault", FAILURES)
    def test_an_exception_is_a_failure_of_its_task(
        self, subject: Executor, folder: Store, journal: Journal, fault: str
    ) -> None:
        """With kind, cause and remote traceback, and attempted once: `run` counts, the engine does not."""
        faults = Faults({VICTIM: (f"{fault} inside",)})
        (stage,) = small_job(folder, Faulty(Write(), faults, journal), tasks=6).stages
        outcomes = {end.task.name: end.outcome for end in ended(subject, stage, folder)}
        failure = outcomes.pop(VICTIM)
        kind, cause = FAILURES[fault]
        assert isinstance(failure, Failure)
        assert failure.kind == kind
        assert cause in failure.cause
        assert "in write_table" in failure.traceback
        assert failure.lasting == (fault == "full")
        assert len(outcomes) == 5
        assert all(isinstance(outcome, Record) for outcome in outcomes.values())
        assert len(journal.starts(VICTIM)) == 1

    def test_a_function_that_cannot_be_sent_is_wrong_use(self, subject: Executor, folder: Store) -> None:
        self.only_isolated()
        job = small_job(folder, Call(threading.Lock().acquire), tasks=2)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="that can be pickled"):
            run(job, subject)

    def test_a_killed_worker_costs_one_attempt_of_one_task(
        self, subject: Executor, folder: Store, journal: Journal
    ) -> None:
        self.only_isolated()
        faults = Faults({VICTIM: ("kill inside",)})
        (stage,) = small_job(folder, Faulty(Write(pause=0.05), faults, journal), tasks=8).stages
        outcomes = {end.task.name: end.outcome for end in ended(subject, stage, folder)}
        failure = outcomes.pop(VICTIM)
        assert isinstance(failure, Failure)
        assert failure.kind == "machine"
        assert len(outcomes) == 7
        assert all(isinstance(outcome, Record) for outcome in outcomes.values())
        assert journal.repeated() == {}
        assert f"{VICTIM}.parquet" not in contents(folder)

    def test_a_run_goes_on_after_a_killed_worker(
        self, subject: Executor, folder: Store, journal: Journal
    ) -> None:
        self.only_isolated()
        faulty = Faulty(Write(), Faults({VICTIM: ("kill inside",)}), journal)
        job = small_job(folder.child("disturbed"), faulty)
        attempts = {name: record.attempt for name, record in run(job, subject)[FIRST].items()}
        assert attempts == {task.name: 1 + (task.name == VICTIM) for task in job.stages[0].tasks}
        calm = small_job(folder.child("calm"), Write())
        run(calm, Local(1))
        assert contents(calm.folder) == contents(job.folder)

    def test_a_task_that_kills_each_worker_is_named_and_the_others_are_done(
        self, subject: Executor, folder: Store, journal: Journal
    ) -> None:
        self.only_isolated()
        faults = Faults({VICTIM: ("kill inside",) * 9})
        job = small_job(folder, Faulty(Write(), faults, journal), tasks=6)
        with pytest.raises(MachineError, match=f"task '{VICTIM}' of stage '{FIRST}' to finish"):
            run(job, subject, attempts=2)
        records = finished(folder, FIRST)
        assert sorted(records) == [task.name for task in job.stages[0].tasks if task.name != VICTIM]
        assert {record.attempt for record in records.values()} == {1}
        assert len(journal.starts(VICTIM)) == 2
        assert len(journal.starts()) == 7

    @pytest.mark.parametrize("name", UNOBTAINABLE)
    def test_what_no_worker_has_is_refused(
        self, subject: Executor, folder: Store, journal: Journal, name: str
    ) -> None:
        job = small_job(folder, Faulty(Write(), Faults(), journal), tasks=1, resources=UNOBTAINABLE[name])
        start = time.monotonic()
        word = "unobtainable" if name == "custom" else name
        with pytest.raises(UsageError, match=f"{word} .* asked where the largest worker has"):
            run(job, subject)
        assert time.monotonic() - start < SOON
        assert journal.starts() == []

    # ---- what a worker gets ----

    def test_the_function_is_sent_to_workers_and_not_with_tasks(
        self, subject: Executor, folder: Store, log: Path
    ) -> None:
        (stage,) = small_job(folder, Large(bytes(5_000_000), str(log)), tasks=24).stages
        tasks = tuple(Task(task.name, (), task.inputs) for task in stage.tasks)
        ends = ended(subject, Stage("large", tasks, stage.function), folder)
        processes = {end.outcome.pid for end in ends if isinstance(end.outcome, Record)}
        assert {data_of(end)["length"] for end in ends} == {5_000_000}
        received = [int(file.name.partition(".")[0]) for file in log.iterdir()]
        assert len([pid for pid in received if pid in processes]) <= len(processes)
        assert len(received) <= self.workers + 2  # where it passes on its way

    def test_libraries_use_one_thread_in_a_task_and_the_drivers_settings_stay(
        self, subject: Executor, folder: Store
    ) -> None:
        own = torch.get_num_threads()
        torch.set_num_threads(2)  # a user's number defeats threadpoolctl alone
        before = settings()
        stage = Stage("threads", tuple(Task(f"part-{n}", (), (n,)) for n in range(4)), Call(real.threads))
        for end in ended(subject, stage, folder):
            data = data_of(end)
            assert data.pop("new") <= 0
            assert set(data.values()) == {1}
            assert len(data) >= 3  # torch, BLAS, OpenMP
        subject.close()
        after = settings()
        torch.set_num_threads(own)
        assert after == before

    # ---- leaving early ----

    def test_closing_the_iterator_abandons_what_is_in_flight(
        self, subject: Executor, folder: Store, log: Path
    ) -> None:
        tasks = tuple(Task(f"part-{number}", (), (0,)) for number in range(8))
        stage = Stage("pulse", tasks, Pulse(str(log), seconds=60 if self.abandons else 3))
        with left_early(subject.map(stage, calls_of(stage, folder))) as stream:
            until(lambda: next(stream) is None and len(list(log.iterdir())) == self.workers)
        until(lambda: not any(beating(file) for file in log.iterdir()), 20)
        assert len(list(log.iterdir())) == self.workers
        assert len(ended(subject, small_job(folder, Write()).stages[0], folder)) == 8

    def test_a_run_that_stalls_names_what_is_in_flight(
        self, subject: Executor, folder: Store, journal: Journal
    ) -> None:
        run(small_job(folder, Write(), tasks=2), subject)
        faults = Faults({VICTIM: ("hang inside",)})
        job = small_job(folder, Faulty(Write(), faults, journal), tasks=5, stages=2)
        with pytest.raises(MachineError, match=f"in flight: {VICTIM}"):
            run(SmallJob(folder, job.stages[1:]), subject, stall_after=6.0)
        assert len(finished(folder, "write-1")) == 4
        if self.abandons:
            until(lambda: not journal.running(), 20)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_leaves_a_folder_that_continues(
        self, subject: Executor, folder: Store, journal: Journal, number: signal.Signals
    ) -> None:
        job = small_job(folder, Faulty(Write(pause=0.02), Faults(), journal), tasks=20)
        sent: list[object] = []

        def listener(event: object) -> None:
            if isinstance(event, TaskFinished) and not sent:
                sent.append(event)
                os.kill(os.getpid(), number)

        before = signal.getsignal(number)
        with pytest.raises(Stopped) as stopped:
            run(job, subject, listener=listener)
        assert signal.getsignal(number) is before
        assert stopped.value.exit_code == 128 + number
        status = read_status(folder)
        assert status is not None
        assert (status.state, status.exit_code) == ("stopped", 128 + number)
        assert (
            1 <= len(finished(folder, FIRST)) == len(journal.starts()) < 20
        )  # those in flight were finished
        run(job, subject)
        assert len(journal.starts()) == 20
        assert len(contents(folder)) == 20

    # ---- a real job ----

    def test_a_real_job_gives_the_bytes_of_the_local_executor(
        self, subject: Executor, tmp_path: Path
    ) -> None:
        made = {}
        for name, executor in {"one": Local(1), "two": subject}.items():
            place = tmp_path / name
            place.mkdir()
            real.prepare(place, executor)
            job = real.predict_job(place, place / "out")
            run(job, executor)
            made[name] = real.files(place), contents(job.folder)
        assert len(made["one"][0]) >= 2
        assert len(made["one"][1]) == 12
        assert made["two"] == made["one"]
