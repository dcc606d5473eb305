"""Playing a round: a real job is run, somebody is killed, it is run again if it has to be, and all of it is
compared with a run that nobody disturbed.
"""

import os
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from locdist.data.dataset import dataset
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.jobs.build_index import build_index
from locdist.plan.records import COMMITS, Record
from locdist.testing import Journal
from locdist.testing.journal import Start, alive
from locdist.testing.tasks import finished
from tests.chaos.rounds import TASKS, Outcome, Round
from tests.system import generated
from tests.system.clusters import WORKERS, Cluster, until
from tests.system.drivers import Drivers
from tests.system.interrupted import ROLES, TASK_ROWS

GRACE = 3.0  # seconds in which a worker dies with what it depends on
DELAY = 0.2  # seconds that a task takes besides
OWN = ("attempt", "seconds", "peak_memory", "host", "pid")  # what two records of one task may differ in
PINNED = ("_locdist/manifest.json", "_locdist/plan.json")
STAGE = "predict"
Contents = Mapping[str, bytes]


def prepare(place: Path) -> None:
    """Support, queries and an index."""
    generated.write(generated.table(1000, seed=7), place / "support")
    generated.write(generated.table(TASKS * TASK_ROWS, seed=8), place / "queries", files=1)
    build_index(dataset(place / "support", **ROLES), place / "index", codes="fp16", nlist=16)


@dataclass(frozen=True)
class Calm:
    """What the undisturbed run wrote, and the mean time from one commit to the next, in seconds."""

    contents: Contents
    records: Mapping[str, Mapping[str, Any]]
    gap: float


class Play:
    """The runs of one output folder.

    Parameters
    ----------
    folder : Path
        For output and journal.
    drivers : Drivers
    words : mapping
        What every driver is told.
    faults : mapping
        What happens to which tasks.
    """

    def __init__(
        self, folder: Path, drivers: Drivers, words: Mapping[str, Any], faults: Mapping[str, list[str]]
    ) -> None:
        self.out, self.journal = folder / "out", Journal(str(folder / "journal"))
        self._drivers, self._words, self._faults = drivers, words, faults
        self._groups: list[int] = []
        self.driver = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        places = {"out": str(self.out), "journal": self.journal.place}
        driver = self._drivers.command(**self._words, **places, faults=self._faults)
        self._groups.append(driver.pid)
        return driver

    @property
    def over(self) -> bool:
        """Whether the driver has ended."""
        return self.driver.poll() is not None

    def ended(self) -> str:
        """Wait for the driver; what it said if it did not end well."""
        message = self.driver.communicate(timeout=180)[1].decode()
        return "" if self.driver.returncode == 0 else f"exit code {self.driver.returncode}: {message}"

    def again(self) -> str:
        """Run the same again; what it said if it did not end well."""
        self.driver = self._started()
        return self.ended()

    def committed(self) -> int:
        """Tasks with a record."""
        folder = self.out / COMMITS
        return TASKS if (folder / f"{STAGE}.jsonl").exists() else len(list(folder.glob(f"{STAGE}/*.json")))

    def contents(self) -> dict[str, bytes]:
        """What may not differ: data files, and what was asked and planned."""
        return generated.parts(self.out) | {name: (self.out / name).read_bytes() for name in PINNED}

    def done(self) -> dict[str, Record]:
        """The records as they are; read again where a run that ends just then has joined them."""
        for _ in range(3):
            with suppress(DataError):
                return finished(Store.at(self.out), STAGE)
        raise AssertionError("records that nobody joins cannot be read")

    def records(self) -> dict[str, dict[str, Any]]:
        """The records less what is their own."""
        return {
            task: {name: value for name, value in asdict(record).items() if name not in OWN}
            for task, record in self.done().items()
        }

    def left(self) -> bool:
        """Whether anything still runs: a task, or a process of one of the drivers."""
        return bool(self.journal.running()) or any(_lives(group) for group in self._groups)


