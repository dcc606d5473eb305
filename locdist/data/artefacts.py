"""JSON that locdist writes for itself and reads again (manifests, plans, records): one way out, one way in.

What is read may be cut off, flipped, edited, of another version, or made by somebody who means harm. So it
carries a checksum of its content, it becomes a value of a type whose fields are checked one by one, keys that
nobody knows are refused, and nesting and numbers are bounded. JSON is data: nothing in it can run.
"""

import functools
import hashlib
import json
from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from locdist.errors import DataError

CHECKSUM = "checksum"  # the last key of each artefact
T = TypeVar("T")
Extra = Literal["forbid", "ignore"]


def packed(content: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The bytes of an artefact: the content, a checksum behind it; on one line without an `indent`."""
    whole = {**content, CHECKSUM: _digest(_canonical(content))}
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(whole, indent=indent, separators=separators).encode()


def unpacked(
    kind: type[T], text: bytes | str, what: str, place: str, remedy: str, *, extra: Extra = "forbid"
) -> T:
    """What `packed` packed, as a value of `kind`.

    Parameters
    ----------
    kind : type
        A frozen dataclass.
    text : bytes or str
    what, place, remedy : str
        For the error: what was expected ("a commit record"), where it was read, and what to do.
    extra : {"forbid", "ignore"}
        Keys that `kind` does not have.

    Raises
    ------
    DataError
        When it is no JSON, has other fields or types, or another content than was written.
    """
    content = _parsed(text, what, place, remedy)
    told = content.pop(CHECKSUM, None)
    canonical = _canonical(content)
    value = _checked(kind, canonical, extra, what, place, remedy)
    if told != _digest(canonical):
        given = f"{place}: its content is not what was written (checksum {str(told)[:40]})"
        raise DataError(what, given, remedy)
    return value


def typed(kind: type[T], text: bytes | str, what: str, place: str, remedy: str) -> T:
    """As `unpacked`, of JSON that has no checksum, or of a part of an artefact; other keys are left alone."""
    return _checked(kind, _canonical(_parsed(text, what, place, remedy)), "ignore", what, place, remedy)


def peeked(text: bytes | str, name: str) -> Any:
    """One entry of an artefact of any version, None where there is none; nothing else is checked."""
    try:
        content = from_json(text)
    except ValueError:
        return None
    return content.get(name) if isinstance(content, dict) else None


def _parsed(text: bytes | str, what: str, place: str, remedy: str) -> dict[str, Any]:
    try:
        content = from_json(text)
    except ValueError as error:
        raise DataError(what, f"{place}: {error}", remedy) from error
    if not isinstance(content, dict):
        raise DataError(what, f"{place}: JSON, but no object", remedy)
    return content


def _checked(kind: type[T], text: bytes, extra: Extra, what: str, place: str, remedy: str) -> T:
    try:
        value: T = _adapter(cast(Hashable, kind)).validate_json(text, strict=True, extra=extra)
    except ValidationError as error:
        raise DataError(what, f"{place}: {_reason(error)}", remedy) from error
    return value


def _canonical(content: Mapping[str, Any]) -> bytes:
    """The same bytes for the same content, whatever the order of its keys."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _digest(canonical: bytes) -> str:
    return hashlib.blake2b(canonical, digest_size=16).hexdigest()


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _reason(error: ValidationError) -> str:
    """The first thing that is wrong, without the value, which may be long."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
