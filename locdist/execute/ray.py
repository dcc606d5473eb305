"""The executor of Ray: each task is one remote call, on a cluster that runs already or on one that is started
here and stopped after.

Ray never retries: attempts are counted in `execute.executor.run`. The function of a stage is put into the
object store once, and kept by each worker process.
"""

import functools
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from locdist.errors import MachineError, UsageError
from locdist.execute import machine
from locdist.execute.contract import Calls, Executor, check_workers
from locdist.execute.events import Failure
from locdist.execute.flights import PATIENCE, counted, flights, serve
from locdist.execute.worker import Finished, failure_of
from locdist.plan.plan import Attempt, Function, Resources, Stage, Task
from locdist.plan.versions import versions

try:
    import ray
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined] # compiled
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayError, RayTaskError, WorkerCrashedError
    from ray.util.metrics import Counter
except ImportError as error:
    raise UsageError("Ray to be installed", str(error), "pip install 'locdist[ray]'") from error

STORE = 128 << 20  # bytes of the object store of a cluster started here: functions and records are small
LOST = (NodeDiedError, OutOfMemoryError, WorkerCrashedError)
REACHED = 10.0  # seconds for a connection to a cluster
QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}


@dataclass(frozen=True)
class Ray(Executor):
    """Tasks on a Ray cluster.

    Parameters
    ----------
    address : str, optional
        A running cluster: "auto", or "host:6379". Without it, the cluster that this
        process is connected to already; else one is started on this machine, for this process alone
        (loopback, token, no dashboard), and stopped at the end.
    workers : int, optional
        Cores of the cluster that is started; on a running cluster, tasks in flight at most: name it to let an
        autoscaling cluster grow. By default what the machine or the cluster has now.
    """

    address: str | None = None
    workers: int | None = None
    _ours: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_workers(self.workers)

    @property
    def patience(self) -> float:
        return PATIENCE if self.address else 0.0

    def start(self) -> None:
        if ray.is_initialized():
            self._check_connected()
            return
        with _own_signals():
            if self.address:
                _connect(self.address)
            else:
                _launch(self.workers or machine.cpus())
        self._ours.append(True)

    def _check_connected(self) -> None:
        if self._ours or self.address in (None, "auto", here := ray.get_runtime_context().gcs_address):
            return
        remedy = "Leave the address out to use that cluster, or call ray.shutdown() first."
        raise UsageError(
            f"no connection to another Ray cluster than {self.address}", f"one to {here}", remedy
        )

    def close(self) -> None:
        if self._ours:
            self._ours.clear()
            ray.shutdown()  # stops a cluster that it started, and only leaves another
            _read_mode_and_token()

    def capacity(self) -> tuple[Resources, ...] | None:
        """Each node that has a core; without any it may be that the cluster grows when it is asked."""
        return tuple(map(_resources, _nodes())) or None

    def waiting(self) -> str:
        free = {name: amount for name, amount in ray.available_resources().items() if ":" not in name}
        told = ", ".join(f"{name} {amount:,.6g}" for name, amount in sorted(free.items()))
        return f"Ray has {len(_nodes())} nodes with cores; free on all of them: {told or 'nothing'}"

    def place(self) -> str:
        how = "started for this run" if self._launched else "which was running"
        return f"Ray at {ray.get_runtime_context().gcs_address}, {how}; nodes with cores: {len(_nodes())}"

    @property
    def _launched(self) -> bool:
        """Whether the cluster is ours, and as large as we asked."""
        return bool(self._ours) and not self.address

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        self.start()
        remote, options = ray.remote(_attempt), _options(stage.resources)
        held, threads = _held(stage), stage.resources.threads

        def send(task: Task, attempt: Attempt, seat: int) -> Any:
            named = remote.options(**options, name=f"{stage.name}/{task.name}")
            return named.remote([held], task, attempt, threads, versions())

        def slots() -> int:
            now = sum(_resources(node).over(stage.resources) for node in _nodes())
            return self.workers if self.workers and not self._launched else now

        return flights(calls, slots, send, _landed, _ended, _abandon)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray's initialization takes SIGTERM over; whoever had it keeps it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _connect(address: str) -> None:
    try:
        host, colon, port = address.rpartition(":")
        if colon:  # where nobody answers, Ray tries for minutes
            socket.create_connection((host, int(port)), timeout=REACHED).close()
        ray.init(address=address, **QUIET)
    except Exception as error:
        raise MachineError(
            f"a Ray cluster at {address}",
            str(error),
            "Check the address. A cluster with tokens needs RAY_AUTH_MODE=token and the token here too.",
        ) from error


