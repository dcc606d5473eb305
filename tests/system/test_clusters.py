"""What is particular to clusters: started here they are closed to others and gone afterwards; those that run
already are left as they were; devices and custom resources are placed; engines count what their workers do.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import MachineError, UsageError
from locdist.execute import machine
from locdist.execute.events import Event, TaskFinished
from locdist.execute.executor import Executor, run
from locdist.plan.manifest import MANIFEST
from locdist.plan.plan import Attempt, Resources, Task
from locdist.plan.records import Record
from locdist.testing.tasks import Write, finished, small_job
from tests.system import generated
from tests.system.clusters import ROOT, DaskNodes, RayNodes, driver_environment, free_port, until

pytestmark = pytest.mark.slow
STARTED: dict[str, Callable[[], Executor]] = {
    "ray": lambda: ld.Ray(workers=2),
    "dask": lambda: ld.Dask(workers=2),
}
started_here = pytest.mark.parametrize("name", STARTED)


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def computes(process: psutil.Process) -> bool:
    """Whether it lives, and is not what Python itself starts once to clean up after workers."""
    with suppress(psutil.NoSuchProcess):
        return process.status() != "zombie" and "resource_tracker" not in " ".join(process.cmdline())
    return False


# ------------------------------------------------------------------------------------------ the same answer

EXECUTORS: dict[str, Callable[[], Executor]] = {
    "1 thread": lambda: ld.Local(1),
    "4 threads": lambda: ld.Local(4),
    "2 processes": lambda: ld.Local(2, processes=True),
    **STARTED,
}


def answered(executor: Executor, place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Bytes of index and predictions, and what the folders say besides times and hosts."""
    roles = {"key": ["a", "b"], "features": ["f1", "f2"], "target": "y", "id": "id"}
    with monkeypatch.context() as patch, executor.kept():
        patch.setattr("locdist.jobs.asking.ask.rows_per_task", lambda rows, size: 40)
        patch.setattr("locdist.jobs.build_index.rows_per_task", lambda rows, size: 200)
        support = ld.dataset(place.parent / "support", **roles)
        index = ld.build_index(
            support, place / "index", codes="fp16", nlist=16, recall=0.9, executor=executor
        )
        ld.predict(
            ld.local_linear(12), index, place.parent / "queries", place / "out",
            extras=["spread", "effective", "coefficients"], explain=3, executor=executor,
        )  # fmt: skip
    files = {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*.arrow")}
    files |= {file.name: file.read_bytes() for file in (place / "out").glob("part-*.parquet")}
    manifest = json.loads((place / "out" / MANIFEST).read_text())
    return files, manifest["request"], index.fingerprint, told(Store.at(place / "out"), "predict")


def told(folder: Store, stage: str) -> dict[str, Record]:
    """Records without times, hosts and memory."""
    plain = {"host": "", "pid": 0, "seconds": 0.0, "peak_memory": 0}
    return {name: replace(record, **plain) for name, record in finished(folder, stage).items()}


def test_every_executor_writes_the_same_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    generated.write(generated.table(900, seed=5), tmp_path / "support")
    generated.write(generated.table(400, seed=6), tmp_path / "queries")
    made = {name: answered(make(), tmp_path / name, monkeypatch) for name, make in EXECUTORS.items()}
    files = made["1 thread"][0]
    assert len([name for name in files if name.startswith("part-")]) >= 10
    assert {name: one == made["1 thread"] for name, one in made.items()} == dict.fromkeys(EXECUTORS, True)


# ------------------------------------------------------------------------------------- started for one run


@started_here
def test_a_cluster_that_is_started_listens_to_this_machine_alone_and_is_gone_afterwards(
    name: str, tmp_path: Path
):
    heard: set[str] = set()
    before = set(children())

    def listener(event: Event) -> None:
        if isinstance(event, TaskFinished):
            for process in (psutil.Process(), *set(children()) - before):
                with suppress(psutil.NoSuchProcess):
                    heard.update(c.laddr.ip for c in process.net_connections() if c.status == "LISTEN")

    run(small_job(Store.at(tmp_path / "out"), Write(0.1), tasks=4), STARTED[name](), listener=listener)
    assert heard
    assert {ip.removeprefix("::ffff:") for ip in heard} <= {"127.0.0.1", "::1"}
    until(lambda: not [one for one in set(children()) - before if computes(one)], 60)


def environment(**variables: str) -> dict[str, str]:
    """That of a driver, with some variables, or without those set to ""."""
    return {name: value for name, value in {**driver_environment(), **variables}.items() if value}


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(**variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


GUARDED = """
import os, sys
import psutil, ray
import locdist as ld
from ray._raylet import AuthenticationTokenLoader
executor = ld.Ray(workers=1)
with executor.kept():
    executor.start()
    token = AuthenticationTokenLoader.instance().get_raw_token()
    print(ray.get_runtime_context().gcs_address, token, flush=True)
    sys.stdin.readline()
    print(token in " ".join(w for p in psutil.Process().children(recursive=True) for w in p.cmdline()))
"""


def test_a_stranger_is_not_let_into_ray(tmp_path: Path):
    """The token lies in no file, and no process shows it in its arguments."""
    home = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "", "RAY_AUTH_TOKEN": ""}
    # Without the variable Ray looks for 127.0.0.1 at another address of this machine.
    home["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    driver = subprocess.Popen(
        [sys.executable, "-c", GUARDED], env=environment(**home), cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    address, token = driver.stdout.readline().split()
    entering = f"import ray; ray.init({address!r}); print('inside')"
    stranger = python(entering, **home)
    friend = python(entering, **home | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})
    shown = driver.communicate("go on\n", timeout=60)[0].strip()
    assert "inside" not in stranger.stdout
    assert "inside" in friend.stdout, friend.stderr
    assert shown == "False"
    assert not (tmp_path / ".ray/auth_token").exists()


def test_a_stranger_is_not_let_into_dask():
    from distributed import Client, Security

    executor = ld.Dask(workers=1)
    with executor.kept():
        executor.start()
        address = executor._client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        strangers = ((address.replace("tls://", "tcp://"), None), (address, Security.temporary()))
        for at, security in strangers:
            with pytest.raises(OSError):  # noqa: PT011 - cut off in one of several ways
                Client(at, timeout=2, security=security)


def test_a_script_without_a_guard_is_told_so(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import locdist as ld, pyarrow as pa\n"
        "rows = pa.table({'x': [0.0, 1.0, 2.0], 'y': [0.0, 1.0, 2.0]})\n"
        f"ld.build_index(ld.dataset(rows, key='x', target='y'), {str(tmp_path / 'index')!r}, "
        "executor=ld.Dask(workers=1))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], env=driver_environment(), capture_output=True, text=True, timeout=120
    )
    assert ended.returncode != 0
    assert "if __name__ == '__main__':" in ended.stderr


@started_here
def test_a_killed_driver_leaves_no_worker(name: str, tmp_path: Path):
    code = (
        "import sys; from locdist.testing.tasks import *; from locdist.execute.executor import run\n"
        "from locdist.execute.choose import executor\n"
        "if __name__ == '__main__':\n"
        f"    job = small_job(Store.at({str(tmp_path / 'out')!r}), Write(0.3), tasks=40)\n"
        f"    run(job, executor({name!r}, workers=2))\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    driver = subprocess.Popen([sys.executable, str(script)], env=driver_environment())
    until(lambda: len(list((tmp_path / "out").glob("part-*"))) >= 3)
    below = psutil.Process(driver.pid).children(recursive=True)
    below = [one for one in below if "Agent" not in one.name()]  # Ray's look once a minute whether to go
    driver.kill()
    driver.wait()
    assert len(below) >= 2
    until(lambda: not [one for one in below if one.is_running() and one.status() != "zombie"], 30)
    written = len(list((tmp_path / "out").glob("part-*")))
    time.sleep(1)
    assert len(list((tmp_path / "out").glob("part-*"))) == written < 40


# ------------------------------------------------------------------------------------ clusters that run


def test_a_cluster_of_the_user_is_left_running(tmp_path: Path):
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    try:
        run(small_job(Store.at(tmp_path / "out"), Write(), tasks=2), ld.Ray())
        assert ray.is_initialized()
        assert len(ray.nodes()) == 1
    finally:
        ray.shutdown()


@pytest.mark.parametrize("name, address", [("ray", "127.0.0.1:1"), ("dask", "tls://127.0.0.1:1")])
def test_an_address_where_nobody_answers_is_an_error_of_the_machine(name: str, address: str, tmp_path: Path):
    from locdist.execute.choose import executor

    with pytest.raises(MachineError, match=r"127\.0\.0\.1:1"):
        run(small_job(Store.at(tmp_path / "out"), Write(), tasks=1), executor(name, address=address))


class Seen:
    """What a worker sees of its resources."""

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        time.sleep(0.2)
        return Record(
            data={
                "device": attempt.device,
                "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "pid": os.getpid(),
            }
        )


def seen(executor: Executor, folder: Path, resources: Resources, tasks: int = 6) -> list[Mapping[str, Any]]:
    job = small_job(Store.at(folder), Seen(), tasks, resources=resources)
    stage = replace(job.stages[0], tasks=tuple(replace(task, outputs=()) for task in job.stages[0].tasks))
    return [record.data for record in run(replace(job, stages=(stage,)), executor)[stage.name].values()]


@pytest.fixture
def ray_with_gpus() -> Iterator[None]:
    """Logical devices: what is placed is real, what it is placed on is not."""
    import ray

    ray.init(
        "local", num_cpus=2, num_gpus=2, resources={"fast": 1}, include_dashboard=False,
        object_store_memory=100 << 20, log_to_driver=False,
    )  # fmt: skip
    yield
    ray.shutdown()


def test_ray_gives_each_task_its_device(ray_with_gpus: None, tmp_path: Path):
    whole = seen(ld.Ray(), tmp_path / "whole", Resources(gpus=1))
    assert {told["device"] for told in whole} == {"cuda:0"}
    assert {told["visible"] for told in whole} == {"0", "1"}
    shared = seen(ld.Ray(), tmp_path / "shared", Resources(cpus=0.5, gpus=0.25))
    assert {told["device"] for told in shared} == {"cuda:0"}
    assert {told["device"] for told in seen(ld.Ray(), tmp_path / "none", Resources())} == {"cpu"}


def test_a_custom_resource_limits_what_runs_at_a_time(ray_with_gpus: None, tmp_path: Path):
    begun = time.monotonic()
    assert len(seen(ld.Ray(), tmp_path / "out", Resources(custom={"fast": 1}), tasks=5)) == 5
    assert time.monotonic() - begun >= 5 * 0.2


def test_dask_gives_tasks_to_the_workers_that_have_a_device(tmp_path: Path):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, resources={"GPU": 1}, host="127.0.0.1",
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:  # fmt: skip
        (device,) = (nanny.pid for nanny in cluster.workers.values())
        other = cluster.worker_spec[0]
        cluster.worker_spec[1] = {**other, "options": {**other["options"], "resources": {}}}
        cluster.sync(cluster._correct_state)
        executor = ld.Dask(cluster.scheduler_address)
        told = seen(executor, tmp_path / "out", Resources(gpus=1))
        assert {one["pid"] for one in told} == {device}
        assert {one["device"] for one in told} == {"cuda:0"}
        both = seen(executor, tmp_path / "both", Resources())
        assert len({one["pid"] for one in both}) == 2
        assert {one["device"] for one in both} == {"cpu"}


def test_dask_gives_tasks_to_the_workers_that_have_the_memory(tmp_path: Path):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, memory_limit="3GiB", host="127.0.0.1",
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:  # fmt: skip
        (large,) = (nanny.pid for nanny in cluster.workers.values())
        other = cluster.worker_spec[0]
        cluster.worker_spec[1] = {**other, "options": {**other["options"], "memory_limit": "1GiB"}}
        cluster.sync(cluster._correct_state)
        executor = ld.Dask(cluster.scheduler_address)
        told = seen(executor, tmp_path / "out", Resources(memory=2 << 30))
        assert {one["pid"] for one in told} == {large}
        assert len({one["pid"] for one in seen(executor, tmp_path / "both", Resources())}) == 2


@pytest.mark.skipif("__import__('torch').cuda.is_available()")
@pytest.mark.parametrize("name", ["local", *STARTED])
def test_devices_that_are_not_there_are_refused(name: str, tmp_path: Path):
    executor = ld.Local(2) if name == "local" else STARTED[name]()
    rows = generated.table(100, seed=1)
    index = ld.build_index(ld.dataset(rows, key=["a", "b"], target="y"), tmp_path / "index")
    with pytest.raises(UsageError, match="gpus 1 asked where the largest worker has 0"):
        ld.predict("knn", index, rows, tmp_path / "out", executor=executor, resources=ld.Resources(gpus=1))
    with pytest.raises(UsageError, match="sees none here"):
        ld.predict("knn", index, rows, resources=ld.Resources(gpus=1))


@pytest.mark.gpu
@pytest.mark.skipif("not __import__('torch').cuda.is_available()")
@pytest.mark.parametrize("method", ["knn", "local-linear", "local-gp", "local-logistic"])
def test_a_device_gives_the_answers_of_the_cores(method: str, tmp_path: Path):
    rows, target = generated.table(2000, seed=1), "flag" if method == "local-logistic" else "y"
    index = ld.build_index(ld.dataset(rows, key=["a", "b"], target=target), tmp_path / "index")
    cores = ld.predict(method, index, rows)
    ld.predict(method, index, rows, tmp_path / "out", resources=ld.Resources(gpus=0.5))
    device = generated.read(tmp_path / "out")
    for name in cores.schema.names:
        if name.startswith(("prediction", "probability")):
            assert device[name].to_pylist() == pytest.approx(cores[name].to_pylist(), rel=1e-5, abs=1e-5)


def test_seats_of_this_machine_share_devices():
    assert [machine.device(seat, 1) for seat in range(3)] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [machine.device(seat, 0.5) for seat in range(4)] == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert machine.device(3, 0) == "cpu"


def test_a_logical_device_is_no_device(ray_with_gpus: None, tmp_path: Path):
    rows = generated.table(100, seed=1)
    index = ld.build_index(ld.dataset(rows, key=["a", "b"], target="y"), tmp_path / "index")
    with pytest.raises(UsageError, match="a device cuda:0 that torch can use"):
        ld.predict("knn", index, rows, tmp_path / "out", executor=ld.Ray(), resources=ld.Resources(gpus=1))


# -------------------------------------------------------------------------------------------- watching


def test_ray_counts_rows_of_its_workers(tmp_path: Path):
    import ray

    ray.init(
        "local", num_cpus=1, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
        _metrics_export_port=(port := free_port()),
    )  # fmt: skip
    try:
        run(small_job(Store.at(tmp_path / "out"), Write(), tasks=5), ld.Ray())

        def counted() -> float:
            try:
                text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            except OSError:  # not yet
                return 0.0
            found = [line for line in text.splitlines() if line.startswith("ray_locdist_rows_total")]
            return sum(float(line.rpartition(" ")[2]) for line in found)

        until(lambda: counted() == 50)
    finally:
        ray.shutdown()


def test_dask_counts_rows_of_its_workers(tmp_path: Path):
    from distributed import LocalCluster

    port = free_port()
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", worker_dashboard_address=f"127.0.0.1:{port}",
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:  # fmt: skip
        executor = ld.Dask(cluster.scheduler_address)
        run(small_job(Store.at(tmp_path / "out"), Write(), tasks=5), executor)
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert 'locdist_rows_total{stage="write-0"} 50.0' in text
    assert 'locdist_tasks_total{stage="write-0"} 5.0' in text


@pytest.mark.parametrize("nodes", [RayNodes, DaskNodes], ids=["ray", "dask"])
def test_it_says_what_the_scheduler_has(nodes: Any, tmp_path: Path):
    cluster = nodes()
    cluster.start()
    try:
        executor = cluster.executor()
        with executor.kept():
            executor.start()
            assert "2 nodes" in executor.waiting() or "2 workers" in executor.waiting()
            assert [worker.cpus for worker in executor.capacity()] == [1, 1]
    finally:
        cluster.stop()


@started_here
def test_ctrl_c_in_a_terminal_finishes_what_is_in_flight(name: str, tmp_path: Path):
    """SIGINT goes to the whole group of processes, workers too."""
    script = tmp_path / "driver.py"
    script.write_text(
        "from locdist.testing.tasks import *\n"
        "from locdist.execute.executor import Stopped, run\n"
        "from locdist.execute.choose import executor\n"
        "if __name__ == '__main__':\n"
        f"    job = small_job(Store.at({str(tmp_path / 'out')!r}), Write(0.5), tasks=20)\n"
        "    try:\n"
        f"        run(job, executor({name!r}, workers=2))\n"
        "    except Stopped as stopped:\n"
        "        raise SystemExit(stopped.exit_code)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, str(script)], env=driver_environment(), start_new_session=True,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: len(list((tmp_path / "out").glob("part-*"))) >= 2)
    os.killpg(driver.pid, signal.SIGINT)
    said = driver.communicate(timeout=60)[1]
    assert driver.returncode == 130, said
    assert "Traceback" not in said
    records = finished(Store.at(tmp_path / "out"), "write-0")
    assert 2 <= len(records) == len(list((tmp_path / "out").glob("part-*"))) < 20
    assert {record.attempt for record in records.values()} == {1}
