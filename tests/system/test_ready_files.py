"""The files in `pipelines/`: what they use, that they run as they print, the same bytes on every executor."""

import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import locdist as ld
from locdist.execute.contract import Executor
from locdist.methods.coupled import COUPLED_METHODS
from locdist.methods.embedded import EMBED_METHODS
from locdist.methods.labels import LABEL_METHODS
from locdist.methods.layered import LAYERED_METHODS
from locdist.methods.multiscale import BACKFIT_METHODS
from locdist.methods.series import SERIES_METHODS
from locdist.pipeline.sections import VERBS
from tests.chaos.piped import smaller
from tests.chaos.pipelines import FILES, ROWS
from tests.system.test_cli import ROOT, cli, process

MOVING = ("mean-shift", "hopfield", "denoise", "fuzzy-inference", "gwr")  # of those that `predict` has


def commands(path: Path) -> list[list[str]]:
    """The commands that the first comment of a file prints."""
    lines = path.read_text().partition("\n\n")[0].splitlines()
    return [shlex.split(line[1:]) for line in lines if re.match(r"#   \w", line)]


def said(value: Any) -> Iterator[str]:
    """Every word of a content."""
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    if not isinstance(inside, list):
        yield str(inside)
    else:
        yield from itertools.chain.from_iterable(map(said, inside))


def checkout(folder: Path) -> Path:
    """A folder with the pipelines and few rows of their data."""
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    made = [sys.executable, *commands(FILES[0])[0][1:], "demo-output/houses", str(ROWS)]
    done = subprocess.run(made, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def answers(folder: Path) -> dict[str, bytes]:
    """The data files that the steps have written, by their paths."""
    written = (path for path in folder.glob("demo-output/*/*/part-?????.parquet"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in written}


def test_every_verb_and_every_method_of_theirs_is_in_a_file():
    words = {word for path in FILES for word in said(yaml.safe_load(path.read_text()))}
    tables = LAYERED_METHODS, LABEL_METHODS, EMBED_METHODS, COUPLED_METHODS, BACKFIT_METHODS, SERIES_METHODS
    names = {name for table in tables for name in table} | set(MOVING)
    assert set(VERBS) - words == set()
    assert names - words == {"fuzzy-inference"}  # which its rules choose


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands of all files make, in this process."""
    return checkout(tmp_path_factory.mktemp("one"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_ready_file_runs_as_its_first_lines_say(path: Path, one: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(one)
    first, *rest = commands(path)
    assert first == ["python", "pipelines/make_data.py"]
    assert [words[:2] for words in rest[:2]] == [["locdist", "plan"], ["locdist", "run"]]
    for words in rest:
        if any(word.startswith("run.executor=") for word in words):  # clusters want a process of their own
            done = process(*words[1:], "-q", cwd=one)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            done = cli(*words[1:], "-q")
            assert done.exit_code == 0, done.output
    outs = {Path(name).parts[-2] for name in answers(one)}
    steps = [step for each in yaml.safe_load(path.read_text())["steps"] for step in each.items()]
    wanted = {
        Path(step["out"]).name for verb, step in steps if verb not in ("evaluate", "index", "tune", "select")
    }
    assert wanted <= outs


CLUSTERS = {"ray": lambda: ld.Ray(workers=2), "dask": lambda: ld.Dask(workers=2)}


def ran(place: Path, executor: Executor) -> dict[str, bytes]:
    """What all files write, on one executor, in tasks of a few rows."""
    with executor.kept() as where, pytest.MonkeyPatch.context() as patch, smaller():
        patch.chdir(checkout(place))
        for path in FILES:
            ld.Pipeline.read(f"pipelines/{path.name}").run(executor=where)
    return answers(place)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return ran(tmp_path_factory.mktemp("alone"), ld.Local(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
def test_ready_files_have_the_same_bytes_on_a_cluster(name: str, alone: dict[str, bytes], tmp_path: Path):
    found = ran(tmp_path, CLUSTERS[name]())
    assert len(found) > 2 * len(FILES)
    assert {path for path in {*found, *alone} if found.get(path) != alone.get(path)} == set()
