"""Methods as a pipeline file chooses them: one section for each registered method, made from its signature.

What a method takes, its defaults and their words are said once, in `locdist.methods.named`; a method that is
entered there can be named in a file, is checked and is in the schema.
"""

import ast
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    create_model,
)

from locdist.jobs.chosen import is_file, read_method
from locdist.local.bandwidths import parse_bandwidth, spec
from locdist.local.kernels import KERNELS
from locdist.methods.method import Method
from locdist.methods.named import METHODS
from locdist.methods.named import method as named
from locdist.pipeline.section import Section, absolute

TAG = "="  # begins the tags of unions, which pydantic puts into the paths of errors
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_BANDWIDTH = {
    "anyOf": [
        _POSITIVE,
        {"const": "nearest"},
        {
            "type": "object",
            "properties": {"nearest": _POSITIVE, "rank": {"type": "integer", "minimum": 1}},
            "required": ["nearest"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"sample-point": {"type": "integer", "minimum": 1}, "scale": _POSITIVE},
            "required": ["sample-point"],
            "additionalProperties": False,
        },
    ]
}
_Bandwidth = Annotated[
    Any, PlainValidator(lambda given: spec(parse_bandwidth(given))), WithJsonSchema(_BANDWIDTH)
]


class Group(Section):
    """Columns of the key with a kernel of their own."""

    columns: Annotated[int, Field(ge=1)]
    """The next so many columns of the key; a category has one for each value."""
    kernel: str = "tricube"
    """How the distance in them becomes weight."""
    bandwidth: _Bandwidth = "nearest"
    """A distance, or nearest: the largest among the neighbors."""


class Groups(Section):
    """A product of kernels."""

    product: Annotated[tuple[Group, ...], Field(strict=False, min_length=1)]
    """Groups of columns, one after the other, that make up the key."""


class Share(Section):
    """A kernel of a mixture."""

    weight: Annotated[float, Field(ge=0)] = 1.0
    """How much it counts."""
    kernel: str = "tricube"
    """How distance becomes weight."""
    bandwidth: _Bandwidth = "nearest"
    """A distance, or adaptive."""


class Shares(Section):
    """The mean of normalized kernels."""

    mixture: Annotated[tuple[Share, ...], Field(strict=False, min_length=1)]
    """Kernels and their weights."""


class Chosen(Section):
    """The section of a method, whose fields are described where they are made: pydantic would search the
    sources of all modules for the text below them, a second at each start.
    """

    model_config = ConfigDict(use_attribute_docstrings=False)


ALL = "all"  # k=None: a file has no other word for it, as null is what is not said

# Parameters of which the annotation says less than is known.
_KINDS: dict[str, Any] = {
    "k": Annotated[int, Field(ge=1)],
    "kernel": Literal[tuple(KERNELS)] | Groups | Shares,
    "base": str | dict[str, Any],
    "bandwidth": _Bandwidth,
    "ridge": Annotated[float, Field(ge=0)],
}
_INTERVALS = (
    "Shares of new targets, each with the multiple of the spread that holds it: what `tune` measured."
)
_MAP = "Fingerprint of the map of the key that `tune` learned the method with."
_OWN = "Whether a row of the support counts among its own neighbors, for the diagnostics of a `transform`."
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*)(?: : (.*))?$((?:\n {4}.*)*)", re.MULTILINE)
_AS_IN = re.compile(r"As in `(\w+)`[.:]")
_WORDS = re.compile(r"\{(.*)\}")


def made(choice: Section) -> Method:
    """The method that a section chooses; UsageError when its parameters do not fit together."""
    told = choice.model_dump(exclude_none=True)
    return named(told | ({"k": None} if told.get("k") == ALL else {}))


def _section(name: str, maker: Callable[..., Method]) -> type[Section]:
    """The section of one method."""
    fields: dict[str, Any] = {"name": (Literal[name], Field(description=_summary(maker)))}
    for parameter in inspect.signature(maker).parameters.values():
        kind, words = _documented(maker, parameter.name)
        among = _WORDS.fullmatch(kind)
        known = Literal[ast.literal_eval(f"({among[1]},)")] if among else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        allowed = _KINDS.get(parameter.name, known)
        if parameter.name == "k" and default is not None and "None" in str(parameter.annotation):
            allowed = allowed | Literal[ALL]
        described = Field(default=default, description=words or f"One of {among[1] if among else kind}.")
        fields[parameter.name] = (allowed if default is not None else allowed | None, described)
    fields["own"] = (bool | None, Field(default=None, description=_OWN))
    fields["map"] = (str | None, Field(default=None, description=_MAP))
    fields["intervals"] = (list[list[float]] | None, Field(default=None, description=_INTERVALS))
    return create_model(name, __base__=Chosen, __doc__=_summary(maker), **fields)


def _summary(maker: Callable[..., Method]) -> str:
    return " ".join((inspect.getdoc(maker) or "").partition("\n\n")[0].split())


def _documented(maker: Callable[..., Method], parameter: str) -> tuple[str, str]:
    """What the docstring of a method says about a parameter: its type, and the words."""
    for names, kind, words in _PARAMETER.findall(inspect.getdoc(maker) or ""):
        if parameter in names.split(", "):
            elsewhere = _AS_IN.match(words.strip())
            other = METHODS.get(elsewhere[1].replace("_", "-")) if elsewhere else None
            return _documented(other, parameter) if other else (kind, " ".join(words.split()))
    return "", ""


def _tag(given: Any) -> str | None:
    name = given.get("name") if isinstance(given, dict) else getattr(given, "name", None)
    return f"{TAG}{name}" if name in METHODS else None


def _by_name(given: Any) -> Any:
    """A name alone, and a file that holds a method, as the section that they stand for."""
    named = {"name": given} if isinstance(given, str) else given
    if not isinstance(named, dict) or not is_file(named.get("name")):
        return named
    more = {key: value for key, value in named.items() if key != "name"}
    return {**read_method(absolute(named["name"])).spec, **more}


def _fitting(choice: Section) -> Section:
    made(choice)
    return choice


def _or_a_name(schema: dict[str, Any]) -> None:
    """In the schema: the name alone will do, where no parameter has to be given."""
    names = [name for name, maker in METHODS.items() if not _required(maker)]
    file = {"type": "string", "pattern": r"\.json$"}
    schema["anyOf"] = [{"enum": names}, file, {"oneOf": schema.pop("oneOf")}]


def _required(maker: Callable[..., Method]) -> bool:
    parameters = inspect.signature(maker).parameters.values()
    return any(parameter.default is parameter.empty for parameter in parameters)


_SECTIONS = [Annotated[_section(name, maker), Tag(TAG + name)] for name, maker in METHODS.items()]
if TYPE_CHECKING:
    Choice = Section  # a union of what is registered has no static type
else:
    Choice = Annotated[
        Annotated[Union[tuple(_SECTIONS)], Discriminator(_tag)],  # noqa: UP007 - of a list
        BeforeValidator(_by_name),
        AfterValidator(_fitting),
        Field(json_schema_extra=_or_a_name),
    ]
