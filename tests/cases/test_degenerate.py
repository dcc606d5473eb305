"""Rows at which arithmetic fails: an answer that is right, or none and the reason."""

import numpy as np
import pyarrow as pa
import pytest

import locdist as ld
from locdist.errors import DataError
from locdist.search.layout import Dropped
from tests.cases.arrangement import Arrangement, found, quarantine

NAN, INF = float("nan"), float("inf")


def told(answers: pa.Table, *names: str) -> list[tuple[object, ...]]:
    """Columns of answers, row by row."""
    return list(zip(*(answers[name].to_pylist() for name in names), strict=True))


EQUAL = {"x": [0.0, 0, 2], "y": [1.0, 2, 30], "word": ["a", "a", "b"]}
THERE = {"x": [0.0, 1e-200, 1.0]}


def test_a_query_at_a_row_is_answered_by_the_rows_there(arrangement: Arrangement) -> None:
    """C03: no kernel divides by a distance; at a row, and at 1e-200 from it, the rows there decide, and at
    equal distances all count alike.
    """
    index = arrangement.build(EQUAL, key="x", target="y", scaling="none")
    expected = {"prediction": [1.5, 1.5, 11.0]}
    for method in (ld.local_mean(3), ld.local_mean(3, "bisquare"), ld.local_mean(3, "triangular")):
        answers = ld.predict(method, index, THERE)
        np.testing.assert_allclose(answers["prediction"], expected["prediction"], 1e-5)
    answers = arrangement.ask(ld.local_mean(3), index, THERE)
    np.testing.assert_allclose(answers["prediction"], expected["prediction"], 1e-12)
    for kernel in ("uniform", "gaussian", "laplace"):
        answers = ld.predict(ld.local_mean(2, kernel), index, THERE)
        assert answers["prediction"].to_pylist()[:2] == [1.5, 1.5]
    planes = ld.predict(ld.local_linear(2), index, THERE)
    np.testing.assert_allclose(planes["prediction"].to_pylist()[:2], [1.5, 1.5], 1e-12)


def test_a_query_at_a_row_has_the_label_of_the_rows_there(arrangement: Arrangement) -> None:
    """C03: two other rows close by do not out-vote the one that is there."""
    rows = {"x": [0.0, 0.1, 0.1], "word": ["a", "b", "b"]}
    index = arrangement.build(rows, key="x", target="word", scaling="none")
    answers = arrangement.ask(ld.local_vote(3), index, THERE)
    assert answers["label"].to_pylist()[:2] == ["a", "a"]
    np.testing.assert_allclose(answers["probability_a"].to_pylist()[:2], [1, 1], 1e-12)


VECTORS = np.random.default_rng(0).normal(size=(50, 8)).astype("f4")


def test_rows_with_nan_are_named_or_left_out_and_poison_nobody(arrangement: Arrangement) -> None:
    """C04: of rows 7 and 9 one has NaN and one infinity; of the queries 0, 7 and 9 are bad, and the others
    have the answers of a run without these rows.
    """
    spoiled, asked = VECTORS.copy(), VECTORS[:12].copy()
    spoiled[7, 0], spoiled[9, 0] = NAN, INF
    asked[7, 0], asked[9, 0], asked[0, 3] = NAN, INF, NAN
    rows = {"e": spoiled, "y": np.arange(50.0)}
    with pytest.raises(DataError, match=r"2 of 50.*2 not finite in 'e' \(first: row \d+ of part-\d\.parquet"):
        arrangement.build(rows, key="e", target="y", codes="flat")
    index = arrangement.build(rows, "drop", key="e", target="y", codes="flat", recall=1.0)
    assert index.layout.rows == 48
    assert index.layout.source.dropped == (Dropped("e", "not finite", 2),)
    answers = arrangement.ask(ld.local_mean(5), index, {"e": asked}, explain=5)
    good = np.delete(np.arange(50), [7, 9])
    clean = arrangement.build({"e": VECTORS[good], "y": good * 1.0, "id": good}, key="e", target="y")
    others = [row for row in range(12) if row not in (0, 7, 9)]
    expected = ld.predict(ld.local_mean(5), clean, {"e": asked[others]}, explain=5)
    assert [row for row, value in enumerate(answers["prediction"].to_pylist()) if value is None] == [0, 7, 9]
    here = answers.take(pa.array(others))
    assert found(here) == found(expected)
    np.testing.assert_allclose(here["prediction"], expected["prediction"], 1e-12)
    assert {(row["column"], row["reason"]) for row in quarantine(arrangement.last("out"))} == {
        ("e", "not finite")
    }


