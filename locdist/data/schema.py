"""One schema for many files: which Arrow types agree, and what they agree on.

Files written by different hands drift: a column is int64 in one, double in the next, all null in a third. The
rules here do not depend on the order of the files, lose no value silently (every cast is checked when it
happens) and refuse the rest by name, so that a type conflict is found from the footers and not in the middle
of a run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from locdist.errors import DataError

TEXT_BYTES, LIST_BYTES = 32, 1024  # assumed


@dataclass(frozen=True)
class Unified:
    """The schema of several files together.

    Parameters
    ----------
    schema : pa.Schema
        Every column of any file, in the order of first appearance.
    absent : tuple of (str, str)
        For each column that some file lacks: its name and the first such file.
    """

    schema: pa.Schema
    absent: tuple[tuple[str, str], ...]


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings, however they are laid out."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers or truth values, which are the numbers 0 and 1."""
    return bool(
        pt.is_integer(kind)
        or pt.is_floating(kind)
        or pt.is_decimal(kind)
        or pt.is_boolean(kind)
        or pt.is_null(kind)
    )


def plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values: a dictionary's value type, an extension's storage type, otherwise the type
    itself.
    """
    if pt.is_dictionary(kind):
        return plain(kind.value_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def is_list(kind: pa.DataType) -> bool:
    """Whether a value is a list of fixed or of any length."""
    return bool(pt.is_fixed_size_list(kind) or pt.is_list(kind) or pt.is_large_list(kind) or _is_view(kind))


def is_vector(kind: pa.DataType) -> bool:
    """Whether a value is a list of numbers."""
    kind = plain(kind)
    return is_list(kind) and is_number(plain(kind.value_type))


def value_bytes(kind: pa.DataType) -> int:
    """About how many bytes a value has in memory, the one estimate before any row is read.

    A number has 8, as it is computed with in float64; the numbers of a vector at least the 4 of float32. A
    name is taken for `TEXT_BYTES` long, a vector of unknown length for `LIST_BYTES`.
    """
    kind = plain(kind)
    if pt.is_fixed_size_list(kind) and is_vector(kind):
        number = plain(kind.value_type)
        return int(kind.list_size) * max(4, 0 if pt.is_null(number) else number.bit_width // 8)
    return TEXT_BYTES if is_text(kind) else LIST_BYTES if is_list(kind) else 8


def row_bytes(schema: pa.Schema, names: Sequence[str]) -> int:
    """About how many bytes these columns of a row have in memory; see `value_bytes`."""
    return sum(value_bytes(schema.field(name).type) for name in names)


def promote(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both, or None where there is none. Symmetric in its arguments."""
    if one == other:
        return one
    if pt.is_null(one) or pt.is_null(other):
        return other if pt.is_null(one) else one
    one, other = plain(one), plain(other)
    if one == other:
        return one
    for rule in (_texts, _numbers, _lists, _times, _binaries):
        kind = rule(one, other)
        if kind is not None:
            return kind
    return None


def _texts(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    return pa.large_string() if is_text(one) and is_text(other) else None


def _binaries(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    both = all(pt.is_binary(kind) or pt.is_large_binary(kind) for kind in (one, other))
    return pa.large_binary() if both else None


def _numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    kinds = (one, other)
    if not all(is_number(kind) for kind in kinds) or any(pt.is_boolean(kind) for kind in kinds):
        return None
    if all(pt.is_integer(kind) for kind in kinds):
        return _integers(one, other)
    if all(pt.is_floating(kind) for kind in kinds):
        return max(kinds, key=lambda kind: int(kind.bit_width))
    return pa.float64()


def _integers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The wider of two integers; a sign costs an unsigned type one more width, which uint64 does not have."""
    wide, narrow = (one, other) if one.bit_width >= other.bit_width else (other, one)
    if pt.is_signed_integer(one) == pt.is_signed_integer(other):
        return wide
    if pt.is_signed_integer(wide) and wide.bit_width > narrow.bit_width:
        return wide
    unsigned = one if pt.is_unsigned_integer(one) else other
    return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(unsigned.bit_width)


def _lists(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (is_list(one) and is_list(other)):
        return None
    value = promote(one.value_type, other.value_type)
    if value is None:
        return None
    if not (pt.is_fixed_size_list(one) and pt.is_fixed_size_list(other)):
        return pa.large_list(value)
    return pa.list_(value, one.list_size) if one.list_size == other.list_size else None


def _times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Instants and days of several units. An instant without a time zone is another thing than one with: they
    do not mix.
    """
    if pt.is_date(one) and pt.is_date(other):
        return pa.date64()
    if not (pt.is_timestamp(one) and pt.is_timestamp(other)) or (one.tz is None) != (other.tz is None):
        return None
    finest = max(one.unit, other.unit, key=("s", "ms", "us", "ns").index)
    return pa.timestamp(finest, one.tz if one.tz == other.tz else "UTC")


def _is_view(kind: pa.DataType) -> bool:
    return bool(pt.is_list_view(kind) or pt.is_large_list_view(kind))


def unify(schemas: Sequence[tuple[str, pa.Schema]]) -> Unified:
    """The promoted schema of named files.

    Parameters
    ----------
    schemas : sequence of (str, pa.Schema)
        The name of a file, for messages, and its schema.

    Raises
    ------
    DataError
        When two files hold a column in types that do not agree; every type is named with a file that has it.
    """
    seen: dict[str, dict[pa.DataType, str]] = {}
    lacking: dict[str, str] = {}
    names = list(dict.fromkeys(name for schema in _distinct(schemas) for name in schema.names))
    for file, schema in schemas:
        _refuse_twins(file, schema)
        for name in names:
            index = schema.get_field_index(name)
            if index < 0:
                lacking.setdefault(name, file)
            else:
                seen.setdefault(name, {}).setdefault(schema.field(index).type, file)
    fields = [pa.field(name, _agree(name, seen[name])) for name in names]
    return Unified(pa.schema(fields), tuple(lacking.items()))


def _distinct(schemas: Sequence[tuple[str, pa.Schema]]) -> list[pa.Schema]:
    return list(dict.fromkeys(schema for _, schema in schemas))


def _refuse_twins(file: str, schema: pa.Schema) -> None:
    if len(set(schema.names)) < len(schema.names):
        twin = next(name for name in schema.names if schema.names.count(name) > 1)
        raise DataError(
            "columns of different names", f"two columns {twin!r} in {file}", "Rename one of them."
        )


def _agree(name: str, kinds: dict[pa.DataType, str]) -> pa.DataType:
    # Sorted by name, so that three or more types meet in the same order whatever the order of the files.
    merged: pa.DataType | None = pa.null()
    for kind in sorted(kinds, key=str):
        merged = promote(merged, kind)
        if merged is None:
            break
    if merged is None:
        listed = ", ".join(f"{kind} in {file}" for kind, file in kinds.items())
        raise DataError(
            f"one type of column {name!r} in all files",
            listed,
            "Convert the column to one type and write the files again.",
        )
    # A tensor of fixed shape is a fixed-size list with a label, and few functions of Arrow know the label.
    if isinstance(merged, pa.FixedShapeTensorType):
        return merged.storage_type
    return pa.large_string() if pt.is_string_view(merged) else merged  # views cannot be sorted or taken


def cast(
    column: pa.ChunkedArray, kind: pa.DataType, blame: Callable[[Exception], Exception]
) -> pa.ChunkedArray:
    """A column in another type, checked: a value that does not fit raises what `blame` makes of Arrow's
    error.
    """
    if column.type == kind:
        return column
    if pt.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), kind)])
    try:
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise blame(error) from error
