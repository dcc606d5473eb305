"""What may not change an answer: workers, files, order, blocks (DESIGN, "What the same answer means")."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import locdist as ld
from locdist.jobs import build_index
from locdist.jobs.asking import ask, questions
from tests.system import generated
from tests.system.generated import numbers, parts, read, write

K = 12
SUPPORT, QUERIES = generated.table(900, seed=5), generated.table(400, seed=6)
ROLES: dict[str, Any] = {"key": ["a", "b"], "features": ["f1", "f2"], "target": "y", "id": "id"}
EXTRAS: dict[str, Any] = {"extras": ["spread", "effective", "coefficients"], "explain": 3}
INDEXES = {
    "exact": {},
    "fp16": {"codes": "fp16", "nlist": 16, "recall": 0.9},
    "flat": {"codes": "flat", "nlist": 16, "recall": 0.9},
}
every_index = pytest.mark.parametrize("build", INDEXES.values(), ids=INDEXES.keys())


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of 70 rows, where these small data would be one."""
    for module in (ask, build_index):
        monkeypatch.setattr(module, "rows_per_task", lambda rows, row_bytes: 70)


def shuffled(rows: pa.Table, seed: int = 0) -> pa.Table:
    return rows.take(pa.array(np.random.default_rng(seed).permutation(rows.num_rows)))


def same(one: pa.Table, other: pa.Table, tolerance: float = 1e-9) -> None:
    """Equal answers for each id, whatever the order of the rows."""
    assert one.schema == other.schema
    one, other = one.sort_by("id"), other.sort_by("id")
    for name in ("id", "status"):
        assert one[name].to_pylist() == other[name].to_pylist()
    for name in ("prediction", "spread", "effective", "coefficients"):
        if name in one.schema.names:
            np.testing.assert_allclose(numbers(one, name), numbers(other, name), tolerance, tolerance)


