"""The jobs end to end, on generated partitions: every number against a brute force on the same rows."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import locdist as ld
from locdist.methods.method import Method
from tests.system import generated
from tests.system.generated import Array, colors, nearest, numbers, plane, read, standard, unit, weigh, write

K = 20
SUPPORT, QUERIES = generated.table(600, seed=1), generated.table(150, seed=2)
Points = Callable[[pa.Table], Array]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write(SUPPORT, folder / "support")
    write(QUERIES, folder / "queries")
    return folder


def embedded(rows: pa.Table) -> Array:
    return numbers(rows, "embedding")


def scaled(rows: pa.Table) -> Array:
    return standard(rows, SUPPORT, "a", "b")


def plainly(rows: pa.Table) -> Array:
    return numbers(rows, "a", "b")


def mixed(rows: pa.Table) -> Array:
    return np.column_stack([standard(rows, SUPPORT, "a"), colors(rows)])


def stretched(rows: pa.Table) -> Array:
    return scaled(rows) * [3.0, 0.5]


@dataclass(frozen=True)
class Key:
    """A key as the dataset declares it, the same points made by numpy, and how far the two may be apart:
    single precision in float32 vectors, 24 bits in stored means and scales.
    """

    roles: dict[str, Any]
    points: Points
    tolerance: float = 1e-5
    build: dict[str, Any] = field(default_factory=dict)


EVERY_LIST = {"recall": 1.0, "nlist": 8}  # no sample proves a recall of 1, so all lists are searched
KEYS = {
    "vectors": Key({"key": "embedding"}, embedded),
    "vectors in fp16 lists": Key({"key": "embedding"}, embedded, build={"codes": "fp16", **EVERY_LIST}),
    "vectors in flat lists": Key({"key": "embedding"}, embedded, build={"codes": "flat", **EVERY_LIST}),
    "cosine": Key({"key": "embedding", "metric": "cosine"}, lambda rows: unit(embedded(rows))),
    "cosine in flat lists": Key(
        {"key": "embedding", "metric": "cosine"},
        lambda rows: unit(embedded(rows)),
        build={"codes": "flat", **EVERY_LIST},
    ),
    "scalars": Key({"key": ["a", "b"]}, scaled),
    "scalars as they are": Key({"key": ["a", "b"], "scaling": "none"}, plainly, 1e-10),
    "scalars in flat lists": Key(
        {"key": ["a", "b"], "scaling": "none"}, plainly, 1e-10, {"codes": "flat", **EVERY_LIST}
    ),
    "scalars in fp16 lists": Key({"key": ["a", "b"]}, scaled, build={"codes": "fp16", **EVERY_LIST}),
    "multipliers": Key({"key": {"a": 3.0, "b": 0.5}}, stretched),
    "a category": Key({"key": ["a", "color"]}, mixed),
}
every_key = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())


def index_of(place: Path, out: Path, key: Key, **roles: Any) -> ld.Generation:
    support = ld.dataset(place / "support", **{"target": "y", "id": "id"} | key.roles | roles)
    return ld.build_index(support, out / "index", **key.build)


def predicted(method: Method, index: ld.Generation, place: Path, out: Path, **asked: Any) -> pa.Table:
    """The answers out of files, which are those in memory."""
    report = ld.predict(method, index, place / "queries", out / "out", **asked)
    files = read(out / "out")
    assert report.rows == QUERIES.num_rows == sum(report.status.values())
    here = ld.predict(method, index, place / "queries", **asked)
    assert here.equals(files)
    return files


def close(ours: object, theirs: object, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(ours, dtype=float), theirs, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------ predictions


@every_key
def test_neighbors_and_local_mean_are_those_of_brute_force(key: Key, place: Path, tmp_path: Path):
    index = index_of(place, tmp_path, key)
    rows, away = nearest(key.points(SUPPORT), key.points(QUERIES), K)
    ld.neighbors(index, place / "queries", tmp_path / "neighbors", k=K)
    found = read(tmp_path / "neighbors")
    assert found["id"].equals(QUERIES["id"])
    ids = np.array([[pair["id"] for pair in row] for row in found["neighbors"].to_pylist()])
    assert ids.dtype == np.int64
    assert (ids == SUPPORT["id"].to_numpy()[rows]).mean() > 0.999  # rounding may swap two equally far rows
    close([[pair["distance"] for pair in row] for row in found["neighbors"].to_pylist()], away, key.tolerance)
    answers = predicted(ld.local_mean(K), index, place, tmp_path)
    means = (weigh("tricube", away) * SUPPORT["y"].to_numpy()[rows]).sum(axis=1)
    close(answers["prediction"], means, 10 * key.tolerance)
    assert set(answers["status"].to_pylist()) == {"ok"}


@pytest.mark.parametrize("kernel", ["gaussian", "bisquare", "laplace"])
def test_a_fixed_bandwidth_is_in_units_of_the_key(kernel: str, place: Path, tmp_path: Path):
    index = index_of(place, tmp_path, KEYS["scalars as they are"])
    rows, away = nearest(plainly(SUPPORT), plainly(QUERIES), K)
    inside = (away < 5.0).any(axis=1)
    answers = predicted(ld.local_mean(K, kernel, bandwidth=5.0), index, place, tmp_path)
    weights = weigh(kernel, away[inside], bandwidth=5.0)
    close(answers.filter(inside)["prediction"], (weights * SUPPORT["y"].to_numpy()[rows[inside]]).sum(axis=1))
    if kernel == "bisquare":
        outside = answers.filter(~inside)
        assert outside.num_rows > 0
        assert outside["prediction"].null_count == outside.num_rows
        assert set(outside["status"].to_pylist()) == {"empty"}


def test_row_weights_count(place: Path, tmp_path: Path):
    """Rows of weight zero are found, and count nothing: neither in sums nor for the bandwidth."""
    index = index_of(place, tmp_path, KEYS["scalars as they are"], weight="w")
    rows, away = nearest(plainly(SUPPORT), plainly(QUERIES), K)
    weights = weigh("tricube", away, row_weights=SUPPORT["w"].to_numpy()[rows])
    answers = predicted(ld.local_mean(K), index, place, tmp_path)
    close(answers["prediction"], (weights * SUPPORT["y"].to_numpy()[rows]).sum(axis=1))
    assert set(answers["status"].to_pylist()) == {"ok", "few"}


def test_the_inner_product_is_attention(place: Path, tmp_path: Path):
    """softmax(scores / h) over the k best scores, without a distance anywhere."""
    index = index_of(place, tmp_path, Key({"key": "embedding", "metric": "ip"}, embedded))
    scores = embedded(QUERIES) @ embedded(SUPPORT).T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    best = np.take_along_axis(scores, rows, axis=1)
    softmax = np.exp((best - best.max(axis=1, keepdims=True)) / 2.0)
    softmax /= softmax.sum(axis=1, keepdims=True)
    answers = predicted(ld.local_mean(K, "dot-product", bandwidth=2.0), index, place, tmp_path, explain=K)
    close(answers["prediction"], (softmax * SUPPORT["y"].to_numpy()[rows]).sum(axis=1), 1e-5)
    close([[pair["distance"] for pair in row] for row in answers["neighbors"].to_pylist()], best, 1e-5)


@pytest.mark.parametrize("features", [["f1", "f2"], None], ids=["features apart", "features are the key"])
def test_local_linear_coefficients_spread_and_neighbors(
    features: list[str] | None, place: Path, tmp_path: Path
):
    """Coefficients come in the user's units, though key and features are scaled."""
    index = index_of(place, tmp_path, KEYS["scalars"], features=features)
    wanted = {"extras": ["spread", "effective", "coefficients"], "explain": K}
    answers = predicted(ld.local_linear(K), index, place, tmp_path, **wanted)
    rows, away = nearest(scaled(SUPPORT), scaled(QUERIES), K)
    weights, y = weigh("tricube", away), SUPPORT["y"].to_numpy()
    names = features or ["a", "b"]
    at, known = numbers(QUERIES, *names), numbers(SUPPORT, *names)
    planes = [plane(known[mine], y[mine], w, x) for mine, w, x in zip(rows, weights, at, strict=True)]
    close(answers["coefficients"].to_pylist(), [coefficients for coefficients, _, _ in planes], 1e-4)
    close(answers["prediction"], [coefficients[0] for coefficients, _, _ in planes], 1e-5)
    close(answers["spread"], [spread for _, _, spread in planes], 1e-5)
    close(answers["effective"], 1 / (weights**2).sum(axis=1), 1e-5)
    told = answers["neighbors"].to_pylist()
    assert [[pair["id"] for pair in row] for row in told] == SUPPORT["id"].to_numpy()[rows].tolist()
    for name, theirs in {
        "distance": away,
        "weight": weights,
        "contribution": np.array([s * y[mine] for mine, (_, s, _) in zip(rows, planes, strict=True)]),
    }.items():
        close([[pair[name] for pair in row] for row in told], theirs, 1e-4)
    close([sum(pair["contribution"] for pair in row) for row in told], answers["prediction"], 1e-9)


