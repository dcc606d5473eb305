"""What is behind one prediction: the stored answer again, and the neighbors that add up to it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.artefacts import CHECKSUM, packed
from locdist.errors import DataError, UsageError
from locdist.plan.manifest import MANIFEST
from tests.system.towns import CLASSES, gapped, table, towns


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    world = towns(tmp_path_factory.mktemp("prices"), features=["east", "north", "rooms"])
    for name, method in {"linear": ld.local_linear(k=30), "mean": ld.local_mean(k=8)}.items():
        ld.predict(method, world.index, world.queries, world.root / name)
    return world


@pytest.mark.parametrize("out", ["linear", "mean"])
@pytest.mark.parametrize("row", [0, 49, 50, 89])
def test_a_prediction_is_the_stored_one_and_the_sum_of_its_neighbors(prices, out, row):
    told = ld.explain(prices.root / out, row)
    stored = pq.read_table(prices.root / out).slice(row, 1).to_pylist()[0]
    assert told.stored_equal
    assert told.query == {"town": f"t3-{row}"}
    assert told.prediction == {"prediction": pytest.approx(stored["prediction"], rel=1e-12)}
    assert sum(each.contribution for each in told.neighbors) == pytest.approx(stored["prediction"], rel=1e-9)
    assert sum(each.weight for each in told.neighbors) == pytest.approx(1)
    distances = [each.distance for each in told.neighbors]
    assert distances == sorted(distances)
    prices_of = {town: price for seed in (1, 2) for town, price in _prices(seed).items()}
    assert all(each.target == prices_of[each.id] for each in told.neighbors)


def _prices(seed: int) -> dict[str, float]:
    whole = table(200 if seed == 1 else 100, seed)
    return dict(zip(whole.column("town").to_pylist(), whole.column("price").to_pylist(), strict=True))


def test_coefficients_are_in_the_users_units(prices):
    found = ld.explain(prices.root / "linear", id="t3-20").coefficients["prediction"]
    assert [each.name for each in found] == ["value", "east", "north", "rooms"]
    for each, true in zip(found[1:], (3.0, -1.0, 10.0), strict=True):
        assert each.error is not None
        assert abs(each.value - true) < 5 * each.error
    assert not ld.explain(prices.root / "mean", 0).coefficients


def test_an_id_finds_the_row(prices):
    by_id = ld.explain(prices.root / "mean", id="t3-77")
    assert by_id == ld.explain(prices.root / "mean", row=77)
    with pytest.raises(UsageError, match="Did you mean 't3-7'"):
        ld.explain(prices.root / "mean", id="t3-7x")


def test_a_bad_query_is_explained_by_its_status(prices):
    told = ld.explain(prices.root / "mean", 3)
    assert (told.status, told.prediction, told.neighbors) == ("bad_query", {"prediction": None}, ())
    assert told.stored_equal
    assert "bad_query" in str(told)


def test_votes_list_the_classes_of_their_neighbors(tmp_path):
    world = towns(tmp_path, target="level")
    ld.predict(ld.local_vote(k=10), world.index, world.queries, tmp_path / "out")
    told = ld.explain(tmp_path / "out", 10)
    chances = {
        name: sum(each.contribution for each in told.neighbors if each.target == name) for name in CLASSES
    }
    assert told.stored_equal
    assert {name: told.prediction[f"probability_{name}"] for name in CLASSES} == pytest.approx(chances)
    assert told.prediction["label"] == max(CLASSES, key=chances.__getitem__)


def test_a_row_of_a_transform_is_explained_without_itself(tmp_path):
    world = towns(tmp_path)
    support = ld.dataset(world.support, key=["east", "north"], target="price", id="town")
    ld.transform(ld.local_mean(k=6), support, tmp_path / "out")
    told = ld.explain(tmp_path / "out", 12)
    assert told.stored_equal
    assert told.query["town"] not in [each.id for each in told.neighbors]
    assert len(told.neighbors) == 6


def test_several_targets_have_coefficients_each(tmp_path):
    world = towns(tmp_path)
    support = ld.dataset(world.support, key=["east", "north"], target=["price", "rooms"])
    index = ld.build_index(support, tmp_path / "both")
    ld.predict(ld.local_linear(k=20), index, world.queries, tmp_path / "out")
    told = ld.explain(tmp_path / "out", 1)
    assert list(told.prediction) == ["prediction_price", "prediction_rooms"]
    assert list(told.coefficients) == list(told.prediction)
    assert list(told.spread) == ["spread_price", "spread_rooms"]


def test_another_index_or_other_queries_are_refused(tmp_path):
    world = towns(tmp_path)
    ld.predict("knn", world.index, world.queries, tmp_path / "out")
    support = ld.dataset(world.support, key=["east"], target="price")
    ld.build_index(support, world.index, overwrite=True)
    with pytest.raises(DataError, match="the index that the job was planned with"):
        ld.explain(tmp_path / "out", 1)
    pq.write_table(gapped(50, 4), world.queries / "1.parquet")
    with pytest.raises(DataError):
        ld.explain(tmp_path / "out", 1)


@pytest.mark.parametrize("row, id, word", [
    (None, None, "neither"), (1, "t3-1", "both"), (90, None, "from 0 to 89"), (-1, None, "from 0"),
])  # fmt: skip
def test_wrong_use(prices, row, id, word):
    with pytest.raises(UsageError, match=word):
        ld.explain(prices.root / "mean", row, id)


def test_only_predictions_are_explained(prices):
    ld.neighbors(prices.index, prices.queries, prices.root / "near", k=3)
    with pytest.raises(UsageError, match="a folder with predictions"):
        ld.explain(prices.root / "near", 1)
    with pytest.raises(UsageError, match="that locdist wrote"):
        ld.explain(prices.root, 1)


def test_it_reads_well_for_people_and_programs(prices):
    told = ld.explain(prices.root / "linear", 5 + 5)
    lines = str(told).splitlines()
    assert lines[0].startswith("row 10 (town t3-10) of ")
    table_lines = lines[lines.index("neighbors") + 1 :]
    assert table_lines[0].split() == ["id", "distance", "weight", "contribution", "target"]
    assert len({len(line) for line in table_lines}) == 1
    again = json.loads(told.to_json())
    assert again["prediction"] == told.prediction
    assert len(again["neighbors"]) == 30
    assert np.isclose(sum(each["contribution"] for each in again["neighbors"]), told.prediction["prediction"])


def test_an_output_that_was_tampered_with_is_seen(tmp_path):
    world = towns(tmp_path)
    ld.predict("knn", world.index, world.queries, tmp_path / "out")
    written = json.loads((tmp_path / "out" / MANIFEST).read_text())
    written["request"]["method"]["k"] = 3
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(written))
    with pytest.raises(DataError, match="its content is not what was written"):
        ld.explain(tmp_path / "out", 1)
    del written[CHECKSUM]
    (tmp_path / "out" / MANIFEST).write_bytes(packed(written))
    told = ld.explain(tmp_path / "out", 1)
    assert not told.stored_equal
    assert "NOT equal to the stored one" in str(told)


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """26 classes, one in each unit of the key."""
    root = tmp_path_factory.mktemp("letters")
    names = [chr(ord("a") + place) for place in range(26)]
    rows = pa.table({"x": [place + step / 20 for place in range(26) for step in range(10)],
                     "letter": [name for name in names for _ in range(10)]})  # fmt: skip
    index = ld.build_index(ld.dataset(rows, key="x", target="letter"), root / "index")
    pq.write_table(pa.table({"x": [3.2, 3.75, None]}), root / "queries.parquet")
    ld.predict(ld.local_vote(k=7, kernel="uniform"), index, root / "queries.parquet", root / "out")
    return root / "out", names


def test_many_classes_are_named(letters):
    out, names = letters
    field = pq.read_schema(next(out.glob("*.parquet"))).field("probability")
    assert json.loads(field.metadata[b"classes"]) == names
    told = ld.explain(out, 1)
    stored = pq.read_table(out).column("probability").to_pylist()
    assert told.stored_equal
    assert [told.prediction[f"probability_{name}"] for name in names] == pytest.approx(stored[1])
    lines = str(told).splitlines()
    chances = [line.split()[0] for line in lines if line.startswith("  probability_")]
    assert len(chances) == 5
    assert set(chances[:2]) == {"probability_d", "probability_e"}
    assert "  ... and 21 other classes" in lines
    assert set(ld.explain(out, 2).prediction.values()) == {None}


def test_a_vote_of_one_mind_has_no_spread(letters):
    told = ld.explain(letters[0], 0)
    assert told.prediction["probability_d"] == pytest.approx(1)
    assert told.spread["spread_d"] == told.spread["spread_a"] == 0


def test_an_output_without_rows(prices, tmp_path):
    pq.write_table(gapped(5, 3).slice(0, 0), tmp_path / "none.parquet")
    ld.predict("knn", prices.index, tmp_path / "none.parquet", tmp_path / "out")
    with pytest.raises(UsageError, match="an output with rows"):
        ld.explain(tmp_path / "out", 0)


def test_a_row_is_found_by_a_dictionary_id(tmp_path):
    names = pa.array([f"r{row}" for row in range(30)])
    table = pa.table({"x": np.arange(30.0), "y": np.arange(30.0), "id": names.dictionary_encode()})
    pq.write_table(table, tmp_path / "rows.parquet")
    index = ld.build_index(
        ld.dataset(tmp_path / "rows.parquet", key="x", target="y", id="id"), tmp_path / "index"
    )
    ld.predict(ld.knn(k=1), index, tmp_path / "rows.parquet", tmp_path / "out")
    assert ld.explain(tmp_path / "out", id="r7").row == 7
