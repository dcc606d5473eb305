"""A few of the rounds of `make chaos`."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.__main__ import arena
from tests.chaos.arena import Arena, Calm, prepare
from tests.chaos.rounds import TASKS, Outcome, Round, planned, table
from tests.system import generated
from tests.system.clusters import WORKERS, Machine, until

ROUNDS = [
    Round("local", "driver", 0.4, True),
    Round("local", "worker", 0.6, False),
    Round("ray", "driver", 0.3, True),
    Round("ray", "node", 0.7, True),
    Round("dask", "driver", 0.5, False),
    Round("dask", "nanny", 0.5, True),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chaos")
    prepare(folder)
    return folder


@pytest.fixture(scope="module", params=["local", "ray", "dask"])
def opened(request: pytest.FixtureRequest, place: Path) -> Iterator[tuple[str, Arena, Calm]]:
    with arena(request.param, place) as ours:
        yield request.param, ours, ours.calm()


@pytest.mark.slow
def test_nobody_can_tell_who_was_killed(opened: tuple[str, Arena, Calm], calms: list[Calm]) -> None:
    name, ours, calm = opened
    calms.append(calm)
    assert calm.contents == calms[0].contents
    assert calm.records == calms[0].records
    for round in (round for round in ROUNDS if round.executor == name):
        outcome = ours.play(round, calm, random.Random(0))
        assert outcome.differences == (), outcome
        assert outcome.runs == 1 + (round.victim == "driver")


@pytest.fixture(scope="module")
def calms() -> list[Calm]:
    return []


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_stops_and_the_same_continues(place: Path, tmp_path: Path) -> None:
    """It reaches all processes of the terminal; tests/system/test_clusters.py does it to clusters."""
    cluster = Machine()
    cluster.options = {"name": "local", "workers": WORKERS, "processes": True}
    opened = Arena(cluster, place, tmp_path)
    try:
        play = opened.begun({})
        until(lambda: play.committed() >= 3 or play.over)
        os.killpg(play.driver.pid, signal.SIGINT)
        assert play.ended().startswith("exit code 130: stopped by SIGINT; running the same again continues")
        assert 3 <= play.committed() < TASKS
        assert play.again() == ""
        assert len(generated.parts(play.out)) == TASKS
        assert play.journal.repeated() == {}
        until(lambda: not play.left(), 30)
    finally:
        opened.close()


def test_rounds_come_from_the_seed_and_are_spread() -> None:
    rounds = planned("ray", ("driver", "worker", "raylet"), 30, 0)
    assert rounds == planned("ray", ("driver", "worker", "raylet"), 30, 0)
    assert rounds != planned("ray", ("driver", "worker", "raylet"), 30, 1)
    assert sorted(int(round.moment * 30) for round in rounds) == list(range(30))
    assert sum(round.inside for round in rounds) == 15
    assert {round.victim: 0 for round in rounds}.keys() == {"driver", "worker", "raylet"}


def test_the_table_counts_what_differs() -> None:
    fine, wrong = (Outcome(ROUNDS[0], 3, 1, 2, 5.0, told) for told in ((), ("part-00000 differs",)))
    *_, line = table([fine, wrong])
    assert line.split() == ["local", "driver", "2", "2", "1", "2", "1.00,", "at", "most", "1", "5.0"]
