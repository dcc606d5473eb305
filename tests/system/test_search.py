"""Exact search, lists, audit and local copies, against brute force."""

import gc
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
import torch

from locdist.data.dataset import dataset
from locdist.data.store import Store
from locdist.errors import DataError, MachineError, UsageError
from locdist.jobs.build_index import build_index
from locdist.jobs.predict import predict
from locdist.local.neighborhood import Neighborhood
from locdist.methods.named import local_mean
from locdist.search import cache
from locdist.search.audit import audit, recall, tune
from locdist.search.build import choose
from locdist.search.exact import Exact
from locdist.search.generation import Generation, open_index
from locdist.search.layout import ShardFile, digest
from locdist.testing import IndexContract

RNG = np.random.default_rng(0)


class TestExactContract(IndexContract):
    def index(self, support, folder):
        return Exact(support.keys, support.targets, support.features, support.weights)


class TestGenerationContract(IndexContract):
    """Row ids are positions over the shards, in another order than the support's."""

    build: ClassVar = {"codes": "exact"}

    def index(self, support, folder):
        columns = {name: getattr(support, name) for name in ("keys", "features", "targets", "weights")}
        roles = {"key": "keys", "features": "features", "target": "targets", "weight": "weights"}
        return build_index(dataset(columns, **roles, scaling="none"), folder, **self.build)

    def rows(self, index, ids):
        return index.sources(ids)


class TestListsContract(TestGenerationContract):
    """All lists searched."""

    build: ClassVar = {"codes": "flat", "nlist": 4}
    by_id = False

    def index(self, support, folder):
        return TestGenerationContract.index(self, support, folder).probing(4)


def test_inner_products_are_searched_exactly():
    keys, queries = RNG.normal(size=(500, 4)), RNG.normal(size=(20, 4))
    found = Exact(keys, metric="ip").search(torch.from_numpy(queries), 3)
    np.testing.assert_allclose(-found.distances, -np.sort(-(queries @ keys.T), axis=1)[:, :3])


def test_cosine_of_tiny_rows_has_a_direction():
    found = Exact([[1e-170, 0.0], [0.0, 1.0]], metric="cosine").search(
        torch.tensor([[5.0, 0.0], [0.0, 3e-170]], dtype=torch.float64), 1
    )
    assert found.ids.tolist() == [[0], [1]]


@pytest.mark.parametrize(
    "build, error, words",
    [
        (lambda: Exact([[0.0], [np.nan]]), DataError, "row 1"),
        (lambda: Exact([[0.0, 0.0]], metric="cosine"), DataError, "direction"),
        (lambda: Exact([[0.0]], weights=[-1.0]), DataError, "weights of 0 or more"),
        (lambda: Exact([[0.0]], [1.0, 2.0]), UsageError, "one for each key"),
        (lambda: Exact(np.ma.masked_array([[0.0]], [[True]])), UsageError, "MaskedArray"),
        (lambda: Exact(np.zeros((2, 2), complex)), UsageError, "complex"),
        (lambda: Exact([[0.0]], metric="l3"), UsageError, "l3"),
        (lambda: choose(100, 4, 8, "l2", nlist=200, codes="flat"), UsageError, "between 1 and the 100 rows"),
        (lambda: choose(100, 4, 8, "ip", codes="flat"), UsageError, "inner product"),
    ],
)
def test_wrong_use_is_refused(build, error, words):
    with pytest.raises(error, match=words):
        build()


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Generation:
    """4,000 clustered rows in 32 lists."""
    keys = (RNG.normal(size=(40, 8))[RNG.integers(0, 40, 4000)] * 4 + RNG.normal(size=(4000, 8))).astype("f4")
    table = {"e": keys, "y": keys[:, 0].astype(np.float64)}
    support = dataset(table, key="e", target="y")
    return build_index(support, tmp_path_factory.mktemp("lists") / "index", codes="flat", nlist=32)


def stored_keys(index):
    return torch.from_numpy(np.concatenate([shard["key"] for shard in index._files.rows.shards]))


def test_all_lists_are_the_exact_answer(index):
    queries = stored_keys(index)[::50]
    found = index.probed(queries, 9, None, 32)
    exact = index.exactly(queries, 9).rows(found.order)
    assert torch.equal(found.ids, exact.ids)
    assert recall(found, exact).mean == 1


@pytest.mark.parametrize("count", [1, 2, 300])
def test_short_lists_widen_the_search(index, count):
    queries = stored_keys(index)[:count]
    found = index.probing(1).search(queries, 600)
    assert found.found.all()
    assert (found.ids.sort(dim=1).values.diff(dim=1) > 0).all()


