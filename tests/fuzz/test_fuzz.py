"""A short stretch of `make fuzz`, always the same; and that it sees what it is there to see."""

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from locdist.data.artefacts import packed
from locdist.errors import UsageError
from tests.fuzz import mutations, world
from tests.fuzz.play import played
from tests.fuzz.worker import Watch, _outcome

CASES = 150


def test_whatever_happens_to_a_file_the_answer_is_right_or_an_error_says_why(tmp_path: Path):
    outcomes = list(played(tmp_path, 0, range(CASES), 600))
    assert [str(outcome) for outcome in outcomes if outcome.wrong] == []
    counts = Counter(outcome.outcome for outcome in outcomes)
    assert counts["answered"] > CASES / 5
    assert counts["DataError"] > CASES / 5
    assert len({outcome.deed for outcome in outcomes}) == len(world.DEEDS)


def test_code_that_runs_and_files_outside_that_are_written_are_seen(tmp_path: Path):
    (tmp_path / "world").mkdir()
    watch = Watch(tmp_path / "world")
    with watch.watching():
        (tmp_path / "world/inside").write_text("x")
        assert watch.seen == []
        (tmp_path / "outside").write_text("x")
        os.remove(tmp_path / "outside")
        os.system("true")
    assert [each.split()[0] for each in watch.seen] == ["open", "os.remove", "os.system"]
    os.system("true")  # nobody listens any more
    assert len(watch.seen) == 3


@pytest.mark.parametrize(
    "answer, right, outcome, wrong",
    [
        ("1", "1", "answered", ""),
        ("1", None, "answered", ""),
        ("2", "1", "another answer", "1 ... became ... 2"),
        (UsageError("a", "b", "C."), "1", "UsageError", ""),
        (UsageError("a", "b", ""), "1", "UsageError", "an error without all parts"),
        (ValueError("no"), None, "escaped", "ValueError: no"),
        (SystemExit(3), None, "escaped", "SystemExit: 3"),
    ],
)
def test_an_outcome_is_judged(answer: Any, right: str | None, outcome: str, wrong: str):
    def do() -> str:
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)

    told = _outcome(do, right)
    assert told[0] == outcome
    assert (wrong in told[1]) if wrong else told[1] == ""


def test_mutations_change_what_they_are_given(tmp_path: Path):
    rng, content = random.Random(0), bytes(range(256)) * 20
    assert all(mutation(content, rng) != content for mutation in mutations.BYTES for _ in range(20))
    told = packed({"a": {"b": [1, 2.5, "x"]}, "c": None})
    sealed = [mutations.rewritten(told, rng, True, tmp_path) for _ in range(200)]
    assert len(set(sealed)) > 50
    plain = [mutations.rewritten(told, rng, False, tmp_path) for _ in range(200)]
    kept = [json.loads(each) for each in plain if each.startswith(b"{") and not each.startswith(b'{"a":{"a"')]
    assert {each.get("checksum") for each in kept if isinstance(each, dict)} == {json.loads(told)["checksum"]}
    assert any(mutations.TRAP.encode() in each for each in sealed)
