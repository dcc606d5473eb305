"""Clusters by mean shift beside scikit-learn's, and their parts beside brute force."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.cluster import MeanShift
from sklearn.cluster import estimate_bandwidth as theirs
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import Status
from locdist.local.lattice import Lattice, Thinned, followed
from locdist.local.loops import Replace, Soft
from locdist.local.modes import gathered, located, nearest, ranked, strongest

X, TRUE = make_blobs(900, 3, centers=6, cluster_std=0.8, random_state=4)
H = 2.5


def rows(keys: np.ndarray) -> object:
    return ld.dataset({"key": keys}, key="key")


def labels(table: object) -> np.ndarray:
    return np.array(table["cluster"].to_pylist())


@pytest.fixture(scope="module")
def peer() -> MeanShift:
    return MeanShift(bandwidth=H).fit(X)


def modes(folder: object) -> np.ndarray:
    table = ld.clusters(folder)
    return np.column_stack([table[f"mode_key[{axis}]"] for axis in range(3)])


def test_flat_clusters_and_modes_are_those_of_scikit_learn(peer, tmp_path):
    ld.cluster(ld.mean_shift(H, "uniform"), rows(X), tmp_path / "out", grain=0, keep="*")
    found = labels(pq.read_table(tmp_path / "out"))
    assert adjusted_rand_score(peer.labels_, found) == 1
    assert len(ld.clusters(tmp_path / "out")) == len(peer.cluster_centers_)
    for center in peer.cluster_centers_:
        assert np.abs(modes(tmp_path / "out") - center).max(1).min() < 1e-6
    inside = (np.linalg.norm(X[:, None] - peer.cluster_centers_, axis=2) <= H).sum(0)
    assert sorted(ld.clusters(tmp_path / "out")["effective"].to_pylist()) == pytest.approx(sorted(inside))


@pytest.mark.parametrize("kernel", ["uniform", "epanechnikov", "gaussian"])
@pytest.mark.parametrize("sample", [5_000, 300])
def test_rows_that_climb_on_a_lattice_are_clustered_alike(peer, kernel, sample):
    method = ld.mean_shift(H if kernel != "gaussian" else H / 2, kernel)
    found = labels(ld.cluster(method, rows(X), sample=sample))
    assert adjusted_rand_score(peer.labels_, found) == 1
    assert adjusted_rand_score(TRUE, found) == 1


def test_modes_found_on_a_lattice_are_those_of_all_rows(tmp_path):
    method = ld.mean_shift(1.2, tolerance=1e-9, steps=3000)
    ld.cluster(method, rows(X), tmp_path / "out", sample=200)
    found = modes(tmp_path / "out")
    for place in found:
        weights = np.exp(-0.5 * ((X - place) ** 2).sum(1) / 1.2**2)
        np.testing.assert_allclose(weights @ X / weights.sum(), place, atol=1e-7)


def test_neighbors_alone_can_be_climbed_by():
    found = labels(ld.cluster(ld.mean_shift(H, "uniform", k=150), rows(X)))
    assert adjusted_rand_score(TRUE, found) == 1


def test_clusters_are_numbered_by_their_rows(tmp_path):
    uneven = np.concatenate([X[group == TRUE][: 30 * (group + 1)] for group in range(4)])
    ld.cluster(ld.mean_shift(1.0), rows(uneven), tmp_path / "out")
    found = labels(pq.read_table(tmp_path / "out"))
    assert ld.clusters(tmp_path / "out")["rows"].to_pylist() == [120, 90, 60, 30]
    assert np.bincount(found).tolist() == [120, 90, 60, 30]


def test_small_clusters_are_orphans(tmp_path):
    lonely = np.vstack([X, [[50.0, 50.0, 50.0]]])
    report = ld.cluster(ld.mean_shift(1.0), rows(lonely), tmp_path / "out", least=2)
    table = pq.read_table(tmp_path / "out")
    assert table["cluster"].to_pylist()[-1] is None
    assert table["mode_key[0]"].to_pylist()[-1] is None
    assert table["status"].to_pylist()[-1] == "low_support"
    assert report.notes[0] == f"{len(ld.clusters(tmp_path / 'out'))} clusters, 1 orphans"
    assert sum(ld.clusters(tmp_path / "out")["rows"].to_pylist()) == len(X)


def test_new_rows_belong_to_the_clusters_of_those_near_them(tmp_path):
    ld.cluster(ld.mean_shift(H, "epanechnikov"), rows(X), tmp_path / "out")
    near = X[::7] + 0.05 * np.random.default_rng(0).normal(size=X[::7].shape)
    asked = np.vstack([near, [[90.0, 0.0, 0.0]], [[np.nan, 0.0, 0.0]]])
    found = ld.assign(tmp_path / "out", {"key": asked})
    assert found["cluster"].to_pylist()[:-2] == labels(pq.read_table(tmp_path / "out"))[::7].tolist()
    assert found["cluster"].to_pylist()[-2:] == [None, None]
    assert found["status"].to_pylist()[-2:] == ["empty", "bad_query"]
    again = ld.assign(tmp_path / "out", {"key": X})
    assert again["cluster"].to_pylist() == labels(pq.read_table(tmp_path / "out")).tolist()


@pytest.mark.parametrize("quantile", [0.05, 0.3, 1.0])
def test_a_bandwidth_is_estimated_as_by_scikit_learn(quantile):
    assert ld.estimate_bandwidth(ld.Exact(X), quantile) == pytest.approx(theirs(X, quantile=quantile))
    part = ld.estimate_bandwidth(ld.Exact(X), quantile, sample=300, seed=3)
    assert part == pytest.approx(theirs(X, quantile=quantile), rel=0.15)
    assert part == ld.estimate_bandwidth(ld.Exact(X), quantile, sample=300, seed=3)


def test_paths_through_cells_end_in_rest_or_in_the_first_cell_of_a_cycle():
    onto = {(0, 0): (0, 1), (0, 1): (1, 1), (1, 1): (1, 1), (5, 5): (4, 4), (4, 4): (3, 9), (3, 9): (4, 4)}
    asked = list[tuple[int, ...]]()

    def step(cells: torch.Tensor) -> torch.Tensor:
        asked.extend(map(tuple, cells.tolist()))
        return torch.tensor([onto[cell] for cell in map(tuple, cells.tolist())])

    cells, rest = followed(step, torch.tensor([[0, 0], [5, 5], [4, 4], [1, 1], [0, 0]]))
    assert sorted(asked) == sorted(onto)  # each once
    assert cells[rest].tolist() == [[1, 1], [3, 9], [3, 9], [1, 1], [1, 1]]


def test_where_a_query_ends_depends_on_it_alone():
    method = ld.mean_shift(1.0)
    lattice = Lattice(method.layer, 0.3, Soft(0.7))
    whole = lattice(ld.Exact(X), 2, torch.tensor(X[:60]))
    alone = [lattice(ld.Exact(X), 2, torch.tensor(X[row : row + 1])).values for row in range(0, 60, 7)]
    assert torch.equal(whole.values[::7], torch.cat(alone))
    assert torch.equal((whole.values / 0.3).round() * 0.3, whole.values)


def test_a_query_alone_among_the_kept_rows_asks_all_and_a_bad_one_stops_nobody():
    far = np.vstack([X, [[40.0, 40.0, 40.0]], [[40.3, 40.0, 40.0]]])
    lattice = Lattice(ld.mean_shift(1.0, "uniform").layer, 0.25, Replace())
    asked = torch.tensor([[40.4, 40.1, 40.0], [np.nan, 0.0, 0.0], [-90.0, 0.0, 0.0]])
    found = lattice(ld.Exact(far), 500, asked)
    assert found.status.tolist() == [int(Status.OK), int(Status.BAD_QUERY), int(Status.EMPTY)]
    assert found.values[0].tolist() == [40.25, 40.0, 40.0]
    assert found.values[1].isnan().all()


def test_a_thinned_support_keeps_every_so_many_th_row():
    kept = Thinned.of(ld.Exact(X), 7, frozenset())
    assert torch.cat([batch.rows for batch in kept.batches(frozenset())]).tolist() == list(range(0, 900, 7))


def test_the_strongest_places_are_those_of_the_greedy_rule():
    places = torch.tensor(np.random.default_rng(1).normal(size=(2500, 2)))
    heights = torch.tensor(np.random.default_rng(2).integers(0, 9, 2500).astype(float))
    order = ranked(places, heights)
    told = sorted(range(2500), key=lambda row: (heights[row], places[row].tolist()), reverse=True)
    assert order.tolist() == told
    chosen = list[int]()
    for row in range(2500):
        if all(torch.dist(places[order[row]], places[order[other]]) > 0.4 for other in chosen):
            chosen.append(row)
    assert strongest(places[order], 0.4).tolist() == chosen


def test_one_place_stands_for_those_in_its_cell_whatever_their_order():
    places = torch.tensor(np.random.default_rng(3).normal(size=(500, 2)))
    heights = torch.arange(500.0) % 7
    counts = torch.ones(500)
    whole, rows_ = gathered(places, heights, counts, 0.5)
    parts = [
        gathered(places[part], heights[part], counts[part], 0.5) for part in (slice(200), slice(200, 500))
    ]
    both = torch.cat([parts[0][0], parts[1][0] + 200])
    again, sums = gathered(places[both], heights[both], torch.cat([each[1] for each in parts]), 0.5)
    assert torch.equal(both[again], whole)
    assert torch.equal(sums, rows_)
    assert rows_.sum() == 500


def test_nobody_is_near_nothing():
    distance, which = nearest(torch.zeros(3, 2), torch.zeros(0, 2))
    assert distance.isinf().all()
    assert which.tolist() == [-1, -1, -1]
    assert located(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[3, 4]])).tolist() == [-1, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ld.cluster(ld.knn(3), rows(X)),
        lambda: ld.cluster(ld.denoise(1.0), rows(X)),
        lambda: ld.cluster(ld.mean_shift(1.0), rows(X), grain=2),
        lambda: ld.cluster(ld.mean_shift(1.0), rows(X), sample=0),
        lambda: ld.cluster(ld.mean_shift(1.0), rows(X), radius=0),
        lambda: ld.cluster(ld.mean_shift(1.0), rows(X), least=0),
        lambda: ld.cluster(ld.mean_shift(1.0, k=1000), rows(X)),
        lambda: ld.cluster(ld.mean_shift(1.0), ld.dataset({"key": X}, key="key", metric="cosine")),
        lambda: ld.cluster(ld.mean_shift(1.0), X),
        lambda: ld.estimate_bandwidth(ld.Exact(X), 1.5),
        lambda: ld.estimate_bandwidth(ld.Exact(X), sample=0),
        lambda: ld.estimate_bandwidth(ld.Exact(X, metric="ip")),
        lambda: Lattice(ld.mean_shift(1.0).layer, 0.0, Replace()),
    ],
)
def test_what_cannot_be_clustered_is_refused(make):
    with pytest.raises(UsageError):
        make()
