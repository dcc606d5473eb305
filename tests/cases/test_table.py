"""The table of faults in the docs: every case has its row, and every row its test."""

import ast
import functools
import re
from pathlib import Path

CASES = Path(__file__).parent
TABLE = CASES.parents[1] / "docs" / "faults.md"
LAST = 77


@functools.cache
def rows() -> list[list[str]]:
    """The cells of each row."""
    lines = TABLE.read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| C")]


@functools.cache
def docstrings() -> list[tuple[str, str]]:
    """Every test of a case, with what it says."""
    trees = [ast.parse(path.read_text()) for path in sorted(CASES.glob("test_*.py"))]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [(node.name, ast.get_docstring(node) or "") for node in functions if node.name.startswith("test_")]


def test_every_case_has_one_row():
    assert [case for case, *_ in rows()] == [f"C{number:02}" for number in range(1, LAST + 1)]
    assert all(len(row) == 4 and all(row) for row in rows())


def test_every_row_has_one_test_that_begins_with_its_case():
    for case, _, _, test in rows():
        told = [words for name, words in docstrings() if f"`{name}`" == test]
        assert len(told) == 1, test
        assert told[0].startswith(case), (test, told[0])


def test_every_test_that_names_a_case_names_one_of_the_table():
    known = {case for case, *_ in rows()}
    named = {found for _, words in docstrings() for found in re.findall(r"^C\d\d\b", words)}
    assert named == known
