"""One run of a real job, as a process that waits for its command with everything imported:

python -m tests.chaos.driver < COMMAND

COMMAND is a line of JSON: {"place", "out", "journal", "faults", "delay", "executor"}; "executor" holds the
arguments of `execute.choose.executor`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import locdist as ld
from locdist.errors import LocdistError
from locdist.execute.choose import executor
from locdist.execute.executor import Stopped
from locdist.testing import Faults, FaultyExecutor, Journal
from tests.system.interrupted import METHOD, small

EXTRAS = ["spread", "effective", "coefficients"]


def predict(command: dict[str, Any]) -> None:
    place = Path(command["place"])
    faults = Faults({task: tuple(each) for task, each in command["faults"].items()})
    where = executor(**command["executor"])
    faulty = FaultyExecutor(where, faults, Journal(command["journal"]), command["delay"])
    out = command["out"]
    ld.predict(METHOD, place / "index", place / "queries", out, extras=EXTRAS, explain=3, executor=faulty)


def main() -> int:
    print("ready", flush=True)
    command = json.loads(sys.stdin.readline())
    try:
        with small():
            predict(command)
    except (LocdistError, Stopped) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
