"""Columns of every layout and type are the same matrix, or are refused by name; nothing shifts."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.errors import DataError, UsageError
from tests.cases.arrangement import Arrangement, found

PAIRS = [[1.0, 2.0], [3.0, 4.0]]
FIXED = pa.list_(pa.float32(), 2)


def vectors(rows: Any, kind: pa.DataType = FIXED) -> pa.Array:
    return pa.array(rows, kind)


def test_vectors_of_every_layout_are_one_column(arrangement: Arrangement) -> None:
    """C07: fixed-size lists, lists of doubles, lists that lost their size on the way, tensors, and arrays of
    rows as Ray and Dask hand them over: alone or as one dataset, the same neighbors.
    """
    objects = np.empty(2, object)
    objects[:] = [np.array(row, "f4") for row in PAIRS]
    layouts = {
        "a.parquet": vectors(PAIRS),
        "b.parquet": vectors(PAIRS, pa.list_(pa.float64())),
        "c.parquet": vectors(PAIRS, pa.large_list(pa.float32())),
        "d.parquet": pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(PAIRS, "f4")),
        "e.parquet": pa.array(objects),
        "f.parquet": vectors(PAIRS),
    }
    tables = {
        name: pa.table({"e": column, "id": [10 * number, 10 * number + 1]})
        for number, (name, column) in enumerate(layouts.items())
    }
    files = arrangement.files(tables)
    pq.write_table(tables["f.parquet"], files[0].parent / "f.parquet", store_schema=False)
    index = arrangement.build(files, key="e")
    ids = [number for table in tables.values() for number in table["id"].to_pylist()]
    near = {parity: sorted(number for number in ids if number % 2 == parity) for parity in (0, 1)}
    answers = arrangement.ask(6, index, files)
    assert found(answers) == [near[number % 2] for number in sorted(ids)]
    for file in files:
        assert found(ld.neighbors(index, file, k=6)) == [near[0], near[1]]


DRIFT = {
    "a.parquet": pa.table({"id": [0, 1], "x": pa.nulls(2)}),
    "b.parquet": pa.table({"id": [2, 3], "x": [1, 2]}),
    "c.parquet": pa.table({"id": [4], "x": [1.5]}),
    "e.parquet": pa.table({"id": [5], "x": pa.array([2.5], pa.float32())}),
}


def test_a_type_that_drifts_from_file_to_file_is_promoted(arrangement: Arrangement) -> None:
    """C08: nulls, integers, doubles and floats are doubles, whichever file is first."""
    files = arrangement.files(DRIFT)
    support = ld.dataset(files, key="x", target="x", id="id")
    assert support.source.schema.field("x").type == pa.float64()
    with pytest.raises(DataError, match=r"2 of 6 rows.*2 null in 'x' \(first: row 0 of a\.parquet\)"):
        arrangement.build(files, key="x", target="x")
    index = arrangement.build(files, "drop", key="x", target="x")
    answers = arrangement.ask(ld.knn(1), index, files)
    assert answers["prediction"].to_pylist() == [None, None, 1, 2, 1.5, 2.5]
    files += arrangement.files({"f.parquet": pa.table({"id": [6], "x": ["1.5"]})})
    with pytest.raises(DataError, match=r"one type of column 'x' in all files.*f\.parquet"):
        ld.dataset(files, key="x")


def test_a_null_vector_shifts_no_other(arrangement: Arrangement) -> None:
    """C09: id 2 keeps its own vector and label behind a null; a file of nulls is legal and adds no row."""
    tables = {
        "a.parquet": {"id": [0, 1, 2], "e": vectors([[1, 2], None, [5, 6]]), "y": [10.0, 20.0, 30.0]},
        "b.parquet": {"id": [3], "e": pa.nulls(1, FIXED), "y": [40.0]},
    }
    files = arrangement.files({name: pa.table(columns) for name, columns in tables.items()})
    with pytest.raises(DataError, match="2 null in 'e'"):
        arrangement.build(files, key="e", target="y")
    index = arrangement.build(files, "drop", key="e", target="y")
    assert index.layout.rows == 2
    answers = arrangement.ask(ld.knn(1), index, files, explain=1)
    assert answers["prediction"].to_pylist() == [10, None, 30, None]
    assert answers["status"].to_pylist() == ["ok", "bad_query", "ok", "bad_query"]
    assert [pair[0]["distance"] for pair in answers["neighbors"].to_pylist() if pair] == [0, 0]


COLUMNS = {
    "a.parquet": pa.table({"id": [0], "x": [1.0], "y": [2.0]}),
    "b.parquet": pa.table({"id": [1], "y": [20.0], "x": [10.0]}),
    "e.parquet": pa.table({"id": [3], "x": [4.0], "y": [5.0], "z": [6.0]}),
}


def test_columns_are_found_by_name_in_each_file(arrangement: Arrangement) -> None:
    """C22: their order differs, one file has more, and one that lacks a column is named before any work."""
    files = arrangement.files(COLUMNS)
    index = arrangement.build(files, key="x", target="y", scaling="none")
    answers = arrangement.ask(ld.knn(1), index, files)
    assert answers["prediction"].to_pylist() == [2, 20, 5]
    fewer = files + arrangement.files({"c.parquet": pa.table({"id": [2], "y": [3.0]})})
    told = r"column 'x' in every file; got .*c\.parquet without it"
    with pytest.raises(DataError, match=told):
        ld.dataset(fewer, key="x", target="y")
    with pytest.raises(DataError, match=told):
        ld.predict(ld.knn(1), index, fewer, arrangement.folder("out"))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_arrays_of_every_memory_layout_are_the_same_and_stay_what_they_are(
    arrangement: Arrangement, metric: str
) -> None:
    """C31: doubles, Fortran order, strides, big-endian, objects and half precision; a mask is a gap, and what
    is behind it is not read.
    """
    keys = np.random.default_rng(0).integers(-9, 9, (50, 8)).astype("f4")
    index = arrangement.build({"e": keys, "y": np.arange(50.0)}, key="e", target="y", metric=metric)
    some = keys[:5]
    some.setflags(write=False)
    forms = {
        "double": some.astype("f8"),
        "columns": np.asfortranarray(some),
        "strides": np.repeat(some, 2, axis=1)[:, ::2],
        "endian": some.astype(">f4"),
        "objects": some.astype(object),
        "half": some.astype("f2"),
    }
    expected = ld.neighbors(index, {"e": some}, k=3)["neighbors"].to_pylist()
    memory = ld.Exact(keys, np.arange(50.0), metric=metric)
    answers = ld.knn(3)(memory, some, want={"neighbors"})
    for name, form in forms.items():
        before = form.copy()
        assert ld.neighbors(index, {"e": form}, k=3)["neighbors"].to_pylist() == expected, name
        here = ld.knn(3)(ld.Exact(np.array(keys, form.dtype), np.arange(50.0), metric=metric), form)
        np.testing.assert_allclose(here.values, answers.values, 1e-6, err_msg=name)
        np.testing.assert_array_equal(form, before)
    masked = np.ma.masked_array(some, np.eye(5, 8, dtype=bool))
    assert ld.neighbors(index, {"e": masked}, k=3)["status"].to_pylist() == ["bad_query"] * 5
    assert {ld.Status(code) for code in ld.knn(3)(memory, masked).status.tolist()} == {ld.Status.BAD_QUERY}


def test_arrays_that_are_no_real_numbers_are_refused_by_name() -> None:
    """C31: an imaginary part is not dropped, a mask of the support is not read through, an id is no float."""
    keys = np.eye(3, dtype="f4")
    for refused in (
        lambda: ld.dataset({"e": keys.astype("c8")}, key="e"),
        lambda: ld.Exact(keys.astype("c8")),
        lambda: ld.knn(1)(ld.Exact(keys, [1, 2, 3]), keys.astype("c8")),
    ):
        with pytest.raises(UsageError, match=r"real numbers.*complex64"):
            refused()
    mask = np.eye(3, dtype=bool)
    for parts in (
        {"keys": np.ma.masked_array(keys, mask)},
        {"keys": keys, "targets": np.ma.masked_array([1.0, 2, 3], mask[0])},
        {"keys": keys, "targets": np.ma.masked_array(["a", "b", "c"], mask[0])},
        {"keys": keys, "weights": np.ma.masked_array([1.0, 2, 3], mask[0])},
    ):
        with pytest.raises(UsageError, match=r"[Mm]asked"):
            ld.Exact(**parts)
    with pytest.raises(UsageError, match=r"integers or strings in column 'id'.*got type double"):
        ld.dataset({"e": keys, "id": np.arange(3.0)}, key="e", id="id")


def test_lists_that_became_text_are_refused_and_not_taken_for_names(arrangement: Arrangement) -> None:
    """C32: a data frame of Dask turns lists into text, which would be categories; read by locdist they are
    lists.
    """
    text = pa.table({"id": [0, 1], "e": [str(row) for row in PAIRS], "y": [0.0, 1.0]})
    told = r"lists as text: '\[1\.0, 2\.0\]'.*dataframe\.convert-string"
    with pytest.raises(DataError, match=told):
        arrangement.build(text, key="e", target="y")
    with pytest.raises(DataError, match=told):
        arrangement.build(text, key="y", features="e", target="y")
    rows = pa.table({"id": [0, 1], "e": PAIRS, "y": [0.0, 1.0]})
    index = arrangement.build(rows, key="e", target="y")
    assert arrangement.ask(ld.knn(1), index, rows)["prediction"].to_pylist() == [0, 1]
    with pytest.raises(DataError, match=r"vector of double; got type string.*dataframe\.convert-string"):
        arrangement.ask(ld.knn(1), index, text)
    names = text.set_column(1, "e", pa.array(["[north]", "[1] south"]))
    assert arrangement.build(names, key="e").layout.width == 2


def test_what_a_dask_data_frame_makes_of_lists_is_refused(arrangement: Arrangement) -> None:
    """C32, with Dask itself: at once where its partitions are predicted, and where they are a support; with
    its setting the vectors arrive.
    """
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    dask = pytest.importorskip("dask")
    rows = pd.DataFrame({"id": [0, 1], "e": PAIRS})
    frame = dd.from_pandas(rows, npartitions=1)
    assert "str" in str(frame.compute()["e"].dtype)
    with pytest.raises(DataError, match=r"dataframe\.convert-string"):
        ld.transform(ld.knn(1), ld.dataset(frame.compute(), key="e", target="id"))
    index = arrangement.build({"e": PAIRS, "y": [0.0, 1.0]}, key="e", target="y")
    with pytest.raises(DataError, match=r"dataframe\.convert-string"):
        ld.dask.predict(frame, ld.knn(1), index)
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "sync"}):
        kept = dd.from_pandas(rows, npartitions=arrangement.parts)
        answers = ld.dask.predict(kept, ld.knn(1), index).compute()
    assert answers["prediction"].tolist() == [0, 1]


SPELLED = {"codes": ["01001", "01002", "2A001"], "dates": ["2024-01-01", "2024-01-02"]}


@pytest.mark.parametrize("values", SPELLED.values(), ids=SPELLED.keys())
def test_what_folders_spell_is_text_whatever_it_looks_like(
    arrangement: Arrangement, values: list[str]
) -> None:
    """C38: 01001 keeps its zeros, with or without a folder beside it that has a letter."""
    folder = arrangement.folder("hive")
    for number in arrangement.order(len(values)):
        place = folder / f"code={values[number]}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number], "x": [1.0], "y": [float(number)]}), place / "a.parquet")
    alike = ld.dataset(f"{folder}/code={values[0][0]}*1", key="x").source
    assert alike.schema.field("code").type == pa.string()
    index = arrangement.build(folder, key=["x", "code"], target="y")
    assert index.key.columns[1].vocabulary == tuple(sorted(values))
    out = arrangement.folder("out")
    ld.predict(ld.knn(1), index, folder, out, keep=["id", "code"])
    answers = pa.concat_tables(pq.read_table(file) for file in sorted(out.glob("*.parquet")))
    assert dict(zip(answers["id"].to_pylist(), answers["code"].to_pylist(), strict=True)) == dict(
        enumerate(values)
    )
    assert answers["prediction"].to_pylist() == answers["id"].to_pylist()


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()], ids=str)
def test_a_column_in_the_file_wins_over_its_folder_and_may_not_contradict_it(
    arrangement: Arrangement, kind: pa.DataType
) -> None:
    """C39: one column, with the type of the file; another value than the folder's is an error that names the
    file.
    """
    folder = arrangement.folder("hive")
    for value, name in (("1", "a"), ("2", "b")):
        (folder / f"code={value}").mkdir(parents=True)
        rows = pa.table({"x": [float(value)], "id": [int(value)], "code": pa.array([int(value)]).cast(kind)})
        pq.write_table(rows, folder / f"code={value}" / f"{name}.parquet")
    files = [sorted(folder.rglob("*.parquet"))[number] for number in arrangement.order(2)]
    index = arrangement.build(files, key="x", target="code")
    answers = arrangement.ask(ld.local_vote(1), index, files)
    assert answers["label"].to_pylist() == pa.array([1, 2]).cast(kind).to_pylist()
    rows = pa.table({"x": [2.0], "id": [2], "code": pa.array([3]).cast(kind)})
    pq.write_table(rows, folder / "code=2" / "b.parquet")
    with pytest.raises(DataError, match=r"code=2 in .*b\.parquet, as its folder says"):
        arrangement.build(files, key="x", target="code")


KINDS = {
    "fixed": pa.list_(pa.float32(), 3),
    "list": pa.list_(pa.float32()),
    "large": pa.large_list(pa.float32()),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_slices_of_a_larger_block_keep_their_own_vectors(arrangement: Arrangement, kind: pa.DataType) -> None:
    """C40: rows 1 and 2 of a table, and rows 1 and 3 in two chunks, as the batches of engines are cut."""
    whole = vectors(np.arange(12.0).reshape(4, 3).tolist(), kind)
    table = pa.table({"id": [0, 1, 2, 3], "e": whole}).slice(1, 2)
    chunks = pa.table({"id": [1, 3], "e": pa.chunked_array([whole.slice(1, 1), whole.slice(3, 1)])})
    index = ld.build_index(ld.dataset(chunks, key="e", id="id"), arrangement.folder("index"))
    for rows in (table, arrangement.write(table)):
        answers = ld.neighbors(index, rows, k=2).sort_by("id")
        told = [
            [(pair["id"], round(pair["distance"], 5)) for pair in row]
            for row in answers["neighbors"].to_pylist()
        ]
        assert told == [[(1, 0.0), (3, 10.3923)], [(1, 5.19615), (3, 5.19615)]]
