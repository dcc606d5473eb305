"""Columns that folders spell: the rows below ``code=01001/`` have "01001" in their column "code".

The value is a string as it is written, so that no leading zero is lost and another folder cannot change its
type; where the files hold the column themselves their type counts, and the two must agree.
"""

import urllib.parse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from locdist.data.schema import Unified, unify
from locdist.errors import DataError


def partition_values(path: str) -> dict[str, str | None]:
    """The columns that the folders of a path spell: ``code=01001/a.parquet`` gives ``{"code": "01001"}``,
    always as a string.
    """
    spelled = [folder.split("=", 1) for folder in path.split("/")[:-1] if is_spelled(folder)]
    values = {name: urllib.parse.unquote(value) for name, value in spelled}
    return {name: None if value == "__HIVE_DEFAULT_PARTITION__" else value for name, value in values.items()}


def is_spelled(folder: str) -> bool:
    """Whether a folder's name is a column and its value."""
    return folder.find("=") > 0


def unify_spelled(schemas: list[tuple[str, pa.Schema]]) -> Unified:
    """The promoted schema, with the columns that folders spell: strings, unless some file holds the column
    and has a type for it.
    """
    held = {name for _, schema in schemas for name in schema.names}
    extended = [(path, _extended(path, schema, held)) for path, schema in schemas]
    return unify(extended)


def _extended(path: str, schema: pa.Schema, held: set[str]) -> pa.Schema:
    for name in partition_values(path):
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.null() if name in held else pa.string()))
    return schema


def spelled_column(
    name: str, value: str | None, values: pa.ChunkedArray | None, rows: int, path: str
) -> pa.ChunkedArray:
    """A column that a folder spells; where the file holds it too, the two must agree."""
    if values is None:
        return pa.chunked_array([pa.array([value], pa.string()).take(pa.array(np.zeros(rows, np.int64)))])
    told = pa.scalar(value, pa.string())
    try:
        same = pc.equal(values, told.cast(values.type)) if value is not None else pc.is_null(values)
    except pa.ArrowException:
        same = pa.array([False])
    if not pc.all(pc.fill_null(same, False)).as_py():
        given = f"other values of {name!r} inside the file"
        raise DataError(
            f"{name}={value} in {path}, as its folder says",
            given,
            "Move the rows or correct the folder's name.",
        )
    return values
