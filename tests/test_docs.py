"""What the documentation shows does run: the blocks of each page, one after the other in one process."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SECONDS = 280  # a page
SKIP = re.compile(r"<!-- not run: .+ -->\s*\Z")
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>python|sh)\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL
)

# Runs in a process of its own, as the script that a reader of the page would make of its blocks.
READER = """
import json as _json, subprocess as _subprocess, sys as _sys
for _block in _json.loads(open(_sys.argv.pop()).read()):
    print("==", _block["place"], flush=True)
    if _block["language"] == "sh":
        _subprocess.run(["bash", "-euo", "pipefail", "-c", _block["code"]], check=True)
    else:
        exec(compile(_block["code"], _block["place"], "exec"))
"""

# What README.md takes for granted: houses in files, and three arrays.
HOUSES = """
import numpy as np, os, pyarrow as pa, pyarrow.parquet as pq
rng = np.random.default_rng(0)
for folder, rows in (("data/train", 900), ("data/new", 90)):
    os.makedirs(folder)
    columns = {name: rng.uniform(0, 10, rows) for name in ("longitude", "latitude", "rooms", "area")}
    columns |= {"price": columns["area"] + rng.normal(0, 1, rows)} if folder == "data/train" else {}
    pq.write_table(pa.table(columns), f"{folder}/a.parquet")
keys, targets, queries = rng.uniform(size=(200, 2)), rng.uniform(size=200), rng.uniform(size=(5, 2))
"""


@dataclass(frozen=True)
class Block:
    place: str
    language: str
    code: str


def blocks(text: str, name: str) -> list[Block]:
    """The blocks of a page that run: Python and shell, without a comment before them that says why not."""
    return [
        Block(f"{name}:{text.count(chr(10), 0, at.start()) + 1}", at["language"], textwrap.dedent(at["code"]))
        for at in BLOCK.finditer(text)
        if not SKIP.search(text, 0, at.start())
    ]


def section(text: str, heading: str) -> str:
    """A page of which only one section is left, with its line numbers."""
    start = text.index(f"\n## {heading}\n") + 1
    end = text.find("\n## ", start)
    return "\n" * text.count("\n", 0, start) + text[start : end if end >= 0 else None]


def read(found: list[Block], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run blocks in a folder that has the pipelines of the repository and a command `locdist`."""
    commands, home = folder / "bin", folder / "home"
    commands.mkdir()
    command = commands / "locdist"
    call = "import sys; sys.argv[0] = 'locdist'; from locdist.cli import main; main()"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{call}" "$@"\n')
    command.chmod(0o755)
    shutil.copytree(ROOT / "pipelines", home / "pipelines")
    script, told = folder / "page.py", folder / "blocks.json"
    script.write_text(READER)
    told.write_text(json.dumps([asdict(block) for block in found]))
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory(prefix="ray") as own:  # a page does not join a cluster that runs already
        environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": own}
        return finished([sys.executable, str(script), str(told)], home, environment)


def finished(
    command: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """A process that has ended, with all that it started."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            said += f"\nnot finished after {SECONDS} s"
    return subprocess.CompletedProcess(command, process.returncode, said)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_of_the_documentation_runs(page, tmp_path):
    found = blocks(page.read_text(), page.name)
    done = read(found, tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]
    assert done.stdout.count("== ") >= len(found)


@pytest.mark.parametrize("heading", ["Your own data", "Ten lines of Python"])
def test_the_readme_runs(heading, tmp_path):
    found = blocks(section((ROOT / "README.md").read_text(), heading), "README.md")
    assert found
    done = read([Block("houses", "python", HOUSES), *found], tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]


PAGE = """
```python
x = 1
```
<!-- not run: it takes a cluster -->

```sh
false
```

- in a list

  ```python
  assert x == 1
  print(x)
  ```

```text
no code
```

```sh
locdist --version
```
"""


def test_blocks_are_found_with_their_lines_and_some_are_left_out():
    found = blocks(PAGE, "page.md")
    assert [(block.place, block.language) for block in found] == [
        ("page.md:2", "python"),
        ("page.md:13", "python"),
        ("page.md:22", "sh"),
    ]
    assert found[1].code == "assert x == 1\nprint(x)\n"


def test_blocks_share_their_names_and_the_first_that_fails_ends_the_page(tmp_path):
    good, bad = blocks(PAGE, "page.md"), Block("page.md:99", "sh", "false\n")
    done = read([*good, bad, Block("page.md:100", "python", "print('never')")], tmp_path)
    assert done.returncode != 0
    assert "== page.md:99" in done.stdout
    assert "never" not in done.stdout
    assert re.search(r"locdist \d", done.stdout)
