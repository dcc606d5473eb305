"""Whose answer it is: rows keep their order and their name, and no order changes an answer."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import locdist as ld
from locdist.errors import DataError
from locdist.execute.contract import Calls
from locdist.execute.executor import Executor, attempted
from locdist.execute.worker import Finished
from locdist.plan.plan import Stage
from tests.cases.arrangement import Arrangement, found, quarantine, table
from tests.system.generated import read

RNG = np.random.default_rng(0)


class Backwards(Executor):
    """Ends the first task last."""

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        for task, attempt in reversed(list(calls)):
            yield attempted(stage.function, task, attempt)


TWELVE = {f"part-{j}.parquet": pa.table({"id": [j], "x": [float(j)], "y": [float(j)]}) for j in range(12)}


def test_answers_come_in_the_order_of_their_rows_whichever_task_ends_first(arrangement: Arrangement) -> None:
    """C01: part-10 comes after part-9, and the task that ends first is not the first in the output."""
    files = arrangement.files(TWELVE)
    index = arrangement.build(files, key="x", target="y", scaling="none")
    for queries in (files, files[0].parent):
        answers = arrangement.ask(ld.knn(1), index, queries, executor=Backwards())
        assert answers["prediction"].to_pylist() == list(range(12))
    assert read(arrangement.last("out"))["id"].to_pylist() == list(range(12))


def test_answers_come_in_the_order_of_their_rows_on_every_engine(placed: Arrangement) -> None:
    """C01, on clusters, whose own readers and shuffles keep no order."""
    files = placed.files(TWELVE)
    index = placed.build(files, key="x", target="y", scaling="none")
    assert placed.ask(ld.knn(1), index, files)["prediction"].to_pylist() == list(range(12))


def test_a_row_is_left_out_by_its_place_and_not_by_its_distance(arrangement: Arrangement) -> None:
    """C11: of equal rows FAISS may find any first; none is in its own list, and each list is full."""
    rows = {"x": [[0.0, 0], [0, 0], [0, 0], [5, 5]], "y": [1.0, 2, 3, 100]}
    support = ld.dataset(arrangement.write(rows), key="x", target="y", id="id")
    options = {"explain": 2, "executor": arrangement.executor}
    report = ld.transform(ld.knn(2), support, arrangement.place / "out", **options)
    answers = read(arrangement.place / "out").sort_by("id")
    assert answers["prediction"].to_pylist() == [2.5, 2.0, 1.5, 1.5]
    assert found(answers) == [[1, 2], [0, 2], [0, 1], [0, 1]]
    assert report.rows == 4


@pytest.mark.parametrize("codes", ["flat", "fp16"])
def test_a_row_is_left_out_where_it_repeats_more_often_than_there_are_neighbors(
    arrangement: Arrangement, codes: str
) -> None:
    """C11, with every row forty times."""
    keys = np.repeat(np.random.default_rng(0).normal(size=(15, 3)), 40, axis=0)
    support = ld.dataset(arrangement.write({"x": keys, "y": np.arange(600.0)}), key="x", target="y", id="id")
    answers = ld.transform(ld.knn(5), support, codes=codes, explain=5)
    for row, ids in zip(answers["id"].to_pylist(), found(answers), strict=True):
        assert row not in ids
        assert len(set(ids)) == 5
        assert {number // 40 for number in ids} == {row // 40}


CORNERS = {
    "x": RNG.integers(0, 2, (3000, 6)).astype("f4"),
    "y": RNG.normal(size=3000),
    "id": RNG.permutation(3000),
}
ASKED = {"x": RNG.integers(0, 2, (40, 6)).astype("f4")}


def nearest_corners(k: int) -> list[list[int]]:
    """By a sort of all rows: distance, then id."""
    away = np.square(CORNERS["x"][None] - ASKED["x"][:, None]).sum(axis=2)
    return [CORNERS["id"][np.lexsort((CORNERS["id"], row))[:k]].tolist() for row in away]


def test_ties_at_the_last_neighbor_go_to_the_smaller_id(arrangement: Arrangement) -> None:
    """C12: half of these rows are equally far, in whatever order they are stored, for any number of threads;
    the first five of fifty are the five.
    """
    index = arrangement.build(CORNERS, key="x", target="y")
    five = arrangement.ask(ld.knn(5), index, ASKED, explain=5)
    assert five.equals(arrangement.ask(ld.knn(5), index, ASKED, explain=5, executor=ld.Local(1)))
    assert found(five) == nearest_corners(5)
    assert [row[:5] for row in found(arrangement.ask(50, index, ASKED))] == nearest_corners(5)
    by_id = dict(zip(CORNERS["id"].tolist(), CORNERS["y"], strict=True))
    means = [np.mean([by_id[number] for number in row]) for row in nearest_corners(5)]
    np.testing.assert_allclose(five["prediction"], means, 1e-12)


BIG = pa.array([2**53 + 1, 2**53 + 2, None], pa.int64())


def test_ids_beyond_floats_stay_what_they_are_and_a_missing_one_is_told(arrangement: Arrangement) -> None:
    """C20: a null beside them would make floats of them elsewhere; the row without an id is refused, or left
    out and told by its file and row, as a query too.
    """
    rows = pa.table({"id": BIG, "x": [0.0, 1, 2], "y": [0.0, 1, 2]})
    with pytest.raises(DataError, match=r"1 null in 'id' \(first: row \d of part-\d\.parquet\)"):
        arrangement.build(rows, key="x", target="y", scaling="none")
    index = arrangement.build(rows, "drop", key="x", target="y", scaling="none")
    answers = arrangement.ask(ld.knn(1), index, rows, explain=1)
    assert answers.schema.field("id").type == pa.int64()
    assert answers["id"].to_pylist() == BIG.to_pylist()
    assert answers["prediction"].to_pylist() == [0, 1, None]
    assert answers["status"].to_pylist() == ["ok", "ok", "bad_query"]
    assert found(answers) == [[2**53 + 1], [2**53 + 2], []]
    (told,) = quarantine(arrangement.last("out"))
    assert (told["column"], told["reason"]) == ("id", "null")


@pytest.mark.parametrize(
    "ids", [pa.array([2**63 + 5, 7], pa.uint64()), pa.array(["b", "a"])], ids=["uint64", "string"]
)
def test_ids_of_other_types_are_kept_and_never_wrap(arrangement: Arrangement, ids: pa.Array) -> None:
    """C20, with an unsigned id that is a negative number to FAISS, and with strings."""
    rows = table({"id": ids, "x": [0.0, 1.0]})
    index = arrangement.build(rows, key="x", scaling="none")
    answers = arrangement.ask(2, index, rows)
    assert answers.schema.field("id").type == ids.type
    first, second = ids.to_pylist()
    assert dict(zip(answers["id"].to_pylist(), found(answers), strict=True)) == {
        first: [first, second],
        second: [second, first],
    }
    with pytest.raises(DataError, match=r"one type of column 'id' in all files; got .*a\.parquet"):
        arrangement.build(arrangement.files({"a.parquet": rows, "b.parquet": table({"x": [1.0]})}), key="x")
