"""Plans: small, frozen, picklable, checked when they are made; and what they are predicted to cost."""

import pickle

import pytest

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.local.tiles import together
from locdist.plan import cost
from locdist.plan.cost import Search, Solve, assign_cost, pack_cost, predict_cost
from locdist.plan.plan import Attempt, Resources, Stage, Task, remaining, stale
from locdist.plan.records import Record
from locdist.testing.tasks import small_job
from tests.system.small_job import Write


def task(name="part-00000", outputs=("part-00000.parquet",)) -> Task:
    return Task(name, outputs, (0,))


def test_a_stage_survives_pickling_and_is_small():
    stage = small_job(Store("/nowhere"), Write("log"), tasks=100).stages[0]
    attempt = Attempt(Store("/nowhere"), stage.name, 2)
    assert pickle.loads(pickle.dumps(stage)) == stage
    assert pickle.loads(pickle.dumps((stage.tasks[0], attempt))) == (stage.tasks[0], attempt)
    assert len(pickle.dumps((stage.tasks[0], attempt))) < 1000


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: task(name="../x"), "name of a task"),
        (lambda: task(name=""), "name of a task"),
        (lambda: task(outputs=("/etc/passwd",)), "below the job's folder"),
        (lambda: task(outputs=("a/../../b",)), "below the job's folder"),
        (lambda: task(outputs=("_locdist/manifest.json",)), "outside _locdist"),
        (lambda: Stage("s", (task(), task(outputs=())), Write("log")), "part-00000"),
        (lambda: Stage("s", (task(), task(name="b")), Write("log")), "part-00000.parquet"),
        (lambda: Stage("a/b", (), Write("log")), "name of a stage"),
        (lambda: Resources(cpus=0), "cpus > 0"),
        (lambda: Resources(memory=-1), "custom resources >= 0"),
    ],
)
def test_wrong_plans_are_refused_when_they_are_made(make, word):
    with pytest.raises(UsageError, match=word):
        make()


@pytest.mark.parametrize("cpus, threads", [(0.5, 1), (1, 1), (2, 2), (3.5, 3)])
def test_a_task_with_cores_has_as_many_threads(cpus, threads):
    assert Resources(cpus).threads == threads


def test_tasks_with_a_record_are_not_left():
    first, second = small_job(Store("/nowhere"), Write("log"), tasks=2, stages=2).stages
    done = {"write-0": {"part-00000": Record(inputs=(0,)), "part-00001": Record(inputs=[1])}}
    assert remaining(first, {}) == first.tasks
    assert remaining(first, done) == ()
    assert remaining(second, done) == second.tasks
    assert remaining(first, {"write-0": {"part-00001": Record(inputs=[1])}}) == first.tasks[:1]


@pytest.mark.parametrize("name, inputs", [("part-00001", [2]), ("part-00001", []), ("part-00002", [2])])
def test_a_record_of_another_plan_is_refused(name, inputs):
    (stage,) = small_job(Store("/nowhere"), Write("log"), tasks=2).stages
    done = {"part-00000": Record(inputs=[0]), name: Record(inputs=inputs)}
    with pytest.raises(UsageError, match=f"{name}.*another version.*--overwrite"):
        remaining(stage, {"write-0": done})


def test_only_what_is_named_like_an_output_is_stale():
    (stage,) = small_job(Store("/nowhere"), Write("log"), tasks=2).stages
    names = ["part-00000.parquet", "part-00002.parquet", "part-x.parquet", "a/part-00002.parquet", "notes"]
    assert stale(stage, names) == ("part-00002.parquet",)


def test_distances_follow_the_formula():
    assert Search(1_000_000).distances(100) == 100_000_000
    assert Search(1_000_000, nlist=1000, nprobe=10).distances(100) == 100 * (1000 + 10 * 1000)
    assert Search(1_000_000, nlist=1000, nprobe=5000).distances(1) == 1000 + 1_000_000


@pytest.mark.parametrize(
    "search, measured",
    [(Search(1_000_000), 2 * 85.0), (Search(1_000_000, nlist=2048, nprobe=8), 2 * 1.52)],
)
def test_predicted_seconds_are_those_measured(search, measured):
    """100,000 queries of width 64, k = 32, on two cores."""
    seconds = predict_cost(100_000, 100_000, search, Solve(k=32, d=64)).seconds
    assert measured * 0.8 < seconds < measured * 1.6


MORE = [
    {"queries": 2000, "block": 2000},
    {"solve": Solve(k=64, d=8)},
    {"solve": Solve(k=32, d=16)},
    {"row_bytes": 100},
]
MORE += [{"solve": Solve(k=32, d=8, m=8)}, {"solve": Solve(k=32, d=8, want={"neighbors"})}]
MORE += [{"search": Search(1000, resident=1000)}]


@pytest.mark.parametrize("change", MORE, ids=str)
def test_whoever_asks_for_more_is_predicted_more_memory(change):
    least = {"queries": 1000, "block": 1000, "search": Search(1000), "solve": Solve(k=32, d=8)}
    assert predict_cost(**{**least, **change}).memory > predict_cost(**least).memory


@pytest.mark.parametrize("k, m", [(1, 0), (32, 0), (32, 2), (121, 4), (256, 8), (5000, 100)])
def test_a_tile_is_as_large_as_the_layer_makes_it(k, m):
    numbers = k * (1 + m)
    assert cost._tiled(Solve(k, 0, m)) == together(numbers) * numbers


def test_memory_depends_on_the_block_and_not_on_the_task():
    small, large = (predict_cost(n, 1000, Search(10**6), Solve(k=32, d=8)) for n in (1000, 10**6))
    assert small.memory == large.memory
    assert small.distances < large.distances


@pytest.mark.parametrize(
    "estimate",
    [
        predict_cost(
            10**6, 10**6, Search(10**6, nlist=1000, nprobe=8), Solve(k=500, d=64, m=4, want={"coefficients"})
        ),
        assign_cost(10**6, 64, nlist=1000),
        pack_cost(10**6, 64, code_bytes=128),
    ],
)
def test_the_formula_is_told_with_its_figures(estimate):
    assert estimate.memory > 10**8
    assert "base" in estimate.formula
    assert "1,000,000 x" in estimate.formula
