"""A dataset: a source, and what its columns are for.

The roles are checked against the footers when the dataset is made: a misspelled column, a type that cannot be
a key, a file without the target are errors before any work.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from locdist.data.columns import is_category, is_class, number_remedy
from locdist.data.keymap import KeyMap
from locdist.data.schema import is_number, is_text, is_vector, plain
from locdist.data.source import Source, Span, source
from locdist.errors import UsageError, did_you_mean

Columns = str | Sequence[str] | Mapping[str, float]
Parts = tuple[tuple[str, float], ...]
Scaling = str | tuple[tuple[str, str], ...] | None
_LATER = ("map", "offset", "shape")
METRICS = ("l2", "cosine", "haversine", "ip")
SCALINGS = ("standard", "none")


@dataclass(frozen=True)
class Roles:
    """What columns are for.

    Parameters
    ----------
    key : tuple of (str, float)
        What is retrieved and weighed by: columns, each with a multiplier on top of the scaling.
    features : tuple of (str, float)
        What a local model is fitted on; empty when it is the key.
    target : tuple of str
        What is predicted.
    weight, id : str or None
        How much a row counts (at least 0); what a row is called (integers or strings).
    offset : str or None
        What is added to the linear predictor of generalized linear models, of support and queries alike.
    metric : {"l2", "cosine", "haversine", "ip"}
        How rows are compared; "cosine" is l2 between keys brought to length 1, "haversine" the great-circle
        distance in kilometres between places, whose key is longitude and latitude in degrees, in this order.
    scaling : {"standard", "none"}, tuple of (role, scaling), or None
        Of both roles, or of each on its own ("key", "features"). Where it is not said: "standard" for columns
        of numbers, "none" for columns of vectors, and "none" for a key of metric "cosine", whose directions
        start at zero, not at the mean.
    map : KeyMap or None
        What the encoded, scaled key is mapped by: a learned metric.
    shape : tuple of str
        Numbers of each row of the support for its own kernel and model, in the units of the key, which is not
        scaled then: widths of memberships, slopes of consequents.
    """

    key: Parts
    features: Parts = ()
    target: tuple[str, ...] = ()
    weight: str | None = None
    id: str | None = None
    metric: str = "l2"
    scaling: Scaling = None
    map: KeyMap | None = None
    offset: str | None = None
    shape: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _one_of("metric", self.metric, METRICS)
        _check_scaling(self.scaling, bool(self.features))
        for role, parts in (("key", self.key), ("features", self.features)):
            _check_parts(role, parts)
        if not self.key:
            raise UsageError(
                "at least one column as the key",
                "none",
                "Name the columns that say how far two rows are apart.",
            )
        if self.metric == "haversine":
            self._check_places()
        if self.shape:
            self._check_shape()

    def parts(self, role: Literal["key", "features"]) -> Parts:
        """The columns of the key, or of the features (which are the key where none are named)."""
        return self.key if role == "key" else self.features or self.key

    def scaling_of(self, role: Literal["key", "features"], kind: str) -> str:
        """The scaling of a column of a role: as asked, or by its kind. Vectors come with a geometry of their
        own, numbers with units.
        """
        asked = dict(self.scaling).get(role) if isinstance(self.scaling, tuple) else self.scaling
        own = bool(self.shape) or self.metric in ("cosine", "haversine")
        as_it_is = kind == "vector" or (role == "key" and own)
        return asked or ("none" if as_it_is else "standard")

    def _check_places(self) -> None:
        """UsageError for a key that cannot be places on the earth."""
        scaled = self.scaling_of("key", "number") != "none" or any(factor != 1 for _, factor in self.key)
        if len(self.key) != 2 or scaled or self.map is not None:
            expected = "longitude and latitude as the key of metric 'haversine', as they are"
            given = ", ".join(name if factor == 1 else f"{name}:{factor:g}" for name, factor in self.key)
            raise UsageError(expected, given, "Give two columns, without scaling, multipliers or a map.")

    def _check_shape(self) -> None:
        """UsageError for a key in other units than the shapes of its rows."""
        scaled = self.scaling_of("key", "number") != "none" or any(factor != 1 for _, factor in self.key)
        if scaled or self.map is not None or self.features or self.metric != "l2":
            expected = "a key as it is, and no features, where rows have a shape of their own"
            given = "scaling, multipliers, a map, features or another metric than 'l2'"
            raise UsageError(expected, given, "Leave them out: shapes are in the units of the key.")

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that has a role, once."""
        single = (name for name in (self.weight, self.offset, self.id) if name is not None)
        named = [name for name, _ in self.key + self.features]
        return tuple(dict.fromkeys([*named, *self.target, *single, *self.shape]))

    def to_json(self) -> dict[str, Any]:
        """The roles as plain values."""
        pairs = {"key": [list(part) for part in self.key], "features": [list(part) for part in self.features]}
        scaling = dict(self.scaling) if isinstance(self.scaling, tuple) else self.scaling
        told = asdict(self) | pairs | {"target": list(self.target), "scaling": scaling}
        told["shape"] = list(self.shape) or None
        # what was asked before there were maps and offsets is asked in the same words
        return {name: value for name, value in told.items() if value is not None or name not in _LATER}