def _launch(cores: int) -> None:
    """Start a cluster for this process: no telemetry, no upload of the working directory, not reachable from
    elsewhere.

    Ray binds to loopback alone only where it believes that there can be no other machine: no argument of
    `ray.init` says so, its constant for such systems does.
    """
    variables = {
        "RAY_AUTH_MODE": None,  # Ray sets it to "token" for a cluster of its own
        "RAY_AUTH_TOKEN": _token(),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # they import what we can import
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        with machine.environment(variables):
            _read_mode_and_token()
            ray.init("local", num_cpus=cores, include_dashboard=False, object_store_memory=STORE, **QUIET)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _token() -> str | None:
    """A new token, unless Ray has one: it would write its own to a file that others can read."""
    known = AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    return None if known else secrets.token_hex(32)


def _read_mode_and_token() -> None:
    """Have Ray read both from the environment. What it remembered of a cluster that it started would be asked
    of the workers of the next one.
    """
    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")


def _nodes() -> list[dict[str, float]]:
    """What each node has that is alive and has cores."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [node for node in nodes if node.get("CPU")]


def _resources(node: dict[str, float]) -> Resources:
    known = {"CPU", "GPU", "memory", "object_store_memory"}
    custom = {name: amount for name, amount in node.items() if name not in known and ":" not in name}
    return Resources(node["CPU"], node.get("GPU", 0.0), int(node.get("memory", 0)), custom)


def _options(asked: Resources) -> dict[str, Any]:
    memory = {"memory": asked.memory} if asked.memory else {}
    cores, custom = {"num_cpus": asked.cpus, "num_gpus": asked.gpus}, {"resources": dict(asked.custom)}
    return {**cores, **memory, **custom, "max_retries": 0}


def _held(stage: Stage) -> Any:
    try:
        return ray.put(stage.function)
    except TypeError as error:
        raise UsageError(
            f"a function of stage {stage.name!r} that can be pickled",
            str(error),
            "Use functions of modules and frozen dataclasses.",
        ) from error


def _attempt(
    held: list[Any], task: Task, attempt: Attempt, threads: int, driver: Mapping[str, str]
) -> Finished:
    """What runs in a worker of Ray. The reference comes in a list, so that Ray does not resolve it each
    time.
    """
    if ray.get_gpu_ids():
        attempt = replace(attempt, device="cuda:0")  # the first that CUDA_VISIBLE_DEVICES leaves visible
    finished = serve(lambda: _function(held[0]), task, attempt, threads, driver)
    for name, amount in counted(finished).items():
        if amount:
            _counter(name).inc(amount, {"stage": attempt.stage})
    return finished


@functools.lru_cache(4)  # drivers may share a worker
def _function(held: Any) -> Function:
    try:
        function: Function = ray.get(held)
    except RayError as error:
        remedy = "Run the same again to continue."
        raise MachineError("the function of the stage from Ray's object store", str(error), remedy) from error
    return function


@functools.cache
def _counter(name: str) -> Counter:
    return Counter(f"locdist_{name}", f"{name} of locdist's tasks", tag_keys=("stage",))


def _landed(refs: Any, seconds: float) -> list[Any]:
    return list(ray.wait(list(refs), num_returns=1, timeout=seconds)[0])


def _ended(ref: Any, task: Task) -> Finished:
    try:
        finished: Finished = ray.get(ref)
    except RayTaskError as error:  # our code returns its errors: Ray could not read what we sent
        why = str(error).strip().splitlines()[-1]
        expected = "workers of Ray that can import locdist and what the job uses"
        return Finished(task, failure_of(UsageError(expected, why, "Install it there.")), 0.0)
    except RayError as error:
        why = f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
        lost = isinstance(error, LOST)
        told = f"the worker was lost: {why}" if lost else why
        return Finished(task, Failure("machine", told, lost=lost), 0.0)
    return finished


def _abandon(refs: Any) -> None:
    for ref in refs:
        ray.cancel(ref, force=True)
    ray.wait(list(refs), num_returns=len(refs), timeout=10.0)