def test_a_null_is_as_bad_as_nan(arrangement: Arrangement) -> None:
    """C04: in a vector, in a number, in a target; Arrow counts only some of them as null."""
    rows = {
        "e": pa.array([[1.0, 2.0], [None, 2.0], None, [3.0, NAN], [3.0, 4.0]]),
        "x": [0.0, 1.0, 2.0, 3.0, None],
        "y": [0.0, NAN, 2.0, 3.0, 4.0],
    }
    index = arrangement.build(rows, "drop", key=["e", "x"], target="y")
    assert index.layout.rows == 1
    counts = {(each.column, each.reason): each.rows for each in index.layout.source.dropped}
    assert counts == {
        ("e", "null"): 2, ("e", "not finite"): 1, ("x", "null"): 1, ("y", "not finite"): 1,
    }  # fmt: skip
    answers = arrangement.ask(ld.knn(1), index, rows)
    assert answers["status"].to_pylist() == ["ok"] + ["bad_query"] * 4


TWO = {"x": [0.0, 1.0], "y": [1.0, 2.0], "word": ["a", "b"]}
FAR = {"x": [50.0, 0.4]}


def test_weights_that_underflow_are_compared_before_they_do(arrangement: Arrangement) -> None:
    """C05: at 50 the nearer of two rows counts e^49.5 times the other, and the status says that both are far;
    under a kernel that ends there is no answer, and nobody's neighbors count.
    """
    index = arrangement.build(TWO, key="x", target="y", scaling="none")
    answers = arrangement.ask(ld.local_mean(2, "gaussian", 1.0), index, FAR)
    far, ordinary = told(answers, "prediction", "status")
    assert far == (pytest.approx(2.0, abs=1e-12), "low_support")
    assert ordinary[1] == "ok"
    compact = arrangement.ask(ld.local_mean(2, "triangular", 1.0), index, FAR, extras=["effective"])
    far, ordinary = told(compact, "prediction", "effective", "status")
    assert far == (None, 0.0, "empty")
    assert ordinary == (pytest.approx(1.4), pytest.approx(1 / 0.52), "ok")


def test_a_vote_nobody_takes_part_in_has_no_winner(arrangement: Arrangement) -> None:
    """C05: neither the first class nor a row of zeros."""
    index = arrangement.build(TWO, key="x", target="word", scaling="none")
    names = ("label", "probability_a", "probability_b", "status")
    far, ordinary = told(arrangement.ask(ld.local_vote(2, "gaussian", 1.0), index, FAR), *names)
    assert far == ("b", pytest.approx(0, abs=1e-12), pytest.approx(1), "low_support")
    assert ordinary[0] == "a"
    far, ordinary = told(arrangement.ask(ld.local_vote(2, "triangular", 1.0), index, FAR), *names)
    assert far == (None, None, None, "empty")
    assert ordinary == ("a", pytest.approx(0.6), pytest.approx(0.4), "ok")


LINE = np.linspace(0, 1, 20)


def test_a_column_that_is_constant_here_gets_no_slope_and_stops_nobody(arrangement: Arrangement) -> None:
    """C21: the line of the other column is found, a dummy that no neighbor has is told as rank deficient, and
    a bandwidth that changes by 1e-4 changes nothing.
    """
    rows = {"x": LINE, "dummy": np.ones(20), "y": 2 * LINE + 1}
    index = arrangement.build(rows, key="x", features=["x", "dummy"], target="y", scaling="none")
    queries = {"x": [0.5, 0.5], "dummy": [1.0, 0.0]}
    for width in (0.3, 0.3001):
        method = ld.local_linear(20, "epanechnikov", width)
        answers = arrangement.ask(method, index, queries, extras=["coefficients"])
        np.testing.assert_allclose(answers["prediction"], [2, 2], 1e-9)
        assert answers["status"].to_pylist() == ["rank_deficient"] * 2
        np.testing.assert_allclose(answers["coefficients"].to_pylist(), [[2, 2, 0]] * 2, atol=1e-9)


