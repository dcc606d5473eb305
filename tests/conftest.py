"""In what order tests run, and what runs on one worker."""

import os

import pytest
from xdist.scheduler import LoadFileScheduling

# Several workers share the cores: threads that wait for each other by spinning would take most of them.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

FIRST = (  # files of minutes begin first, so that nobody waits for them at the end
    "tests/test_docs.py",
    "tests/chaos",
    "tests/speed",
    "tests/system/test_demo.py",
    "tests/system/test_executors.py",
    "tests/system/test_every_method.py",
    "tests/system/test_pipeline.py",
)
APART = ("tests/test_docs.py",)  # each test of these may run anywhere: they share no fixture


class ByFile(LoadFileScheduling):
    """The tests of a file on one worker, for the sake of its fixtures."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(APART) else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return next((turn for turn, path in enumerate(FIRST) if item.nodeid.startswith(path)), len(FIRST))
