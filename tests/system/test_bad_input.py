"""What bad input gets: a clear error before any work, or the stated policy. Nothing lost, no half files."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, TooManyBadRows, UsageError
from locdist.jobs.status import status
from locdist.plan.records import history
from locdist.search.layout import Dropped
from tests.system import generated
from tests.system.generated import parts, read, write

SUPPORT, QUERIES = generated.table(300, seed=12), generated.table(60, seed=13)
ROLES: dict[str, Any] = {
    "key": ["a", "b"],
    "features": ["f1", "f2"],
    "target": "y",
    "weight": "w",
    "id": "id",
}
METHOD = ld.local_linear(20)
NAN, INF = float("nan"), float("inf")


def changed(rows: pa.Table, column: str, values: dict[int, Any]) -> pa.Table:
    """The rows with other values in one column."""
    new = rows[column].to_pylist()
    for row, value in values.items():
        new[row] = value
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, column, pa.array(new, rows.schema.field(column).type))


def assert_nothing_ran(out: Path) -> None:
    """No data and no finished task."""
    assert parts(out) == {}
    assert history(Store.at(out)).records == {}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(SUPPORT, tmp_path / "support")
    write(QUERIES, tmp_path / "queries")
    return tmp_path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> ld.Generation:
    return ld.build_index(ld.dataset(SUPPORT, **ROLES), tmp_path_factory.mktemp("built") / "index")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> ld.Generation:
    support = ld.dataset(SUPPORT, key="embedding", target="word")
    return ld.build_index(support, tmp_path_factory.mktemp("vectors") / "index")


# ----------------------------------------------------------------------------------- columns and choices

DECLARED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"key": ["a", "bb"]}, r"'bb'.*Did you mean 'b'"),
    "unknown target": ({"target": "Y"}, r"'Y'.*Did you mean 'y'"),
    "unknown weight": ({"weight": "weight"}, r"'weight'"),
    "a target that is a vector": ({"target": "embedding"}, r"numbers or classes in column 'embedding'"),
    "a weight that is a word": ({"weight": "word"}, r"numbers in column 'word', the weight; got type string"),
    "an id that is a float": ({"id": "a"}, r"integers or strings in column 'a', the id; got type double"),
    "no key": ({"key": []}, r"at least one column as the key"),
    "a key twice": ({"key": ["a", "a"]}, r"each column of the key once"),
    "an unknown metric": ({"metric": "cosin"}, r"l2, cosine, haversine, ip; got 'cosin'.*cosine"),
    "an unknown scaling": ({"scaling": "standart"}, r"standard, none; got 'standart'"),
    "a negative multiplier": ({"key": {"a": -1.0}}, r"a positive multiplier for 'a'; got -1"),
}


@pytest.mark.parametrize("roles, told", DECLARED.values(), ids=DECLARED.keys())
def test_roles_are_checked_when_the_dataset_is_declared(roles: dict[str, Any], told: str, place: Path):
    with pytest.raises(UsageError, match=told):
        ld.dataset(place / "support", **ROLES | roles)


ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "k above the rows": ({"method": ld.knn(301)}, r"k of at most 300.*got 301\. Choose a smaller k"),
    "unknown column to keep": ({"keep": "idd"}, r"'idd'.*Did you mean 'id'"),
    "a kept column with the name of an answer": (
        {"queries": QUERIES.append_column("status", QUERIES["word"]), "keep": ["id", "status"]},
        r"kept columns besides those of the output.*got status\. Rename them",
    ),
    "unknown extra": (
        {"extras": ["spreads"]},
        r"spread, effective, neglected, coefficients, parameters, interval; got 'spreads'",
    ),
    "negative explain": ({"explain": -1}, r"explain.*of 0 or more; got -1"),
    "limit of 0": ({"limit": 0}, r"a limit of at least one row; got 0"),
    "negative max_bad": ({"max_bad": -1}, r"max_bad as a share below 1.*got -1"),
    "attention on distances": (
        {"method": ld.local_mean(5, "dot-product")},
        r"dot-product.*metric 'ip'.*'dot-product'.*metric 'l2'",
    ),
    "votes on numbers": (
        {"method": ld.local_vote(5)},
        r"a single target of classes for local-vote; got.*'y'",
    ),
    "unknown method": ({"method": "local-liner"}, r"'local-liner'\. Did you mean 'local-linear'"),
    "unknown parameter": (
        {"method": {"name": "knn", "kk": 3}},
        r"a parameter of knn.*; got 'kk'\. Did you mean 'k'",
    ),
    "k of zero": ({"method": {"name": "knn", "k": 0}}, r"k, a whole number of at least 1; got 0"),
    "recall of 2": ({"recall": 2.0}, r"recall above 0, at most 1; got 2\.0"),
}


@pytest.mark.parametrize("asked, told", ASKED.values(), ids=ASKED.keys())
def test_choices_are_checked_before_any_work(
    asked: dict[str, Any], told: str, index: ld.Generation, place: Path
):
    words = {"method": METHOD, "index": index, "queries": place / "queries", "out": place / "out"} | asked
    with pytest.raises(UsageError, match=told):
        ld.predict(**words)
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda index, out: ld.neighbors(index, QUERIES, out, k=301), r"k from 1 to the 300 rows.*got 301"),
        (lambda index, out: ld.neighbors(index, QUERIES, out, k=0), r"k from 1 to the 300 rows.*got 0"),
        (
            lambda index, out: ld.transform(ld.knn(300), ld.dataset(SUPPORT, **ROLES), out),
            r"k of at most 299.*got 300",
        ),
    ],
    ids=["neighbors", "none", "transform"],
)
def test_more_neighbors_than_rows(
    call: Callable[[ld.Generation, Path], object], told: str, index: ld.Generation, place: Path
):
    with pytest.raises(UsageError, match=told):
        call(index, place / "out")
    assert_nothing_ran(place / "out")


BUILT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "unknown codes": ({}, {"codes": "fp8"}, r"'exact', 'fp16' or 'flat'; got 'fp8'"),
    "lists for scores": (
        {"key": "embedding", "metric": "ip"},
        {"codes": "flat"},
        r"codes 'exact' with the inner product; got 'flat'",
    ),
    "more lists than rows": (
        {},
        {"codes": "flat", "nlist": 301},
        r"nlist between 1 and the 300 rows; got 301",
    ),
    "recall of 0": ({}, {"recall": 0.0}, r"recall above 0, at most 1; got 0\.0"),
    "unknown policy": ({}, {"bad": "ignore"}, r"bad as 'raise' or 'drop'; got 'ignore'"),
}


@pytest.mark.parametrize("roles, build, told", BUILT.values(), ids=BUILT.keys())
def test_options_of_an_index_are_checked_before_any_work(
    roles: dict[str, Any], build: dict[str, Any], told: str, place: Path
):
    with pytest.raises(UsageError, match=told):
        ld.build_index(ld.dataset(place / "support", **ROLES | roles), place / "index", **build)
    assert_nothing_ran(place / "index")


def _without(column: str) -> pa.Table:
    return QUERIES.drop_columns([column])


def _renamed(old: str, new: str) -> pa.Table:
    return QUERIES.rename_columns([new if name == old else name for name in QUERIES.schema.names])


MISFITS: dict[str, tuple[str, pa.Table, str]] = {
    "a key is missing": ("index", _renamed("b", "B"), r"column 'b' of the key; got .*'B'.*Did you mean 'B'"),
    "a feature is missing": ("index", _without("f2"), r"column 'f2' of the features; got .*'f1'"),
    "a key of words": (
        "index",
        _without("b").append_column("b", QUERIES["word"]),
        r"column 'b' of the key.*number.*got .*string",
    ),
    "wider vectors": (
        "vectors",
        generated.table(60, seed=14, width=7),
        r"6.*'embedding'.*7|'embedding'.*6.*7",
    ),
    "a number for a vector": (
        "vectors",
        _without("embedding").append_column("embedding", QUERIES["a"]),
        r"'embedding'.*vector.*double",
    ),
}


@pytest.mark.parametrize("fixture, queries, told", MISFITS.values(), ids=MISFITS.keys())
def test_queries_that_do_not_fit_the_index(
    fixture: str, queries: pa.Table, told: str, request: pytest.FixtureRequest, tmp_path: Path
):
    index = request.getfixturevalue(fixture)
    method = METHOD if fixture == "index" else ld.local_vote(5)
    data = write(queries, tmp_path / "queries", files=1)
    for out in (tmp_path / "out", None):
        with pytest.raises(DataError, match=told):
            ld.predict(method, index, data, out)
    assert_nothing_ran(tmp_path / "out")


def test_a_refused_request_can_be_corrected_in_the_same_folder(index: ld.Generation, tmp_path: Path):
    """Nothing was pinned: the folder is still free."""
    with pytest.raises(DataError, match="column 'b'"):
        ld.predict(METHOD, index, _renamed("b", "B"), tmp_path / "out")
    assert ld.predict(METHOD, index, QUERIES, tmp_path / "out").rows == 60


# ------------------------------------------------------------------------------------- rows of the support

SPOILED: dict[str, tuple[str, Any, str]] = {
    "null in the key": ("a", None, "null"),
    "nan in the key": ("b", NAN, "not finite"),
    "infinity in the key": ("a", -INF, "not finite"),
    "null in a feature": ("f1", None, "null"),
    "infinity in a feature": ("f2", INF, "not finite"),
    "null in the target": ("y", None, "null"),
    "nan in the target": ("y", NAN, "not finite"),
    "null in the weight": ("w", None, "null"),
    "a negative weight": ("w", -0.5, "negative"),
    "null in the id": ("id", None, "null"),
}


@pytest.mark.parametrize("column, value, reason", SPOILED.values(), ids=SPOILED.keys())
def test_bad_rows_of_the_support_raise_or_are_dropped(column: str, value: Any, reason: str, tmp_path: Path):
    spoiled = changed(SUPPORT, column, {290: value, 299: value})
    support = ld.dataset(write(spoiled, tmp_path / "support"), **ROLES)
    file_row = 290 - sum(pq.read_metadata(tmp_path / f"support/part-{n}.parquet").num_rows for n in (0, 1))
    told = (
        rf"2 of 300 rows .* 2 {reason} in '{column}' \(first: row {file_row} of .*part-2\.parquet\).*'drop'"
    )
    with pytest.raises(DataError, match=told):
        ld.build_index(support, tmp_path / "index")
    with pytest.raises(DataError, match=r"without manifest\.json"):
        ld.open_index(tmp_path / "index")
    index = ld.build_index(support, tmp_path / "dropped", bad="drop")
    assert index.layout.rows == 298
    assert index.layout.source.dropped == (Dropped(column, reason, 2),)
    rest = SUPPORT.slice(0, 290).combine_chunks()
    rest = pa.concat_tables([rest, SUPPORT.slice(291, 8)])
    clean = ld.build_index(ld.dataset(rest, **ROLES), tmp_path / "clean")
    answers, expected = (ld.predict(METHOD, each, QUERIES) for each in (index, clean))
    np.testing.assert_allclose(answers["prediction"], expected["prediction"], 1e-9)


def test_bad_rows_of_a_vector_key(tmp_path: Path):
    values = {3: None, 5: [NAN] * 6, 7: [1.0] * 5 + [None], 9: [0.0] * 6}
    support = changed(SUPPORT, "embedding", values)
    with pytest.raises(DataError, match=r"3 of 300 rows.*2 null|1 not finite in 'embedding'"):
        ld.build_index(ld.dataset(support, key="embedding"), tmp_path / "l2")
    with pytest.raises(DataError, match=r"1 zero vector in 'embedding'"):
        ld.build_index(ld.dataset(support, key="embedding", metric="cosine"), tmp_path / "cosine")
    index = ld.build_index(
        ld.dataset(support, key="embedding", metric="cosine"), tmp_path / "cosine", bad="drop", overwrite=True
    )
    assert index.layout.rows == 296


def test_dropped_rows_keep_their_own_output_row(tmp_path: Path):
    """A row without a target is nobody's neighbor, and is still predicted."""
    support = ld.dataset(changed(SUPPORT, "y", {4: None}), **ROLES)
    with pytest.raises(DataError, match="1 null in 'y'"):
        ld.transform(METHOD, support, tmp_path / "raise")
    report = ld.transform(METHOD, support, tmp_path / "drop", bad="drop")
    answers = read(tmp_path / "drop")
    assert answers.num_rows == 300
    assert answers["id"].equals(SUPPORT["id"])
    assert answers["prediction"][4].is_valid
    assert report.diagnostics.n == 299


