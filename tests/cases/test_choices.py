"""What users choose: columns, metrics, bandwidths, numbers of any type, and models of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.jobs.asking import questions
from locdist.local.answers import Answers
from locdist.local.kernels import Kernel, Nearest, Uniform
from locdist.local.layer import Layer
from locdist.local.models import Constant, LocalModel
from locdist.local.neighborhood import Neighborhood
from locdist.methods.method import Method
from tests.cases.arrangement import Arrangement
from tests.cases.conftest import in_parts
from tests.system.generated import parts, read

TRAIN = {"a": [0.0, 10.0], "b": [5.0, 5.0], "y": [1.0, 2.0]}


def test_queries_find_their_columns_by_name(arrangement: Arrangement) -> None:
    """C42: in any order and among others; another name is refused before any work with the one that may be
    meant, and so is another type. The index keeps names, order, types and scaling.
    """
    index = arrangement.build(TRAIN, key=["a", "b"], target="y")
    queries = pa.table({"b": [5.0], "z": ["?"], "a": [10.0], "id": [0]})
    assert arrangement.ask(ld.knn(1), index, queries)["prediction"].to_pylist() == [2]
    told = r"column 'b' of the key; got the columns 'B', 'a', 'id'\. Did you mean 'B'\?"
    for wrong, why in (
        ({"B": [5.0], "a": [10.0]}, told),
        ({"b": ["x"], "a": [1.0]}, r"'b' of the key as num"),
    ):
        with pytest.raises(DataError, match=why):
            arrangement.ask(ld.knn(1), index, wrong)
        assert len(list(arrangement.place.glob("out-*"))) == 1
    columns = ld.open_index(index.folder).key.columns
    assert [(each.name, each.type) for each in columns] == [("a", "double"), ("b", "double")]
    assert (columns[0].mean, columns[0].scale) == ((5,), (5,))


EARTH = 6_371_008.8  # meters
RADIUS = 6371.0  # kilometers, of the metric
DEGREES = np.array([[60.20727, 24.85584], [60.20749, 24.85745], [60.0, 24.0], [59.9, 24.0]])


def on_the_globe(degrees: np.ndarray) -> np.ndarray:
    """Places [n, 3] in meters from the center of the earth, of latitude and longitude [n, 2] in degrees."""
    latitude, longitude = np.radians(degrees).T
    flat = np.cos(latitude)
    return EARTH * np.c_[flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)]


def test_degrees_are_no_distance_and_places_on_the_globe_are(arrangement: Arrangement) -> None:
    """C72: degrees are distances by the metric that knows of the globe alone: longitude, then latitude, in
    kilometers on the ground. Turned round, a latitude beyond the pole gives it away. Places as three columns
    of meters have the same distances along the chord, to a millimeter.
    """
    turned = {"lat": DEGREES[:, 1] + 90, "lon": DEGREES[:, 0]}
    with pytest.raises(DataError, match="beyond 90 degrees in 'lat'"):
        arrangement.build(turned, key=["lon", "lat"], metric="haversine")
    ground = np.array([92.3, 92.3, 11119.5, 11119.5]) * RADIUS * 1000 / EARTH
    globe = {"lat": DEGREES[:, 0], "lon": DEGREES[:, 1]}
    rows = dict(zip("uvw", on_the_globe(DEGREES).T, strict=True))
    for given, meters, asked in (
        (globe, 1000.0, {"key": ["lon", "lat"], "metric": "haversine"}),
        (rows, RADIUS * 1000 / EARTH, {"key": list("uvw"), "scaling": "none"}),
    ):
        answers = arrangement.ask(2, arrangement.build(given, **asked), given)["neighbors"].to_pylist()
        assert [[pair["id"] for pair in row] for row in answers] == [[0, 1], [1, 0], [2, 3], [3, 2]]
        np.testing.assert_allclose([meters * row[1]["distance"] for row in answers], ground, atol=0.05)


class Few(LocalModel):
    """Answers the first query, whoever asks."""

    needs = frozenset({"targets"})

    def predict(
        self, hood: Neighborhood, weights: torch.Tensor, want: frozenset[str] = frozenset()
    ) -> Answers:
        return Constant().predict(hood, weights, want).rows(slice(1))


class Broadcast(Kernel):
    """The weights of the first query, for everybody."""

    name = "broadcast"

    def log_weights(self, hood: Neighborhood) -> torch.Tensor:
        return torch.zeros(1, hood.ids.shape[1], dtype=torch.float64)


TEN = {"x": np.arange(10.0), "y": np.arange(10.0)}
WRONG = {
    "model": (Layer(1, Uniform(), Few()), r"256 answers of Few, one for each query; got 1\."),
    "kernel": (Layer(1, Broadcast(), Constant()), r"log-weights \[256, 1\] of Broadcast.*got \[1, 1\]\."),
}


@pytest.mark.parametrize("layer, told", WRONG.values(), ids=WRONG.keys())
def test_a_model_of_the_user_that_answers_fewer_queries_is_refused(
    layer: Layer, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C73: kernels and models are what users write here, and see tiles of queries: nothing is repeated to
    fit. The error names the partition, the rows that it reads, and how many answers were expected and given.
    """
    in_parts(3, monkeypatch)
    here = Arrangement(3, True, tmp_path)
    index = here.build(TEN, key="x", target="y", scaling="none")
    method = Method("mine", (("k", 1),), layer)
    with pytest.raises(UsageError, match=rf"task 'part-0000\d' .*{told}.*inputs rows 0 to \d of part-\d"):
        here.ask(method, index, TEN)
    with pytest.raises(UsageError, match=told):
        method(ld.Exact(TEN["x"][:, None], TEN["y"]), TEN["x"][:, None])