def generation(index: ld.Generation) -> dict[str, bytes]:
    """The rows and lists of an index by file."""
    folder = Path(index.folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.arrow")}


# ------------------------------------------------------------------------------------------------- workers


def built_and_predicted(
    executor: ld.Local, build: dict[str, Any], place: Path
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    support = ld.dataset(place.parent / "support", **ROLES)
    index = ld.build_index(support, place / "index", executor=executor, **build)
    ld.predict(
        ld.local_linear(K), index, place.parent / "queries", place / "out", executor=executor, **EXTRAS
    )
    return generation(index), parts(place / "out")


@every_index
def test_any_number_of_workers_writes_the_same_bytes(
    build: dict[str, Any], small_tasks: None, tmp_path: Path
):
    write(SUPPORT, tmp_path / "support"), write(QUERIES, tmp_path / "queries")
    executors = {f"{workers} threads": ld.Local(workers) for workers in (1, 2, 4)}
    if build == INDEXES["fp16"]:  # starting processes takes seconds
        executors["2 processes"] = ld.Local(2, processes=True)
    made = {name: built_and_predicted(each, build, tmp_path / name) for name, each in executors.items()}
    index, out = made.pop("1 threads")
    assert len(out) >= 5
    for name, (other_index, other_out) in made.items():
        assert other_index == index, name
        assert other_out == out, name


def test_a_generation_may_have_many_shards(
    small_tasks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Split points of an exact index and runs of lists in several files give the answers of one file."""
    support = ld.dataset(SUPPORT, **ROLES)
    for name, build in INDEXES.items():
        one = ld.build_index(support, tmp_path / name / "one", **build)
        with monkeypatch.context() as patch:
            patch.setattr("locdist.search.build.SHARD_BYTES", 9_000)
            many = ld.build_index(support, tmp_path / name / "many", **build)
        assert len(one.layout.shards) == 1
        assert len(many.layout.shards) > 3
        answers = [ld.predict(ld.local_linear(K), index, QUERIES, **EXTRAS) for index in (one, many)]
        same(*answers, 1e-12)


# ------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize("key", ["embedding", ["a", "b"]], ids=["float32", "float64"])
@every_index
def test_files_and_order_of_the_queries_do_not_matter(
    build: dict[str, Any], key: Any, small_tasks: None, tmp_path: Path
):
    index = ld.build_index(ld.dataset(SUPPORT, **ROLES | {"key": key}), tmp_path / "index", **build)
    method = ld.local_linear(K)
    expected = ld.predict(method, index, write(QUERIES, tmp_path / "1", files=1), recall=1.0, **EXTRAS)
    for files in (3, 17):
        queries = write(shuffled(QUERIES, files), tmp_path / str(files), files)
        ld.predict(method, index, queries, tmp_path / f"out-{files}", recall=1.0, **EXTRAS)
        same(read(tmp_path / f"out-{files}"), expected)


@pytest.mark.parametrize("rows", [1, 33, 256, 257])
@every_index
def test_blocks_do_not_change_answers(
    build: dict[str, Any], rows: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Also to the bit: a block has its own matrix products and its own last tile."""
    build = {**build, "recall": 1.0}
    index = ld.build_index(ld.dataset(SUPPORT, **ROLES | {"key": "embedding"}), tmp_path / "index", **build)
    queries = QUERIES.slice(0, 60) if rows == 1 else QUERIES
    expected = ld.predict(ld.local_linear(K), index, queries, **EXTRAS)
    monkeypatch.setattr(questions, "BLOCK_ROWS", rows)
    same(ld.predict(ld.local_linear(K), index, queries, **EXTRAS), expected, 1e-12)


# ------------------------------------------------------------------------------------------- support


def exact_answers(support: pa.Table, folder: Path, files: int, **roles: Any) -> pa.Table:
    data = ld.dataset(write(support, folder / "support", files), **ROLES | roles)
    index = ld.build_index(data, folder / "index")
    return ld.predict(ld.local_linear(K), index, QUERIES, keep="id", extras=["spread", "coefficients"])


@pytest.mark.parametrize("key", ["embedding", ["a", "b", "color"]], ids=["float32", "scaled"])
@pytest.mark.parametrize("id", ["id", None], ids=["with ids", "without ids"])
def test_files_and_order_of_the_support_do_not_matter_when_exact(
    id: str | None, key: Any, small_tasks: None, tmp_path: Path
):
    expected = exact_answers(SUPPORT, tmp_path / "1", 1, id=id, key=key)
    for files in (3, 17):
        answers = exact_answers(shuffled(SUPPORT, files), tmp_path / str(files), files, id=id, key=key)
        same(answers, expected)


def grid(rows: int, seed: int) -> pa.Table:
    """Points on integers: nearly every k-th neighbor is tied; targets and features differ."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 7, (rows, 2)).astype(np.float64)
    values = {"f1": rng.normal(size=rows), "f2": rng.normal(size=rows), "y": rng.normal(size=rows)}
    return pa.table({"a": corners[:, 0], "b": corners[:, 1], **values, "id": rng.permutation(rows)})


@pytest.mark.parametrize("id", ["id", None], ids=["ties by id", "ties by content"])
@pytest.mark.parametrize("method", [ld.knn(K), ld.local_linear(K)], ids=["knn", "local-linear"])
def test_ties_do_not_depend_on_files_or_order_of_the_support(
    method: Any, id: str | None, small_tasks: None, tmp_path: Path
):
    support, queries = grid(500, 0), grid(120, 1)
    answers = []
    for files in (1, 3, 17):
        place = tmp_path / str(files)
        rows = write(support if files == 1 else shuffled(support, files), place / "support", files)
        index = ld.build_index(ld.dataset(rows, **ROLES | {"id": id, "scaling": "none"}), place / "index")
        answers.append(ld.predict(method, index, queries, keep="id"))
    same(answers[1], answers[0])
    same(answers[2], answers[0])
    assert len(set(answers[0]["prediction"].to_pylist())) > 40


def test_ties_go_to_the_smaller_id(tmp_path: Path):
    rows = pa.table({"a": [1.0, -1, 1, -1], "y": [1.0, 2, 3, 4], "id": ["d", "b", "a", "c"]})
    index = ld.build_index(ld.dataset(rows, key="a", target="y", id="id", scaling="none"), tmp_path / "index")
    answers = ld.predict(ld.knn(3), index, pa.table({"a": [0.0]}), explain=3)
    assert [pair["id"] for pair in answers["neighbors"][0].as_py()] == ["a", "b", "c"]


# ------------------------------------------------------------------------------------------- builds


@every_index
@pytest.mark.parametrize("change", ["again", "another executor", "overwrite"])
def test_builds_are_repeatable_to_the_byte(
    build: dict[str, Any], change: str, small_tasks: None, tmp_path: Path
):
    support = ld.dataset(write(SUPPORT, tmp_path / "support"), **ROLES)
    first = ld.build_index(support, tmp_path / "first", **build)
    kept = generation(first)
    assert len(kept) >= 2
    again: dict[str, Callable[[], ld.Generation]] = {
        "again": lambda: ld.build_index(support, tmp_path / "second", **build),
        "another executor": lambda: ld.build_index(
            support, tmp_path / "second", executor=ld.Local(3), **build
        ),
        "overwrite": lambda: ld.build_index(support, tmp_path / "first", overwrite=True, **build),
    }
    second = again[change]()
    assert generation(second) == kept
    assert second.fingerprint == first.fingerprint


def test_a_finished_build_is_opened_not_repeated(tmp_path: Path):
    support = ld.dataset(SUPPORT, **ROLES)
    index = ld.build_index(support, tmp_path / "index")
    shard = tmp_path / "index" / index.layout.shards[0].name
    written = shard.stat().st_mtime_ns
    assert ld.build_index(support, tmp_path / "index") == index == ld.open_index(tmp_path / "index")
    assert shard.stat().st_mtime_ns == written