def test_a_support_without_a_single_good_row(tmp_path: Path):
    nothing = pa.table({"a": pa.array([None, NAN]), "y": [1.0, 2.0]})
    support = ld.dataset(nothing, key="a", target="y")
    with pytest.raises(DataError, match=r"at least one good row.*got .*1 not finite.*1 null|null in 'a'"):
        ld.build_index(support, tmp_path / "index", bad="drop")


# ---------------------------------------------------------------------------------------- rows of the queries


def spoiled_queries() -> pa.Table:
    rows = changed(QUERIES, "a", {0: None, 7: NAN})
    return changed(rows, "f1", {7: INF, 41: -INF})


def test_bad_queries_are_null_and_told(index: ld.Generation, tmp_path: Path):
    queries = write(spoiled_queries(), tmp_path / "queries")
    words = {"extras": ["spread", "effective", "coefficients"], "explain": 2}
    report = ld.predict(METHOD, index, queries, tmp_path / "out", **words)
    answers = read(tmp_path / "out")
    bad = [0, 7, 41]
    assert [row for row, status in enumerate(answers["status"].to_pylist()) if status == "bad_query"] == bad
    for name in ("prediction", "spread", "effective", "coefficients"):
        assert [row for row, value in enumerate(answers[name].to_pylist()) if value is None] == bad, name
    assert [row for row, found in enumerate(answers["neighbors"].to_pylist()) if not found] == bad
    assert answers["id"].equals(QUERIES["id"])
    assert (report.rows, report.bad_rows) == (60, 3)
    assert report.reasons == {"null in 'a'": 1, "not finite in 'a'": 1, "not finite in 'f1'": 2}
    quarantine = pq.read_table(tmp_path / "out/_locdist/quarantine/part-00000.parquet").to_pylist()
    told = [(row["query"], row["column"], row["reason"], row["value"]) for row in quarantine]
    assert sorted(told) == [
        (0, "a", "null", None),
        (7, "a", "not finite", "nan"),
        (7, "f1", "not finite", "inf"),
        (41, "f1", "not finite", "-inf"),
    ]
    good = QUERIES.filter([row not in bad for row in range(60)])
    expected = ld.predict(METHOD, index, good, **words)
    here = answers.filter([row not in bad for row in range(60)])
    np.testing.assert_allclose(here["prediction"], expected["prediction"], 1e-12)


