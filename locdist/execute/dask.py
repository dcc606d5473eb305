"""The executor of Dask: each task is one submitted call, on a cluster that runs already or on one that is
started here and stopped after.

Two plugins make Dask keep the contract. One brings the function of a stage to each worker once, also to those
that join later. The other has the scheduler give a task up when its worker dies, where by default it would
try three more workers and count nothing; attempts are counted in `execute.executor.run`.
"""

import functools
import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import Any
from uuid import uuid4

from locdist.errors import MachineError, UsageError
from locdist.execute import machine
from locdist.execute.contract import Calls, Executor, check_workers
from locdist.execute.events import Failure
from locdist.execute.flights import PATIENCE, counted, flights, serve
from locdist.execute.threads import variables
from locdist.execute.worker import Finished, failure_of
from locdist.plan.lock import leave_if_imported
from locdist.plan.plan import Attempt, Function, Resources, Stage, Task
from locdist.plan.versions import versions

try:
    import dask.config
    from distributed import (
        CancelledError,
        Client,
        KilledWorker,
        LocalCluster,
        SchedulerPlugin,
        Security,
        WorkerPlugin,
        get_worker,
        wait,
    )
except ImportError as error:
    raise UsageError("Dask to be installed", str(error), "pip install 'locdist[dask]'") from error

ANSWERED = 20.0  # seconds for the scheduler to say what it has
FETCHED = 30.0  # seconds for the few bytes that a task returns; its worker may have gone since
_COUNTING = threading.Lock()
_QUIET = {"distributed.worker.profile.enabled": False}  # it looks at every thread a hundred times a second
TRIES, BREATH = 3, 1.0  # to reach all workers, when one goes just then; seconds between two
OURS = "locdist-"  # how the keys of our tasks begin


@dataclass(frozen=True)
class Dask(Executor):
    """Tasks on a Dask cluster.

    Parameters
    ----------
    address : str, optional
        The scheduler of a running cluster, "tls://host:8786" say; it needs locdist installed, as its workers
        do. Without it a cluster is started on this machine, for this process alone (loopback, TLS, no
        dashboard), and stopped at the end; it imports the script that started the run, as `multiprocessing`
        does.
    workers : int, optional
        Cores of the cluster that is started; on a running cluster, tasks in flight at most. By default what
        the machine or the cluster has now.
    security : distributed.Security, optional
        Certificates for a running cluster; by default what Dask's configuration says.
    """

    address: str | None = None
    workers: int | None = None
    security: Any = None
    _opened: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_workers(self.workers)

    @property
    def patience(self) -> float:
        return PATIENCE if self.address else 0.0

    def start(self) -> None:
        if not self._opened:
            leave_if_imported()
            cores = self.workers or machine.cpus()
            self._opened.extend(self._connect() if self.address else _launch(cores))
            self._client.register_plugin(OneTry(), name=OneTry.name)

    def close(self) -> None:
        with ExitStack() as stack:
            while self._opened:
                stack.callback(self._opened.pop(0).close)  # the client first, though the cluster came first

    def capacity(self) -> tuple[Resources, ...]:
        """Each worker; where the cluster is ours, the machine."""
        if not self.address:
            return (machine.resources(self.workers),)
        return tuple(map(_resources, self._workers().values()))

    def waiting(self) -> str:
        try:
            workers = self._workers().values()
        except MachineError as error:
            return f"Dask: {error}"
        threads = sum(worker["nthreads"] for worker in workers)
        return f"Dask has {len(workers)} workers with {threads} threads"

    def place(self) -> str:
        how = "which was running" if self.address else "started for this run"
        return f"Dask at {self._client.scheduler.address}, {how}; workers: {len(self._workers())}"

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        self.start()
        asked, key = stage.resources, f"{OURS}{stage.name}-{uuid4().hex}"
        wanted = dict(asked.custom) | ({"GPU": asked.gpus} if asked.gpus else {})
        fitting: list[str] = []  # workers that can hold such a task: Dask does not know its cores and memory

        def send(task: Task, attempt: Attempt, seat: int) -> Any:
            device = machine.device(0 if self.address else seat, asked.gpus)
            return self._client.submit(
                _attempt, key, task, replace(attempt, device=device), asked.threads, versions(),
                key=f"{key}-{task.name}-{uuid4().hex}", resources=wanted if self.address else None,
                workers=list(fitting) or None, pure=False, retries=0,
            )  # fmt: skip

        def slots() -> int:
            if not self.address:
                return min(machine.resources(self.workers).over(asked), self.workers or machine.cpus())
            places = {each: _resources(has).over(asked) for each, has in self._workers().items()}
            fitting[:] = [each for each, free in places.items() if free]
            now = sum(places.values())
            # Not one more: it would wait at a worker, and be lost with it.
            return min(self.workers or now, now)

        def landed(refs: Any, seconds: float) -> list[Any]:
            with suppress(TimeoutError, CancelledError), self._client.as_current():
                wait(list(refs), timeout=seconds, return_when="FIRST_COMPLETED")
            return [ref for ref in refs if ref.status != "pending"]

        def abandon(refs: Any) -> None:
            self._client.cancel(list(refs))

        with self._carried(key, stage):
            yield from flights(calls, slots, send, landed, _ended, abandon)

    @property
    def _client(self) -> Any:
        return self._opened[-1]

    def _workers(self) -> dict[str, dict[str, Any]]:
        """What each worker has, by its address."""
        ask = self._client.scheduler.identity
        try:
            told = self._client.sync(ask, n_workers=-1, callback_timeout=ANSWERED)
        except (OSError, TimeoutError) as error:
            why = f"{type(error).__name__}: {error}"
            remedy = "Look after it, and run the same again to continue."
            raise MachineError("a Dask scheduler that answers", why, remedy) from error
        return dict(told["workers"])

    def _connect(self) -> list[Any]:
        try:
            return [Client(self.address, security=self.security, set_as_default=False)]
        except Exception as error:
            raise MachineError(
                f"a Dask scheduler at {self.address}",
                f"{type(error).__name__}: {error}",
                "Check the address; one with TLS needs the certificates here too (security=, or Dask's "
                "configuration).",
            ) from error

    @contextmanager
    def _carried(self, key: str, stage: Stage) -> Iterator[None]:
        """Have each worker keep the function of a stage."""
        try:
            self._carry(key, stage)
            yield
        finally:  # also what no worker could load: one that starts later would die of it
            with suppress(OSError, ValueError, KeyError):  # no scheduler, or none that has it
                self._client.unregister_worker_plugin(key)

    def _carry(self, key: str, stage: Stage, tries: int = TRIES) -> None:
        try:
            self._client.register_plugin(Carry(stage.function), name=key)
        except OSError as error:  # a worker went just then
            if tries > 1:
                time.sleep(BREATH)
                return self._carry(key, stage, tries - 1)
            why = f"{type(error).__name__}: {error}"
            remedy = "Run the same again to continue."
            raise MachineError("workers of Dask that answer", why, remedy) from error
        except Exception as error:
            raise UsageError(
                f"a function of stage {stage.name!r} that can be pickled, and imported by the workers",
                f"{type(error).__name__}: {error}",
                "Use functions of modules that are installed there, and frozen dataclasses.",
            ) from error


