"""Processes that are really killed, the driver and its workers, at any moment; then the same command again.

What may not happen: a finished task runs again, a row is missing or there twice, a half-written file is read,
a worker outlives its driver.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from locdist.data.store import Store
from locdist.plan.manifest import MANIFEST
from locdist.plan.records import COMMITS, Record, history
from locdist.testing import Journal
from locdist.testing.journal import alive
from locdist.testing.tasks import ROWS, finished
from tests.system.clusters import until

TASKS = 8


class Command:
    """The small job as a process, in its own folders."""

    def __init__(self, place: Path) -> None:
        self.out, self.log = place / "out", place / "log"
        self.log.mkdir(parents=True)
        self.folder = Store.at(self.out)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-W", "error", "-m", "tests.system.small_job", str(self.out), str(self.log)]
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": root}
        return subprocess.Popen(
            [*words, f"--tasks={TASKS}", *options], cwd=root, env=environment, stderr=subprocess.PIPE
        )

    def finish(self, *options: str) -> str:
        """Run to the end; returns what it said."""
        driver = self.start(*options)
        message = driver.communicate(timeout=60)[1].decode()
        assert driver.returncode == 0, message
        return message

    def singles(self) -> list[Path]:
        return list((self.out / COMMITS).glob("write-0/*.json"))

    def starts(self, task: str) -> int:
        return len(Journal(str(self.log)).starts(task))

    def workers(self) -> set[int]:
        return {start.pid for start in Journal(str(self.log)).starts()}

    def contents(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in self.out.glob("part-*")}

    def rows(self) -> list[int]:
        return sorted(
            row for file in self.out.glob("part-*.parquet") for row in pq.read_table(file)["id"].to_pylist()
        )


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    calm = Command(tmp_path_factory.mktemp("undisturbed"))
    calm.finish()
    return calm.contents()


def assert_finished_tasks_are_kept(command: Command, before: dict[str, Record]) -> None:
    """From the commit records: same process, same time, same checksum; and from the log: started once."""
    after = finished(command.folder, "write-0")
    assert len(after) == TASKS
    assert {name: after[name] for name in before} == before
    assert {command.starts(name) for name in before} == {1}


@pytest.mark.parametrize("mode, enough", [([], 4), (["--processes"], 1)], ids=["threads", "processes"])
def test_a_killed_driver_is_continued(
    command: Command, undisturbed: dict[str, bytes], mode: list[str], enough: int
):
    driver = command.start("--delay=0.15", *mode)
    until(lambda: len(command.singles()) >= enough)
    driver.kill()
    driver.communicate()
    until(lambda: not any(alive(pid) for pid in command.workers()), 5)
    before = finished(command.folder, "write-0")
    assert enough <= len(before) < TASKS
    command.finish(*mode)
    assert_finished_tasks_are_kept(command, before)
    assert command.contents() == undisturbed
    assert command.rows() == list(range(TASKS * ROWS))


def test_a_driver_killed_inside_a_write_leaves_nothing_that_is_read(
    command: Command, undisturbed: dict[str, bytes]
):
    """Its worker hangs with a half-written part-00003."""
    driver = command.start("--processes", "--fault=hang")
    until(lambda: list(command.out.glob(".part-00003.*.tmp")) and len(command.singles()) == TASKS - 1)
    driver.kill()
    driver.communicate()
    until(lambda: not any(alive(pid) for pid in command.workers()), 5)
    assert not (command.out / "part-00003.parquet").exists()
    assert command.rows() == [row for row in range(TASKS * ROWS) if row // ROWS != 3]
    before = finished(command.folder, "write-0")
    command.finish()
    assert_finished_tasks_are_kept(command, before)
    assert command.starts("part-00003") == 2
    assert command.contents() == undisturbed
    assert history(command.folder).leftovers == ()


def test_a_worker_that_dies_inside_a_write_costs_one_attempt(command: Command, undisturbed: dict[str, bytes]):
    """C46, C24: it kills itself with SIGKILL after the first bytes of part-00003, once."""
    command.finish("--processes", "--fault=kill")
    attempts = {name: record.attempt for name, record in finished(command.folder, "write-0").items()}
    assert attempts == {f"part-{i:05}": 1 + (i == 3) for i in range(TASKS)}
    assert command.contents() == undisturbed
    assert command.starts("part-00003") == 2


def test_workers_killed_from_outside_are_replaced(command: Command, undisturbed: dict[str, bytes]):
    driver = command.start("--processes", "--delay=0.2")
    until(lambda: len(command.workers()) == 2 and command.singles())
    killed = command.workers()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    message = driver.communicate(timeout=60)[1].decode()
    assert driver.returncode == 0, message
    records = finished(command.folder, "write-0")
    assert 1 <= sum(record.attempt == 2 for record in records.values()) <= 2
    assert command.workers() > killed
    assert command.contents() == undisturbed


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_driver_says_so(command: Command, number: signal.Signals, code: int):
    driver = command.start("--delay=0.15")
    until(command.singles)
    driver.send_signal(number)
    message = driver.communicate(timeout=30)[1].decode()
    assert driver.returncode == code
    assert number.name in message
    assert json.loads((command.out / "_locdist/status.json").read_text())["state"] == "stopped"
    before = finished(command.folder, "write-0")
    assert 0 < len(before) < TASKS
    command.finish()
    assert_finished_tasks_are_kept(command, before)


def test_a_second_driver_is_kept_out(command: Command):
    first = command.start("--delay=0.3")
    until(lambda: (command.out / MANIFEST).exists())
    second = command.start()
    message = second.communicate(timeout=30)[1].decode()
    assert second.returncode == 4
    assert f"process {first.pid} on host" in message
    first.kill()
    first.communicate()


def test_another_request_is_refused_with_exit_code_2(command: Command):
    command.finish()
    other = command.start("--tasks=9")
    assert "request.tasks 8; got request.tasks 9" in other.communicate(timeout=30)[1].decode()
    assert other.returncode == 2