def test_several_targets_are_predicted_together(place: Path, tmp_path: Path):
    index = index_of(place, tmp_path, KEYS["scalars"], target=["y", "z"])
    answers = predicted(ld.knn(K), index, place, tmp_path, extras=["spread", "coefficients"])
    peer = KNeighborsRegressor(K).fit(scaled(SUPPORT), numbers(SUPPORT, "y", "z"))
    close(numbers(answers, "prediction_y", "prediction_z"), peer.predict(scaled(QUERIES)))
    errors = [numbers(SUPPORT, "y", "z")[mine].std(axis=0, ddof=1) / np.sqrt(K) for mine in _rows()]
    close(numbers(answers, "spread_y", "spread_z"), errors)
    close([row[0] for row in answers["coefficients_z"].to_pylist()], answers["prediction_z"])


def _rows() -> np.ndarray:
    return nearest(scaled(SUPPORT), scaled(QUERIES), K)[0]


@pytest.mark.parametrize("label", ["word", "number", "flag"])
def test_votes_are_those_of_scikit_learn(label: str, place: Path, tmp_path: Path):
    index = index_of(place, tmp_path, KEYS["scalars"], target=label)
    answers = predicted(ld.local_vote(K, "uniform"), index, place, tmp_path)
    peer = KNeighborsClassifier(K).fit(scaled(SUPPORT), SUPPORT[label].to_pylist())
    assert answers["label"].to_pylist() == peer.predict(scaled(QUERIES)).tolist()
    assert answers["label"].type == SUPPORT[label].type
    chances = numbers(answers, *(f"probability_{value}" for value in peer.classes_))
    close(chances, peer.predict_proba(scaled(QUERIES)))