def test_a_vector_of_another_length_is_a_bad_query(vectors: ld.Generation, tmp_path: Path):
    """Lists of any length say their length row by row; those of fixed length are refused before any work."""
    rows = QUERIES["embedding"].to_pylist()
    rows[41], rows[42] = [*rows[41], 1.0], []
    queries = pa.table({"embedding": pa.array(rows, pa.list_(pa.float32()))})
    report = ld.predict(ld.local_vote(3), vectors, queries, tmp_path / "out")
    assert report.reasons == {"wrong length in 'embedding'": 2}
    answers = read(tmp_path / "out")
    assert [row for row, label in enumerate(answers["label"].to_pylist()) if label is None] == [41, 42]


def test_neighbors_of_bad_queries(index: ld.Generation):
    found = ld.neighbors(index, spoiled_queries(), k=4)
    assert found["status"].to_pylist().count("bad_query") == 3
    assert found["neighbors"][0].as_py() == []


@pytest.mark.parametrize("allowed", [2, 0, 0.01], ids=["number", "none", "share"])
def test_more_bad_queries_than_allowed_is_an_error_after_the_work(
    allowed: float, index: ld.Generation, tmp_path: Path
):
    with pytest.raises(
        TooManyBadRows, match=r"at most .* bad queries of 60; got 3 .*quarantine; raise max_bad"
    ):
        ld.predict(METHOD, index, spoiled_queries(), tmp_path / "out", max_bad=allowed)
    assert read(tmp_path / "out").num_rows == 60
    told = status(tmp_path / "out")
    assert (told.state, told.exit_code) == ("finished", 5)
    assert "raise max_bad" in told.message
    assert told.message in str(told)
    report = ld.predict(METHOD, index, spoiled_queries(), tmp_path / "out", max_bad=0.05)
    assert report.bad_rows == 3
    assert status(tmp_path / "out").exit_code == 0


