"""Arrow columns as matrices: the layouts, nulls, slices and types that public bug reports are about."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from locdist.data.arrays import column, table
from locdist.data.columns import (
    NULL,
    WRONG_LENGTH,
    codes,
    directions,
    distinct,
    inspect_vectors,
    matrix,
    numbers,
    targets,
    vectors,
)
from locdist.errors import DataError, LocdistError, UsageError

PAIRS = [[1.0, 2.0], [3.0, 4.0]]
FIXED = pa.list_(pa.float32(), 2)


def fixed(values: Any, width: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values), width)


LAYOUTS = {
    "fixed": pa.array(PAIRS, FIXED),
    "list of double": pa.array(PAIRS, pa.list_(pa.float64())),
    "large list": pa.array(PAIRS, pa.large_list(pa.float32())),
    "list view": pa.array(PAIRS, pa.list_view(pa.float32())),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(PAIRS, "f4")),
    "half": fixed(np.array([1, 2, 3, 4], "f2"), 2),
    "int8": fixed(np.array([1, 2, 3, 4], "i1"), 2),
    "uint64": fixed(np.array([1, 2, 3, 4], "u8"), 2),
    "decimal": pa.array([[decimal.Decimal(1), decimal.Decimal(2)], [decimal.Decimal(3), decimal.Decimal(4)]]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_c07_every_layout_is_the_same_matrix(layout: str) -> None:
    array = LAYOUTS[layout]
    for given in (array, pa.chunked_array([array]), pa.chunked_array([array.slice(0, 1), array.slice(1, 1)])):
        values, bad = matrix(given, np.float32)
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert values.flags.owndata
        np.testing.assert_array_equal(values, np.array(PAIRS, "f4"))
        assert not bad.any()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 3), pa.list_(pa.float64()), pa.large_list(pa.float32())]
)
@pytest.mark.parametrize("null", [False, True])
def test_c40_slices_keep_their_place(kind: pa.DataType, null: bool) -> None:
    rows: list[Any] = np.arange(12.0).reshape(4, 3).tolist()
    array = pa.array([None, *rows] if null else rows, kind)
    first = int(null)
    values, bad = matrix(array.slice(first + 1, 2), np.float64)
    np.testing.assert_array_equal(values, [[3, 4, 5], [6, 7, 8]])
    assert not bad.any()
    cut = pa.chunked_array([array.slice(first + 1, 1), array.slice(first + 3, 1), array.slice(0, 1)])
    values, bad = matrix(cut, np.float64)
    np.testing.assert_array_equal(values, [[3, 4, 5], [9, 10, 11], [0, 0, 0] if null else [0, 1, 2]])
    assert bad.tolist() == [False, False, null]


def test_c09_a_null_shifts_nothing() -> None:
    array = pa.array([[1.0, 2.0], None, [5.0, 6.0]], FIXED)
    masked = pa.FixedSizeListArray.from_arrays(
        pa.array(np.arange(6, dtype="f4")), 2, mask=pa.array([False, True, False])
    )
    ragged = pa.ListArray.from_arrays(
        pa.array([0, 2, 5, 7], pa.int32()), pa.array(np.arange(7.0)), mask=pa.array([False, True, False])
    )
    expected = ([[1, 2], [0, 0], [5, 6]], [[0, 1], [0, 0], [4, 5]], [[0, 1], [0, 0], [5, 6]])
    for given, wanted in zip((array, masked, ragged), expected, strict=True):
        values, bad = matrix(given, np.float32)
        np.testing.assert_array_equal(values, wanted)
        assert bad.tolist() == [False, True, False]
    values, bad = matrix(pa.nulls(1, FIXED), np.float32)
    assert (values.tolist(), bad.tolist()) == ([[0, 0]], [True])
    values, bad = matrix(pa.nulls(2), np.float32, width=3)
    assert (values.shape, bad.tolist()) == ((2, 3), [True, True])


def test_c04_null_nan_and_inf_are_bad_and_zero() -> None:
    rows = [[1.0, 2.0], [None, 2.0], [np.nan, 2.0], [np.inf, 2.0], [1e300, 2.0], None]
    values, bad = matrix(pa.array(rows, pa.list_(pa.float64())), np.float32)
    assert bad.tolist() == [False, True, True, True, True, True]
    np.testing.assert_array_equal(values[1:], np.zeros((5, 2)))
    scalars, bad = numbers(pa.array([1.0, None, np.nan, -np.inf]))
    assert (scalars.tolist(), bad.tolist()) == ([1, 0, 0, 0], [False, True, True, True])


def test_another_length_names_row_and_lengths() -> None:
    array = pa.chunked_array([pa.array([[1.0, 2.0], None]), pa.array([[3.0, 4.0], [5.0]])])
    with pytest.raises(DataError, match=r"vectors of 2 numbers; got 1 in row 3"):
        matrix(array, np.float32)
    values, reasons = inspect_vectors(
        array, np.float32, 1
    )  # a known width: only the rows that differ are bad
    assert reasons.tolist() == [WRONG_LENGTH, NULL, WRONG_LENGTH, 0]
    assert values.tolist() == [[0.0], [0.0], [0.0], [5.0]]


def test_c65_float16_is_read_before_arithmetic() -> None:
    values, bad = matrix(fixed(65504 * np.ones(16, "f2"), 8), np.float32)
    assert np.square(values).sum() == 16 * np.float32(65504) ** 2
    assert not bad.any()
    nulls = pa.array([[1.0, None], [2.0, 3.0]], pa.list_(pa.float16(), 2))
    assert matrix(nulls, np.float32)[1].tolist() == [True, False]


def test_c67_many_chunks_are_filled_into_one_matrix() -> None:
    small = pa.array([[float(row)] * 768 for row in range(10)], pa.list_(pa.float32()))
    values, bad = matrix(pa.chunked_array([small] * 5), np.float32)
    assert values.shape == (50, 768)
    np.testing.assert_array_equal(values[:, 7], np.tile(np.arange(10), 5))
    assert not bad.any()
    assert matrix(pa.chunked_array([], FIXED), np.float32)[0].shape == (0, 2)


C41 = {
    "decimal": (
        pa.array([decimal.Decimal("1.10"), decimal.Decimal("2.25"), None]),
        [1.1, 2.25, 0],
        [0, 0, 1],
    ),
    "boolean": (pa.array([True, None, False]), [1, 0, 0], [0, 1, 0]),
    "integer": (pa.array([1, None], pa.int32()), [1, 0], [0, 1]),
    "unsigned": (pa.array([2**64 - 1, 1], pa.uint64()), [2.0**64, 1], [0, 0]),
    "half": (pa.array([np.float16(0.5), None], pa.float16()), [0.5, 0], [0, 1]),
    "dictionary": (pa.array([7, None, 9]).dictionary_encode(), [7, 0, 9], [0, 1, 0]),
    "nothing": (pa.nulls(2), [0, 0], [1, 1]),
}


@pytest.mark.parametrize("name", C41)
def test_c41_numbers_of_every_kind(name: str) -> None:
    array, expected, wrong = C41[name]
    values, bad = numbers(pa.chunked_array([array.slice(0, 1), array.slice(1)]))
    assert values.dtype == np.float64
    assert (values.tolist(), bad.tolist()) == (expected, [bool(each) for each in wrong])


@pytest.mark.parametrize(
    "array, told",
    [
        (pa.array([dt.datetime(2024, 1, 1), None]), "timestamp.*stated unit"),
        (pa.array([dt.date(2024, 1, 1)]), "date32.*stated unit"),
        (pa.array([dt.timedelta(1)]), "duration.*stated unit"),
        (pa.array(["1"]), "string.*Convert it to numbers"),
    ],
)
def test_c41_what_is_no_number_is_refused_by_name(array: pa.Array, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        numbers(array)
    with pytest.raises(UsageError, match="vectors of numbers"):
        matrix(pa.array([array.to_pylist()], pa.list_(array.type)), np.float32)


def test_c31_arrays_of_every_layout_are_the_same_column() -> None:
    a = np.random.default_rng(0).normal(size=(5, 8)).astype("f4")
    a.setflags(write=False)
    before = a.copy()
    strided = np.repeat(a, 2, axis=1)[:, ::2]
    for form in (
        a,
        a.astype("f8"),
        np.asfortranarray(a),
        strided,
        a.astype(">f4"),
        a.astype(object),
        a[::-1][::-1],
    ):
        values, bad = matrix(column(form, "e"), np.float32)
        np.testing.assert_array_equal(values, a)
        assert not bad.any()
        values[:] = 0  # the result is its own memory
    np.testing.assert_array_equal(a, before)
    masked = np.ma.masked_array(a, np.eye(5, 8, k=3, dtype=bool)[:, ::1])
    assert matrix(column(masked, "e"), np.float32)[1].all()
    assert numbers(column(np.ma.masked_array([1, 2], [True, False]), "x"))[1].tolist() == [True, False]
    with pytest.raises(UsageError, match="real numbers in column 'e'; got complex64"):
        column(a.astype("c8"), "e")


def test_c31_objects_and_tensors() -> None:
    import torch

    rows = np.empty(2, object)
    rows[:] = [np.array([1.0, 2.0], "f4"), np.array([3.0, 4.0], "f4")]
    np.testing.assert_array_equal(matrix(column(rows, "e"), np.float32)[0], PAIRS)
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64):
        tensor = torch.tensor(PAIRS, dtype=dtype)
        np.testing.assert_array_equal(matrix(column(tensor.T.contiguous().T, "e"), np.float32)[0], PAIRS)
    grad = torch.tensor(PAIRS, requires_grad=True)
    np.testing.assert_array_equal(matrix(column(grad, "e"), np.float32)[0], PAIRS)
    assert column(np.array(["a", None], object), "c").to_pylist() == ["a", None]
    assert matrix(column(np.array([[1, None], [2, 3]], object), "e"), np.float32)[1].tolist() == [True, False]


@pytest.mark.parametrize(
    "data, told",
    [
        ({"e": np.zeros((2, 2, 2))}, r"column 'e' as \[n\] or \[n, d\]; got shape \[2, 2, 2\]"),
        ({"e": np.array([["a", "b"]], object)}, "numbers in column 'e'"),
        ({"e": np.array([1, "a"], object)}, "one kind in column 'e'"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "one length; got a: 2, b: 3"),
        (3.0, "a path, a table"),
        ({"e": np.zeros((3, 0))}, "at least one number"),
    ],
)
def test_data_in_memory_that_cannot_be_read(data: Any, told: str) -> None:
    with pytest.raises(LocdistError, match=told):
        table(data)


def test_data_in_memory_of_other_kinds() -> None:
    structured = np.array([(1, 2.5)], [("id", "i8"), ("x", "f8")])
    assert table(structured).to_pydict() == {"id": [1], "x": [2.5]}
    assert table(np.array(PAIRS)).column_names == ["key"]
    batch = pa.record_batch({"x": [1, 2]})
    assert (
        table(batch).to_pydict()
        == table(pa.RecordBatchReader.from_batches(batch.schema, [batch])).to_pydict()
    )


def test_c63_labels_keep_their_type_and_length() -> None:
    labels = pa.chunked_array([["cat", "elephant"], ["hippopotamus", None, "cat"]])
    vocabulary = distinct(labels)
    assert vocabulary.to_pylist() == ["cat", "elephant", "hippopotamus"]
    for form in (
        labels,
        labels.cast(pa.large_string()),
        labels.dictionary_encode(),
        labels.cast(pa.string_view()),
    ):
        assert codes(form, vocabulary).tolist() == [0, 1, 2, -2, 0]
    assert codes(pa.array(["dog", None]), vocabulary).tolist() == [-1, -2]
    assert distinct(pa.array([True, False, None])).type == pa.bool_()
    large = pa.array([2**53 + 1, 2**53], pa.int64())
    assert codes(large, distinct(large)).tolist() == [1, 0]
    assert codes(pa.array([3, 300]), pa.array([3], pa.uint8())).tolist() == [0, -1]
    with pytest.raises(DataError, match="type int64"):
        codes(pa.array([1]), vocabulary)


def test_targets_are_side_by_side() -> None:
    data = pa.table({"a": [1, 2, None], "b": [0.5, np.nan, 1.0]})
    values, bad = targets(data, ["b", "a"])
    assert (values.tolist(), bad.tolist()) == ([[0.5, 1], [0, 2], [1, 0]], [False, True, True])
    assert targets(data, [])[0].shape == (3, 0)


def test_vectors_is_the_way_back() -> None:
    values = np.arange(6, dtype="f4").reshape(3, 2)
    column = vectors(values[::-1])
    assert column.type == pa.list_(pa.float32(), 2)
    assert column.to_pylist() == [[4, 5], [2, 3], [0, 1]]
    np.testing.assert_array_equal(matrix(vectors(values), np.float32)[0], values)


@pytest.mark.parametrize("dtype, small", [("f4", 1e-30), ("f8", 1e-170)])
def test_directions_of_rows_of_any_length(dtype: str, small: float) -> None:
    rows = np.array([[3, 4], [3 * small, 4 * small], [0, 0], [np.inf, 1]], dtype)
    points, zero = directions(rows)
    assert points.dtype == rows.dtype
    np.testing.assert_allclose(points[:2], [[0.6, 0.8]] * 2, rtol=1e-6)
    assert zero.tolist() == [False, False, True, False]
    assert np.isnan(points[3]).any()