class OneTry(SchedulerPlugin):  # type: ignore[misc]
    """Has the scheduler give up a task of ours when the worker dies that it runs on."""

    name = f"locdist-one-try-{versions()['locdist']}"  # it stays on a running scheduler; others bring theirs
    idempotent = True

    def start(self, scheduler: Any) -> None:
        """Remember whose plugin this is."""
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count as many lost workers as are allowed, before there is any."""
        if finish == "processing" and str(key).startswith(OURS):
            self.scheduler.tasks[key].suspicious = self.scheduler.allowed_failures


class Carry(WorkerPlugin):  # type: ignore[misc]
    """Brings the function of a stage to each worker."""

    def __init__(self, function: Function) -> None:
        self.function = function


def _launch(cores: int) -> list[Any]:
    """A cluster of one process for each core, and a client to it."""
    security = Security.temporary()
    with machine.environment(variables(1)), dask.config.set(_QUIET), _deaf(), _explained():
        cluster = LocalCluster(
            n_workers=cores, threads_per_worker=1, security=security, host="127.0.0.1",
            dashboard_address=None, scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # not 8787
            memory_limit=0, silence_logs=logging.CRITICAL,
        )  # fmt: skip
    try:
        return [cluster, Client(cluster, set_as_default=False)]
    except BaseException:
        cluster.close()
        raise


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal, and the driver decides: those that start here never see
    it.
    """
    resource_tracker.ensure_running()  # what starts it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise MachineError(
            "workers of Dask to start on this machine",
            f"{type(error).__name__}: {error}",
            "They import the script that started the run: start it below `if __name__ == '__main__':`.",
        ) from error


def _resources(worker: dict[str, Any]) -> Resources:
    custom = dict(worker["resources"])
    return Resources(worker["nthreads"], custom.pop("GPU", 0.0), worker["memory_limit"] or 0, custom)


def _attempt(key: str, task: Task, attempt: Attempt, threads: int, driver: Mapping[str, str]) -> Finished:
    """What runs in a worker of Dask."""
    finished = serve(lambda: get_worker().plugins[key].function, task, attempt, threads, driver)
    if find_spec("prometheus_client") is not None:  # else Dask itself tells no metrics either
        with _COUNTING:  # tasks may be threads of one worker
            for name, amount in counted(finished).items():
                _counter(name).labels(attempt.stage).inc(amount)
    return finished


@functools.cache
def _counter(name: str) -> Any:
    from prometheus_client import Counter  # noqa: PLC0415 - optional

    return Counter(f"locdist_{name}", f"{name} of locdist's tasks", ["stage"])


def _ended(ref: Any, task: Task) -> Finished:
    try:
        finished: Finished = ref.result(timeout=FETCHED)
    except KilledWorker as error:
        why = f"the one at {error.last_worker.address}"
    except (CancelledError, TimeoutError, OSError) as error:  # with what it had returned, or its scheduler
        why = type(error).__name__
    except Exception as error:  # noqa: BLE001 - whatever was raised outside of `serve`
        return Finished(task, failure_of(error), 0.0)
    else:
        return finished
    return Finished(task, Failure("machine", f"the worker was lost: {why}", lost=True), 0.0)
