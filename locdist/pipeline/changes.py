"""--set: changes of a pipeline file that are not worth a file of their own.

`run.executor=ray` names a key by its path, from the top; `steps.0.predict.k=5` a step by its number and verb,
`steps.nightly.k=5` by its name alone. The value is YAML. Sections on the way are made when they are missing;
keys that nobody knows are found when the whole is checked.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.pipeline.document import Document, document
from locdist.pipeline.mistakes import CHANGE, Mistake, Path
from locdist.pipeline.sections import VERBS


def changed(content: Document, changes: Iterable[str]) -> Document:
    """A content with changes like "run.workers=2"; the places of what they set are theirs."""
    value, places, mistakes = copy.deepcopy(content.value), dict(content.places), list(content.mistakes)
    for change in changes:
        words, given = _parsed(change)
        place = CHANGE + ".".join(words)
        path = _set(value, words, given)
        if isinstance(path, Mistake):
            mistakes.append(replace(path, place=place))
            continue
        for end in range(1, len(path)):  # sections that were made on the way
            places.setdefault(path[:end], place)
        places[path] = place
    return Document(value, places, tuple(mistakes))


def _parsed(change: str) -> tuple[list[str], Any]:
    name, equals, text = change.partition("=")
    words = name.strip().split(".")
    if not equals or not all(words):
        raise UsageError("a change as PATH=VALUE", repr(change), "Write --set run.workers=2.")
    return words, document(text, CHANGE + name.strip()).value


def _set(content: Any, words: list[str], value: Any) -> Path | Mistake:
    """Put a value at the end of a path; the path as it is in the content, or why there is none."""
    path: Path = ()
    here = content
    for place, word in enumerate(words):
        keys = _keys(here, word)
        if isinstance(keys, str):
            given = f"{word!r} in {'.'.join(words)}"
            return Mistake(path, f"the path of a key: {keys}", given, _meant(here, word))
        for key in keys[:-1]:
            here = here[key]
        path += keys
        last = keys[-1]
        if place == len(words) - 1:
            here[last] = value
        else:
            here = _entered(here, last, words[place])
    return path


def _keys(here: Any, word: str) -> Path | str:
    """What a word of a path is in a content: keys; or, as a text, what it could have been."""
    if isinstance(here, dict):
        return (word,)
    if not isinstance(here, list):
        return "nothing lies below a single value"
    if word.isdecimal():
        return (int(word),) if int(word) < len(here) else f"a number below {len(here)}"
    found = [key for key in _steps(here) if key[2] == word]
    return found[0][:2] if found else "the number or the name of a step"


def _entered(here: Any, key: str | int, word: str) -> Any:
    """The value to go on in: a section that is missing is made, a method by its name alone becomes one."""
    inside = here.get(key) if isinstance(here, dict) else here[key]
    if inside is None or (word == "method" and isinstance(inside, str)):
        here[key] = inside = {} if inside is None else {"name": inside}
    return inside


def _steps(steps: list[Any]) -> list[tuple[int, str, str]]:
    """Number, verb and name of the steps, as far as they look like steps."""
    found: list[tuple[int, str, str]] = []
    for number, step in enumerate(steps):
        for verb, inside in step.items() if isinstance(step, dict) else ():
            if verb in VERBS:
                name = inside.get("name", verb) if isinstance(inside, dict) else verb
                found.append((number, verb, str(name)))
    return found


def _meant(here: Any, word: str) -> str:
    return (
        did_you_mean(word, [name for *_, name in _steps(here)]) if isinstance(here, list) else "Shorten it."
    )