def test_collinear_columns_stop_nobody(arrangement: Arrangement) -> None:
    """C21: three columns of rank one, more columns than neighbors, and a row with an answer beside them."""
    rows = {"e": np.outer(LINE, [1.0, 2.0, 4.0]), "x": LINE, "y": 2 * LINE + 1}
    index = arrangement.build(rows, key="x", features="e", target="y")
    queries = {"e": np.outer([0.2, 0.7], [1.0, 2.0, 4.0]), "x": [0.2, 0.7]}
    for k in (20, 3):
        answers = arrangement.ask(ld.local_linear(k, "uniform"), index, queries)
        np.testing.assert_allclose(answers["prediction"], [1.4, 2.4], 1e-9)
        assert answers["status"].to_pylist() == ["rank_deficient"] * 2


PURE = {"x": np.repeat([0.0, 9.0], 5), "word": ["a"] * 5 + ["b"] * 5}


def test_classes_are_the_same_in_every_partition(arrangement: Arrangement) -> None:
    """C28: neighborhoods of one class are certain of it; the columns are all classes, sorted, also where a
    file has never seen one.
    """
    files = arrangement.files(
        {
            f"{number}.parquet": pa.table({"id": ids, "x": [9.0 * number] * 5, "word": ["ab"[number]] * 5})
            for number, ids in enumerate([range(5), range(5, 10)])
        }
    )
    for rows in (PURE, files):
        index = arrangement.build(rows, key="x", target="word", scaling="none")
        answers = arrangement.ask(ld.local_vote(3), index, {"x": [0.0, 9.0, 4.5]}, extras=["spread"])
        assert answers.column_names[1:5] == ["label", "probability_a", "probability_b", "status"]
        first, second, between = told(answers, "label", "probability_a", "probability_b")
        assert (first, second) == (("a", 1.0, 0.0), ("b", 0.0, 1.0))
        assert between == ("a", 1.0, 0.0)  # equally far: the smaller ids
        assert answers["spread_a"].to_pylist()[:2] == [0, 0]
        assert index.vocabulary.to_pylist() == ["a", "b"]


RNG = np.random.default_rng(3)
AGE, INCOME = RNG.uniform(20, 60, 200), np.sort(RNG.uniform(2e4, 2e5, 200))
PEOPLE = {"age": AGE, "income": INCOME, "const": np.full(200, 3.7), "y": AGE}


def test_one_scaling_holds_for_all_partitions_and_a_constant_is_no_spread(arrangement: Arrangement) -> None:
    """C29: income of the first half is below that of the second, and 3.7 spreads by rounding: the scaling is
    that of all rows, a constant column says nothing, and unscaled columns of unlike spread are told.
    """
    key = ["age", "income", "const"]
    index = arrangement.build(PEOPLE, key=key, target="y")
    mean, scale = (
        np.array([getattr(each, name)[0] for each in index.key.columns]) for name in ("mean", "scale")
    )
    np.testing.assert_allclose(mean, [AGE.mean(), INCOME.mean(), 3.7], 1e-6)
    np.testing.assert_allclose(scale, [AGE.std(), INCOME.std(), 1.0], 1e-6)
    once = ld.build_index(ld.dataset(PEOPLE, key=key, target="y"), arrangement.folder("index"))
    assert index.key == once.key
    points = np.c_[(AGE - AGE.mean()) / AGE.std(), (INCOME - INCOME.mean()) / INCOME.std()]
    away = np.square(points[:20, None] - points[None]).sum(axis=2)
    answers = arrangement.ask(5, index, {name: values[:20] for name, values in PEOPLE.items()})
    assert found(answers) == np.argsort(away, axis=1, kind="stable")[:, :5].tolist()
    assert index.layout.source.notes == ()
    plain = arrangement.build(PEOPLE, key=key, target="y", scaling="none")
    (note,) = plain.layout.source.notes
    assert "'income' spreads" in note
    assert "scaling='standard'" in note


