"""Distances on the earth: longitude and latitude in, great-circle kilometres out, exactly."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.metrics.pairwise import haversine_distances
from sklearn.neighbors import BallTree

import locdist as ld
from locdist.errors import DataError, UsageError

Array = NDArray[np.float64]
_RNG = np.random.default_rng(0)
N, RADIUS = 400, 6371.0


def places(count: int, rng: np.random.Generator) -> Array:
    """Longitude and latitude [n, 2] in degrees, evenly over the earth."""
    return np.column_stack([rng.uniform(-180, 180, count), np.degrees(np.arcsin(rng.uniform(-1, 1, count)))])


X, Q = places(N, _RNG), places(30, _RNG)
TOWN = np.array([13.3, 52.4]) + _RNG.uniform(0, 0.2, (N, 2))  # a few kilometres apart
Y = np.sin(np.radians(X[:, 0])) + np.cos(np.radians(X[:, 1]))


def apart(one: Array, other: Array) -> Array:
    return RADIUS * haversine_distances(np.radians(one[:, ::-1]), np.radians(other[:, ::-1]))


@pytest.mark.parametrize("keys, queries", [(X, Q), (TOWN, TOWN[:9])], ids=["earth", "town"])
def test_neighbors_and_distances_are_those_of_the_sphere(keys: Array, queries: Array):
    answers = ld.knn(25)(ld.Exact(keys, Y, metric="haversine"), queries, want=["neighbors"])
    away, ids = BallTree(np.radians(keys[:, ::-1]), metric="haversine").query(
        np.radians(queries[:, ::-1]), 25
    )
    np.testing.assert_array_equal(answers.ids, ids)
    np.testing.assert_allclose(answers.distances.sqrt(), RADIUS * away, rtol=1e-8, atol=1e-8)


def test_across_the_date_line_and_over_the_pole():
    keys = np.array([[179.9, 0.0], [0.0, 89.9], [0.0, 0.0], [10.0, 10.0]])
    index = ld.Exact(keys, np.arange(4.0), metric="haversine")
    near = ld.knn(1)(index, np.array([[-179.9, 0.0], [180.0, 89.9], [720.0, 0.0]]))
    np.testing.assert_array_equal(near.values[:, 0], [0, 1, 2])


def test_the_kernel_sees_kilometres():
    weights = np.exp(-np.square(apart(Q, X) / 2000.0) / 2)
    ours = ld.local_mean(N, "gaussian", 2000.0)(ld.Exact(X, Y, metric="haversine"), Q)
    np.testing.assert_allclose(ours.values[:, 0], weights @ Y / weights.sum(1), rtol=1e-9)


TABLE = pa.table({"lon": X[:, 0], "lat": X[:, 1], "z": Y**2, "y": Y})
ROLES = {"key": ["lon", "lat"], "target": "y", "metric": "haversine"}


@pytest.mark.parametrize("codes", ["exact", "flat"])
def test_places_in_files(codes: str, tmp_path: Path):
    index = ld.build_index(ld.dataset(TABLE, **ROLES), tmp_path / "index", codes=codes)
    queries = pa.table({"lon": Q[:, 0], "lat": Q[:, 1]})
    told = ld.predict(ld.local_mean(20), index, queries, recall=1.0)["prediction"]
    in_memory = ld.local_mean(20)(ld.Exact(X, Y, metric="haversine"), Q).values[:, 0]
    np.testing.assert_allclose(told, in_memory, rtol=1e-9)
    near = ld.neighbors(index, queries, k=3, recall=1.0)["neighbors"].to_pylist()
    away = np.sort(apart(Q, X), axis=1)[:, :3]
    np.testing.assert_allclose(
        [[one["distance"] for one in each] for each in near], away, rtol=1e-7, atol=1e-7
    )
    everywhere = ld.predict(ld.local_mean(None, "gaussian", 3000.0), index, queries)["prediction"]
    weights = np.exp(-np.square(apart(Q, X) / 3000.0) / 2)
    np.testing.assert_allclose(everywhere, weights @ Y / weights.sum(1), rtol=1e-9)


def test_a_latitude_beyond_the_pole_is_bad(tmp_path: Path):
    beyond = pa.table({"lon": [0.0, 1.0, 2.0], "lat": [10.0, 91.0, -20.0], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="beyond 90 degrees"):
        ld.build_index(ld.dataset(beyond, **ROLES), tmp_path / "one")
    index = ld.build_index(ld.dataset(beyond, **ROLES), tmp_path / "other", bad="drop")
    assert index.layout.rows == 2
    told = ld.predict(ld.knn(1), index, beyond)
    assert told["status"].to_pylist() == ["ok", "bad_query", "ok"]
    assert told["prediction"].to_pylist() == [1.0, None, 3.0]


@pytest.mark.parametrize(
    "more, said",
    [
        ({"key": ["lon"]}, "longitude and latitude"),
        ({"key": {"lon": 2.0, "lat": 1.0}}, "longitude and latitude"),
        ({"scaling": "standard"}, "longitude and latitude"),
    ],
)
def test_a_key_that_is_no_place_is_refused(more: dict, said: str):
    with pytest.raises(UsageError, match=said):
        ld.dataset(TABLE, **ROLES | more)


def test_a_local_linear_model_of_places_needs_features(tmp_path: Path):
    index = ld.build_index(ld.dataset(TABLE, **ROLES), tmp_path / "index")
    with pytest.raises(UsageError, match="features of a place"):
        ld.predict("local-linear", index, TABLE)
