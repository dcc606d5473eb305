"""An index belongs to its data, is whole or refused, can be moved and shared, and runs no code."""

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import locdist as ld
from locdist.data.artefacts import packed
from locdist.errors import DataError, UsageError
from locdist.search.layout import MANIFEST
from tests.cases.arrangement import Arrangement, table

FIRST = pa.table({"id": [0, 1], "x": [0.0, 1.0], "y": [1.0, 2.0]})


def test_an_index_is_not_used_for_data_that_it_was_not_made_of(arrangement: Arrangement) -> None:
    """C49: rows that were added, swapped (of the same size and footer) or changed, another metric and another
    scaling are each told with the difference; answers come from the rows that were indexed.
    """
    folder, out = arrangement.write(FIRST), arrangement.place / "index"

    def build(**other: str) -> ld.Generation:
        support = ld.dataset(folder, key="x", target="y", id="id", **other)
        return ld.build_index(support, out, executor=arrangement.executor)

    index = build()
    assert build() == index
    for other, told in (({"metric": "cosine"}, "roles.metric 'l2'"), ({"scaling": "none"}, "roles.scaling")):
        with pytest.raises(UsageError, match=rf"request\.{told}.*--overwrite"):
            build(**other)
    pq.write_table(pa.table({"id": [2], "x": [0.5], "y": [9.0]}), folder / "part-9.parquet")
    with pytest.raises(DataError, match=r"got 1 more: part-9\.parquet\. Build it"):
        build()
    (folder / "part-9.parquet").unlink()
    sizes = {file: file.stat().st_size for file in folder.iterdir()}
    for file in arrangement.write(FIRST.take([1, 0])).iterdir():
        file.replace(folder / file.name)
    assert {file: file.stat().st_size for file in folder.iterdir()} == sizes
    with pytest.raises(DataError, match=r"'part-\d\.parquet' with fingerprint .*It changed"):
        build()
    answers = arrangement.ask(ld.knn(1), index, folder)
    assert answers["prediction"].to_pylist() == [1, 2]  # by id


