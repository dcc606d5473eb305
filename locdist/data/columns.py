"""Arrow columns as matrices, and back: the one tested door between partitions and arithmetic.

Everything that goes wrong with such columns goes wrong here or nowhere: slices whose offset is forgotten, a
null that shifts every later vector, float16 sums, decimals, dates read as numbers, ids that pass through a
float. Values that are missing or not finite are never dropped and never guessed: the row is marked and its
values are 0.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from locdist.data.schema import cast, is_list, is_number, is_text, is_vector, plain, promote
from locdist.errors import DataError, UsageError

Matrix = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]
Column: TypeAlias = pa.Array | pa.ChunkedArray

NULL, NOT_FINITE, WRONG_LENGTH = 1, 2, 3
REASONS = ("", "null", "not finite", "wrong length")
UNSEEN, MISSING = -1, -2


def matrix(column: Column, dtype: npt.DTypeLike, width: int | None = None) -> tuple[Matrix, Flags]:
    """Vectors as the rows of a matrix.

    Parameters
    ----------
    column : pa.Array or pa.ChunkedArray [n]
        Lists (fixed, variable, large, views) or fixed-shape tensors of numbers.
    dtype : numpy float type
        Of the result. Values are converted directly from what they are, float16 before any arithmetic.
    width : int, optional
        The length that every vector must have; by default that of the first vector.

    Returns
    -------
    values : array [n, d]
        C-contiguous, its own memory; zero where the row is bad.
    bad : bool [n]
        The vector or one of its numbers is null, nan, infinite, too large for `dtype`, or it has another
        length than `width`.

    Raises
    ------
    DataError
        When no width is given and vectors differ in length; with the row and both lengths.
    UsageError
        When the column does not hold vectors of numbers.
    """
    values, reasons = inspect_vectors(column, dtype, width)
    return values, reasons != 0


def numbers(column: Column) -> tuple[npt.NDArray[np.float64], Flags]:
    """Numbers in float64 [n], and which rows are bad (null, nan, infinite; their value is 0).

    Integers, floats, booleans (0 and 1) and decimals; dictionaries of them.

    Raises
    ------
    UsageError
        For any other type, by name. Instants and days have no unit as numbers: they are converted by whoever
        knows it.
    """
    values, reasons = inspect_numbers(column)
    return values, reasons != 0


def inspect_vectors(
    column: Column, dtype: npt.DTypeLike, width: int | None = None
) -> tuple[Matrix, npt.NDArray[np.int8]]:
    """`matrix`, with the reason instead of a flag: 0, NULL, NOT_FINITE or WRONG_LENGTH for each row."""
    chunked = _chunked(column)
    kind = plain(chunked.type)
    if not (is_vector(kind) or pt.is_null(kind)):
        raise UsageError(
            "a column of vectors of numbers", f"type {chunked.type}", "Name number columns one by one."
        )
    agreed = _agreed_width(chunked) if width is None else width
    values = np.zeros((len(chunked), agreed), dtype)
    reasons = np.zeros(len(chunked), np.int8)
    row = 0
    for chunk in chunked.chunks:
        rows = slice(row, row + len(chunk))
        _fill(chunk, values[rows], reasons[rows])
        row += len(chunk)
    return values, reasons


def inspect_numbers(column: Column) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
    """`numbers`, with the reason instead of a flag: 0, NULL or NOT_FINITE for each row."""
    chunked = _chunked(column)
    kind = plain(chunked.type)
    if not is_number(kind):
        raise UsageError("a column of numbers", f"type {kind}", number_remedy(kind))
    values = np.zeros(len(chunked), np.float64)
    reasons = np.zeros(len(chunked), np.int8)
    row = 0
    for chunk in chunked.chunks:
        rows = slice(row, row + len(chunk))
        values[rows] = _floats(chunk)
        reasons[rows] = np.where(_nulls(chunk), NULL, np.where(np.isfinite(values[rows]), 0, NOT_FINITE))
        row += len(chunk)
    values[reasons != 0] = 0.0
    return values, reasons


def number_remedy(kind: pa.DataType) -> str:
    """What to do with a column whose type is not a number."""
    if pt.is_temporal(kind):
        return "Convert it to a number of a stated unit, such as days since a date, in every file."
    return "Convert it to numbers."


def codes(column: Column, vocabulary: pa.Array) -> Codes:
    """Values as positions in a vocabulary.

    Parameters
    ----------
    column : pa.Array or pa.ChunkedArray [n]
        Strings of any layout, integers, booleans, or dictionaries of them.
    vocabulary : pa.Array [c]
        Distinct values without null.

    Returns
    -------
    int64 [n]
        The position; UNSEEN (-1) for a value that is not in the vocabulary, MISSING (-2) for null.

    Raises
    ------
    DataError
        When the types have nothing in common, such as strings and integers.
    """
    chunked = decoded(column)
    kind = promote(chunked.type, vocabulary.type)
    if kind is None:
        raise DataError(
            f"values of type {vocabulary.type}",
            f"type {chunked.type}",
            "Write the column with the type it was fitted with.",
        )
    chunked = cast(
        chunked, kind, lambda error: DataError(f"values of type {kind}", str(error), "Convert the column.")
    )
    found = pc.index_in(chunked, value_set=vocabulary.cast(kind))
    positions = pc.fill_null(found, UNSEEN).to_numpy().astype(np.int64)
    return np.where(pc.is_null(chunked).to_numpy(), MISSING, positions)


def distinct(column: Column) -> pa.Array:
    """The different values of a column, sorted, without null; dictionaries are decoded, the type of the
    values is kept.
    """
    values = pc.unique(decoded(column)).drop_null()
    return values.take(pc.array_sort_indices(values))


def decoded(column: Column) -> pa.ChunkedArray:
    """A column whose dictionary, if it has one, is replaced by its values."""
    chunked = _chunked(column)
    return chunked.cast(chunked.type.value_type) if pt.is_dictionary(chunked.type) else chunked


def is_category(kind: pa.DataType) -> bool:
    """Whether values of a type are names and not numbers: strings, and dictionaries of anything."""
    return bool(is_text(kind) or pt.is_dictionary(kind))


def is_class(kind: pa.DataType) -> bool:
    """Whether values of a type can be the classes of a vote: strings, integers, booleans, dictionaries of
    them.
    """
    kind = plain(kind)
    return bool(is_text(kind) or pt.is_integer(kind) or pt.is_boolean(kind))


def targets(table: pa.Table, names: Sequence[str]) -> tuple[npt.NDArray[np.float64], Flags]:
    """Target columns side by side: float64 [n, p], and the rows [n] in which any of them is bad (its value is
    0 there).
    """
    columns = [numbers(table.column(name)) for name in names]
    values = np.stack([values for values, _ in columns], axis=1) if columns else np.zeros((table.num_rows, 0))
    bad = np.any([bad for _, bad in columns], axis=0) if columns else np.zeros(table.num_rows, np.bool_)
    return values, bad


def vectors(values: Matrix) -> pa.FixedSizeListArray:
    """The rows of a matrix [n, d] as a column of vectors of the same number type."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def directions(values: Matrix) -> tuple[Matrix, Flags]:
    """Rows [n, d] brought to length 1 in their own precision, and which [n] are zero and have no direction.

    By the largest value first: the square of 1e-30 is nothing in float32, that of 1e-170 in float64. Rows
    that are not finite become nan.
    """
    points = values.astype(np.float64)
    largest = np.abs(points).max(axis=1, initial=0.0)
    zero = largest == 0
    with np.errstate(invalid="ignore"):
        points /= np.where(zero, 1.0, largest)[:, None]
    length = np.sqrt(np.einsum("ij,ij->i", points, points))
    points /= np.where(zero, 1.0, length)[:, None]
    return points.astype(values.dtype), zero


