"""A driver of a small job to be started, and killed, as a process; and the job's function with one fault:

python -m tests.system.small_job OUT LOG [--tasks N] [--workers N] [--processes] [--delay S] [--fault NAME]
"""

import argparse
import sys
from dataclasses import dataclass

from locdist.data.store import Store
from locdist.errors import LocdistError
from locdist.execute.executor import Stopped, run
from locdist.execute.local import Local
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record
from locdist.testing import Faults, Faulty, Journal, tasks
from locdist.testing.tasks import small_job

ALWAYS = 9  # starts: more than there are attempts


@dataclass(frozen=True)
class Write:
    """Writes ten rows and notes each start in `log`; a fault happens to `victim` inside its write: always, or
    once if `once`.
    """

    log: str
    delay: float = 0.0
    fault: str = ""
    victim: str = "part-00003"
    once: bool = False

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        often = (1 if self.once else ALWAYS) if self.fault else 0
        faults = Faults({self.victim: (f"{self.fault} inside",) * often})
        return Faulty(tasks.Write(), faults, Journal(self.log), self.delay)(task, attempt)


def main(arguments: list[str] | None = None) -> int:
    """Run it as a command does; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("log")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--fault", default="")
    given = parser.parse_args(arguments)
    folder = Store.at(given.out)
    job = small_job(folder, Write(given.log, given.delay, given.fault, once=True), given.tasks)
    try:
        with claimed(folder, Manifest("small", {"tasks": given.tasks})):
            run(job, Local(given.workers, given.processes))
    except (LocdistError, Stopped) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
