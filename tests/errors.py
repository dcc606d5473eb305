"""Every error that locdist raises on purpose, from the source: where, and what it says was expected, was
given and is to do.

python -m tests.errors [WORD ...]        # those whose line has all the words
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "locdist"
PARTS = ("expected", "given", "remedy")
CLASSES = ("LocdistError", "UsageError", "DataError", "MachineError", "TooManyBadRows")


@dataclass(frozen=True)
class Raised:
    """One place that makes an error: parts as they are written, with `{}` for what is filled in."""

    place: str
    kind: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.place}  {self.kind}",
                *(f"    {name}: {part}" for name, part in zip(PARTS, self.parts, strict=False)),
            ]
        )


def raised() -> list[Raised]:
    """All of them, file by file."""
    return [each for path in sorted(PACKAGE.rglob("*.py")) for each in _of_file(path)]


def _of_file(path: Path) -> Iterator[Raised]:
    tree = ast.parse(path.read_text())
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef):
            told = _assigned(scope)
            for node in _own(scope):
                if isinstance(node, ast.Call) and _name(node.func) in CLASSES:
                    given = [*node.args, *(word.value for word in node.keywords)]
                    place = f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"
                    yield Raised(place, _name(node.func), tuple(_text(part, told) for part in given))


def _own(scope: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside it."""
    left: list[ast.AST] = list(scope.body)
    while left:
        node = left.pop(0)
        if not isinstance(node, ast.FunctionDef):
            yield node
            left[:0] = ast.iter_child_nodes(node)


def _assigned(scope: ast.FunctionDef) -> dict[str, ast.expr]:
    """What names stand for in a function, as far as one assignment tells."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            names = node.targets[0].elts
            found |= {
                each.id: value
                for each, value in zip(names, values, strict=False)
                if isinstance(each, ast.Name)
            }
    return found


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr, told: dict[str, ast.expr], depth: int = 0) -> str:
    """An expression as the text that it makes; names of what is filled in stand in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(each, told, depth) for each in values)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _text(left, told, depth) + _text(right, told, depth)
        case ast.IfExp(body=body, orelse=other):
            return f"{_text(body, told, depth)} | {_text(other, told, depth)}"
        case ast.Name(id=name) if name in told and depth < 3:
            return _text(told[name], {**told, name: node}, depth + 1)
    return "{" + ast.unparse(node) + "}"


def main(words: list[str]) -> None:
    """Print them."""
    found = [each for each in raised() if all(word in str(each) for word in words)]
    sys.stdout.write("\n".join([*map(str, found), f"{len(found)} errors", ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