@pytest.mark.parametrize("codes", ["exact", "flat", "fp16"])
@pytest.mark.parametrize("size", [1e10, 1e18, 3e19, 3e38])
def test_a_query_so_far_away_that_distances_overflow_stops_nobody(size: float, codes: str, tmp_path: Path):
    """FAISS finds nobody for it, neither rows nor lists."""
    index = ld.build_index(ld.dataset(SUPPORT, key="embedding", target="y"), tmp_path / "index", codes=codes)
    answers = ld.predict(ld.local_mean(10), index, changed(QUERIES, "embedding", {5: [size] * 6}))
    expected = ld.predict(ld.local_mean(10), index, QUERIES)
    others = [row != 5 for row in range(60)]
    np.testing.assert_allclose(answers.filter(others)["prediction"], expected.filter(others)["prediction"])
    value, status = answers["prediction"][5].as_py(), answers["status"][5].as_py()
    assert status == "ok" if size < 1e19 else (value is None and status in ("empty", "not_finite"))


@pytest.mark.parametrize("codes", ["exact", "flat", "fp16"])
def test_keys_whose_distances_overflow_are_refused(codes: str, tmp_path: Path):
    """FAISS's k-means would end the process."""
    far = changed(SUPPORT, "embedding", {number: [1e25] * 6 for number in range(0, 300, 2)})
    with pytest.raises(
        DataError, match=r"keys up to 1e\+17 in column 'embedding'; got 1e\+25\. Change their unit"
    ):
        ld.build_index(ld.dataset(far, key="embedding"), tmp_path / "index", codes=codes)


