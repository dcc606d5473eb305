"""What `local.layer.Index` promises, as tests: a search is compared with all distances, in float64."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.local.layer import Index
from locdist.local.neighborhood import Neighborhood

Array = NDArray[np.float64]
NEEDS = ("keys", "targets", "codes", "features")
BATCHES = (1, 7, 300)


def _clouds() -> Mapping[str, NDArray[Any]]:
    dice = np.random.default_rng(0)
    return {
        "ordinary": dice.normal(size=(1500, 5)),
        "single precision": dice.normal(size=(1500, 5)).astype(np.float32),
        "far from the origin": dice.uniform(-2000, 2000, (1000, 3)) + 4208848.0,
        "a grid full of ties": dice.integers(0, 3, (1000, 5)).astype(np.float64),
        "one point many times": np.ones((200, 3)),
    }


CLOUDS = _clouds()
TIED = ("a grid full of ties", "one point many times")


@dataclass(frozen=True, eq=False)
class Support:
    """The rows that an index is made of; arrays that cannot be written to.

    Parameters
    ----------
    keys : ndarray [n, d] float64 or float32
    features : ndarray [n, m] float64
    targets : ndarray [n] int64
        Numbers that are classes too.
    weights : ndarray [n] float64
    """

    keys: NDArray[Any]
    features: Array
    targets: NDArray[np.int64]
    weights: Array

    @staticmethod
    def of(keys: NDArray[Any]) -> "Support":
        """Rows with these keys."""
        dice, rows = np.random.default_rng(1), len(keys)
        columns = (
            keys.copy(),
            dice.normal(size=(rows, 2)),
            dice.integers(0, 4, rows),
            dice.uniform(0, 2, rows),
        )
        for column in columns:
            column.flags.writeable = False
        return Support(*columns)


class IndexContract:
    """The tests of an index; subclass it in a test module and say how to make one.

    Attributes
    ----------
    by_id : bool
        Whether of rows at one distance those with the smaller ids are found, also where they are too many.
        An index of lists promises the distances.

    Examples
    --------
    >>> class TestExact(IndexContract):
    ...     def index(self, support, folder):
    ...         return Exact(support.keys, support.targets, support.features, support.weights)
    """

    by_id = True

    def index(self, support: Support, folder: Path) -> Index:
        """An index of metric "l2" over a support, searched so that it finds everything; `folder` is empty."""
        raise NotImplementedError

    def rows(self, index: Index, ids: Tensor) -> Tensor:
        """The rows of the support that ids [q, k] are, which is what `own` means; −1 where missing."""
        return ids

    @pytest.fixture
    def ordinary(self, tmp_path: Path) -> tuple[Index, Support]:
        """An index of points in general position."""
        support = Support.of(CLOUDS["ordinary"])
        return self.index(support, tmp_path / "index"), support

    # ---- search ----

    @pytest.mark.parametrize("name", CLOUDS)
    def test_neighbors_are_those_of_brute_force(self, name: str, tmp_path: Path) -> None:
        support = Support.of(CLOUDS[name])
        index = self.index(support, tmp_path / "index")
        assert index.metric == "l2"
        assert index.apart
        for k in (1, 7, len(support.keys) // 4):
            self.check(index, support, support.keys[:60], k)
        self.check(index, support, support.keys[:20] + support.keys.dtype.type(0.25), 9)

    def test_a_query_far_from_everything_has_neighbors(self, ordinary: tuple[Index, Support]) -> None:
        index, support = ordinary
        queries = np.array([[1e6, 0, 0, 0, 0], [-1e9, 1e9, 0, 0, 0]])
        hood = searched(index, queries, 7)
        away = np.sort(np.square(queries[:, None] - support.keys[None]).sum(-1))[:, :7]
        assert (hood.ids >= 0).all()
        np.testing.assert_allclose(hood.distances, away, rtol=1e-6)

    def test_fewer_rows_than_k_leave_neighbors_missing(self, tmp_path: Path) -> None:
        support = Support.of(CLOUDS["ordinary"][:6])
        index = self.index(support, tmp_path / "index")
        hood = searched(index, support.keys[:3], 10)
        assert hood.ids.shape == hood.distances.shape == (3, 10)
        assert hood.ids[:, :6].sort(dim=1).values.tolist() == [list(range(6))] * 3
        assert (hood.ids[:, 6:] == -1).all()
        assert hood.distances[:, 6:].isposinf().all()
        assert hood.distances[:, :6].isfinite().all()

    @pytest.mark.parametrize("name", ["ordinary", "a grid full of ties"])
    def test_a_query_that_is_a_row_is_not_its_own_neighbor(self, name: str, tmp_path: Path) -> None:
        """By its id, not by its distance: other rows at the same point are neighbors."""
        support = Support.of(CLOUDS[name])
        index = self.index(support, tmp_path / "index")
        own = np.arange(40)
        own[::4] = -1
        self.check(index, support, support.keys[:40], 9, own)

    def test_answers_do_not_depend_on_the_batch(self, ordinary: tuple[Index, Support]) -> None:
        index, support = ordinary
        queries = support.keys[:300] + 0.1
        whole = searched(index, queries, 8)
        for size in BATCHES:
            for start in range(0, min(300, 30 * size), size):
                part = searched(index, queries[start : start + size], 8)
                assert torch.equal(part.ids, whole.ids[start : start + size])
                assert torch.equal(part.distances, whole.distances[start : start + size])

    def test_threads_search_at_the_same_time(self, ordinary: tuple[Index, Support]) -> None:
        index, support = ordinary
        alone = searched(index, support.keys[:200], 8)
        with ThreadPoolExecutor(4) as pool:
            for hood in pool.map(lambda _: searched(index, support.keys[:200], 8), range(8)):
                assert torch.equal(hood.ids, alone.ids)
                assert torch.equal(hood.distances, alone.distances)

    def test_the_order_says_which_query_each_row_is(self, ordinary: tuple[Index, Support]) -> None:
        index, support = ordinary
        queries = torch.from_numpy(support.keys[:50].copy())
        hood = index.search(queries, 1, None)
        order = torch.arange(50) if hood.order is None else hood.order
        assert sorted(order.tolist()) == list(range(50))
        assert torch.equal(self.rows(index, hood.ids)[:, 0], order)  # the nearest row of a row is itself
        if hood.queries is not None:
            assert torch.equal(hood.queries, queries[order])

    def test_what_it_is_given_is_not_written_to(self, ordinary: tuple[Index, Support]) -> None:
        index, support = ordinary
        queries, own = torch.from_numpy(support.keys[:50].copy()), torch.arange(50)
        given = queries.clone(), own.clone()
        hood = index.search(queries, 5, own)
        found = hood.ids.clone(), hood.distances.clone()
        index.gather(hood, frozenset(NEEDS))
        assert torch.equal(queries, given[0])
        assert torch.equal(own, given[1])
        assert torch.equal(hood.ids, found[0])
        assert torch.equal(hood.distances, found[1])

    # ---- gather ----

    @pytest.mark.parametrize("need", NEEDS)
    def test_what_is_needed_is_gathered_and_nothing_else(
        self, ordinary: tuple[Index, Support], need: str
    ) -> None:
        index, support = ordinary
        hood = index.search(torch.from_numpy(support.keys[:50].copy()), 5, None)
        full = index.gather(hood, frozenset({need}))
        assert torch.equal(full.ids, hood.ids)
        assert torch.equal(full.distances, hood.distances)
        rows = self.rows(index, hood.ids).numpy()
        expected = getattr(support, "targets" if need == "codes" else need)[rows]
        gathered = full.targets if need == "codes" else getattr(full, need)
        assert gathered is not None
        np.testing.assert_array_equal(gathered.reshape(expected.shape), expected)
        assert full.classes == (4 if need == "codes" else 0)
        assert (gathered.dtype == torch.int64) == (need == "codes")
        others = {"keys", "targets", "features"} - {"targets" if need == "codes" else need}
        assert all(getattr(full, other) is None for other in others)

    def test_row_weights_are_always_gathered(self, ordinary: tuple[Index, Support]) -> None:
        index, support = ordinary
        hood = index.search(torch.from_numpy(support.keys[:50].copy()), 5, None)
        full = index.gather(hood, frozenset())
        assert full.row_weights is not None
        rows = self.rows(index, hood.ids).numpy()
        np.testing.assert_array_equal(full.row_weights, support.weights[rows])

    def test_gathering_adds_to_what_was_gathered(self, ordinary: tuple[Index, Support]) -> None:
        """As the layer does it: narrow columns for all queries, wide ones tile by tile."""
        index, support = ordinary
        queries = torch.from_numpy(support.keys[:50].copy())
        hood = index.search(queries, 5, None)
        at_once = index.gather(hood, frozenset({"targets", "features"}))
        tile = index.gather(hood, frozenset({"targets"})).rows(slice(10, 30))
        tile = index.gather(replace(tile, query_features=torch.zeros(20, 2)), frozenset({"features"}))
        for name in ("targets", "features", "row_weights", "distances"):
            assert torch.equal(getattr(tile, name), getattr(at_once, name)[10:30]), name

    def test_missing_neighbors_are_gathered_as_anything(self, tmp_path: Path) -> None:
        support = Support.of(CLOUDS["ordinary"][:6])
        index = self.index(support, tmp_path / "index")
        hood = index.search(torch.from_numpy(support.keys[:3].copy()), 10, None)
        full = index.gather(hood, frozenset({"keys", "targets", "features"}))
        shapes = [getattr(full, name).shape for name in ("keys", "targets", "features", "row_weights")]
        assert shapes == [(3, 10, 5), (3, 10, 1), (3, 10, 2), (3, 10)]

    # ---- brute force ----

    def check(
        self,
        index: Index,
        support: Support,
        queries: NDArray[Any],
        k: int,
        own: NDArray[np.int64] | None = None,
    ) -> None:
        """Compare a search with all distances, sorted by (distance, id)."""
        hood = searched(index, queries, k, own)
        places = self.rows(index, torch.arange(len(support.keys))[None])[0].numpy()
        apart = queries[:, None].astype(np.float64) - support.keys[places][None].astype(np.float64)
        away = np.square(apart).sum(-1)
        if own is not None:
            away[own[:, None] == places[None]] = np.inf
        ids = np.broadcast_to(np.arange(len(places)), away.shape)
        nearest = np.lexsort((ids, away))[:, :k]
        tolerance = 1e-5 if support.keys.dtype == np.float32 else 1e-9
        best = np.take_along_axis(away, nearest, 1)
        np.testing.assert_allclose(hood.distances, best, rtol=tolerance, atol=tolerance)
        found = hood.ids.numpy()
        np.testing.assert_allclose(np.take_along_axis(away, found, 1), best, rtol=tolerance, atol=tolerance)
        assert (np.diff(np.sort(found)) > 0).all()  # nobody twice
        steps, tied = np.diff(found), np.diff(hood.distances.numpy()) == 0
        assert (steps[tied] > 0).all()
        if self.by_id and support.keys.dtype == np.float64:
            np.testing.assert_array_equal(found, nearest)


def searched(
    index: Index, queries: NDArray[Any], k: int, own: NDArray[np.int64] | None = None
) -> Neighborhood:
    """Neighbors in the order of the queries."""
    excluded = None if own is None else torch.from_numpy(own)
    hood = index.search(torch.from_numpy(np.array(queries)), k, excluded)
    if hood.order is None:
        return hood
    back = hood.order.argsort()
    return Neighborhood(hood.distances[back], hood.ids[back])
