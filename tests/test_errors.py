"""Errors that are raised on purpose: each says what was expected, what was given and what to do."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from locdist.errors import LONGEST, UsageError
from tests.errors import CLASSES, PACKAGE, PARTS, Raised, raised

ERRORS = raised()
ROOT = PACKAGE.parent

# Other exceptions that are raised by name, and who turns them into an error of locdist, or why nobody does.
OTHERS = {
    ("locdist/__init__.py", "AttributeError"): "what Python expects of a module",
    ("locdist/testing/__init__.py", "AttributeError"): "what Python expects of a module",
    ("locdist/testing/stores.py", "KeyError"): "a fault in the middle of a write",
    ("locdist/testing/faults.py", "SystemExit"): "the fault itself",
    ("locdist/plan/lock.py", "SystemExit"): "a worker that imports its driver's script; the exit code tells",
    ("locdist/plan/lock.py", "ValueError"): "a field of an artefact: data.artefacts makes it a DataError",
    ("locdist/plan/records.py", "ValueError"): "a field of an artefact: data.artefacts makes it a DataError",
    ("locdist/search/layout.py", "ValueError"): "a field of an artefact: data.artefacts makes it a DataError",
    ("locdist/data/blocks.py", "ValueError"): "a field of an artefact: data.artefacts makes it a DataError",
    ("locdist/data/encoding.py", "ValueError"): "a field of an artefact: data.artefacts makes it a DataError",
    (
        "locdist/jobs/asking/tuning.py",
        "ValueError",
    ): "a field of an artefact: data.artefacts makes it a DataError",
    ("locdist/search/files.py", "ValueError"): "OpenFiles.open makes it a DataError",
    ("locdist/search/intact.py", "ValueError"): "verify makes it a DataError",
    ("locdist/data/footers.py", "ValueError"): "describe makes it a DataError",
    ("locdist/execute/loop.py", "RuntimeError"): "a job that is wrong: the author of the job has to know",
    ("locdist/execute/loop.py", "Stopped"): "a signal: what a shell expects",
    ("locdist/execute/executor.py", "Stopped"): "a signal: what a shell expects",
    ("locdist/cli/frame.py", "Exit"): "the exit code, after the error was printed",
    ("locdist/search/rows.py", "IndexError"): "ids beyond the rows: a fault of locdist",
    ("locdist/cli/app.py", "Exit"): "the exit code, after the result was printed",
}


def test_errors_are_found():
    """By their source, which is all that there is: nobody makes one under another name."""
    assert len(ERRORS) > 200
    assert {error.kind for error in ERRORS} == set(CLASSES)
    places = {error.place.partition(":")[0] for error in ERRORS}
    assert {"locdist/data/store.py", "locdist/plan/lock.py", "locdist/pipeline/mistakes.py"} <= places


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.place)
def test_an_error_has_three_parts(error: Raised):
    assert len(error.parts) == len(PARTS)
    assert all(part.strip() for part in error.parts)
    expected, given, remedy = error.parts
    assert expected != given
    for choice in remedy.split(" | "):
        ended = choice.endswith((".", "?", "}")) or ": " in choice  # what is to be typed has no full stop
        assert ended, f"the remedy is a sentence: {choice!r}"
        assert not choice[0].islower(), f"the remedy is a sentence: {choice!r}"
    assert not re.search(r"[^.]\.$", expected), f"a noun phrase: {expected!r}"


def test_nothing_else_is_raised_but_what_is_named_here():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                function = node.exc.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if name[:1].isupper() and name not in CLASSES:
                    found.add((str(path.relative_to(ROOT)), name))
    assert found == set(OTHERS)


def test_a_command_lists_them():
    command = [sys.executable, "-m", "tests.errors", "plan/lock.py", "MachineError"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(
        r"locdist/plan/lock\.py:\d+  MachineError\n    expected: \{where\} to be free\n"
        r"    given: a lock held by .*\n    remedy: Wait for that run, or stop it; ",
        done.stdout,
    )
    assert done.stdout.splitlines()[-1] == "1 errors"


def test_what_somebody_wrote_does_not_fill_the_screen():
    error = UsageError("text", "x" * 10_000, "Write less.")
    assert len(str(error)) < LONGEST + 100
    assert "10,000 characters" in str(error)
    assert Path(__file__).name in str(UsageError("a path", __file__, "Look."))
