"""Plans: small, frozen, picklable, checked when they are made; and what they are predicted to cost."""

import pickle
from dataclasses import replace

import pytest

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.plan.cost import MEASURED, Estimate, Search, Solve, assign_cost, pack_cost, predict_cost
from locdist.plan.plan import Attempt, Resources, Stage, Task, first_unfinished, remaining
from locdist.plan.records import Record
from tests.system.small_job import Write, small_job


def task(name="part-00000", outputs=("part-00000.parquet",)) -> Task:
    return Task(name, outputs, (0,), Write("log"))


def test_a_stage_survives_pickling_and_is_small():
    stage = small_job(Store("/nowhere"), Write("log"), tasks=100).stages[0]
    attempt = Attempt(Store("/nowhere"), stage.name, 2, 1)
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
        (lambda: Stage("s", (task(), task(outputs=()))), "part-00000"),
        (lambda: Stage("s", (task(), task(name="b"))), "part-00000.parquet"),
        (lambda: Stage("a/b", ()), "name of a stage"),
        (lambda: Resources(cpus=0), "cpus > 0"),
        (lambda: Resources(memory=-1), "memory >= 0"),
    ],
)
def test_wrong_plans_are_refused_when_they_are_made(make, word):
    with pytest.raises(UsageError, match=word):
        make()


@pytest.mark.parametrize("cpus, threads", [(0.5, 1), (1, 1), (2, 2), (3.5, 3)])
def test_a_task_with_cores_has_as_many_threads(cpus, threads):
    assert Resources(cpus).threads == threads


def test_the_first_stage_with_tasks_left_is_next():
    job = small_job(Store("/nowhere"), Write("log"), tasks=2, stages=2)
    first, second = job.stages
    done = {"write-0": {"part-00000": Record(), "part-00001": Record()}}
    assert first_unfinished(job.stages, {}) == first
    assert first_unfinished(job.stages, done) == second
    assert remaining(first, {"write-0": {"part-00001": Record()}}) == first.tasks[:1]
    assert first_unfinished(job.stages, {**done, "write-1": done["write-0"]}) is None


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
MORE += [{"search": Search(1000, resident=1000)}, {"search": Search(1000, candidates=100)}]


@pytest.mark.parametrize("change", MORE, ids=str)
def test_whoever_asks_for_more_is_predicted_more_memory(change):
    least = {"queries": 1000, "block": 1000, "search": Search(1000), "solve": Solve(k=32, d=8)}
    assert predict_cost(**{**least, **change}).memory > predict_cost(**least).memory


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
def test_too_large_a_task_is_refused_with_both_figures_and_the_formula(estimate: Estimate):
    estimate.fits(Resources(memory=estimate.memory))
    estimate.fits(Resources(memory=0))
    with pytest.raises(UsageError) as error:
        estimate.fits(Resources(memory=estimate.memory - 1))
    for part in (f"{estimate.memory:,}", f"{estimate.memory - 1:,}", "base", "1,000,000 x"):
        assert part in str(error.value)
    assert replace(MEASURED, base=0) != MEASURED