def test_a_last_batch_that_is_shorter_is_a_batch(
    arrangement: Arrangement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C73: ten rows by four are 4, 4 and 2."""
    monkeypatch.setattr(questions, "BLOCK_ROWS", 4)
    index = arrangement.build(TEN, key="x", target="y", scaling="none")
    assert arrangement.ask(ld.knn(1), index, TEN)["prediction"].to_pylist() == list(range(10))
    assert len(parts(arrangement.last("out"))) == arrangement.parts


REPEATED = {"x": [1.0, 1, 1, 1, 2], "y": [1.0, 2, 3, 4, 100], "const": np.full(5, 3.7)}


def test_a_bandwidth_is_positive_and_one_that_adapts_does_not_vanish_where_rows_repeat(
    arrangement: Arrangement,
) -> None:
    """C74: nothing selects a fixed bandwidth yet; a given one of 0, below, infinite or nan is refused. The
    one that adapts to the k-th neighbor is 0 among repeated rows: they count alike, and with the next
    distinct row in reach it is the distance to that. A constant column has the scale 1, not that of rounding.
    """
    wrong: list[Any] = [0, -1, 0.0, float("inf"), float("nan"), True, "wide", {"nearest": 0}]
    for bandwidth in wrong:
        with pytest.raises(UsageError, match=r"positive, finite"):
            ld.local_mean(3, "gaussian", bandwidth)
    index = arrangement.build(REPEATED, key=["x", "const"], target="y", scaling={"key": "none"})
    query = {"x": [1.0, 2.0], "const": [3.7, 3.7]}
    for kernel in ("tricube", "gaussian"):
        answers = arrangement.ask(ld.local_mean(4, kernel), index, query)
        assert answers["prediction"][0].as_py() == pytest.approx(2.5)
        assert answers["status"].to_pylist() == ["ok", "ok"]
    answers = arrangement.ask(ld.local_mean(5, "gaussian", Nearest(1.0)), index, query)
    weights = np.exp([0, 0, 0, 0, -0.5])
    assert answers["prediction"][0].as_py() == pytest.approx(weights @ REPEATED["y"] / weights.sum())
    scaled = arrangement.build(REPEATED, key=["x", "const"], target="y")
    assert [column.scale for column in scaled.key.columns] == [(pytest.approx(0.4),), (1.0,)]


POINTS = np.random.default_rng(0).normal(size=(60, 5)).astype("f4")
SAME: dict[str, tuple[Any, ...]] = {
    "k": (5, np.int64(5)),
    "bandwidth": (2, 2.0, np.float32(2)),
    "recall": (1, 1.0),
    "limit": (60, np.int32(60)),
    "explain": (2, np.int64(2)),
}


@pytest.mark.parametrize("name", SAME)
def test_a_number_is_the_same_request_whatever_its_type(tmp_path: Path, name: str) -> None:
    """C75: as an integer, a float or a number of NumPy, for kernels and for everything else that a folder is
    asked with: one answer, and the second call finds the first one's.
    """
    here, asked = Arrangement(1, False, tmp_path), []
    index = here.build({"e": POINTS, "y": POINTS[:, 0]}, key="e", target="y", scaling="none")
    out, queries = here.folder("out"), here.write({"e": POINTS})
    for value in SAME[name]:
        words = {"k": 5, "bandwidth": 2.0} | {name: value}
        method = ld.local_mean(words.pop("k"), "laplace", words.pop("bandwidth"))
        ld.predict(method, index, queries, out, **words)
        asked.append(read(out))
    assert all(answers.equals(asked[0]) for answers in asked)
    away = np.linalg.norm(POINTS[:, None].astype("f8") - POINTS, axis=2)
    near = np.argsort(away, axis=1)[:, :5]
    weights = np.exp(-np.take_along_axis(away, near, axis=1) / 2)
    means = (weights * POINTS[:, 0][near]).sum(axis=1) / weights.sum(axis=1)
    np.testing.assert_allclose(asked[0].sort_by("id")["prediction"], means, 1e-5)


def test_a_number_of_neighbors_that_is_no_whole_number_is_refused() -> None:
    """C75: 5.0 is told from 5 by its type, with the value."""
    with pytest.raises(UsageError, match=r"a whole number of at least 1; got 5\.0\."):
        ld.local_mean(5.0)  # type: ignore[arg-type]