def test_tuning_takes_no_more_lists_than_the_target_needs(index):
    queries = stored_keys(index)[::8]
    exact = index.exactly(queries, 10)
    few, many = (tune(index, queries, 10, None, exact, target, 32) for target in (0.6, 0.999))
    assert 1 <= few < many <= 32
    assert audit(index, queries, 10, None, many, exact).mean >= 0.999
    assert audit(index, queries, 10, None, max(few // 2, 1), exact).low < 0.6 or few == 1


def test_recall_counts_neighbors_no_farther_than_the_exact_ones():
    exact = Neighborhood(torch.tensor([[1.0, 2.0]]), torch.tensor([[0, 1]]))
    assert recall(Neighborhood(torch.tensor([[1.0, 2.0]]), torch.tensor([[0, 5]])), exact).mean == 1
    assert recall(Neighborhood(torch.tensor([[1.0, 3.0]]), torch.tensor([[0, 5]])), exact).mean == 0.5
    assert recall(Neighborhood(torch.tensor([[1.0, torch.inf]]), torch.tensor([[0, -1]])), exact).low == 0


def test_lists_near_each_other_are_stored_near_each_other(index):
    files = index._files
    centroids = files.lists.centroids
    steps = np.linalg.norm(np.diff(centroids, axis=0), axis=1)
    shuffled = np.linalg.norm(np.diff(centroids[RNG.permutation(len(centroids))], axis=0), axis=1)
    assert steps.mean() < 0.8 * shuffled.mean()


def test_a_job_runs_on_an_object_store(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "ROOT", tmp_path / "cache")
    keys = RNG.normal(size=(300, 3))
    here = build_index(dataset({"e": keys, "y": keys[:, 0]}, key="e", target="y"), tmp_path / "index")
    away = build_index(dataset({"e": keys, "y": keys[:, 0]}, key="e", target="y"), bucket.format("/index"))
    assert [shard.checksum for shard in here.layout.shards] == [
        shard.checksum for shard in away.layout.shards
    ]
    queries = pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(keys[:40].ravel()), 3)})
    report = predict(local_mean(k=5), away, queries, bucket.format("/out"))
    assert report.rows == 40
    assert predict(local_mean(k=5), here, queries).equals(predict(local_mean(k=5), away, queries))


def kept_file(store, name, data) -> ShardFile:
    store.write(name, data)
    return ShardFile(name, 1, len(data), digest(data))


def test_a_local_copy_is_made_once_and_is_checked(bucket, tmp_path):
    root, store = tmp_path / "cache", Store.at(bucket.format("/files"))
    file = kept_file(store, "a", b"1234")
    copy = cache.local_copy(store, "one", [file], root)
    assert (copy.folder / "a").read_bytes() == b"1234"
    store.write("a", b"12x4")
    assert (cache.local_copy(store, "one", [file], root).folder / "a").read_bytes() == b"1234"
    with pytest.raises(MachineError, match="of its manifest"):
        cache.local_copy(store, "another", [file], root)
    assert {path.name for path in (root / "another").iterdir()} == {".open"}


def test_copies_that_nobody_has_open_make_room(bucket, tmp_path, monkeypatch):
    """A disk of 100 bytes, of which the cache may use 80."""
    root, store = tmp_path / "cache", Store.at(bucket.format("/files"))
    files = {size: kept_file(store, f"f{size}", b"x" * size) for size in (30, 40, 60)}

    def disk(path):
        held = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
        return SimpleNamespace(free=100 - held)

    monkeypatch.setattr(cache.shutil, "disk_usage", disk)
    used = cache.local_copy(store, "used", [files[30]], root)
    old = cache.local_copy(store, "old", [files[40]], root).folder
    gc.collect()
    with pytest.raises(MachineError, match="60 bytes for a local copy of the index; got 50 in"):
        cache.local_copy(store, "large", [files[60]], root)
    assert not old.exists()
    assert (used.folder / "f30").exists()
    del used
    gc.collect()
    assert (cache.local_copy(store, "large", [files[60]], root).folder / "f60").exists()
    assert not (root / "used").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/x", "shards/../../x", "shards/.hidden"])
def test_a_manifest_cannot_point_outside_its_folder(index, tmp_path, name):
    layout = index.layout.to_json().decode().replace(index.layout.shards[0].name, name)
    (tmp_path / "manifest.json").write_text(layout)
    with pytest.raises(DataError, match="not below the index folder"):
        open_index(tmp_path)


def test_a_recall_that_no_search_reaches_is_refused_before_any_task(tmp_path):
    keys = RNG.normal(size=(4000, 4))
    keys[::2] += 1e12  # single precision knows no neighbors there, whatever the center
    support = dataset({"e": keys, "y": keys[:, 0]}, key="e", target="y")
    index = build_index(support, tmp_path / "index", codes="flat", nlist=16)
    with pytest.raises(UsageError, match=r"finds 0.99 of the neighbors.*codes are too coarse.*--codes"):
        predict(local_mean(k=5), index, {"e": keys[:500]}, tmp_path / "out")
    assert not list((tmp_path / "out").glob("part-*"))
    assert predict(local_mean(k=5), index, {"e": keys[:500]}, recall=0.001).num_rows == 500
