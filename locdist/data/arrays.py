"""Data in memory as Arrow tables: NumPy, torch, dictionaries of arrays, anything with Arrow's C stream.

Whatever the layout (big-endian, Fortran order, strided, read-only, object), the values are what they were and
the caller's arrays are never written to. A mask means that a value is missing; it is never read through.
"""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from locdist.errors import DataError, UsageError


def table(data: Any) -> pa.Table:
    """Data in memory as a table.

    Parameters
    ----------
    data : pa.Table, mapping of name to array, structured array, array, tensor, nested list, or anything with
    ``__arrow_c_stream__``
        A two-dimensional array [n, d] becomes a column of vectors; a bare array becomes the one column "key".

    Raises
    ------
    UsageError
        When a value is of a kind that cannot be read; the message names the column.
    DataError
        When columns are of different lengths.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, np.ndarray | torch.Tensor):
        names = getattr(data.dtype, "names", None)
        data = {name: data[name] for name in names} if names else {"key": data}
    if _is_nested(data):
        data = {"key": _rectangle(data)}
    if isinstance(data, Mapping):
        return _joined({str(name): column(values, str(name)) for name, values in data.items()})
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    kinds = "a path, a table, a mapping of names to arrays, an array, or an object with __arrow_c_stream__"
    raise UsageError(kinds, type(data).__name__, "Convert the data to one of these.")


def _is_nested(data: Any) -> bool:
    """Whether data are the rows of a matrix, or numbers, as plain lists."""
    rows = data if isinstance(data, list | tuple) else []
    return len(rows) > 0 and all(isinstance(row, list | tuple | numbers.Real) for row in rows)


def _rectangle(rows: Any) -> Any:
    """Nested lists as an array where all have one length, which is then known before any row is read."""
    try:
        return np.array(rows)
    except ValueError:
        return rows


def column(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """One column from an array, a tensor, a sequence or an Arrow array; `name` is for messages."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, torch.Tensor):
        values = _numpy(values)
    if not isinstance(values, np.ndarray):
        return _converted(values, name)
    if values.ndim not in (1, 2):
        raise UsageError(
            f"column {name!r} as [n] or [n, d]", f"shape {list(values.shape)}", "Reshape the array."
        )
    if values.dtype.kind == "c":
        raise UsageError(
            f"real numbers in column {name!r}", f"{values.dtype}", "Split it into real and imaginary parts."
        )
    if values.ndim == 1:
        return _flat(values, name)
    flat = _flat(_as_numbers(values, name).reshape(-1), name)
    if values.shape[1] == 0:
        raise UsageError(
            f"at least one number in each vector of column {name!r}",
            f"shape {list(values.shape)}",
            "Leave it out.",
        )
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().resolve_neg().numpy()


def _as_numbers(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """A matrix of numbers with rows in a row; objects become float64, and None among them nan."""
    if values.dtype.kind != "O":
        return values if isinstance(values, np.ma.MaskedArray) else np.ascontiguousarray(values)
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"numbers in column {name!r}", f"objects ({error})", "Convert the column to numbers."
        ) from error


def _flat(values: np.ndarray[Any, Any], name: str) -> pa.Array:
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ascontiguousarray(np.ma.getmaskarray(values))
        return pa.array(_native(np.ascontiguousarray(values.data)), mask=mask)
    if values.dtype.kind == "O":
        return _converted(values.tolist(), name)
    return _converted(_native(np.ascontiguousarray(values)), name)


def _native(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _converted(values: Any, name: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        given = f"{type(values).__name__} ({str(error)[:200]})"
        raise UsageError(
            f"values of one kind in column {name!r}", given, "Convert the column to one type."
        ) from error


def _joined(columns: dict[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            "columns of one length",
            ", ".join(f"{name}: {rows}" for name, rows in lengths.items()),
            "Align them.",
        )
    return pa.table(columns)
