"""The ready files of `pipelines/` run by the real command, killed as a whole at random moments and run again
until it ends by itself; then every byte is compared with a run that nobody disturbed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.drivers import ROOT, Drivers

FILES = tuple(sorted((ROOT / "pipelines").glob("*.yaml")))
HOUSES = Path("demo-output/houses")
ROWS = 400
SHORTEST = 0.05  # seconds before a kill
OWN = ("seconds", "work_seconds", "peak_memory", "told", "modified", "updated", "checksum", "fingerprint")
"""What JSON of two equal runs may differ in: times and sizes, and what is a sum over these."""
LEFT = ("claim", "lock", "status.json", "events.jsonl")  # of a run, half-written too, and not of its result


@dataclass(frozen=True)
class Killed:
    """How a file fared.

    Parameters
    ----------
    file : str
    moments : tuple of float
        Seconds after the begin of each run at which it was killed.
    folders : tuple of int
        That were there at each.
    seconds : float
        Of the run that nobody disturbed.
    differences : tuple of str
        From that run; none, if all is well.
    """

    file: str
    moments: tuple[float, ...]
    folders: tuple[int, ...]
    seconds: float
    differences: tuple[str, ...]

    def __str__(self) -> str:
        moments = " ".join(f"{moment:.1f}" for moment in self.moments)
        verdict = "; ".join(self.differences) or "byte-identical"
        kills = f"{len(self.moments)} kills at {moments} s (folders {' '.join(map(str, self.folders))})"
        return f"{self.file:16} {self.seconds:5.1f} s, {kills}: {verdict}"


class Field:
    """A folder with the pipelines and their data, in which files are run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "pipelines").symlink_to(ROOT / "pipelines")
        made = [sys.executable, "pipelines/make_data.py", str(HOUSES), str(ROWS)]
        subprocess.run(made, cwd=place, check=True, stdout=subprocess.DEVNULL)
        self._data = {path.name for path in (place / HOUSES).iterdir()}
        self._drivers = Drivers("tests.chaos.piped", {"NO_COLOR": "1"})

    def close(self) -> None:
        """End the process that waits."""
        self._drivers.close()

    def begun(self, file: Path) -> subprocess.Popen[bytes]:
        """`locdist run` of a file, the first of its own process group."""
        words = ["run", f"pipelines/{file.name}", "--quiet", "--set", "run.workers=2"]
        return self._drivers.command(words=words, place=str(self.place))

    def folders(self) -> list[Path]:
        """What the steps of a file have written."""
        return [path for path in (self.place / HOUSES).iterdir() if path.name not in self._data]

    def cleared(self) -> None:
        """Remove that."""
        for folder in self.folders():
            shutil.rmtree(folder)

    def contents(self) -> dict[str, Any]:
        """All that may not differ: data and indexes byte by byte, JSON without what is its own."""
        found = (path for folder in self.folders() for path in folder.rglob("*") if path.is_file())
        kept = [
            path
            for path in found
            if not path.name.lstrip(".").startswith(LEFT) and "commits" not in path.parts
        ]
        return {str(path.relative_to(self.place / HOUSES)): _content(path) for path in kept}


@contextmanager
def field(place: Path) -> Iterator[Field]:
    """One that is closed when the body ends."""
    made = Field(place)
    try:
        yield made
    finally:
        made.close()


def played(field: Field, file: Path, kills: int, seed: int) -> Killed:
    """A file run undisturbed, and again with kills."""
    field.cleared()
    start = time.monotonic()
    message = _ended(field.begun(file))
    seconds, calm = time.monotonic() - start, field.contents()
    assert not message, f"{file.name}: {message}"
    field.cleared()
    dice, moments, folders = random.Random(f"{seed} {file.name}"), list[float](), list[int]()
    most = 2 * seconds / (kills + 1)  # about as many as come before the end
    while len(moments) < kills:
        moment = dice.uniform(SHORTEST, most)
        if _killed(field.begun(file), moment):
            moments.append(moment)
            folders.append(len(field.folders()))
        elif moments:  # it came to its end
            break
        else:  # without any kill: once more
            field.cleared()
            most /= 2
    message = _ended(field.begun(file))
    wrong = (message,) if message else tuple(differences(calm, field.contents()))
    return Killed(file.name, tuple(moments), tuple(folders), seconds, wrong)


def _killed(run: subprocess.Popen[bytes], moment: float) -> bool:
    """Kill all processes of a run after some seconds; whether it was still there."""
    try:
        run.wait(moment)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    return run.returncode == -signal.SIGKILL


def _ended(run: subprocess.Popen[bytes]) -> str:
    """Wait for a run; what it said if it did not end well."""
    told = run.communicate(timeout=300)[1].decode()
    return "" if run.returncode == 0 else f"exit code {run.returncode}: {told}"


def _content(path: Path) -> Any:
    if path.suffix != ".json":
        return path.read_bytes()
    return _plain(json.loads(path.read_bytes()))


def _plain(value: Any) -> Any:
    """A value of JSON without what is its own."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name not in OWN}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def differences(calm: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """What is not as if nobody had been killed."""
    for name in sorted({*calm, *found}):
        if name not in calm or name not in found:
            yield f"{name} is {'left over' if name in found else 'missing'}"
        elif calm[name] != found[name]:
            yield f"{name} differs"