@dataclass(frozen=True)
class Dataset:
    """A source with roles, checked against each other. Make one with `dataset`."""

    source: Source
    roles: Roles

    def __post_init__(self) -> None:
        self.source.check(self.roles.columns)
        for role, allowed in _ALLOWED.items():
            for name in _named(self.roles, role):
                _check_type(role, name, self.source.schema.field(name).type, allowed)
        _check_map(self.roles, self.source.schema)

    @property
    def rows(self) -> int:
        """Rows of the source."""
        return self.source.rows

    def read(self, span: Span | None = None, batch_rows: int | None = None) -> Iterator[pa.Table]:
        """The rows of a span (all by default), with the columns that have a role, in tables of bounded
        size.
        """
        span = Span(0, self.rows) if span is None else span
        return self.source.read(span.start, span.stop, self.roles.columns, batch_rows)


def dataset(
    data: Any,
    *,
    key: Columns,
    features: Columns | None = None,
    target: str | Sequence[str] | None = None,
    weight: str | None = None,
    offset: str | None = None,
    shape: str | Sequence[str] | None = None,
    id: str | None = None,
    scaling: str | Mapping[str, str] | None = None,
    metric: str = "l2",
    map: KeyMap | Sequence[Sequence[float]] | None = None,
    bad_files: Literal["raise", "skip"] = "raise",
) -> Dataset:
    """Rows with roles.

    Parameters
    ----------
    data : path, pattern, list of both, or data in memory
        See `locdist.data.source.source`.
    key, features : str, list of str, or mapping of str to float
        Columns of numbers, of categories (strings, dictionaries) or of vectors; a mapping gives each a
        multiplier.
    target : str or list of str, optional
    weight : str, optional
    offset : str, optional
        A column that is added to the linear predictor of generalized linear models: the logarithm of the
        exposure of counts. Queries have it too.
    shape : str or list of str, optional
        Columns of numbers of each row's own kernel and model, in this order: see `rule_base`. The key is not
        scaled then.
    id : str, optional
        Ids name rows in outputs, and order rows at equal distances. Ids that repeat are legal; between such
        rows a tie goes to the row that comes first in the data, so it depends on the order of the files.
    scaling : {"standard", "none"}, or mapping of role to it, optional
        {"key": "none"} leaves the key as it is and the features to their default. By default columns of
        numbers are standardized, columns of vectors and keys of metric "cosine" are not.
    metric : {"l2", "cosine", "ip"}
        See `Roles`.
    map : KeyMap or matrix [e, d], optional
        A linear map of the key, encoded and scaled as above, applied to support and queries alike: `tune`
        learns one. Where the key is the features, it maps these too.
    bad_files : {"raise", "skip"}
        What happens to a damaged file.

    Raises
    ------
    UsageError
        When a column does not exist or cannot have its role.
    DataError
        When files are missing, damaged or disagree.
    """
    names = () if target is None else (target,) if isinstance(target, str) else tuple(target)
    told = tuple(sorted(scaling.items())) if isinstance(scaling, Mapping) else scaling
    mapped = None if map is None else KeyMap.of(map)
    shapes = (shape,) if isinstance(shape, str) else tuple(shape or ())
    roles = Roles(
        _parts(key), _parts(features or ()), names, weight, id, metric, told, mapped, offset, shapes
    )
    return Dataset(source(data, bad_files=bad_files), roles)


