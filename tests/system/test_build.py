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
from locdist.execute.events import StageStarted, TaskFinished
from locdist.jobs import build_index
from locdist.search import build

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
    assert index.layout.source["fingerprint"] == support.source.fingerprint


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
    (note,) = ld.build_index(support, tmp_path / "index").layout.source["notes"]
    assert note.startswith("'b' spreads")
    level = ld.dataset(rows, key=["a", "b"])
    assert ld.build_index(level, tmp_path / "level").layout.source["notes"] == []


def test_a_build_on_an_object_store(small, table: pa.Table, bucket: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("locdist.search.cache.ROOT", tmp_path / "cache")
    here, _ = watched(table, tmp_path / "index")
    away = watched(table, bucket.format("/index"))[0]
    assert [each.checksum for each in here.layout.shards] == [each.checksum for each in away.layout.shards]
    assert not Store.at(away.folder).exists("_locdist/memory")
