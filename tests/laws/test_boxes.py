"""Neighbors found in boxes are those found among all rows, to the bit: ties, repeated rows, on the earth."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locdist as ld
from locdist.local.neighborhood import smallest
from locdist.search import boxes
from locdist.search.boxes import LEAF, MANY, ROWS, Boxes, _split
from locdist.search.pairs import distances

KINDS = ["normal", "grid", "repeated", "line", "clusters", "tails"]


def points(kind: str, rows: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "grid":
        return rng.integers(0, 9, (rows, d)).astype(float)
    if kind == "repeated":
        return np.repeat(rng.normal(size=(-(-rows // 7), d)), 7, axis=0)[:rows]
    if kind == "line":
        return np.column_stack([np.sort(rng.normal(size=rows)), *np.zeros((d - 1, rows))])
    if kind == "clusters":
        return rng.normal(size=(20, d))[rng.integers(0, 20, rows)] * 100 + rng.normal(size=(rows, d))
    if kind == "tails":  # groups of queries see very different numbers of rows
        return rng.standard_cauchy((rows, d))
    return rng.normal(size=(rows, d))


def brute(keys: np.ndarray, queries: torch.Tensor, k: int, metric: str) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.arange(len(keys)).expand(len(queries), -1)
    return smallest(distances(queries, keys, ids, metric), ids, k)


@pytest.mark.parametrize("k", [9, 300])
@pytest.mark.parametrize("size", [8, 128])
def test_groups_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch, size: int, k: int):
    keys = points("tails", 1500, 2, 3)
    asked = torch.from_numpy(keys[:400])
    near, ids = brute(keys, asked, k, "l2")
    monkeypatch.setattr(Boxes, "_size", lambda self, queries, k: size)
    found = Boxes.of(keys).search(asked, k, "l2")
    assert found.ids.equal(ids)
    assert found.distances.equal(near)


def test_a_group_that_sees_a_clump_is_compared_by_itself(monkeypatch: pytest.MonkeyPatch):
    clump, apart = points("normal", 9000, 2, 0) / 1e3, 40 * points("normal", 100, 2, 1)
    keys, asked = np.concatenate([clump, apart]), torch.from_numpy(40 * points("normal", 500, 2, 2))
    near, ids = brute(keys, asked, 3, "l2")
    held: list[int] = []

    def counted(squares: np.ndarray, k: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
        held.append(squares.size)
        return nearest(squares, k, metric)

    nearest = boxes._nearest
    monkeypatch.setattr(boxes, "_nearest", counted)
    found = Boxes.of(keys).search(asked, 3, "l2")
    assert found.ids.equal(ids)
    assert found.distances.equal(near)
    assert max(held) <= max(boxes._COMPARED, boxes.SIZES.max() * len(keys))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 60), st.integers(0, 1000), st.booleans())
def test_boxes_find_what_all_rows_say(kind: str, d: int, k: int, seed: int, own: bool):
    keys = points(kind, 300, d, seed)
    queries = torch.from_numpy(keys if own else 2 * points("normal", 40, d, seed + 1))
    found = Boxes.of(keys).search(queries, k, "l2")
    near, ids = brute(keys, queries, k, "l2")
    assert found.ids.equal(ids)
    assert found.distances.equal(near)


def test_boxes_of_places_on_the_earth():
    rng = np.random.default_rng(0)
    degrees = np.column_stack([rng.uniform(-180, 180, 3000), np.degrees(np.arcsin(rng.uniform(-1, 1, 3000)))])
    index = ld.Exact(degrees, metric="haversine")
    assert index.rows.boxed(MANY, 40, "haversine")
    keys = index.rows.shards[0]["key"]
    found = index.search(torch.from_numpy(degrees[:MANY]), 40)
    near, ids = brute(keys, torch.from_numpy(keys[:MANY]), 40, "haversine")
    assert found.ids.equal(ids)
    assert found.distances.equal(near)


@pytest.mark.parametrize("k", [1, 2, 7, 30])
def test_arcs_of_a_grid_of_places_tie_where_chords_do_not(k: int):
    grid = np.indices((48, 48)).reshape(2, -1).T * [2.0, 1.0] - [48.0, 0.0]
    degrees = np.random.default_rng(0).permutation(grid)
    keys = ld.Exact(degrees, metric="haversine").rows.shards[0]["key"]
    queries = torch.from_numpy(keys[:MANY])
    near, ids = brute(keys, queries, k, "haversine")
    found = Boxes.of(keys).search(queries, k, "haversine")
    assert found.ids.equal(ids)
    assert found.distances.equal(near)


@pytest.mark.parametrize("unit", [3e-162, 1e155])
def test_squares_that_lose_their_digits_or_overflow_lose_no_neighbor(unit: float):
    keys = unit * np.random.default_rng(5).normal(size=(2304, 2))
    near, ids = brute(keys, torch.from_numpy(keys[:300]), 7, "l2")
    found = Boxes.of(keys).search(torch.from_numpy(keys[:300]), 7, "l2")
    assert found.distances.equal(near)
    assert found.ids.equal(ids.where(near.isfinite(), found.ids))


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_small_and_hold_every_row_once(kind: str):
    parts = _split(points(kind, 1000, 2, 0), LEAF)
    assert parts.shape == (32, LEAF)
    assert sorted(parts.reshape(-1).tolist()) == list(range(1024))  # from 1000 on the first ones again


def test_only_many_queries_of_many_rows_with_narrow_keys_are_searched_in_boxes():
    rows = ld.Exact(points("normal", ROWS, 2, 0)).rows
    assert rows.boxed(MANY, 10, "l2")
    assert not rows.boxed(MANY - 1, 10, "l2")
    assert not rows.boxed(MANY, ROWS, "l2")
    assert not rows.boxed(MANY, 10, "ip")
    assert not ld.Exact(points("normal", ROWS, 9, 0)).rows.boxed(MANY, 10, "l2")
    assert not ld.Exact(points("normal", ROWS, 2, 0).astype(np.float32)).rows.boxed(MANY, 10, "l2")
    _ = rows.boxes
    assert rows.boxed(1, 10, "l2")  # once they are there
    assert not rows.boxed(0, 10, "l2")