def checked(support: object) -> Dataset:
    """The support that a job was given, refused unless it is a dataset: a path or a table has no roles."""
    if isinstance(support, Dataset):
        return support
    given = f"a support of type {type(support).__name__}"
    raise UsageError(
        "ld.dataset(...) as the support",
        given,
        "Wrap it and say what its columns are for: ld.dataset(support, key=..., target=...).",
    )


def _parts(columns: Columns) -> Parts:
    if isinstance(columns, str):
        return ((columns, 1.0),)
    if isinstance(columns, Mapping):
        return tuple((name, float(multiplier)) for name, multiplier in columns.items())
    return tuple((name, 1.0) for name in columns)


def _check_parts(role: str, parts: Parts) -> None:
    names = [name for name, _ in parts]
    if len(set(names)) < len(names):
        raise UsageError(
            f"each column of the {role} once",
            ", ".join(names),
            "Give a column more weight with a multiplier.",
        )
    for name, multiplier in parts:
        if not 0 < multiplier < float("inf"):
            raise UsageError(
                f"a positive multiplier for {name!r}",
                f"{multiplier}",
                f"Leave the column out of the {role} to ignore it.",
            )


def _check_scaling(scaling: Scaling, features: bool) -> None:
    if not isinstance(scaling, tuple):
        if scaling is not None:
            _one_of("scaling", scaling, SCALINGS)
        return
    for role, each in scaling:
        _one_of("roles to scale", role, ("key", "features"))
        _one_of(f"scaling of the {role}", each, SCALINGS)
        if role == "features" and not features:
            raise UsageError(
                "features to scale", "none: they are the key", "Name the features, or scale the key."
            )


def _check_map(roles: Roles, schema: pa.Schema) -> None:
    """UsageError for a map of another width, as far as footers tell the width of a key."""
    kinds = [plain(schema.field(name).type) for name, _ in roles.key]
    if roles.map is None or any(is_category(schema.field(name).type) for name, _ in roles.key):
        return
    if all(pt.is_fixed_size_list(kind) or not is_vector(kind) for kind in kinds):
        names = [
            f"{name}[{index}]" if is_vector(kind) else name
            for (name, _), kind in zip(roles.key, kinds, strict=True)
            for index in range(kind.list_size if is_vector(kind) else 1)
        ]
        roles.map.check(names)


def _one_of(name: str, given: object, known: Sequence[str]) -> None:
    if given not in known:
        raise UsageError(f"{name} as one of {', '.join(known)}", repr(given), did_you_mean(given, known))


def _named(roles: Roles, role: str) -> tuple[str, ...]:
    if role in ("key", "features"):
        return tuple(name for name, _ in (roles.key if role == "key" else roles.features))
    value = getattr(roles, role)
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _check_type(role: str, name: str, kind: pa.DataType, allowed: str) -> None:
    if not _FITS[allowed](kind):
        remedy = "Convert it to integers or strings." if role == "id" else number_remedy(plain(kind))
        raise UsageError(f"{allowed} in column {name!r}, the {role}", f"type {kind}", remedy)


_FITS: dict[str, Callable[[pa.DataType], bool]] = {
    "numbers, categories or vectors of numbers": lambda kind: (
        is_number(kind) or is_vector(kind) or is_category(kind)
    ),
    "numbers or classes": lambda kind: is_number(kind) or is_class(kind),
    "numbers": is_number,
    "integers or strings": lambda kind: pt.is_integer(plain(kind)) or is_text(plain(kind)),
}
_ALLOWED = {
    "key": "numbers, categories or vectors of numbers",
    "features": "numbers, categories or vectors of numbers",
    "target": "numbers or classes",
    "weight": "numbers",
    "offset": "numbers",
    "shape": "numbers",
    "id": "integers or strings",
}