def test_only_bad_queries(tmp_path: Path, index: ld.Generation, vectors: ld.Generation):
    nobody = changed(QUERIES, "a", dict.fromkeys(range(60)))
    answers = ld.predict(METHOD, index, nobody)
    assert answers["prediction"].null_count == 60
    empty = changed(QUERIES, "embedding", dict.fromkeys(range(60)))
    report = ld.predict(ld.local_vote(3), vectors, empty, tmp_path / "out")
    assert report.status == {"bad_query": 60}
    assert read(tmp_path / "out")["label"].null_count == 60


# ------------------------------------------------------------------------------------------------- files


def test_empty_partitions_are_partitions(place: Path):
    for name in ("part-1b", "part-99"):
        pq.write_table(SUPPORT.slice(0, 0), place / f"support/{name}.parquet")
        pq.write_table(QUERIES.slice(0, 0), place / f"queries/{name}.parquet")
    index = ld.build_index(ld.dataset(place / "support", **ROLES), place / "index")
    assert index.layout.rows == 300
    report = ld.predict(METHOD, index, place / "queries", place / "out")
    assert report.rows == 60
    assert read(place / "out")["id"].equals(QUERIES["id"])


@pytest.mark.parametrize("codes", ["exact", "flat"])
def test_no_queries_give_an_empty_output_with_its_schema(codes: str, tmp_path: Path):
    index = ld.build_index(ld.dataset(SUPPORT, **ROLES), tmp_path / "index", codes=codes)
    none = QUERIES.slice(0, 0)
    extras = {"extras": ["spread", "effective", "coefficients"], "explain": 2}
    report = ld.predict(METHOD, index, none, tmp_path / "out", **extras)
    assert report.rows == 0
    schema = ld.predict(METHOD, index, QUERIES, **extras).schema
    assert read(tmp_path / "out").schema == schema
    assert ld.predict(METHOD, index, none, **extras).schema == schema
    assert ld.neighbors(index, none, k=3).num_rows == 0


