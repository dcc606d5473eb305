"""Who is near: distances in the user's units, as many neighbors as there are, the same for every batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.jobs.asking import questions
from locdist.search.layout import Dropped
from tests.cases.arrangement import Arrangement, found, quarantine
from tests.system.generated import read


def distances(answers: pa.Table) -> list[list[float]]:
    return [[pair["distance"] for pair in row] for row in answers["neighbors"].to_pylist()]


THREE = {"e": np.array([[0, 0], [1, 0], [0, 1]], "f4"), "y": [10.0, 20.0, 30.0]}


def test_no_row_stands_in_for_a_missing_neighbor(arrangement: Arrangement) -> None:
    """C02: of three rows nobody has five neighbors; where fewer are found, fewer count, never the last row
    twice, never a distance of 3.4e38.
    """
    query = {"e": np.zeros((1, 2), "f4")}
    for metric in ("l2", "ip"):
        index = arrangement.build(THREE, key="e", target="y", metric=metric)
        with pytest.raises(UsageError, match="k from 1 to the 3 rows"):
            arrangement.ask(5, index, query)
        method = ld.local_mean(5, "dot-product", 1.0) if metric == "ip" else ld.knn(5)
        with pytest.raises(UsageError, match="k of at most 3"):
            arrangement.ask(method, index, query)
    with pytest.raises(DataError, match="at least one good row of the support; got no rows"):
        arrangement.build(
            pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.float64())}), key="x"
        )


def test_fewer_rows_than_neighbors_in_memory_are_all_that_count() -> None:
    """C02: with arrays the three rows are averaged, the status says few and the list ends."""
    answers = ld.knn(5)(ld.Exact(THREE["e"], THREE["y"]), np.zeros((1, 2)), want={"neighbors", "effective"})
    assert answers.values.item() == 20
    assert answers.status.item() == ld.Status.FEW
    assert answers.effective.item() == pytest.approx(3)
    assert answers.ids.tolist() == [[0, 1, 2, -1, -1]]
    assert answers.weights.tolist()[0][3:] == [0, 0]
    scores = ld.local_mean(5, "dot-product", 1.0)(
        ld.Exact(THREE["e"], THREE["y"], metric="ip"), np.ones((1, 2)), want={"neighbors"}
    )
    weights = np.exp([0, 1, 1]) / np.exp([0, 1, 1]).sum()
    assert scores.values.item() == pytest.approx(weights @ THREE["y"])
    with pytest.raises(UsageError, match="at least one row"):
        ld.Exact(np.zeros((0, 2)))


@pytest.mark.parametrize("codes", ["exact", "flat"])
def test_distances_are_not_squared(arrangement: Arrangement, codes: str) -> None:
    """C06: what is told, what a kernel takes and what a radius means are true distances; a row at exactly the
    radius counts for the uniform kernel.
    """
    rows = {"e": np.array([[3, 4], [0, 1]], "f4"), "y": [0.0, 1.0]}
    query = {"e": np.zeros((1, 2), "f4")}
    index = arrangement.build(rows, key="e", target="y", codes=codes)
    assert distances(arrangement.ask(2, index, query)) == [[1, 5]]
    mean = arrangement.ask(ld.local_mean(2, "gaussian", 2.0), index, query)["prediction"][0].as_py()
    weights = np.exp([-25 / 8, -1 / 8])
    assert mean == pytest.approx(weights[1] / weights.sum(), rel=1e-12)
    assert mean == pytest.approx(0.95257, abs=1e-5)
    for radius, expected in ((2.0, 1.0), (1.0, 1.0), (5.0, 0.5), (0.999, None)):
        answers = ld.predict(ld.local_mean(2, "uniform", radius), index, query)
        assert answers["prediction"].to_pylist() == [expected]


def test_of_inner_products_the_largest_is_the_nearest(arrangement: Arrangement) -> None:
    """C06: order and kernel turn round."""
    rows = {"e": np.array([[3, 4], [0, 1]], "f4"), "y": [0.0, 1.0]}
    index = arrangement.build(rows, key="e", target="y", metric="ip")
    query = {"e": np.array([[0, 0.5]], "f4")}
    answers = arrangement.ask(ld.local_mean(2, "dot-product", 1.0), index, query, explain=2)
    assert distances(answers) == [[2.0, 0.5]]
    assert found(answers) == [[0, 1]]
    assert answers["prediction"][0].as_py() == pytest.approx(1 / (1 + np.exp(1.5)))


KEYS = np.random.default_rng(0).normal(size=(50, 8)).astype("f4")
SHAPES: dict[str, tuple[Any, str]] = {
    "one dimension": (KEYS[0], r"'key' of the key as vector of float; got type float"),
    "another width": (KEYS[:2, :4], r"'key' of the key as vector of float, with 8 numbers; got 4 numbers"),
    "lists of another width": ([[1, 2, 3]], r"'key' of the key as vector.* with 8 numbers; got 3 numbers"),
    "a number": (np.float32(3), r"a path, a table, a mapping of names to arrays.*got float32"),
    "three dimensions": (KEYS[None], r"column 'key' as \[n\] or \[n, d\]; got shape \[1, 50, 8\]"),
}


def test_queries_of_a_wrong_shape_are_refused_with_both_shapes(arrangement: Arrangement) -> None:
    """C10: before any task, with the column and what was expected; in memory too."""
    index = arrangement.build({"key": KEYS, "y": np.arange(50.0)}, key="key", target="y")
    out = arrangement.folder("out")
    for queries, told in SHAPES.values():
        with pytest.raises((UsageError, DataError), match=told):
            ld.predict(ld.knn(3), index, queries, out)
        with pytest.raises(UsageError, match=r"queries \[q, (d|8)\]"):
            ld.knn(3)(ld.Exact(KEYS, np.arange(50.0)), queries)
    assert not out.exists()


def test_no_queries_and_queries_as_lists_are_queries(arrangement: Arrangement) -> None:
    """C10: zero rows have an empty answer of the same schema; nested lists are a matrix."""
    index = arrangement.build({"key": KEYS, "y": np.arange(50.0)}, key="key", target="y")
    answers = ld.predict(ld.knn(3), index, KEYS)
    assert ld.predict(ld.knn(3), index, KEYS[:0]).schema == answers.schema
    assert ld.predict(ld.knn(3), index, KEYS.tolist()).equals(answers)
    here = ld.knn(3)(ld.Exact(KEYS, np.arange(50.0)), KEYS.tolist())
    np.testing.assert_allclose(here.values[:, 0], answers["prediction"], 1e-6)
    assert ld.knn(3)(ld.Exact(KEYS, np.arange(50.0)), KEYS[:0]).values.shape == (0, 1)


def test_a_wrong_number_of_neighbors_is_refused_when_it_is_named(tmp_path: Path) -> None:
    """C10: k is a whole number from 1 to the rows there are."""
    index = ld.build_index(ld.dataset({"key": KEYS}, key="key"), tmp_path / "index")
    wrong: list[Any] = [0, -1, 2.5, True, "3"]
    for k in wrong:
        with pytest.raises(UsageError, match="k, a whole number of at least 1"):
            ld.knn(k)
    with pytest.raises(UsageError, match="for k=None"):  # all rows, which are nobody's nearest
        ld.knn(None)  # type: ignore[arg-type]
    for k in [*wrong, None, 51]:
        with pytest.raises(UsageError, match="k from 1 to the 50 rows"):
            ld.neighbors(index, KEYS, k=k)


def test_a_zero_vector_has_no_direction(arrangement: Arrangement) -> None:
    """C16: as a query it is null with a reason, as a row it is refused or left out and counted; a very short
    vector still has a direction.
    """
    keys = np.array([[1, 0], [0, 0], [0.9, 0.1], [0, -1e-30]], "f4")
    rows = {"e": keys, "y": [1.0, 2.0, 3.0, 4.0]}
    with pytest.raises(DataError, match=r"1 zero vector in 'e' \(first: row \d of part-\d\.parquet\)"):
        arrangement.build(rows, key="e", target="y", metric="cosine")
    index = arrangement.build(rows, "drop", key="e", target="y", metric="cosine", codes="flat")
    assert index.layout.source.dropped == (Dropped("e", "zero vector", 1),)
    queries = {"e": np.array([[0, 0], [1, 0], [0, -1], [1e-30, 0]], "f4")}
    answers = arrangement.ask(ld.knn(2), index, queries, explain=2)
    assert answers["status"].to_pylist() == ["bad_query", "ok", "ok", "ok"]
    assert found(answers) == [[], [0, 2], [3, 0], [0, 2]]
    assert answers["prediction"].to_pylist() == [None, 2.0, 2.5, 2.0]
    assert [row["reason"] for row in quarantine(arrangement.last("out"))] == ["zero vector"]
    memory = ld.knn(2)(ld.Exact(keys[[0, 2, 3]], [1.0, 3, 4], metric="cosine"), queries["e"])
    assert memory.values.isnan()[:, 0].tolist() == [True, False, False, False]
    with pytest.raises(DataError, match=r"keys with a direction.*row 1"):
        ld.Exact(keys, metric="cosine")


def test_too_few_rows_for_an_index_are_searched_exactly(
    arrangement: Arrangement, capfd: pytest.CaptureFixture[str]
) -> None:
    """C26: by default 50 rows get no lists; 64 lists of 50 rows are refused with both numbers; whoever asks
    for lists gets as many as there are rows for, and FAISS prints nothing.
    """
    rows = {"key": KEYS, "y": np.arange(50.0)}
    assert arrangement.build(rows, key="key", target="y").layout.codes == "exact"
    with pytest.raises(UsageError, match=r"nlist between 1 and the 50 rows; got 64\. Choose fewer lists"):
        arrangement.build(rows, key="key", codes="flat", nlist=64)
    for codes in ("flat", "fp16"):
        some = {"key": KEYS[:3], "y": np.arange(3.0)}
        index = arrangement.build(some, key="key", target="y", codes=codes)
        assert arrangement.ask(ld.knn(1), index, some)["prediction"].to_pylist() == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("codes", ["flat", "fp16"])
def test_rows_that_are_all_equal_can_be_indexed(arrangement: Arrangement, codes: str) -> None:
    """C26: one distinct row, a thousand times."""
    rows = {"key": np.ones((1000, 8), "f4"), "y": np.arange(1000.0)}
    index = arrangement.build(rows, key="key", target="y", codes=codes)
    answers = arrangement.ask(ld.knn(4), index, {"key": np.full((3, 8), 2, "f4")}, explain=4)
    assert found(answers) == [[0, 1, 2, 3]] * 3
    assert answers["prediction"].to_pylist() == [1.5] * 3


def test_an_approximate_search_finds_as_many_as_were_asked_and_tells_its_recall(
    arrangement: Arrangement,
) -> None:
    """C27: where one list of four holds fewer than 40 rows more are searched; the recall is in the report,
    and nothing but rows is averaged.
    """
    rows = {"key": KEYS, "y": np.arange(50.0)}
    index = arrangement.build(rows, key="key", target="y", codes="flat", nlist=4, recall=0.01)
    out = arrangement.folder("out")
    report = ld.predict(ld.knn(40), index, arrangement.write(rows), out, explain=40)
    assert report.nprobe == 1
    assert report.recall.k == 40
    assert 0 < report.recall.low <= report.recall.mean <= 1
    answers = read(out)
    assert answers["status"].to_pylist() == ["ok"] * 50
    for ids, mean in zip(found(answers), answers["prediction"].to_pylist(), strict=True):
        assert len(set(ids)) == 40
        assert mean == pytest.approx(np.mean(ids))
    exact = [set(row) for row in found(ld.neighbors(index, rows, k=40, recall=1.0))]
    assert len(exact) == 50


# ------------------------------------------------------------------------------------- arithmetic and batches

CENTER = np.array([4208848.0, 2334863.0, 4171170.0])
PLACES = CENTER + np.random.default_rng(1).uniform(-2000, 2000, (2000, 3))


@pytest.mark.parametrize("codes, shape", [("exact", "columns"), ("flat", "vectors"), ("fp16", "columns")])
def test_a_large_offset_costs_no_neighbor(arrangement: Arrangement, codes: str, shape: str) -> None:
    """C34: places in meters from the center of the earth, as three columns or as vectors of doubles: the
    nearest other row is that of float64, a row is at distance 0 of itself, and moving all changes nothing.
    """
    away = np.square(PLACES[:100, None] - PLACES[None]).sum(axis=2)
    away[np.arange(100), np.arange(100)] = np.inf
    nearest = away.argmin(axis=1).tolist()
    places = PLACES + (1e7 if arrangement.shuffled else 0.0)
    rows = dict(zip("uvw", places.T, strict=True)) if shape == "columns" else {"e": places}
    index = arrangement.build(rows, key=list(rows), codes=codes, recall=1.0, scaling="none")
    answers = arrangement.ask(2, index, {name: values[:100] for name, values in rows.items()})
    assert found(answers) == [[row, other] for row, other in enumerate(nearest)]
    told = np.array(distances(answers))
    assert not told[:, 0].any()
    np.testing.assert_allclose(told[:, 1], np.sqrt(away.min(axis=1)), 1e-6)


RANDOM = np.random.default_rng(2)
MANY, TARGETS = RANDOM.normal(size=(1000, 64)).astype("f4"), RANDOM.normal(size=1000)


def test_batches_do_not_change_neighbors_or_predictions(
    arrangement: Arrangement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C35: the product of matrices that FAISS uses from 20 queries on only proposes; distances are computed
    one by one.
    """
    index = arrangement.build({"key": MANY, "y": TARGETS}, key="key", target="y")
    queries = {"key": MANY[:210]}
    method = ld.local_mean(5)
    expected = arrangement.ask(method, index, queries, explain=5)
    for batch in (19, 20, 200):
        monkeypatch.setattr(questions, "BLOCK_ROWS", batch)
        answers = arrangement.ask(method, index, queries, explain=5)
        assert found(answers) == found(expected)
        np.testing.assert_allclose(answers["prediction"], expected["prediction"], 1e-9)


@pytest.mark.parametrize("batch", [1, 19, 20, 200])
def test_batches_do_not_change_answers_in_memory(batch: int) -> None:
    """C35, with arrays: one query alone is answered as it is among others."""
    index, method = ld.Exact(MANY, TARGETS), ld.local_mean(5)
    rows = 21 if batch == 1 else 210
    whole = method(index, MANY[:rows], want={"neighbors"})
    parts = [
        method(index, MANY[start : min(start + batch, rows)], want={"neighbors"})
        for start in range(0, rows, batch)
    ]
    assert torch.equal(torch.cat([part.ids for part in parts]), whole.ids)
    torch.testing.assert_close(torch.cat([part.values for part in parts]), whole.values, rtol=1e-9, atol=0)
