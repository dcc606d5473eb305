"""Rows against their own neighbors: graphs, layers on layers, and one step of each loop.

Label propagation, mean shift and locally linear embedding are loops around the one operation, and none of
them is there yet. What they get wrong is wrong in a step, so a step is what these tests take.
"""

import numpy as np
import pyarrow as pa
import pytest

import locdist as ld
from locdist.errors import UsageError
from tests.cases.arrangement import Arrangement, Rows, found, table
from tests.system.generated import read


def itself(arrangement: Arrangement, method: ld.knn, rows: Rows, target: str, **asked: object) -> pa.Table:
    """Answers of `transform` by id: each row from the others."""
    roles = {"key": "x", "target": target, "id": "id"} | {"scaling": "none"}
    support, out = ld.dataset(arrangement.write(rows), **roles), arrangement.folder("out")
    report = ld.transform(method, support, out, executor=arrangement.executor, **asked)
    assert report.rows == support.rows
    return read(out).sort_by("id")


SEEDS = pa.table(
    {
        "id": [0, 1, 2, 3],
        "x": [[0.0, 0], [0.1, 0], [100, 100], [100.1, 100]],
        "word": pa.array([7, 9, None, None]),
    }
)


def test_rows_that_no_label_reaches_get_none(arrangement: Arrangement) -> None:
    """C50, one step of label propagation: rows without a label are no neighbors and are counted; where none
    is in reach the answer is null and "empty", not the first class and not a row of zeros; seeds keep theirs.
    """
    index = arrangement.build(SEEDS, "drop", key="x", target="word")
    assert [(each.reason, each.rows) for each in index.layout.source.dropped] == [("null", 2)]
    answers = arrangement.ask(ld.local_vote(1, "uniform", 1.0), index, SEEDS)
    assert answers["label"].to_pylist() == [7, 9, None, None]
    assert answers["probability_7"].to_pylist() == [1, 0, None, None]
    assert answers["status"].to_pylist() == ["ok", "ok", "empty", "empty"]
    report = ld.predict(ld.local_vote(1, "uniform", 1.0), index, SEEDS, arrangement.folder("out"))
    assert report.status == {"ok": 2, "empty": 2}


RNG = np.random.default_rng(0)
NOISE = table({"x": RNG.normal(size=(400, 5)), "y": RNG.normal(size=400)})


def r2(answers: pa.Table) -> float:
    """Share of the variance of y that predictions explain."""
    y = NOISE["y"].to_numpy()
    return float(1 - np.square(y - answers["prediction"].to_numpy()).mean() / y.var())


def test_a_second_layer_learns_from_answers_that_do_not_know_their_own_row(arrangement: Arrangement) -> None:
    """C51: on noise neither layer explains anything, and the first one's answers are those of the nearest
    other rows, however the rows are cut. Whoever predicts the support from itself is told so. (A row that
    repeats another one explains it: groups are not known.)
    """
    first = itself(arrangement, ld.knn(1), NOISE, "y")
    x, y = np.stack(NOISE["x"].to_numpy()), NOISE["y"].to_numpy()
    away = np.square(x[:, None] - x).sum(axis=2) + np.diag(np.full(400, np.inf))
    np.testing.assert_allclose(first["prediction"], y[away.argmin(axis=1)], 1e-12)
    assert r2(first) < 0
    layer = pa.table({"id": NOISE["id"], "y": NOISE["y"], "x": first["prediction"]})
    assert r2(itself(arrangement, ld.knn(1), layer, "y")) < 0
    assert r2(itself(arrangement, ld.knn(20), layer, "y")) < 0.05
    rows = arrangement.write(NOISE)
    index = ld.build_index(ld.dataset(rows, key="x", target="y", id="id"), arrangement.folder("index"))
    report = ld.predict(ld.knn(1), index, rows, arrangement.folder("out"))
    assert r2(read(arrangement.last("out")).sort_by("id")) == 1
    assert "each is among its own neighbors: `transform` leaves it out" in str(report)


def test_lists_of_neighbors_are_directed_sparse_and_without_the_row_itself(arrangement: Arrangement) -> None:
    """C56: a list for each row is what there is, k entries long; its union has the edges 0-1, 1-2 and 2-3,
    of which only 0-1 is mutual. No step symmetrizes by itself.
    """
    answers = itself(arrangement, ld.knn(1), {"x": [0.0, 1.0, 2.0, 10.0]}, "x", explain=1)
    lists = found(answers)
    assert lists == [[1], [0], [1], [2]]
    edges = {(row, other) for row, others in enumerate(lists) for other in others}
    assert {tuple(sorted(edge)) for edge in edges} == {(0, 1), (1, 2), (2, 3)}
    assert {edge for edge in edges if edge[::-1] in edges} == {(0, 1), (1, 0)}