def test_no_support(tmp_path: Path):
    support = ld.dataset(write(SUPPORT.slice(0, 0), tmp_path / "support", files=1), **ROLES)
    with pytest.raises(DataError, match=r"at least one good row of the support; got no rows"):
        ld.build_index(support, tmp_path / "index")


def test_a_lone_row(tmp_path: Path):
    index = ld.build_index(ld.dataset(SUPPORT.slice(0, 1), key=["a", "b"], target="y"), tmp_path / "index")
    assert set(ld.predict(ld.knn(1), index, QUERIES)["prediction"].to_pylist()) == {SUPPORT["y"][0].as_py()}


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no bytes": (lambda file: file.write_bytes(b""), r"part-1\.parquet"),
    "not Parquet": (lambda file: file.write_bytes(b"a,b\n1,2\n" * 50), r"part-1\.parquet"),
    "cut off": (lambda file: file.write_bytes(file.read_bytes()[:-100]), r"part-1\.parquet"),
    "a column is missing": (
        lambda file: pq.write_table(SUPPORT.drop_columns(["f2"]), file),
        r"'f2'.*part-1\.parquet|part-1\.parquet.*'f2'",
    ),
    "another type": (
        lambda file: pq.write_table(SUPPORT.drop_columns(["a"]).append_column("a", SUPPORT["word"]), file),
        r"one type of column 'a'.*string in part-1\.parquet",
    ),
}


@pytest.mark.parametrize("damage, told", DAMAGES.values(), ids=DAMAGES.keys())
def test_files_that_cannot_be_read_are_named(damage: Callable[[Path], object], told: str, place: Path):
    damage(place / "support/part-1.parquet")
    with pytest.raises(DataError, match=told):
        ld.dataset(place / "support", **ROLES)


def test_no_files(tmp_path: Path):
    with pytest.raises(DataError, match="nothing there"):
        ld.dataset(tmp_path / "nowhere", key="a")
    (tmp_path / "README.txt").write_text("no data")
    with pytest.raises(DataError, match=r"README\.txt"):
        ld.dataset(tmp_path, key="a")


# ------------------------------------------------------------------------------------------------- folders

OUTPUTS: dict[str, tuple[str, str]] = {
    "the queries": ("queries", r"is the input"),
    "inside the queries": ("queries/out", r"lies in the input"),
    "around the queries": (".", r"contains the input"),
    "the index": ("index", r"is the input"),
    "inside the index": ("index/out", r"lies in the input"),
    "through a link": ("link/out", r"lies in the input"),
    "somebody's folder": ("foreign", r"holds 'notes\.txt'.*deletes nothing that it did not write"),
}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("out, told", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_outputs_are_kept_apart_from_inputs(out: str, told: str, overwrite: bool, place: Path):
    ld.build_index(ld.dataset(place / "support", **ROLES), place / "index")
    (place / "foreign").mkdir()
    (place / "foreign/notes.txt").write_text("mine")
    (place / "link").symlink_to(place / "queries")
    before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match=told):
        ld.predict(METHOD, place / "index", place / "queries", place / out, overwrite=overwrite)
    after = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    assert after == before


def test_an_index_is_not_built_inside_its_data(place: Path):
    with pytest.raises(UsageError, match="lies in the input"):
        ld.build_index(ld.dataset(place / "support", **ROLES), place / "support/index")


