"""Local autoregression beside linear recurrences, scikit-learn on the delay matrix, and itself on files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.jobs.forecast import ForecastJob, requested
from locdist.jobs.series.answers import followed
from locdist.jobs.series.tasks import FIND, forecast_cost
from locdist.local.answers import Status
from locdist.plan.cost import MEASURED
from locdist.plan.records import Record

Array = NDArray[np.float64]


def waves(steps: int) -> Array:
    """A sum of two waves: a linear recurrence of order 4 without noise."""
    t = np.arange(steps)
    return np.sin(0.3 * t) + 0.5 * np.cos(0.11 * t)


def noisy(steps: int, seed: int = 0) -> Array:
    """A recurrence with noise."""
    rng, series = np.random.default_rng(seed), np.zeros(steps)
    for t in range(2, steps):
        series[t] = 1.2 * series[t - 1] - 0.7 * series[t - 2] + rng.normal()
    return series


def delayed(series: Array, order: int, lag: int, ahead: int) -> tuple[Array, Array]:
    first, last = (order - 1) * lag, len(series) - ahead
    keys = np.array([[series[t - lag * each] for each in range(order)] for t in range(first, last)])
    return keys, series[first + ahead :]


@pytest.mark.parametrize("direct", [False, True], ids=["free run", "direct"])
@pytest.mark.parametrize("lag", [1, 2])
def test_a_linear_recurrence_without_noise_is_forecast_exactly(direct: bool, lag: int):
    method = ld.local_ar(order=4, lag=lag, k=12, direct=direct)
    path = ld.forecast(method, waves(200), steps=40)
    np.testing.assert_allclose(path.values, waves(240)[200:], atol=1e-9)
    assert not path.status.any()


@pytest.mark.parametrize("order, lag, ahead", [(3, 1, 1), (4, 6, 6), (1, 1, 2)])
def test_delays_are_rows_of_values_before_and_after(order: int, lag: int, ahead: int):
    keys, targets = ld.delays(noisy(80), order, lag, ahead)
    ours, theirs = delayed(noisy(80), order, lag, ahead)
    np.testing.assert_array_equal(keys, ours)
    np.testing.assert_array_equal(targets, theirs)


def test_the_mean_is_that_of_nearest_neighbors_on_the_delay_matrix():
    series, order, steps = noisy(150), 3, 12
    window = list(series[-order:])
    keys, targets = delayed(series, order, 1, 1)
    model = KNeighborsRegressor(5).fit(keys, targets)
    for _ in range(steps):
        window.append(float(model.predict([window[: -order - 1 : -1]])[0]))
    found = ld.forecast(ld.local_ar(order=order, model="knn", k=5), series, steps=steps)
    np.testing.assert_allclose(found.values, window[order:], rtol=1e-10)


def test_a_step_is_the_kernel_sum_over_all_times():
    """x_{t+1} = sum_s K(x_t, x_s) x_{s+1} / sum_s K(x_t, x_s) (THEORY A3), series standardized."""
    series, order, width = noisy(120), 3, 0.7
    keys, targets = delayed(series, order, 1, 1)
    away = ((keys - series[: -order - 1 : -1]) ** 2).sum(axis=1) / series.var()
    weights = np.exp(-away / (2 * width**2))
    method = ld.local_ar(order=order, model="local-mean", k=len(keys), kernel="gaussian", bandwidth=width)
    found = ld.forecast(method, series, steps=1).values
    np.testing.assert_allclose(found, [weights @ targets / weights.sum()], rtol=1e-10)


def test_direct_steps_are_regressions_on_the_same_neighbors():
    series, order, k, steps = noisy(150), 3, 20, 5
    keys, _ = delayed(series, order, 1, steps)
    after = np.array([[series[order - 1 + t + h] for h in range(1, steps + 1)] for t in range(len(keys))])
    here = series[: -order - 1 : -1]
    near = np.linalg.norm(keys - here, axis=1).argsort()[:k]
    expected = LinearRegression().fit(keys[near], after[near]).predict([here])[0]
    method = ld.local_ar(order=order, k=k, kernel="uniform", direct=True)
    np.testing.assert_allclose(ld.forecast(method, series, steps=steps).values, expected, rtol=1e-9)


def test_older_values_count_less_by_the_decay():
    series, order, decay = noisy(150), 4, 0.5
    keys, targets = delayed(series, order, 1, 1)
    here = series[: -order - 1 : -1]
    near = np.linalg.norm((keys - here) * decay ** np.arange(order), axis=1).argsort()[:6]
    found = ld.forecast(ld.local_ar(order=order, model="knn", k=6, decay=decay), series, steps=1)
    np.testing.assert_allclose(found.values, [targets[near].mean()], rtol=1e-10)


@pytest.mark.parametrize("past", [False, True])
def test_a_backtest_from_a_time_is_a_forecast_without_the_stretch_after_it(past: bool):
    """Nor does the scale of the series, which this kernel sees, say anything of it."""
    series, steps, order = noisy(120), 6, 3
    series[70:] *= 4
    end = 60 if past else order  # the only origin: the first
    method = ld.local_ar(order=order, model="local-mean", k=30, kernel="gaussian", bandwidth=0.7)
    after = [] if past else series[end + 1 + steps :]
    told = np.concatenate([series[: end + 1], np.full(steps, np.nan), after])
    guess = followed(method.loop, torch.tensor(told)[None], steps, torch.tensor([end])).values[0]
    if past:
        np.testing.assert_allclose(guess, ld.forecast(method, series[: end + 1], steps=steps).values)
    miss = np.mean((guess.numpy() - series[end + 1 : end + 1 + steps]) ** 2) / series.var()
    found = ld.backtest(method, series, steps=steps, origins=1, past=past)
    np.testing.assert_allclose(found.trials[0][1].value, miss, rtol=1e-10)


def test_series_of_different_lengths_are_judged_at_times_of_their_own(monkeypatch: pytest.MonkeyPatch):
    lengths, method, asked = [60, 4, 16], ld.local_ar(order=3, k=5), {"steps": 2, "origins": 8}
    alone = [
        ld.backtest(method, noisy(length, seed), **asked)
        for seed, length in enumerate(lengths)
        if length > 5  # a key behind the first one, and the steps
    ]
    monkeypatch.setattr("locdist.jobs.backtest.TOLD", 100)  # some of the times at once
    rows = table(lengths)
    together = ld.backtest(method, rows, target="load", time="hour", id="meter", **asked)
    assert together.origins == sum(each.origins for each in alone) == 16
    mean = np.mean([each.trials[0][1].value for each in alone])
    np.testing.assert_allclose(together.trials[0][1].value, mean, rtol=1e-9)
    assert together.trials[0][1].unanswered == 0
    with pytest.raises(DataError, match="long enough"):
        ld.backtest(method, noisy(5), **asked)


def test_series_of_any_size_have_answers_or_a_status():
    method = ld.local_ar(order=4, k=12)
    for size in (1e200, 1e-200):
        path = ld.forecast(method, size * waves(100), steps=5)
        np.testing.assert_allclose(path.values, size * waves(105)[100:], rtol=1e-6)
        assert not path.status.any()
    doubled = ld.forecast(ld.local_ar(order=1, k=4), 1.5e308 * 0.5 ** np.arange(40.0)[::-1], steps=2)
    assert doubled.status.tolist() == [Status.NOT_FINITE] * 2
    assert doubled.values.isnan().all()


def test_a_backtest_prefers_the_order_of_the_process():
    found = ld.backtest("local-ar", waves(200), steps=20, grid={"order": [1, 4], "k": [12]}, origins=10)
    assert dict(found.best.parameters)["order"] == 4
    assert found.table["error"].to_pylist()[1] < 1e-10
    assert found.table.num_rows == 2
    title, head, best, *_ = str(found).splitlines()
    assert "2 settings" in title
    assert head.split()[-1] == "order"
    assert best.split()[-1] == "4"
    again = ld.backtest("local-ar", waves(200), steps=20, grid={"order": [4], "k": [12]}, past=True)
    assert again.trials[0][1].value < 1e-8


def test_one_step_of_a_backtest_is_leave_one_out():
    """Nothing that contains the value that is asked for, as a target or in a key, is a neighbor."""
    series, order = noisy(60), 2
    keys, targets = delayed(series, order, 1, 1)
    times = np.arange(len(keys)) + order - 1  # of the newest value of each key
    errors = []
    for row, time in enumerate(times):
        apart = (times + 1 < time + 1) | (times - order + 1 > time + 1)
        model = KNeighborsRegressor(4).fit(keys[apart], targets[apart])
        errors.append((model.predict(keys[[row]])[0] - targets[row]) ** 2)
    found = ld.backtest(ld.local_ar(order=order, model="knn", k=4), series, steps=1, origins=1000)
    assert (
        found.origins == len(errors) - 1
    )  # the first key has no whole window before the times that are asked
    np.testing.assert_allclose(found.trials[0][1].value, np.mean(errors[1:]) / series.var(), rtol=1e-9)


def test_many_series_at_once_are_each_as_alone():
    several = np.stack([noisy(90, seed) for seed in range(5)])
    method = ld.local_ar(order=3, k=10)
    together = ld.forecast(method, several, steps=4).values
    for series, row in zip(several, together, strict=True):
        np.testing.assert_allclose(ld.forecast(method, series, steps=4).values, row, rtol=1e-12)


def test_a_run_without_support_ends_with_a_status():
    gap = noisy(80)
    gap[-2] = np.nan
    method = ld.local_ar(order=3, k=8)
    assert ld.forecast(method, gap, steps=3).status.tolist() == [Status.BAD_QUERY] * 3
    assert ld.forecast(method, noisy(3), steps=2).status.tolist() == [Status.EMPTY] * 2
    apart = ld.local_ar(order=2, k=8, model="local-mean", kernel="epanechnikov", bandwidth=0.5)
    far = np.append(np.sin(np.arange(80.0)), [50.0, 51.0])
    path = ld.forecast(apart, far, steps=3)
    assert path.status.tolist() == [Status.EMPTY] * 3
    assert path.values.isnan().all()
    middle = noisy(80)
    middle[40] = np.nan  # windows with it are nobody's neighbors
    assert ld.forecast(method, middle, steps=3).values.isfinite().all()


def table(lengths: list[int]) -> pa.Table:
    names = np.repeat([f"s{number}" for number in range(len(lengths))], lengths)
    hours = pa.array(np.concatenate([np.arange(length) * 3600 for length in lengths]))
    values = np.concatenate([noisy(length, seed) for seed, length in enumerate(lengths)])
    return pa.table({"meter": names, "hour": hours.cast(pa.timestamp("s")), "load": values})


def test_files_to_files_series_that_go_over_partitions(tmp_path: Path):
    lengths = [50, 120, 1, 80]
    rows, method = table(lengths), ld.local_ar(order=3, k=8)
    (tmp_path / "loads").mkdir()
    for part in range(6):
        pq.write_table(rows.slice(part * 42, 42), tmp_path / f"loads/{part}.parquet")
    asked = {"target": "load", "time": "hour", "id": "meter", "steps": 4}
    report = ld.forecast(method, tmp_path / "loads", tmp_path / "out", **asked)
    assert (report.series, report.rows) == (4, 16)
    assert report.status == {"ok": 12, "bad_query": 4}
    found = pq.read_table(tmp_path / "out/part-00000.parquet")
    assert found["meter"].to_pylist() == np.repeat(["s0", "s1", "s2", "s3"], 4).tolist()
    assert found["step"].to_pylist() == [1, 2, 3, 4] * 4
    hours = found["hour"].cast(pa.int64()).to_numpy(zero_copy_only=False) // 3_600_000
    np.testing.assert_array_equal(hours[[0, 3, 4, 15]], [50, 53, 120, 83])
    assert found["hour"].is_null().to_pylist()[8:12] == [True] * 4
    for number, (seed, length) in enumerate(zip(range(4), lengths, strict=True)):
        if length > 1:
            alone = ld.forecast(method, noisy(length, seed), steps=4).values
            np.testing.assert_allclose(found["prediction"].to_numpy()[4 * number : 4 * number + 4], alone)
    shuffled = pa.concat_tables([rows.slice(0, 50).take(list(range(49, -1, -1))), rows.slice(50)])
    here = ld.forecast(method, shuffled, **asked)  # within a series the time decides
    assert here["prediction"].to_pylist() == found["prediction"].to_pylist()


def test_rows_of_a_series_that_are_apart_are_refused(tmp_path: Path):
    rows = table([30, 30])
    mixed = rows.take([row for pair in zip(range(30), range(30, 60), strict=True) for row in pair])
    pq.write_table(mixed, tmp_path / "mixed.parquet")
    asked = {"target": "load", "time": "hour", "id": "meter", "steps": 2}
    with pytest.raises(DataError, match="Sort the data"):
        ld.forecast("local-ar", tmp_path / "mixed.parquet", tmp_path / "out", **asked)
    with pytest.raises(DataError, match="different times"):
        ld.forecast("local-ar", rows, target="load", time="hour", steps=2)
    late = pa.table({"load": noisy(30), "hour": [float(hour) for hour in range(29)] + [np.nan]})
    with pytest.raises(DataError, match="1 nan"):
        ld.forecast("local-ar", late, target="load", time="hour", steps=2)
    with pytest.raises(UsageError, match="local mean"):
        ld.local_ar(model="local-vote")
    with pytest.raises(UsageError, match="order"):
        ld.local_ar(order=0)


def test_memory_is_declared_for_all_ids_and_for_the_targets_of_direct_steps(tmp_path: Path):
    job = ForecastJob(Store.at(tmp_path), requested("local-ar", table([30, 30]), 2, "load", None, "meter"), 0)
    (task,) = job.next_stage({}).tasks
    found = {task.name: Record(inputs=list(task.inputs), bytes={task.outputs[0]: 1000})}
    assert job.next_stage({FIND: found}).resources.memory == MEASURED.base + 3000
    runs, direct = (forecast_cost(ld.local_ar(direct=each), 1000, 50).memory for each in (False, True))
    assert direct - runs == 8 * 1000 * 2 * 49