STEPS = {"x": np.arange(4.0), "y": [0.0, 0, 1, 1], "word": list("aabb")}


def test_where_nobody_is_in_reach_there_is_no_answer(arrangement: Arrangement) -> None:
    """C30: null and "empty" for every kernel and model, and the query beside it has its answer."""
    queries = {"x": [-2.0, 0.0]}
    index = arrangement.build(STEPS, key="x", target="y", scaling="none")
    for answers in (
        arrangement.ask(ld.local_mean(4, "uniform", 1.0), index, queries),
        ld.predict(ld.local_mean(4, "triangular", 1.0), index, queries),
        ld.predict(ld.local_linear(4, "epanechnikov", 1.5), index, queries),
    ):
        assert answers["status"].to_pylist()[0] == "empty"
        assert answers["prediction"].to_pylist() == [None, pytest.approx(0, abs=1e-12)]
    words = arrangement.build(STEPS, key="x", target="word", scaling="none")
    answers = arrangement.ask(ld.local_vote(4, "uniform", 1.0), words, queries)
    assert answers["status"].to_pylist() == ["empty", "ok"]
    assert answers["label"].to_pylist() == [None, "a"]


def test_repeated_inputs_with_conflicting_targets_are_averaged(arrangement: Arrangement) -> None:
    """C33, for the Gaussian process and for the plane, whose matrix is as singular: at 0 the two rows there
    are averaged, spreads are no negative variances, a ridge or a nugget changes neither.
    """
    rows = {"x": [0.0, 0.0, 1.0], "y": [0.0, 1.0, 2.0]}
    index = arrangement.build(rows, key="x", target="y", scaling="none")
    queries = {"x": [0.0, 0.5, 1.0]}
    for method, expected in (
        (ld.local_linear(3, "uniform"), [0.5, 1.25, 2.0]),
        (ld.local_linear(3, "gaussian", 1.0), [0.5, 1.25, 2.0]),
        (ld.local_linear(3, "uniform", ridge=1e-9), [0.5, 1.25, 2.0]),
        (ld.local_gp(3, nugget=1e-6), [0.5, 1.25, 2.0]),
    ):
        answers = arrangement.ask(method, index, queries, extras=["spread"])
        np.testing.assert_allclose(answers["prediction"], expected, 1e-5)
        assert min(answers["spread"].to_pylist()) >= 0
        assert answers["status"].to_pylist() == ["ok"] * 3


def test_rows_that_are_nearly_repeated_have_finite_answers(arrangement: Arrangement) -> None:
    """C33: sixty single-precision places within a thousandth; they are solved in double precision, and the
    line through them is found.
    """
    places = np.linspace(0, 1e-3, 60, dtype="f4")[:, None]
    rows = {"e": places, "y": 3 * places[:, 0].astype("f8") + 1}
    index = arrangement.build(rows, key="e", target="y")
    for k in (60, 10):
        answers = arrangement.ask(ld.local_linear(k), index, rows)
        np.testing.assert_allclose(answers["prediction"], rows["y"], 1e-9)
        assert set(answers["status"].to_pylist()) == {"ok"}


RAY = {"e": [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], "y": [1.0, 10.0, 100.0]}