CLUSTERS = np.vstack([RNG.normal(center, 0.3, (50, 200)) for center in (1, -1)])


def test_a_step_to_the_mean_ends_at_the_rows_there_or_nowhere(arrangement: Arrangement) -> None:
    """C57, one step of mean shift, the local mean of the coordinates: repeated rows stay where they are under
    a bandwidth that adapts to 0, and a fixed one of 0 is refused; a seed with nobody in reach is null and
    "empty", rows as seeds move towards the middle of their cluster. Never NaN.
    """
    modes = table({"x": [1.0, 1, 1, 2, 2, 2, 3, 3]})
    index = arrangement.build(modes, key="x", target="x", scaling="none")
    assert arrangement.ask(ld.local_mean(2), index, modes)["prediction"].to_pylist() == [
        1,
        1,
        1,
        2,
        2,
        2,
        3,
        3,
    ]
    with pytest.raises(UsageError, match=r"a positive, finite bandwidth.*got 0"):
        ld.local_mean(2, "gaussian", 0)
    nothing = table({"e": np.zeros((10, 2)), "y": np.zeros(10)})
    index = arrangement.build(nothing, key="e", target="y")
    answers = arrangement.ask(ld.local_mean(10, "gaussian"), index, nothing)
    assert set(answers["prediction"].to_pylist()) == {0}
    rows = table({"e": CLUSTERS, "y": CLUSTERS[:, 0]})
    index = arrangement.build(rows, key="e", target="y")
    method = ld.local_mean(50, "epanechnikov", 8.0)
    bins = arrangement.ask(method, index, {"e": np.round(CLUSTERS[:3] / 8) * 8})
    assert (bins["prediction"].to_pylist(), bins["status"].to_pylist()) == ([None] * 3, ["empty"] * 3)
    moved = arrangement.ask(method, index, rows)["prediction"].to_numpy().reshape(2, 50)
    np.testing.assert_allclose(moved, np.repeat([[1.0], [-1.0]], 50, axis=1), atol=0.35)
    assert (moved.std(axis=1) < CLUSTERS[:, 0].reshape(2, 50).std(axis=1) / 2).all()


def test_a_step_that_has_arrived_does_not_move_and_an_orphan_has_no_label(arrangement: Arrangement) -> None:
    """C58, one step of mean shift: at the modes 0 and 1 it ends where it began, within a rounding; a row with
    nobody else in reach stays where it is, and has no answer where it does not count itself.
    """
    arrived = table({"x": np.repeat([0.0, 1.0], 10)})
    index = arrangement.build(arrived, key="x", target="x", scaling="none")
    step = arrangement.ask(ld.local_mean(20, "epanechnikov", 0.3), index, arrived)
    np.testing.assert_allclose(step["prediction"], arrived["x"], rtol=0, atol=2e-16)
    orphan = table({"x": [0.0, 0.1, 0.2, 50.0]})
    index = arrangement.build(orphan, key="x", target="x", scaling="none")
    method = ld.local_mean(3, "epanechnikov", 1.0)
    answers = arrangement.ask(method, index, orphan, extras=["effective"])
    assert (answers["prediction"][3].as_py(), answers["effective"][3].as_py()) == (50, pytest.approx(1))
    answers = itself(arrangement, method, orphan, "x")
    assert answers["status"].to_pylist() == ["ok", "ok", "ok", "empty"]
    assert answers["prediction"][3].as_py() is None


REPEATED = table({"x": [[0.0, 1], [0, 1], [-1, 2], [3, 3], [4, 1]], "y": np.arange(1.0, 6)})


def test_no_row_has_a_weight_on_itself(arrangement: Arrangement) -> None:
    """C59, with the weights of local models, as those of the embedding are not there: two each, that sum to
    one, none on the row itself; a repeated row may use its twin.
    """
    for method in (ld.local_mean(2, "gaussian"), ld.local_linear(2, "uniform")):
        answers = itself(arrangement, method, REPEATED, "y", explain=2)
        assert found(answers) == [[1, 2], [0, 2], [0, 1], [4, 0], [3, 0]]
        y = dict(zip(REPEATED["id"].to_pylist(), REPEATED["y"].to_pylist(), strict=True))
        for row in answers["neighbors"].to_pylist():
            assert sum(pair["weight"] for pair in row) == pytest.approx(1)
            assert sum(pair["contribution"] / y[pair["id"]] for pair in row) == pytest.approx(1)
    support = ld.dataset(arrangement.write(REPEATED), key="x", target="y", id="id")
    with pytest.raises(UsageError, match=r"k of at most 4, the rows that a query can have"):
        ld.transform(ld.local_linear(5), support)
