"""What the repository promises about itself: names, sizes, imports, no trace of any machine."""

import ast
import io
import os
import re
import shutil
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import locdist

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "locdist"
MODULES = sorted(PACKAGE.rglob("*.py"))
LAZY = sorted(set(locdist.__all__) - {"__version__", "errors"})
HEAVY = ("torch", "faiss", "pyarrow", "ray", "dask", "sklearn", "pandas")
FUNCTION_LINES = 50
MODULE_LINES = 350
# Homes of people and of build machines. Written so that this file does not contain what it forbids.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users|tmp/w)/\w")


def python(code: str) -> str:
    """The standard output of a fresh interpreter that runs `code` in the repository's root."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# public names


@pytest.mark.parametrize("name", locdist.__all__)
def test_a_public_name_resolves(name):
    assert getattr(locdist, name) is not None
    assert name in dir(locdist)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'locdist' has no attribute 'predcit'"):
        _ = locdist.predcit


def test_tools_see_the_names_that_are_loaded():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert isinstance(block.test, ast.Name)
    assert block.test.id == "TYPE_CHECKING"
    static = {alias.name: node.module for node in block.body for alias in node.names}
    assert static == locdist._HOMES
    assert sorted(static) == LAZY


def test_import_locdist_loads_nothing_heavy():
    loaded = python("import sys, locdist; print(*sys.modules, sep='\\n')").split()
    assert not set(HEAVY) & set(loaded)
    assert "locdist" in loaded


def test_help_loads_nothing_heavy():
    code = """
import sys
from locdist.cli import main
sys.argv = ["locdist", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("MODULES", *sys.modules)
"""
    help_text, loaded = python(code).split("MODULES", 1)
    assert "predict" in help_text
    assert not set(HEAVY) & set(loaded.split())


# sizes


SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def docstring_lines(node: ast.AST) -> set[int]:
    """The lines of a string that stands alone, else none."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return set(range(node.lineno, node.end_lineno + 1))
    return set()


def code_lines(text: str) -> set[int]:
    """The numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines.difference(*(docstring_lines(node) for node in ast.walk(ast.parse(text))))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a module, each with its number of lines of code, signature included."""
    text = path.read_text()
    lines = code_lines(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(lines & set(range(node.lineno, node.end_lineno + 1)))
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", size


def test_lines_of_code_are_counted_without_words():
    text = 'def f(a,\n  b):\n  """Say.\n\n  More.\n  """\n\n  # why\n  return (a +\n    b)\n'
    assert code_lines(text) == {1, 2, 9, 10}


def test_functions_are_short():
    sizes = dict(found for path in MODULES for found in functions(path))
    assert sizes
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES} == {}
    assert statistics.median(sizes.values()) <= 8
    assert sum(size >= 35 for size in sizes.values()) <= len(sizes) / 10


def test_modules_are_short():
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > MODULE_LINES} == {}


def test_every_folder_of_the_package_is_a_package():
    # A folder without __init__.py imports, but import contracts and type checks pass it over in silence.
    folders = {path.parent.relative_to(ROOT) for path in MODULES}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").exists()] == []


# imports


def test_import_contracts_hold():
    # --no-cache: a test leaves nothing behind, and tests running at once share no file
    said = python("from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])")
    assert "0 broken" in said


# files


def repository_files() -> list[Path]:
    """The files that git tracks or would track."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no git checkout")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_nothing_written_names_a_path_of_a_machine():
    found = []
    for path in repository_files():
        data = path.read_bytes()
        if b"\0" in data[:8192]:  # git's own test for "not text"
            continue
        text = data.decode("utf-8")
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in MACHINE_PATH.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("open('/" + "work/main/x')", True),
        ("PATH=/" + "root/bin", True),
        ("see https://example.org/" + "home/page", False),
        ("locdist/" + "work/x", False),
        ("an input/output", False),
    ],
)
def test_a_path_of_a_machine_is_recognized(text, wrong):
    assert bool(MACHINE_PATH.search(text)) is wrong
