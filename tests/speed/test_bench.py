"""The benchmark's own code at a tiny size: all rows are there, both sides computed the same. No clock."""

import json

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from tests.speed.bench import conditions, figures, run, table
from tests.speed.inputs import Sizes, read
from tests.speed.kriging import World
from tests.speed.logistic import World as Classes
from tests.speed.moving import LACKING
from tests.speed.peers import agreement, tricube
from tests.speed.rows import ROWS

TINY = Sizes(
    support=8_000, queries=800, width=16, intrinsic=4, k=10, many=2, peer_queries=100, tasks=12,
    long_tasks=12, long_rows=300, planned=(300,), kriging=300, logistic=300, logistic_peer=20, sites=150,
    regression=600, clustered=400, denoised=1, pixels=48, codes="fp16",
)  # fmt: skip

pytestmark = pytest.mark.slow

NAMES = [name for name in ROWS if not (name.startswith("zillow") or name in LACKING)]  # of one size


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run(TINY, tmp_path_factory.mktemp("bench"), NAMES)


def test_the_table_has_a_line_for_each_row(result):
    lines = table(result[1]).strip().splitlines()
    assert len(lines) == 2 + len(NAMES)
    assert lines[0].split() == ["work", "ours", "against", "theirs", "ratio", "reach"]
    assert all(line.rstrip().endswith((": yes", ": NO")) for line in lines[2:])


def test_figures_are_json_of_positive_numbers(result):
    bench, rows = result
    told = json.loads(json.dumps(figures(conditions(), bench, rows)))
    assert len(told["rows"]) == len(NAMES)
    assert {"ours", "theirs", "ours_cpu", "theirs_cpu", "ratio"} == set(told["rows"][0]["figures"])
    assert all(value > 0 for value in told["rows"][0]["figures"].values())
    assert "scikit-learn" in told["conditions"]["versions"]


def test_predictions_equal_those_of_scikit_learn(result):
    bench, _ = result
    keys, targets = read(bench.inputs.support)
    peer = KNeighborsRegressor(TINY.k, weights=tricube, algorithm="brute").fit(keys.astype(float), targets)
    assert bench.mean[1].recall.mean >= 0.99
    assert agreement(bench.mean[0].predictions(), peer.predict(bench.queries.astype(float))) >= 0.85


def test_faiss_searches_the_lists_of_the_generation(result):
    bench, _ = result
    found, sliced = bench.faiss.search(), bench.faiss.slices()
    np.testing.assert_array_equal(found, sliced)
    ours = bench.index.probing(bench.mean[1].nprobe).search(bench_queries(bench), TINY.k)
    same = [len(set(one) & set(other)) for one, other in zip(found, ours.ids.tolist(), strict=True)]
    assert np.mean(same) >= 0.99 * TINY.k


def test_a_gaussian_process_on_the_same_neighbors_is_that_of_muygpys():
    world = World.random(3, 300)
    for ours, theirs in zip(world.ours(2), world.theirs(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def bench_queries(bench):
    import torch

    return torch.from_numpy(bench.queries)


def test_memory_of_a_worker_is_told_alike_by_records_and_by_the_kernel(result):
    _, rows = result
    told, seen = rows[NAMES.index("memory")].figures["many"]
    assert seen == pytest.approx(told, rel=0.25)


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_the_same_tasks_run_on_a_cluster(result, name):
    _, rows = result
    told = rows[NAMES.index(name)].figures
    assert told["inside"] > 0
    assert 0 < told["seconds"] < 60
    assert told["worker"] > 50 << 20


def test_plans_of_small_jobs_are_compared_with_what_they_took(result):
    _, rows = result
    row = rows[NAMES.index("plan")]
    assert list(row.figures) == ["index 300", "knn 300", "local-linear 300", "neighbors 300"]
    assert all(ratio > 0 for ratio in row.figures.values())
    assert row.met == all(1 / 3 <= ratio <= 3 for ratio in row.figures.values())


def test_every_way_of_running_tiny_tasks_is_told(result):
    _, rows = result
    assert len(rows[NAMES.index("overhead")].figures) == 4


def test_probabilities_equal_those_of_scikit_learn():
    world = Classes.random(20)
    np.testing.assert_allclose(world.ours(2), world.theirs(20, tolerance=1e-10), atol=1e-6)
