"""How an index is built: what its tasks carry and declare, what its driver holds, what is left behind."""

import itertools
import json
import pickle
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.events import StageStarted, TaskFinished
from locdist.jobs import build_index
from locdist.search import build
from locdist.search.layout import Dropped

RNG = np.random.default_rng(0)
ROWS = 3000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of 500 rows, shards of 20 kB, batches of runs of 2 kB."""
    monkeypatch.setattr(build_index, "rows_per_task", lambda rows, row_bytes: 500)
    monkeypatch.setattr(build, "SHARD_BYTES", 20_000)
    monkeypatch.setattr(build, "RUN_BYTES", 2_000)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    keys = RNG.normal(size=(ROWS, 4)).astype("f4")
    return pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(keys.ravel()), 4), "y": keys[:, 0]})


def watched(table: pa.Table, out: Path) -> tuple[ld.Generation, list[object]]:
    told: list[object] = []
    support = ld.dataset(table, key="e", target="y")
    return ld.build_index(support, out, codes="flat", nlist=16, listener=told.append), told


def test_tasks_and_records_are_small_and_declare_their_memory(small, table: pa.Table, tmp_path: Path):
    index, told = watched(table, tmp_path / "index")
    stages = {event.stage.name: event.stage for event in told if isinstance(event, StageStarted)}
    assert list(stages) == ["profile", "train", "assign", "pack"]
    assert [len(stage.tasks) for stage in stages.values()][:3] == [6, 1, 6]
    assert 2 <= len(stages["pack"].tasks) <= 16
    for stage in stages.values():
        assert len(pickle.dumps(stage)) < 10_000  # the table itself is 60 kB
        assert stage.resources.memory > 256 << 20
    records = [event.record for event in told if isinstance(event, TaskFinished)]
    assert max(len(record.to_json()) for record in records) < 1200
    left = {str(path.relative_to(tmp_path / "index")) for path in (tmp_path / "index").rglob("*")}
    assert not {name for name in left if name.startswith(("build", "_locdist/memory"))}
    assert index.layout.rows == ROWS


def test_data_in_memory_and_in_files_are_one_index(small, table: pa.Table, tmp_path: Path):
    index, _ = watched(table, tmp_path / "memory")
    pq.write_table(table, tmp_path / "rows.parquet")
    support = ld.dataset(tmp_path / "rows.parquet", key="e", target="y")
    other = ld.build_index(support, tmp_path / "files", codes="flat", nlist=16)
    assert [each.checksum for each in index.layout.shards] == [each.checksum for each in other.layout.shards]


def test_a_stopped_build_of_data_in_memory_goes_on(small, table: pa.Table, tmp_path: Path):
    support = ld.dataset(table, key="e", target="y")
    with (
        mock.patch.object(build_index.BuildIndex, "finish", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        ld.build_index(support, tmp_path / "index", codes="flat", nlist=16)
    (pinned,) = json.loads((tmp_path / "index/_locdist/manifest.json").read_text())["snapshot"]
    assert pinned["path"] == "memory"
    assert pinned["fingerprint"] == support.source.files[0].fingerprint
    assert (tmp_path / "index/_locdist/memory").stat().st_size == pinned["size"]
    index, told = watched(table, tmp_path / "index")
    assert not [event for event in told if isinstance(event, TaskFinished)]
    assert index.layout.source.fingerprint == support.source.fingerprint


def test_a_shard_reads_the_batches_that_hold_its_lists(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "RUN_BYTES", 400)
    lists = np.sort(RNG.integers(3, 40, 600)).astype(np.int32)
    lists[100:300] = 9  # one list larger than a batch
    lists.sort()
    numbers = np.arange(600)
    columns = {name: pa.array(numbers) for name in ("tie", "row")}
    run = pa.RecordBatch.from_pydict({"list": pa.array(lists), **columns})
    batches = build.pieces(run)
    assert sum(batch.num_rows for batch in batches) == 600
    edges = [(batch["list"][0].as_py(), batch["list"][-1].as_py()) for batch in batches]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(edges))
    for first, last in [(0, 2), (0, 4), (9, 10), (10, 20), (39, 50), (60, 70), (0, 50)]:
        wanted = build.overlapping(batches[0].schema, first, last)
        packed = build.pack([batches[number] for number in wanted], first, last)
        assert packed["row"].to_pylist() == numbers[(lists >= first) & (lists < last)].tolist()
        assert packed.schema.metadata is None
    assert len(build.overlapping(batches[0].schema, 9, 10)) == 1
    assert [batch.num_rows for batch in build.pieces(run.slice(0, 0))] == [0]


def test_columns_that_decide_alone_are_noted(tmp_path: Path):
    rows = {"a": RNG.normal(size=200), "b": RNG.normal(size=200) * 1e6}
    support = ld.dataset(rows, key=["a", "b"], scaling="none")
    (note,) = ld.build_index(support, tmp_path / "index").layout.source.notes
    assert note.startswith("'b' spreads")
    level = ld.dataset(rows, key=["a", "b"])
    assert ld.build_index(level, tmp_path / "level").layout.source.notes == ()


def test_a_row_far_out_takes_no_digits_from_the_others(tmp_path: Path):
    rng = np.random.default_rng(8)
    keys = rng.normal(size=(60_000, 8))
    keys[17, 0] = -1e10
    rows = {"e": keys, "y": keys[:, 0], "id": np.arange(60_000)}
    support = ld.dataset(rows, key="e", target="y", id="id")
    queries = {"e": rng.normal(size=(500, 8))}
    away = [((keys - query) ** 2).sum(axis=1) for query in queries["e"][:100]]
    truth = [set(np.argpartition(each, 10)[:10].tolist()) for each in away]
    for codes in ("flat", "fp16"):
        index = ld.build_index(support, tmp_path / codes, codes=codes)
        assert index.layout.codes == "flat"
        assert [note[:9] for note in index.layout.source.notes] == ["codes are"] * (codes == "fp16")
        report = ld.predict(ld.knn(10), index, queries, tmp_path / f"{codes}-out")
        assert report.recall.high >= 0.99
        assert report.recall.mean >= 0.98
        assert 0 < report.nprobe < index.layout.nlist
        found = ld.neighbors(index, {"e": queries["e"][:100]}, k=10)["neighbors"].to_pylist()
        shared = [len(ids & {each["id"] for each in row}) for ids, row in zip(truth, found, strict=True)]
        assert sum(shared) >= 0.98 * 1000


def test_keys_at_the_mean_have_no_direction(tmp_path: Path):
    rows = {"x": [0.0, 1.0, 2.0, 1.0, 0.5], "w": [1.0, 1.0, 1.0, -1.0, 1.0]}
    roles = {"key": ["x"], "metric": "cosine", "scaling": "standard"}
    rows["x"][4] = 1.0
    with pytest.raises(DataError, match=r"3 of 5 rows at the mean .first: row 1 of memory.*bad='drop'"):
        ld.build_index(ld.dataset(rows, **roles), tmp_path / "index")
    assert not (tmp_path / "index/manifest.json").exists()
    dropped = ld.build_index(ld.dataset(rows, **roles), tmp_path / "dropped", bad="drop")
    assert dropped.layout.rows == 2
    assert dropped.layout.source.dropped == (Dropped("x", "zero vector", 3),)
    weighed = ld.build_index(ld.dataset(rows, **roles, weight="w"), tmp_path / "weighed", bad="drop")
    told = {(each.column, each.reason): each.rows for each in weighed.layout.source.dropped}
    assert told == {("w", "negative"): 1, ("x", "zero vector"): 2}
    with pytest.raises(DataError, match=r"at least 1 good rows of the support; got 0 in a sample of 5"):
        ld.build_index(ld.dataset({"x": np.ones(5)}, **roles), tmp_path / "constant", bad="drop")
    plain = ld.build_index(ld.dataset(rows, key="x", metric="cosine"), tmp_path / "plain", bad="drop")
    assert plain.layout.rows == 4


def test_vectors_of_another_length_are_bad_rows_of_the_support(tmp_path: Path):
    lists = [[float(row), 1.0] for row in range(30)]
    lists[7] = [1.0]
    table = pa.table({"e": lists, "y": np.arange(30.0)})
    for name, part in (("a", table.slice(0, 5)), ("b", table.slice(5))):
        pq.write_table(part, tmp_path / f"{name}.parquet")
    support = ld.dataset([tmp_path / "a.parquet", tmp_path / "b.parquet"], key="e", target="y")
    with pytest.raises(DataError, match=r"1 wrong length in 'e' .first: row 2 of b\.parquet"):
        ld.build_index(support, tmp_path / "index")
    index = ld.build_index(support, tmp_path / "dropped", bad="drop")
    assert (index.layout.rows, index.layout.width) == (29, 2)
    assert index.layout.source.dropped == (Dropped("e", "wrong length", 1),)


def test_ids_and_categories_of_a_dictionary_type(tmp_path: Path):
    names = pa.array(["c", "a", None, "b"]).dictionary_encode()
    colors = pa.chunked_array([["red", "blue"], ["blue", "blue"]]).dictionary_encode()
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "color": colors, "id": names})
    support = ld.dataset(table, key=["x", "color"], id="id")
    index = ld.build_index(support, tmp_path / "index", bad="drop")
    assert index.layout.source.notes == ("key: color is one-hot of 2 categories",)
    found = ld.neighbors(index, {"x": [2.1], "color": ["blue"]}, k=3)
    assert [each["id"] for each in found["neighbors"][0].as_py()] == ["a", "c", "b"]


BUILDS: list[tuple[dict[str, object], str]] = [
    ({"codes": "pq"}, "codes 'exact', 'fp16' or 'flat'; got 'pq'"),
    ({"codes": "fp16", "nlist": 30_000}, "nlist between 1 and the 3000 rows; got 30000"),
    ({"nlist": 0}, "nlist, a whole number of at least 1; got 0"),
    ({"codes": "flat", "nlist": 2.5}, "nlist, a whole number of at least 1; got 2.5"),
    ({"nlist": 16}, "nlist 16 for exact search over 3,000 rows"),
    ({"seed": -1}, "seed, a whole number .*; got -1"),
    ({"seed": 0.5}, "seed, a whole number .*; got 0.5"),
]


@pytest.mark.parametrize("options, told", BUILDS)
def test_options_are_checked_before_the_folder_is_claimed(
    table: pa.Table, options, told: str, tmp_path: Path
):
    with pytest.raises(UsageError, match=told):
        ld.build_index(ld.dataset(table, key="e"), tmp_path / "index", **options)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("support", ["train/", Path("train"), {"x": [1.0]}, np.ones((3, 2)), None])
def test_a_support_without_roles_is_refused(support: object, tmp_path: Path):
    with pytest.raises(UsageError, match=r"expected ld\.dataset\(\.\.\.\) as the support.*Wrap it"):
        ld.build_index(support, tmp_path / "index")


@pytest.mark.parametrize(
    "x, told",
    [
        (np.arange(9.0) * 1e-200, "spread over at least 1e-17 in column 'x'; got 8e-200"),
        (np.arange(9.0) * 1e200, r"keys up to 1e\+17 in column 'x'"),
        (2**60 + np.arange(9), r"integers up to 2\^53 in column 'x'"),
    ],
)
def test_keys_that_arithmetic_cannot_tell_apart_are_refused(x, told: str, tmp_path: Path):
    with pytest.raises(DataError, match=told):
        ld.build_index(ld.dataset({"x": x}, key="x", scaling="none"), tmp_path / "index")
    ones = ld.dataset({"x": np.ones(9), "e": x * 1e-30}, key="x", target="e", scaling="none")
    assert ld.build_index(ones, tmp_path / "ones").layout.rows == 9


def test_a_build_on_an_object_store(small, table: pa.Table, bucket: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("locdist.search.cache.ROOT", tmp_path / "cache")
    here, _ = watched(table, tmp_path / "index")
    away = watched(table, bucket.format("/index"))[0]
    assert [each.checksum for each in here.layout.shards] == [each.checksum for each in away.layout.shards]
    assert not Store.at(away.folder).exists("_locdist/memory")