def _chunked(column: Column) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _fill(chunk: pa.Array, values: Matrix, reasons: npt.NDArray[np.int8]) -> None:
    """Write the vectors of one chunk into its rows of the result. Chunk by chunk, because 2^31 values may not
    fit into one.
    """
    present = ~_nulls(chunk)
    chunk = _storage(chunk)
    width = values.shape[1]
    right = present & (_lengths(chunk) == width)
    flat = _flat(chunk, right)
    shape = (-1, width) if width else (int(right.sum()), 0)
    with np.errstate(over="ignore"):
        values[right] = _floats(flat).reshape(shape)
    finite = np.isfinite(values).all(axis=1)
    reasons[:] = np.where(right, np.where(finite, 0, NOT_FINITE), np.where(present, WRONG_LENGTH, NULL))
    if flat.null_count:
        reasons[np.flatnonzero(right)[_nulls(flat).reshape(shape).any(axis=1)]] = NULL
    values[reasons != 0] = 0


def _storage(chunk: pa.Array) -> pa.Array:
    return chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk


def _flat(chunk: pa.Array, right: Flags) -> pa.Array:
    """The numbers of all vectors that are there, one after the other."""
    if pt.is_null(chunk.type):
        return pa.array([], pa.float64())
    # What stands behind a null vector is undefined, in a fixed-size list as in the others: keep only what is
    # there.
    return (chunk if right.all() else chunk.filter(pa.array(right))).flatten()


def lengths(column: pa.ChunkedArray) -> Codes:
    """How many numbers each vector [n] has; -1 where there is none."""
    chunks = [np.where(_nulls(chunk), -1, _lengths(_storage(chunk))) for chunk in column.chunks]
    return np.concatenate([np.zeros(0, np.int64), *chunks])


def _lengths(chunk: pa.Array) -> Codes:
    if pt.is_null(chunk.type):
        return np.zeros(len(chunk), np.int64)
    if pt.is_fixed_size_list(chunk.type):
        return np.full(len(chunk), chunk.type.list_size, np.int64)
    lengths = pc.fill_null(pc.list_value_length(chunk), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _agreed_width(column: pa.ChunkedArray) -> int:
    """The one length of all vectors that are not null; 0 when there is none and the type does not say it."""
    kind = plain(column.type)
    if pt.is_fixed_size_list(kind):
        return int(kind.list_size)
    width, row = None, 0
    for chunk in column.chunks if is_list(kind) else []:
        valid = ~_nulls(chunk)
        chunk = _storage(chunk)
        lengths = _lengths(chunk)
        if valid.any():
            width = int(lengths[int(np.argmax(valid))]) if width is None else width
            wrong = valid & (lengths != width)
            if wrong.any():
                first = int(np.argmax(wrong))
                given = f"{lengths[first]} in row {row + first} of this column"
                raise DataError(f"vectors of {width} numbers", given, "Write all vectors with one length.")
        row += len(chunk)
    return width or 0


def _nulls(array: pa.Array) -> Flags:
    if array.null_count == 0:
        return np.zeros(len(array), np.bool_)
    return np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False), np.bool_)


def _floats(array: pa.Array) -> Matrix:
    """Numbers in their own precision where NumPy has it, in float64 otherwise; nan where null."""
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pt.is_floating(array.type) or (pt.is_integer(array.type) and not array.null_count):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
