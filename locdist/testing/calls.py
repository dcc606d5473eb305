"""Driving an executor by hand, and waiting for what it does."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_info

from locdist.data.store import Store
from locdist.execute.executor import Executor, Finished
from locdist.plan.plan import Attempt, Stage, Task
from locdist.plan.records import Record

SOON = 60.0  # seconds in which everything ends, a cluster's start included


def calls_of(stage: Stage, folder: Store) -> Iterator[tuple[Task, Attempt]]:
    """All tasks of a stage, first attempts."""
    return ((task, Attempt(folder, stage.name)) for task in stage.tasks)


def ended(executor: Executor, stage: Stage, folder: Store) -> list[Finished]:
    """How the calls of a stage ended."""
    return [end for end in executor.map(stage, calls_of(stage, folder)) if end is not None]


@contextmanager
def left_early(stream: Iterator[Finished | None]) -> Iterator[Iterator[Finished | None]]:
    """Close what `map` returned, a generator in most executors."""
    yield stream
    getattr(stream, "close", lambda: None)()


def settings() -> tuple[object, ...]:
    """How many threads the libraries of this process use, and those that it would start."""
    variables = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    return threadpool_info(), torch.get_num_threads(), variables


def data_of(end: Finished) -> dict[str, Any]:
    """What a task recorded; fails with its failure."""
    assert isinstance(end.outcome, Record), end.outcome
    return dict(end.outcome.data)


def beating(file: Path) -> bool:
    """Whether a `Pulse` still touches its file."""
    return time.time() - file.stat().st_mtime < 1.0


def until(what: Callable[[], object], seconds: float = SOON) -> None:
    """Wait for something to be true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