def test_more_classes_than_columns_are_good_for_are_a_list(place: Path, tmp_path: Path):
    rows = SUPPORT.append_column("kind", pc.subtract(SUPPORT["id"], generated.BIG))
    index = ld.build_index(ld.dataset(rows, key=["a", "b"], target="kind"), tmp_path / "index")
    answers = ld.predict(ld.local_vote(1), index, QUERIES)
    assert answers["label"].to_pylist() == rows["kind"].to_numpy()[_rows()[:, 0]].tolist()
    chances = numbers(answers, "probability")
    assert chances.shape == (QUERIES.num_rows, SUPPORT.num_rows)
    close(chances.sum(axis=1), 1.0)


# ----------------------------------------------------------------------------------------------- what is kept


def test_ids_are_kept_exactly_and_in_order(place: Path, tmp_path: Path):
    """C20: int64 beyond 2^53, and strings as names of neighbors."""
    index = index_of(place, tmp_path, KEYS["scalars"], id="name")
    answers = predicted(ld.knn(3), index, place, tmp_path, keep=["id", "name"], explain=1)
    assert answers["id"].equals(QUERIES["id"])
    assert answers["name"].equals(QUERIES["name"])
    first = [row[0]["id"] for row in answers["neighbors"].to_pylist()]
    assert first == np.array(SUPPORT["name"].to_pylist())[_rows()[:, 0]].tolist()


def test_without_ids_each_row_has_its_address(place: Path, tmp_path: Path):
    index = index_of(place, tmp_path, KEYS["scalars"], id=None)
    answers = predicted(ld.knn(3), index, place, tmp_path, explain=1)
    again = [
        pq.read_table(place / "queries" / file)["id"][row].as_py()
        for file, row in zip(answers["file"].to_pylist(), answers["row"].to_pylist(), strict=True)
    ]
    assert again == QUERIES["id"].to_pylist()
    assert [row[0]["id"] for row in answers["neighbors"].to_pylist()] == _rows()[:, 0].tolist()


def test_limit_answers_the_first_rows(place: Path, tmp_path: Path):
    index = index_of(place, tmp_path, KEYS["scalars"])
    report = ld.predict(ld.knn(3), index, place / "queries", tmp_path / "some", limit=41)
    assert report.rows == 41
    everything = ld.predict(ld.knn(3), index, place / "queries")
    assert read(tmp_path / "some").equals(everything.slice(0, 41).combine_chunks())
    assert ld.predict(ld.knn(3), index, place / "queries", limit=41).num_rows == 41


