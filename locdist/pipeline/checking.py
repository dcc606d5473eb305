"""Content of a pipeline file against its sections: what is wrong, said in the words of the file.

Pydantic finds everything that is wrong at once; here its findings get their paths, what would have been
right, and what was probably meant.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from locdist.errors import LocdistError, did_you_mean
from locdist.methods.named import METHODS
from locdist.pipeline.choices import TAG
from locdist.pipeline.mistakes import Mistake, Path, dotted
from locdist.pipeline.sections import File, schema

Found = Mapping[str, Any]  # an entry of `ValidationError.errors()`


def checked(content: Any) -> tuple[File | None, list[Mistake]]:
    """The file that a content describes, None when its sections cannot be made, and what is wrong in it.

    Keys that nobody knows are mistakes, and left out: what the others mean together can be told all the same.
    """
    try:
        return File.model_validate(content), []
    except ValidationError as error:
        found = [each for each in error.errors(include_url=False) if not _consequence(each)]
    mistakes = _together(_mistake(each, content) for each in found)
    unknown = [_path(each, content) for each in found if each["type"] == "extra_forbidden"]
    if len(unknown) < len(found):
        return None, mistakes
    return checked(_without(content, unknown))[0], mistakes


def _together(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """One mistake for each value, where several kinds would have been right."""
    merged: dict[Path, Mistake] = {}
    for each in mistakes:
        before = merged.get(each.path)
        if before is None:
            merged[each.path] = each
        elif each.expected not in before.expected:
            told = f"{before.expected} or {each.expected}"
            merged[each.path] = replace(before, expected=told, remedy=before.remedy or each.remedy)
    return list(merged.values())


def _consequence(found: Found) -> bool:
    """A list that is only too short because of mistakes in its items."""
    return bool(found["type"] == "too_short" and len(found["input"]) >= found["ctx"]["min_length"])


def _mistake(found: Found, content: Any) -> Mistake:
    path, context = _path(found, content), found.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, LocdistError):
        return Mistake(path, cause.expected, cause.given, cause.remedy)
    if found["type"] == "extra_forbidden":
        return _unknown_key(found["loc"], path)
    if found["type"] == "missing":
        return Mistake(path, f"the key {path[-1]!r}", "none", _described(found["loc"]))
    if found["type"] == "union_tag_not_found":
        return _unknown_method(path, content)
    if found["type"] == "literal_error":
        known = [str(word) for word in _values(found["loc"], "enum", "const")]
        wanted = f"one of {', '.join(known)}" if len(known) > 1 else "".join(known)
        return Mistake(path, wanted, _shown(found["input"]), _meant(found, known) if len(known) > 1 else "")
    if found["type"] == "tuple_type":
        single = "string" in _values(found["loc"], "type")
        return Mistake(path, "text or a list of it" if single else "a list", _shown(found["input"]), "")
    words = _WANTED.get(found["type"])
    return Mistake(path, words(context) if words else found["msg"], _shown(found["input"]), _quotes(found))


def _unknown_key(loc: Path, path: Path) -> Mistake:
    """A key that its section does not have."""
    known = sorted({name for node in _nodes(loc[:-1]) for name in node.get("properties", ())})
    inside = f"a key of {dotted(path[:-1])}" if path[:-1] else "a key of a pipeline file"
    return Mistake(path, inside, repr(path[-1]), did_you_mean(path[-1], known))


def _unknown_method(path: Path, content: Any) -> Mistake:
    for part in path:
        content = content[part]
    if isinstance(content, dict) and "name" in content:
        path, content = (*path, "name"), content["name"]
    wanted = "the name of a method, or {name: ..., k: ...}"
    return Mistake(path, wanted, _shown(content), did_you_mean(content, METHODS))


def _meant(found: Found, known: list[str]) -> str:
    return did_you_mean(found["input"], known) if isinstance(found["input"], str) else ""


def _quotes(found: Found) -> str:
    number = isinstance(found["input"], int | float)
    return "Put it in quotes to make it text." if found["type"] == "string_type" and number else ""


def _shown(given: Any) -> str:
    """A value in an error: its kind where it is large."""
    if given is None:
        return "nothing"
    if isinstance(given, dict):
        return "a mapping"
    if isinstance(given, list | tuple):
        return "a list"
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."


_WANTED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "string_type": lambda _: "text",
    "string_too_short": lambda _: "text that is not empty",
    "string_pattern_mismatch": lambda _: "letters, digits, - and _, a letter first",
    "int_type": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "list_type": lambda _: "a list",
    "sequence_str": lambda _: "a list",
    "dict_type": lambda _: "a mapping of names to numbers, a list of names or one name",
    "model_type": lambda _: "a mapping",
    "too_short": lambda context: f"at least {context['min_length']}",
    "greater_than": lambda context: f"a number above {context['gt']:g}",
    "greater_than_equal": lambda context: f"a number of at least {context['ge']:g}",
    "less_than": lambda context: f"a number below {context['lt']:g}",
    "less_than_equal": lambda context: f"a number of at most {context['le']:g}",
}


def _path(found: Found, content: Any) -> Path:
    """Where something is in the content: pydantic's location, without the alternatives that it names."""
    path: Path = ()
    for part in found["loc"]:
        if isinstance(content, dict | list) and part in (
            content if isinstance(content, dict) else range(len(content))
        ):
            path, content = (*path, part), content[part]
    return (*path, found["loc"][-1]) if found["type"] == "missing" else path


def _without(content: Any, paths: list[Path]) -> Any:
    """A content less some of its keys."""

    def copied(value: Any, here: Path) -> Any:
        if isinstance(value, dict):
            left = {key: part for key, part in value.items() if (*here, key) not in paths}
            return {key: copied(part, (*here, key)) for key, part in left.items()}
        if isinstance(value, list):
            return [copied(part, (*here, place)) for place, part in enumerate(value)]
        return value

    return copied(content, ())


# ------------------------------------------------------------------------------------------- the JSON Schema


def _nodes(loc: Path) -> list[Mapping[str, Any]]:
    """What the schema says at a place: every alternative, or those of the method that the place names."""
    whole = schema()
    nodes = list(_alternatives(whole, whole))
    for part in loc:
        if str(part).startswith(TAG):
            named = [node for node in nodes if node.get("title") == str(part)[len(TAG) :]]
            nodes = named or nodes
            continue
        below = [_below(node, part) for node in nodes]
        found = [leaf for node in below if node is not None for leaf in _alternatives(node, whole)]
        nodes = found or nodes  # pydantic names the alternative, too, which is no place
    return nodes


def _below(node: Mapping[str, Any], part: str | int) -> Any:
    return node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)


def _alternatives(node: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in node:
        yield from _alternatives(whole["$defs"][node["$ref"].rpartition("/")[2]], whole)
    parts = [part for name in ("anyOf", "oneOf") for part in node.get(name, ())]
    for part in parts:
        yield from _alternatives(part, whole)
    if not parts or "properties" in node:
        yield node


def _values(loc: Path, *names: str) -> list[Any]:
    """The values that a place may have."""
    values = [node[name] for node in _nodes(loc) for name in names if name in node]
    return [word for value in values for word in (value if isinstance(value, list) else [value])]


def _described(loc: Path) -> str:
    """What the schema says about a key."""
    fields = [
        node["properties"][loc[-1]] for node in _nodes(loc[:-1]) if loc[-1] in node.get("properties", ())
    ]
    return " ".join(fields[0].get("description", "").split()) if fields else ""
