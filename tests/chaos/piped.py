"""One `locdist` command as a process that waits for its words with everything imported:

python -m tests.chaos.piped < COMMAND

COMMAND is a line of JSON: {"words", "place"}; the command runs in the folder "place", in tasks of a few rows.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import locdist.pipeline.pipeline
from locdist.cli import main
from tests.system.interrupted import small

ROWS = {
    "locdist.jobs.linking.rows_per_task": mock.Mock(return_value=15),
    "locdist.jobs.forecast.SPAN_ROWS": 500,
    "locdist.jobs.restoring.tasks.SPAN_NUMBERS": 2_000,
    "locdist.jobs.scales.fit.COLUMNS": 40,
}


@contextmanager
def smaller() -> Iterator[None]:
    """Partitions of a few rows, for every verb of the ready files."""
    with ExitStack() as patches:
        patches.enter_context(small())
        for name, value in ROWS.items():
            patches.enter_context(mock.patch(name, value))
        yield


if __name__ == "__main__":
    assert locdist.pipeline.pipeline  # what `locdist run` loads when it begins
    print("ready", flush=True)
    command = json.loads(sys.stdin.readline())
    os.chdir(command["place"])
    sys.argv = ["locdist", *command["words"]]
    with smaller():
        main()