def test_a_job_does_not_write_where_another_did(index: ld.Generation, place: Path):
    ld.predict(METHOD, index, place / "queries", place / "out")
    with pytest.raises(UsageError, match=r"kind 'predict'.*; got kind 'build-index'"):
        ld.build_index(ld.dataset(place / "support", **ROLES), place / "out")


def test_an_index_of_other_data_is_not_taken_for_this_one(place: Path):
    ld.build_index(ld.dataset(place / "support", **ROLES), place / "index")
    pq.write_table(generated.table(100, seed=15), place / "support/part-1.parquet")
    with pytest.raises(
        DataError, match=r"'part-1\.parquet' with .*It changed after the job began.*--overwrite"
    ):
        ld.build_index(ld.dataset(place / "support", **ROLES), place / "index")
    with pytest.raises(UsageError, match=r"roles\.features"):
        ld.build_index(ld.dataset(place / "support", **ROLES | {"features": None}), place / "index")
    assert ld.build_index(ld.dataset(place / "support", **ROLES), place / "index", overwrite=True).layout.rows


# ------------------------------------------------------------------------------------------------- the index


def _format(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))


def _shard(folder: Path) -> Path:
    return next(iter(sorted((folder / "shards").iterdir())))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "of another format": (
        _format,
        r"an index of format 1; got .* of format 99, by locdist .*\. Build it again",
    ),
    "without a manifest": (
        lambda folder: (folder / "manifest.json").unlink(),
        r"without manifest\.json.*Build it",
    ),
    "with another file as manifest": (
        lambda folder: (folder / "manifest.json").write_text("[1, 2]"),
        r"the manifest of an index generation",
    ),
    "with a shard cut off": (
        lambda folder: _shard(folder).write_bytes(_shard(folder).read_bytes()[:-1000]),
        r"shard-00000\.arrow of [\d,]+ bytes.*got [\d,]+ bytes, it is cut off or another\. The index is",
    ),
    "without a shard": (lambda folder: _shard(folder).unlink(), r"shard-00000\.arrow .*no file.*damaged"),
    "without its lists": (
        lambda folder: (folder / "lists.arrow").unlink(),
        r"lists\.arrow.*no file.*damaged",
    ),
    "with lists cut off": (
        lambda folder: (folder / "lists.arrow").write_bytes((folder / "lists.arrow").read_bytes()[:-50]),
        r"lists\.arrow.*damaged",
    ),
}


@pytest.mark.parametrize("harm, told", BROKEN.values(), ids=BROKEN.keys())
def test_a_damaged_index_is_refused_before_any_work(
    harm: Callable[[Path], object], told: str, tmp_path: Path
):
    """No task runs: not one part is predicted from half an index."""
    ld.build_index(ld.dataset(SUPPORT, **ROLES), tmp_path / "index", codes="flat", nlist=4)
    harm(tmp_path / "index")
    with pytest.raises(DataError, match=told):
        ld.predict(METHOD, tmp_path / "index", QUERIES, tmp_path / "out")
    assert_nothing_ran(tmp_path / "out")


def test_an_index_replaced_under_a_job_is_refused(tmp_path: Path):
    """An opened generation is the one that was opened, not whatever lies in its folder later."""
    support = ld.dataset(SUPPORT, **ROLES)
    index = ld.build_index(support, tmp_path / "index")
    ld.build_index(ld.dataset(SUPPORT.slice(0, 200), **ROLES), tmp_path / "index", overwrite=True)
    with pytest.raises(DataError, match="the index that the job was planned with"):
        ld.predict(METHOD, ld.Generation(index.folder, index.fingerprint), QUERIES, tmp_path / "out")


def test_every_error_says_what_was_expected_given_and_what_to_do(index: ld.Generation):
    with pytest.raises(LocdistError) as caught:
        ld.predict(ld.knn(1000), index, QUERIES)
    assert re.fullmatch(r"expected .+; got .+\. .+\.", str(caught.value))
