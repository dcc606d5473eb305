"""What the sections of a pipeline file are made of: their base class, and the types that they share."""

import os
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from locdist.data.filesystems import refuse_credentials
from locdist.pipeline.amounts import AMOUNT, SHARE, max_bad, memory

JsonSchema = dict[str, Any]
TEXT: JsonSchema = {"type": "string", "minLength": 1}
TEXTS: JsonSchema = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
COLUMNS: JsonSchema = {
    "anyOf": [
        *TEXTS["anyOf"],
        {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
    ]
}


class Section(BaseModel):
    """A mapping of a pipeline file: frozen, without keys that nobody reads, and without conversions: "64" is
    no number, 1 is not true. The text below a field is its description for editors.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        str_min_length=1,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


def absolute(path: str) -> str:
    """A path without its working directory; addresses are left as they are. UsageError for one with
    credentials in it.
    """
    if "://" in path or path.startswith("file:"):
        refuse_credentials(path)
        return path
    return os.path.abspath(os.path.expanduser(path))


def _several(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else (given,) if isinstance(given, str) else given


def _weighted(given: Any) -> Any:
    """Columns with their multipliers, 1 where none is given."""
    names = [given] if isinstance(given, str) else given
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return dict.fromkeys(names, 1.0)
    return given


def _absolute(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(absolute(path) for path in paths)


Texts = Annotated[tuple[str, ...], BeforeValidator(_several), WithJsonSchema(TEXTS)]
Columns = Annotated[
    dict[str, Annotated[float, Field(gt=0)]],
    BeforeValidator(_weighted),
    Field(min_length=1),
    WithJsonSchema(COLUMNS),
]
Place = Annotated[str, AfterValidator(absolute)]
Places = Annotated[
    tuple[str, ...],
    BeforeValidator(_several),
    AfterValidator(_absolute),
    Field(min_length=1),
    WithJsonSchema(TEXTS),
]
Memory = Annotated[
    int,
    BeforeValidator(memory),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^({AMOUNT})$"}]}
    ),
]


def _share(given: Any) -> str:
    max_bad(given)
    return str(given)


MaxBad = Annotated[
    str,
    BeforeValidator(_share),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^({SHARE})$"}]}
    ),
]