KEYS = np.random.default_rng(0).normal(size=(50, 8)).astype("f4")
ROWS = {"e": KEYS, "y": np.arange(50.0)}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
DAMAGE: list[tuple[Callable[[bytes], bytes] | None, str]] = [
    (lambda good: good[: len(good) // 2], r"[\d,]+ bytes, it is cut off"),
    (lambda good: b"", "an empty file"),
    (lambda good: POINTER, r"the pointer that Git-LFS leaves.*git lfs pull"),
    (None, "no file"),
]  # the last one leaves none


def test_a_file_of_an_index_that_is_not_whole_is_told_from_one_of_another_kind(
    arrangement: Arrangement,
) -> None:
    """C54: sizes are in the manifest, and the index opens as a whole or not at all: cut off, empty, a pointer
    and missing are four messages, for a shard, the table of lists, and (what can be) the manifest.
    """
    index = arrangement.build(ROWS, key="e", target="y", codes="flat")
    for name in (index.layout.shards[0].name, "lists.arrow"):
        file = Path(index.folder, name)
        good = file.read_bytes()
        for damage, told in DAMAGE:
            if damage is None:
                file.unlink()
            else:
                file.write_bytes(damage(good))
            with pytest.raises(DataError, match=rf"{file.name} of [\d,]+ bytes.*got {told}"):
                ld.predict(ld.knn(1), index, ROWS)
        file.write_bytes(good)
    assert arrangement.ask(ld.knn(1), index, ROWS).num_rows == 50


def test_a_manifest_that_is_not_whole_or_of_another_version_is_told(tmp_path: Path) -> None:
    """C54: the newer one says which version wrote it; a file of FAISS is no index of ours."""
    index = ld.build_index(ld.dataset(ROWS, key="e", target="y"), tmp_path / "index")
    path = tmp_path / "index" / MANIFEST
    good = path.read_bytes()
    newer = packed({"format": 7, "versions": {"locdist": "9.1"}})
    for content, told in (
        (b"", r"got an empty file"),
        (POINTER, r"Git-LFS.*git lfs pull"),
        (good[:-20], r"the manifest of an index.*got .*index: "),
        (newer, r"index of format 1; got .* of format 7, by locdist 9\.1"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=told):
            ld.open_index(index.folder)
    (tmp_path / "i.faiss").write_bytes(b"IxF2" + bytes(200))
    with pytest.raises(DataError, match=r"an index generation; got .* without manifest\.json"):
        ld.open_index(tmp_path / "i.faiss")


@pytest.mark.parametrize("codes", ["exact", "fp16"])
def test_an_index_can_be_moved_and_read_where_nothing_can_be_written(
    arrangement: Arrangement, codes: str
) -> None:
    """C55: no path is stored in it, every kind of it is mapped, and nothing is written beside it. (Who runs
    the tests may be root, whom no mode stops: that the folder stays as it was is compared.)
    """
    index = arrangement.build(ROWS, key="e", target="y", codes=codes)
    expected = arrangement.ask(ld.knn(3), index, ROWS)
    moved = Path(index.folder).rename(arrangement.place / "elsewhere")
    for path in (*moved.rglob("*"), moved):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in (moved, *moved.rglob("*"))}
    assert arrangement.ask(ld.knn(3), ld.open_index(moved), ROWS).equals(expected)
    assert {path: path.stat().st_mtime_ns for path in (moved, *moved.rglob("*"))} == before
    for path in (moved, *moved.rglob("*")):
        path.chmod(0o755)


class Boom:
    """What an attacker leaves: unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_nothing_in_a_folder_is_executed(arrangement: Arrangement) -> None:
    """C71: pickles beside the index, below it, in the place of its manifest and among the data stay data,
    or are refused; nobody unpickles them.
    """
    mark = arrangement.place / "executed"
    boom = pickle.dumps(Boom(mark))
    pickle.loads(boom)
    mark.rmdir()
    files, index = arrangement.write(ROWS), arrangement.build(ROWS, key="e", target="y")
    for name in ("meta.pkl", "index.pkl", "shards/shard-00000.pkl", "sitecustomize.py", "_locdist/plan.pkl"):
        path = Path(index.folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(boom)
    (files / "part-0.pkl").write_bytes(boom)
    assert arrangement.ask(ld.knn(1), ld.open_index(index.folder), files).num_rows == 50
    Path(index.folder, MANIFEST).write_bytes(boom)
    with pytest.raises(DataError, match="the manifest of an index generation"):
        ld.open_index(index.folder)
    (files / "part-0.parquet").write_bytes(boom)
    with pytest.raises(DataError, match=r"part-0\.parquet"):
        ld.dataset(files, key="e")
    assert not mark.exists()


def test_each_thread_searches_with_its_own_number_of_lists(arrangement: Arrangement) -> None:
    """C76: threads that search one opened index with 1 and with 16 lists at the same time get what they get
    alone. Nothing is ever added to an index: another one is built beside it, meanwhile.
    """
    rng = np.random.default_rng(0)
    rows = table({"e": rng.normal(size=(1500, 16)).astype("f4")})
    index = arrangement.build(rows, key="e", codes="flat", nlist=16)
    queries = ld.open_index(index.folder).keys(torch.arange(300))
    alone = {nprobe: index.probing(nprobe).search(queries, 5).ids for nprobe in (1, 16)}
    assert not alone[1].equal(alone[16])
    with ThreadPoolExecutor(3) as threads:
        asked = [
            (nprobe, threads.submit(index.probing(nprobe).search, queries, 5)) for nprobe in (1, 16) * 20
        ]
        other = threads.submit(arrangement.build, rows.slice(0, 500), key="e", codes="flat", nlist=16)
        assert all(search.result().ids.equal(alone[nprobe]) for nprobe, search in asked)
    assert other.result().layout.rows == 500
    assert index.layout.rows == 1500
