"""Strict YAML: text to plain values that remember their lines.

A pipeline file is read by people who wrote it once and by machines for years, so the part of YAML that
surprises is left out. Values are built here from PyYAML's events, because its loaders guess (`no` is false,
`010` is 8, `1:30` is 90, `2026-11-01` is a date) and forget where things stood.

- Numbers are decimal (`64`, `0.5`, `1e-3`), truth is `true` or `false`, nothing is `null`, `~` or empty;
  everything else is text as it is written, `yes`, `off`, dates and `010` too. Quotes make text of anything.
- Keys are text. A key given twice is a mistake.
- Anchors, aliases and tags are refused: no billion laughs, and nothing that a file could call.
- A file has one document, at most 256 KiB and 20 levels.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from locdist.errors import UsageError
from locdist.pipeline.mistakes import Mistake, Path, error

MOST_BYTES = 256 << 10
MOST_LEVELS = 20
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"(?=.*[.eE])[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True)
class Document:
    """What a text says: plain values, the place ("nightly.yaml:12") of each key and item, and keys given
    twice.
    """

    value: Any
    places: dict[Path, str]
    mistakes: tuple[Mistake, ...]


def document(text: str, name: str) -> Document:
    """Read the text of the file `name`.

    Raises
    ------
    UsageError
        For text that is no YAML, or more of it than a pipeline needs; with the line.
    """
    if len(text.encode(errors="replace")) > MOST_BYTES:
        given = f"{len(text):,} characters in {name}"
        raise UsageError(f"a file of at most {MOST_BYTES >> 10} KiB", given, "Is it the right file?")
    builder = _Builder(name)
    for event in _events(text, name):
        builder.take(event)
    return Document(builder.value, builder.places, tuple(builder.mistakes))


def scalar(text: str) -> Any:
    """What a word without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def written(value: Any) -> str:
    """Plain values as YAML that `document` reads back."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


class _Dumper(yaml.SafeDumper):
    """Text that `scalar` would read as something else gets quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """A word with quotes where it needs them."""
        style = None if isinstance(scalar(data), str) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.text)


def _events(text: str, name: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as cause:
        mark = getattr(cause, "problem_mark", None)
        said = getattr(cause, "problem", None) or str(cause).partition("\n")[0]
        place = name if mark is None else f"{name}:{mark.line + 1}"
        remedy = "Correct it there: indent with spaces, and put text that holds ': ' or ' #' in quotes."
        raise UsageError("YAML", f"{said} ({place})", remedy) from cause


@dataclass
class _Open:
    """A mapping or a list that is not at its end yet, and the key that waits for its value."""

    path: Path
    value: dict[str, Any] | list[Any]
    key: str | None = None


@dataclass
class _Builder:
    """Values from events, without recursion: a deep text costs no stack."""

    name: str
    value: Any = None
    documents: int = 0
    places: dict[Path, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    inside: list[_Open] = field(default_factory=list)

    def take(self, event: Any) -> None:
        """The next event."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.refuse(event, "one document", "a second one", "Write one file for each pipeline.")
        elif isinstance(event, yaml.CollectionEndEvent):
            self.inside.pop()
        elif isinstance(event, yaml.NodeEvent):
            self.check(event)
            self.node(event)

    def check(self, event: Any) -> None:
        """Refuse what a pipeline file must not use."""
        if event.anchor is not None:
            said = f"{'*' if isinstance(event, yaml.AliasEvent) else '&'}{event.anchor}"
            self.refuse(event, "values without anchors and aliases", said, "Write the value out.")
        if event.tag is not None:
            self.refuse(event, "values without tags", event.tag, "No code is run from a pipeline file.")
        if len(self.inside) >= MOST_LEVELS:
            self.refuse(event, f"at most {MOST_LEVELS} levels", "more", "Is it the right file?")

    def node(self, event: Any) -> None:
        """A key, or a value at its place."""
        top = self.inside[-1] if self.inside else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse(event, "text as a key", "a list or a mapping", "Put it in quotes.")
            top.key = event.value
            self.places.setdefault((*top.path, top.key), self.at(event))
        elif isinstance(event, yaml.ScalarEvent):
            self.put(event, scalar(event.value) if event.implicit[0] else event.value)
        else:
            value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
            self.inside.append(_Open(self.put(event, value), value))

    def put(self, event: Any, value: Any) -> Path:
        """Put a value where it belongs; its path."""
        if not self.inside:
            self.value = value
            return ()
        top = self.inside[-1]
        if isinstance(top.value, list):
            path: Path = (*top.path, len(top.value))
            top.value.append(value)
            self.places.setdefault(path, self.at(event))
            return path
        assert top.key is not None
        path, top.key = (*top.path, top.key), None
        if path[-1] in top.value:
            given = f"{path[-1]!r} again (first at {self.places[path]})"
            self.mistakes.append(Mistake(path, "each key once", given, "Keep one of them.", self.at(event)))
        top.value.setdefault(str(path[-1]), value)
        return path

    def at(self, event: Any) -> str:
        """The place of an event."""
        return f"{self.name}:{event.start_mark.line + 1}"

    def refuse(self, event: Any, expected: str, given: str, remedy: str) -> NoReturn:
        """Give the file up."""
        path = self.inside[-1].path if self.inside else ()
        raise error([Mistake(path, expected, given, remedy, self.at(event))], self.name)