class Arena:
    """A cluster, drivers of it, and the folders of their runs."""

    def __init__(self, cluster: Cluster, place: Path, folder: Path) -> None:
        self.cluster = cluster
        self._words = {"place": str(place), "delay": DELAY, "executor": cluster.options}
        self._folder, self._numbers = folder, count()
        self._drivers = Drivers("tests.chaos.driver", cluster.environment)

    def close(self) -> None:
        """End the driver that waits."""
        self._drivers.close()

    def calm(self) -> Calm:
        """Run without a disturbance."""
        play, times = self.begun({}), list[float]()
        while not play.over:
            times += [time.monotonic()] * (play.committed() - len(times))
            time.sleep(0.005)
        assert play.ended() == ""
        assert play.journal.repeated() == {}
        return Calm(play.contents(), play.records(), (times[-1] - times[0]) / (TASKS - 1))

    def play(self, round: Round, calm: Calm, dice: random.Random) -> Outcome:
        """Play a round; once more where the run was over before the moment came."""
        while True:
            start = time.monotonic()
            play = self.begun({round.task: ["hang inside"]} if round.inside else {})
            worker = _inside(play, round) if round.inside else _at(play, round, calm.gap, dice)
            before = play.done()
            if worker is not None and not play.over:
                self._kill(play, round.victim, worker)
                runs, differences = self._finished(play, calm, before)
                seconds, repeated = time.monotonic() - start, sum(play.journal.repeated().values())
                self.cluster.repair()
                return Outcome(round, len(before), repeated, runs, seconds, differences)
            play.journal.release()
            play.ended()

    def begun(self, faults: Mapping[str, list[str]]) -> Play:
        """A run that has been started."""
        folder = self._folder / f"{next(self._numbers):03}"
        folder.mkdir(parents=True)
        return Play(folder, self._drivers, self._words, faults)

    def _kill(self, play: Play, victim: str, worker: int) -> None:
        if victim == "driver":
            play.driver.kill()
        else:
            self.cluster.kill(victim, worker)
        with suppress(TimeoutError):  # who outlives the victim goes on, beside who does its work again
            until(lambda: not alive(worker), GRACE)
        play.journal.release()

    def _finished(self, play: Play, calm: Calm, before: Mapping[str, Record]) -> tuple[int, tuple[str, ...]]:
        """How many runs it took, and what differs."""
        runs, message = 1, play.ended()
        if message:
            self.cluster.repair()
            runs, message = 2, play.again()
        return runs, (message,) if message else tuple(_differences(play, calm, before))


def _inside(play: Play, round: Round) -> int | None:
    """The process that hangs inside the write of the round's task."""
    held: list[Start] = []

    def hangs() -> bool:
        held[:] = [start for start in play.journal.starts(round.task) if start.held]
        return bool(held) or play.over

    until(hangs)
    return held[0].pid if held else None


def _at(play: Play, round: Round, gap: float, dice: random.Random) -> int | None:
    """A process that works at the moment of the round."""
    whole, part = divmod(round.moment * (TASKS - 1), 1)
    until(lambda: play.committed() > whole or play.over)
    time.sleep(part * gap)
    working = play.journal.running()
    return dice.choice(working).pid if working else None


def _differences(play: Play, calm: Calm, before: Mapping[str, Record]) -> Iterator[str]:
    """What is not as if nobody had been killed."""
    contents, records, done = play.contents(), play.records(), play.done()
    for name in sorted({*contents, *calm.contents}):
        if contents.get(name) != calm.contents.get(name):
            yield f"{name} differs"
    for task in sorted({*records, *calm.records}):
        if records.get(task) != calm.records.get(task):
            yield f"the record of {task} differs"
    repeated = play.journal.repeated()
    for task in before:
        if done.get(task) != before[task] or f"{STAGE}/{task}" in repeated:
            yield f"{task} was finished and ran again"
    if sum(repeated.values()) > WORKERS:
        yield f"{repeated} started again, where {WORKERS} were in flight"
    try:
        until(lambda: not play.left(), 30)
    except TimeoutError:
        yield f"something runs on: {play.journal.running() or 'a process of a driver'}"


def _lives(group: int) -> bool:
    """Whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