def test_queries_may_come_as_tables_arrays_files_and_datasets(place: Path, tmp_path: Path):
    support = ld.dataset(place / "support", key="embedding", target="y")
    index = ld.build_index(support, tmp_path / "index")
    queries = place / "queries"
    expected = ld.predict(ld.knn(5), index, queries)["prediction"]
    for given in (
        QUERIES,
        str(queries),
        sorted(queries.glob("*.parquet")),
        ld.dataset(queries, key="embedding"),
        QUERIES.to_reader(max_chunksize=37),
    ):
        assert ld.predict(ld.knn(5), index, given)["prediction"].to_pylist() == expected.to_pylist()


def test_the_report_counts_and_is_written(place: Path, tmp_path: Path):
    rows = QUERIES.set_column(3, "a", pa.array([None, *QUERIES["a"].to_pylist()[1:]], pa.float64()))
    rows = rows.set_column(5, "color", pa.array(["violet"] * 2 + QUERIES["color"].to_pylist()[2:]))
    index = index_of(place, tmp_path, KEYS["a category"])
    report = ld.predict(ld.knn(5), index, rows, tmp_path / "out")
    assert (report.rows, report.bad_rows, report.tasks) == (150, 1, 1)
    assert report.status == {"ok": 149, "bad_query": 1}
    assert report.reasons == {"null in 'a'": 1, "unseen category in 'color'": 2}
    assert report.recall is None
    written = json.loads((tmp_path / "out/_locdist/report.json").read_text())
    assert written["status"] == report.status
    assert written["reasons"] == report.reasons


# ----------------------------------------------------------------------------------------------------- recall


def test_recall_is_tuned_audited_and_true(tmp_path: Path):
    """What the report says of a sample holds for all queries, against FAISS's own exact search."""
    support, queries = generated.table(6000, 3, width=8), generated.table(2500, 4, width=8)
    index = ld.build_index(
        ld.dataset(support, key="embedding"), tmp_path / "index", codes="flat", nlist=128, recall=0.9
    )
    report = ld.neighbors(index, queries, tmp_path / "out", k=10)
    exact = faiss.IndexFlatL2(8)
    exact.add(embedded(support).astype(np.float32))
    truth = exact.search(embedded(queries).astype(np.float32), 10)[1]
    found = [{pair["id"] for pair in row} for row in read(tmp_path / "out")["neighbors"].to_pylist()]
    shares = [len(mine & set(right)) / 10 for mine, right in zip(found, truth.tolist(), strict=True)]
    measured = np.mean(shares)
    assert 0.89 <= measured < 1
    assert report.recall.low - 0.01 <= measured <= report.recall.high + 0.01
    assert 1 <= report.nprobe < 128
    plan = json.loads((tmp_path / "out/_locdist/plan.json").read_text())
    assert plan["nprobe"] == report.nprobe
    stricter = ld.neighbors(index, queries, tmp_path / "stricter", k=10, recall=0.99)
    assert stricter.nprobe > report.nprobe
    assert stricter.recall.mean > 0.985


# -------------------------------------------------------------------------------------------------- transform


@pytest.mark.parametrize("build", [{}, {"codes": "flat", "recall": 1.0}], ids=["exact", "lists"])
def test_transform_leaves_each_row_out(build: dict[str, Any], place: Path, tmp_path: Path):
    support = ld.dataset(place / "support", key=["a", "b"], target="y", id="id", scaling="none")
    report = ld.transform(ld.local_mean(K), support, tmp_path / "out", **build)
    own = np.arange(SUPPORT.num_rows)
    rows, away = nearest(plainly(SUPPORT), plainly(SUPPORT), K, own)
    y = SUPPORT["y"].to_numpy()
    fit = (weigh("tricube", away) * y[rows]).sum(axis=1)
    answers = read(tmp_path / "out")
    assert answers["id"].equals(SUPPORT["id"])
    close(answers["prediction"], fit)
    assert ld.transform(ld.local_mean(K), support, **build).equals(answers)
    told = report.diagnostics
    rss = ((y - fit) ** 2).sum()
    close([told.n, told.rss, told.r2], [600, rss, 1 - rss / y.var() / 600])
    assert told.enp is None


def test_string_views_as_other_libraries_export_them_are_keys_labels_and_ids():
    view = pa.array(["a", "b", "a"]).cast(pa.string_view())
    table = pa.table({"id": view, "c": view, "y": view})
    support = table.set_column(0, "id", pa.array(["u", "v", "w"]).cast(pa.string_view()))
    answers = ld.transform(ld.local_vote(k=1), ld.dataset(support, key="c", target="y", id="id"))
    assert answers["id"].to_pylist() == ["u", "v", "w"]
    assert answers["label"].to_pylist()[0] == "a"
