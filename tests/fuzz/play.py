"""Cases, one after another, in a worker that is started again when one of them ends it."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
HANG = 60.0  # seconds that a case may take on a busy machine; on a quiet one it takes a tenth of one
START = 300.0


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    number: int
    outcome: str
    wrong: str
    deed: str = "?"
    file: str = "?"
    how: str = "?"

    def __str__(self) -> str:
        return (
            f"case {self.number}: {self.deed} after {self.file} was {self.how}: {self.outcome}\n{self.wrong}"
        )


@dataclass
class Worker:
    """A process that plays cases below a folder."""

    folder: Path
    seed: int
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin with a world of its own."""
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        self.log = (self.folder / "log").open("wb")
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker", str(root), str(self.seed)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(root)}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log
        )
        assert self._line(START) == "ready", (self.folder / "log").read_text()

    def play(self, number: int) -> Outcome:
        """Play one case."""
        if self.process is None:
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n".encode())
        self.process.stdin.flush()
        line = self._line(HANG)
        if line is not None:
            return Outcome(**json.loads(line))
        died = self.process.poll()
        self.stop()
        told = (self.folder / "log").read_text(errors="replace")[-3000:]
        what = "hung" if died is None else "died"
        return Outcome(number, what, f"exit code {died}\n{told}")

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout, self.log):
                assert stream is not None
                stream.close()
        self.process = None

    def _line(self, seconds: float) -> str | None:
        """The next line, None when the worker says nothing for so long, or nothing any more."""
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        line = self.process.stdout.readline().decode()
        if not line:
            self.process.wait()
        return line.strip() or None


def played(folder: Path, seed: int, numbers: Iterable[int], seconds: float) -> Iterator[Outcome]:
    """Cases until they or the seconds end."""
    worker = Worker(folder, seed)
    try:
        worker.start()
        end = time.monotonic() + seconds
        for number in numbers:
            yield worker.play(number)
            if time.monotonic() > end:
                return
    finally:
        worker.stop()
