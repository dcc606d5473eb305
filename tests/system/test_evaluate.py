"""Metrics of finished predictions equal scikit-learn's, whatever is missing."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as peers

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.jobs.telling import scores
from tests.system.towns import CLASSES, Towns, gapped, towns

GAPS = [3, 4, 5]


def scored(column: str) -> np.ndarray:
    """The truth of the rows that are scored."""
    return np.delete(np.array(gapped(90, 3).column(column).to_pylist()), GAPS)


def predicted(out: Path, column: str) -> np.ndarray:
    return np.delete(pq.read_table(out).column(column).to_numpy(), GAPS)


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    world = towns(tmp_path_factory.mktemp("prices"))
    ld.predict(ld.local_mean(k=8), world.index, world.queries, world.root / "out")
    return world


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    world = towns(tmp_path_factory.mktemp("levels"), target="level")
    ld.predict(ld.local_vote(k=40, kernel="gaussian"), world.index, world.queries, world.root / "out")
    return world


def test_metrics_of_numbers_equal_scikit_learn(prices):
    told = ld.evaluate(prices.root / "out")
    truth, fit = scored("price").astype(float), predicted(prices.root / "out", "prediction")
    assert (told.target, told.rows, told.n, told.unknown) == ("price", 90, 87, 2)
    assert told.missing == {"bad_query": 1}
    assert told.metrics == {
        "rmse": pytest.approx(peers.root_mean_squared_error(truth, fit), rel=1e-12),
        "mae": pytest.approx(peers.mean_absolute_error(truth, fit), rel=1e-12),
        "bias": pytest.approx(np.mean(fit - truth), rel=1e-9),
        "r2": pytest.approx(peers.r2_score(truth, fit), rel=1e-12),
    }
    assert not told.classes


@pytest.mark.parametrize("wide", [False, True])
def test_metrics_of_classes_equal_scikit_learn(levels, wide, monkeypatch):
    out = levels.root / ("wide" if wide else "out")
    if wide:
        monkeypatch.setattr("locdist.jobs.asking.present.WIDE", 2)
        method = ld.local_vote(k=40, kernel="gaussian")
        ld.predict(method, levels.index, levels.queries, out)
    told = ld.evaluate(out)
    truth, label = scored("level"), predicted(out, "label")
    narrow = levels.root / "out"
    chances = np.stack([predicted(narrow, f"probability_{name}") for name in CLASSES], axis=1)
    chances = np.clip(chances, scores.CLIP, 1)
    assert (told.n, told.unknown, told.missing, told.unseen) == (87, 2, {"bad_query": 1}, 0)
    assert told.metrics == {
        "log_loss": pytest.approx(peers.log_loss(truth, chances, labels=CLASSES), rel=1e-9),
        "brier": pytest.approx(peers.brier_score_loss(truth, chances, labels=CLASSES), rel=1e-9),
        "accuracy": pytest.approx(peers.accuracy_score(truth, label)),
    }
    table = peers.confusion_matrix(truth, label, labels=CLASSES)
    counts = {name: (each.rows, each.predicted, each.correct) for name, each in told.classes.items()}
    assert counts == {
        name: (table[at].sum(), table[:, at].sum(), table[at, at]) for at, name in enumerate(CLASSES)
    }


def test_a_mean_of_0_and_1_is_a_probability(prices):
    support = ld.dataset(prices.support, key=["east", "north"], target="dear", id="town")
    index = ld.build_index(support, prices.root / "dear-index")
    out = prices.root / "dear"
    ld.predict("local-mean", index, prices.queries, out, keep=["town", "dear"])
    told = ld.evaluate(out)
    truth, fit = scored("dear").astype(int), np.clip(predicted(out, "prediction"), 1e-15, 1 - 1e-15)
    assert told.metrics["log_loss"] == pytest.approx(peers.log_loss(truth, fit), rel=1e-9)
    assert told.metrics["brier"] == pytest.approx(peers.brier_score_loss(truth, fit), rel=1e-9)
    assert told.metrics["accuracy"] == pytest.approx(peers.accuracy_score(truth, fit >= 0.5))
    assert told.metrics["brier"] == pytest.approx(told.metrics["rmse"] ** 2, rel=1e-9)
    assert told.classes["1"].rows == truth.sum()


def test_predictions_outside_0_and_1_are_clipped_and_counted():
    sums = scores.NumberSums.of(np.array([-0.5, 0.25, 1.5]), np.array([0.0, 0.0, 1.0]))
    assert sums.votes is not None
    assert sums.votes.outside == 2
    assert sums.metrics["brier"] == pytest.approx(0.25**2 / 3)
    assert sums.metrics["rmse"] == pytest.approx(np.sqrt((0.25 + 0.0625 + 0.25) / 3))


def test_a_class_that_the_support_did_not_have_has_probability_0():
    sums = scores.ClassSums.of(np.array([[0.5, 0.5]]), np.array([-1]), np.array([0]))
    assert sums.metrics == {
        "log_loss": pytest.approx(-np.log(scores.CLIP)), "brier": pytest.approx(0.75), "accuracy": 0.0,
    }  # fmt: skip


def test_sums_are_the_same_in_blocks_and_at_once():
    rng = np.random.default_rng(0)
    fit, truth = rng.normal(1e6, 1, 500), rng.normal(1e6, 1, 500)
    blocks = [scores.NumberSums.of(fit[at : at + 7], truth[at : at + 7]) for at in range(0, 500, 7)]
    total = blocks[0]
    for block in blocks[1:]:
        total = total.add(block)
    assert total.metrics == pytest.approx(scores.NumberSums.of(fit, truth).metrics, rel=1e-9)


def test_the_truth_may_lie_elsewhere(prices, tmp_path):
    whole = gapped(90, 3)
    here = ld.evaluate(prices.root / "out")
    renamed = pa.table({"paid": whole.column("price")})
    pq.write_table(renamed, tmp_path / "truth.parquet", row_group_size=13)
    assert ld.evaluate(prices.root / "out", "paid", tmp_path).metrics == here.metrics
    with pytest.raises(DataError, match="a truth of 90 rows"):
        ld.evaluate(prices.root / "out", "paid", renamed.slice(1))


def test_a_limited_output_is_scored_against_the_first_queries(prices):
    out = prices.root / "limited"
    ld.predict("local-mean", prices.index, prices.queries, out, limit=20)
    assert ld.evaluate(out).rows == 20


def test_wrong_use(prices, levels, tmp_path):
    out = prices.root / "out"
    with pytest.raises(UsageError, match="Did you mean 'price'"):
        ld.evaluate(out, "prize")
    with pytest.raises(UsageError, match="a truth of numbers"):
        ld.evaluate(out, "level")
    with pytest.raises(DataError, match="a truth of type string"):
        ld.evaluate(levels.root / "out", "x", {"x": [b"\xff"] * 90})
    with pytest.raises(UsageError, match="a finished output"):
        ld.evaluate(prices.index)
    with pytest.raises(UsageError, match="that locdist wrote"):
        ld.evaluate(tmp_path)


def test_changed_queries_are_refused(tmp_path):
    world = towns(tmp_path)
    ld.predict("knn", world.index, world.queries, tmp_path / "out")
    pq.write_table(gapped(50, 4), world.queries / "1.parquet")
    with pytest.raises(DataError, match="with another footer"):
        ld.evaluate(tmp_path / "out")


def test_it_reads_well_for_people_and_programs(levels, prices):
    told = ld.evaluate(prices.root / "out")
    assert "87 of 90 rows scored" in str(told)
    assert "bad_query" in str(told)
    assert json.loads(told.to_json())["metrics"] == told.metrics
    text = str(ld.evaluate(levels.root / "out"))
    assert "clipped at 1e-15" in text
    assert [line.split()[0] for line in text.splitlines()[-4:]] == ["class", *CLASSES]


def renamed(root: Path, target: str, name: str) -> Towns:
    """Towns whose target has the name of a column of the output."""
    world = towns(root)
    for file in [*world.support.iterdir(), *world.queries.iterdir()]:
        pq.write_table(pq.read_table(file).rename_columns({target: name}), file)
    support = ld.dataset(world.support, key=["east", "north"], target=name, id="town")
    ld.build_index(support, world.index, overwrite=True)
    return world


@pytest.mark.parametrize("target, name, method", [
    ("price", "prediction", "local-mean"),
    ("price", "status", "local-mean"),
    ("level", "label", "local-vote"),
])  # fmt: skip
def test_a_target_named_like_a_column_of_the_output_is_read_from_the_queries(tmp_path, target, name, method):
    world = renamed(tmp_path, target, name)
    ld.predict(method, world.index, world.queries, tmp_path / "out", extras=["spread"])
    told = ld.evaluate(tmp_path / "out")
    same = ld.evaluate(tmp_path / "out", target, gapped(90, 3))
    assert told.target == name
    assert told.unknown == 2
    assert told.metrics == same.metrics


def test_kept_columns_are_no_predictions(prices, tmp_path):
    whole = gapped(90, 3).rename_columns({"level": "label", "rooms": "probability_old"})
    queries = whole.append_column("rooms", whole.column("probability_old"))
    keep = ["label", "probability_old", "price"]
    pq.write_table(queries, tmp_path / "queries.parquet")
    out = tmp_path / "out"
    ld.predict(ld.local_mean(k=8), prices.index, tmp_path / "queries.parquet", out, keep=keep)
    assert ld.evaluate(out).metrics == ld.evaluate(prices.root / "out").metrics


def test_measurements_are_no_truth_for_names(levels):
    with pytest.raises(UsageError, match="a truth of classes"):
        ld.evaluate(levels.root / "out", "price")
    with pytest.raises(DataError, match=r"among the classes of the support \(high, low, middle\)"):
        ld.evaluate(levels.root / "out", "town")


def test_queries_that_were_in_memory(prices, tmp_path):
    out = tmp_path / "out"
    ld.predict(ld.local_mean(k=8), prices.index, gapped(90, 3), out)
    with pytest.raises(UsageError, match=r"queries in memory.*--truth"):
        ld.evaluate(out)
    here = ld.evaluate(out, truth=gapped(90, 3))
    assert here.metrics == ld.evaluate(prices.root / "out").metrics
    with pytest.raises(UsageError, match="Write them to a file"):
        ld.explain(out, 1)


def test_another_index_in_the_place_of_the_jobs_own_is_refused(tmp_path):
    rows = {"x": np.arange(60.0), "c": ["a", "b", "c"] * 20}
    support = ld.dataset(rows, key="x", target="c")
    index = ld.build_index(support, tmp_path / "index")
    ld.predict(ld.local_vote(k=3), index, rows, tmp_path / "out", keep="c")
    assert ld.evaluate(tmp_path / "out").n == 60
    renamed = ld.dataset(rows | {"c": ["z", "b", "c"] * 20}, key="x", target="c")
    ld.build_index(renamed, tmp_path / "index", overwrite=True)
    with pytest.raises(DataError, match="the index that the job was planned with"):
        ld.evaluate(tmp_path / "out")