def test_neighbors_on_a_line_have_weights_that_sum_to_one(arrangement: Arrangement) -> None:
    """C60, for the local plane, as the embedding is not there: three neighbors of rank one have the weights
    of the line through them, and a ridge those that it gives; neighbors at the query itself count alike.
    There is no error to come upon: a system without a unique solution is solved by its smallest, and told.
    """
    index = arrangement.build(RAY, key="e", target="y")
    for ridge, expected in ((0.0, [4 / 3, 1 / 3, -2 / 3]), (1e-3, [1.3326, 0.3333, -0.6659])):
        answers = arrangement.ask(
            ld.local_linear(3, "uniform", ridge=ridge), index, {"e": [[0, 0.0]]}, explain=3
        )
        (row,) = answers["neighbors"].to_pylist()
        weights = [pair["contribution"] / RAY["y"][pair["id"]] for pair in row]
        np.testing.assert_allclose(weights, expected, atol=1e-4)
        assert sum(weights) == pytest.approx(1)
        assert answers["status"].to_pylist() == ["ok" if ridge else "rank_deficient"]
    index = arrangement.build({"e": np.zeros((3, 2)), "y": RAY["y"]}, key="e", target="y")
    answers = arrangement.ask(ld.local_linear(3), index, {"e": np.zeros((1, 2))})
    assert answers["prediction"][0].as_py() == pytest.approx(37)


PATTERNS = np.eye(2, dtype="f4")


def test_a_retrieval_is_compared_before_it_overflows_and_nobody_is_retrieved_where_none_counts(
    arrangement: Arrangement,
) -> None:
    """C61: attention is the local mean under the dot-product kernel. Scores of 10,000 and 9,999 differ by 1,
    in single precision and as halves, which are raised first; a cold retrieval of a pattern is the pattern;
    rows of weight 0, which is what a mask is here, leave a query without an answer.
    """
    rows = {"e": PATTERNS, "y": [1.0, 2.0], "w": [1.0, 1.0]}
    index = arrangement.build(rows, key="e", target="y", metric="ip", weight="w")
    for queries in (np.array([[1e4, 1e4 - 1]], "f4"), np.array([[9.0, 8.0]], "f2")):
        answers = arrangement.ask(ld.local_mean(2, "dot-product", 1.0), index, {"e": queries}, explain=2)
        (row,) = answers["neighbors"].to_pylist()
        np.testing.assert_allclose([pair["weight"] for pair in row], [0.7311, 0.2689], atol=1e-4)
        assert answers["prediction"][0].as_py() == pytest.approx(1.2689, abs=1e-4)
    cold = arrangement.ask(ld.local_mean(2, "dot-product", 0.01), index, {"e": PATTERNS})
    np.testing.assert_allclose(cold["prediction"], [1, 2], 1e-12)
    masked = arrangement.build(rows | {"w": [0.0, 0.0]}, key="e", target="y", metric="ip", weight="w")
    answers = arrangement.ask(ld.local_mean(2, "dot-product", 1.0), masked, {"e": PATTERNS})
    assert told(answers, "prediction", "status") == [(None, "empty")] * 2


def test_a_line_through_one_place_is_the_mean_there_and_a_far_query_is_never_zero(
    arrangement: Arrangement,
) -> None:
    """C62: where all neighbors share a place the fit is their mean, without a warning; 1,000 bandwidths away
    there is no answer under a kernel that ends, under another one that of the nearest row, told as such, and
    only a bandwidth that adapts extrapolates.
    """
    x = np.repeat([1.0, 2, 3], 20)
    ties = {"x": x, "y": x + 0.1 * RNG.normal(size=60)}
    index = arrangement.build(ties, key="x", target="y", scaling="none")
    answers = arrangement.ask(ld.local_linear(12), index, {"x": [1.0, 2.0, 3.0]})
    means = [
        ties["y"][first : first + 12].mean() for first in (0, 20, 40)
    ]  # of equally far rows the smaller ids
    np.testing.assert_allclose(answers["prediction"], means, 1e-12)
    index = arrangement.build({"x": LINE, "y": LINE}, key="x", target="y", scaling="none")
    for kernel, bandwidth, expected in (
        ("epanechnikov", 0.05, (None, "empty")),
        ("gaussian", 0.05, (pytest.approx(1), "rank_deficient")),
        ("tricube", "nearest", (pytest.approx(50), "ok")),
    ):
        answers = arrangement.ask(ld.local_linear(20, kernel, bandwidth), index, {"x": [50.0, 0.5]})
        far, ordinary = told(answers, "prediction", "status")
        assert far == expected
        assert ordinary == (pytest.approx(0.5), "ok")
