"""Drivers as processes: started before they are needed, because importing takes seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def driver_environment() -> dict[str, str]:
    """Variables with which another process finds this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Drivers:
    """Processes of one module that say "ready" and then take one command each, a line of JSON; the next one
    starts while the last one works. Each is the first of its own process group.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._words = [sys.executable, "-W", "error", "-m", module]
        self._environment = {**driver_environment(), **(environment or {})}
        self._next = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        return subprocess.Popen(self._words, cwd=ROOT, env=self._environment, start_new_session=True, **pipes)

    def command(self, **words: Any) -> subprocess.Popen[bytes]:
        """Have a driver do something."""
        driver, self._next = self._next, self._started()
        assert driver.stdout is not None
        assert driver.stdin is not None
        assert driver.stdout.readline() == b"ready\n"
        driver.stdin.write(json.dumps(words).encode() + b"\n")
        driver.stdin.flush()
        return driver

    def finish(self, **words: Any) -> subprocess.Popen[bytes]:
        """Have a driver do something to its end."""
        driver = self.command(**words)
        message = driver.communicate(timeout=120)[1].decode()
        assert driver.returncode == 0, message
        return driver

    def close(self) -> None:
        """End the one that waits."""
        self._next.kill()
        self._next.communicate()
