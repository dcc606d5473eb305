"""Every case in every arrangement of its rows, and, where the engine matters, on every engine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from locdist.execute.choose import EXECUTORS, executor
from locdist.execute.contract import Executor
from locdist.jobs import build_index
from locdist.jobs.asking import ask
from tests.cases.arrangement import Arrangement

SOMEBODY = "127.0.0.1:1"
ARRANGED = {
    f"{'shuffled in ' if shuffled else ''}{parts} {'part' if parts == 1 else 'parts'}": (parts, shuffled)
    for parts in (1, 3)
    for shuffled in (False, True)
}


@pytest.fixture(params=ARRANGED.values(), ids=ARRANGED.keys())
def arrangement(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Arrangement:
    """1 and 3 partitions, given and shuffled order."""
    parts, shuffled = request.param
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # half of the time, and no machine breaks here
    in_parts(parts, monkeypatch)
    return Arrangement(parts, shuffled, tmp_path)


def in_parts(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all jobs work in so many partitions, where these small data would be one."""
    for module in (ask, build_index):
        monkeypatch.setattr(module, "rows_per_task", lambda rows, row_bytes: max(1, -(-rows // parts)))


@pytest.fixture(scope="session", params=EXECUTORS)
def engine(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """Each executor, with the cluster that it starts kept from test to test; Ray's while its variable names
    another one, which nobody asked for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", SOMEBODY)
        with executor(request.param, workers=2, processes=request.param == "local").kept() as kept:
            yield kept


@pytest.fixture
def placed(engine: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrangement:
    """Three shuffled partitions on each engine."""
    in_parts(3, monkeypatch)
    return Arrangement(3, True, tmp_path, engine)
