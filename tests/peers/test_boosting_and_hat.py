"""Boosted smoothers, and what the hat matrix of any linear smoother tells of its fit."""

import numpy as np
import pyarrow as pa
import pytest

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import WANTS, Status
from locdist.local.levels import among
from locdist.local.models import FREE
from locdist.methods.method import Method
from locdist.methods.named import method

_RNG = np.random.default_rng(0)
N, D = 80, 2
X = _RNG.normal(size=(N, D))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(8, D))


def close(ours: object, theirs: object, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def rows_of(chosen: Method, at: np.ndarray) -> np.ndarray:
    """The smoother [q, n] over all rows."""
    answers = chosen(ld.Exact(X, Y), at, want=WANTS)
    rows = np.zeros((len(at), N))
    np.put_along_axis(rows, answers.ids.numpy(), answers.smoother.numpy(), axis=1)
    return rows


SMOOTHERS = {
    "mean": ld.local_mean(N, "gaussian", 0.5),
    "linear": ld.local_linear(N, "gaussian", 0.7, ridge=0.01),
    "quadric": ld.local_polynomial(N, "gaussian", 1.0, ridge=0.01),
}


@pytest.mark.parametrize("rounds", [0, 1, 4])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_boosting_smooths_the_residuals_of_all_rows_again(name, rounds):
    smoother, at = rows_of(SMOOTHERS[name], X), rows_of(SMOOTHERS[name], Q)
    value, residual = at @ Y, Y - smoother @ Y
    for _ in range(rounds):
        value, residual = value + at @ residual, residual - smoother @ residual
    answers = ld.boosted(SMOOTHERS[name], rounds)(ld.Exact(X, Y), Q, want=WANTS)
    assert (answers.status == Status.OK).all()
    close(answers.values[:, 0], value)
    misses = np.linalg.matrix_power(np.eye(N) - smoother, rounds + 1)
    for row, (ids, weights, own) in enumerate(
        zip(answers.ids.numpy(), answers.weights.numpy(), answers.smoother.numpy(), strict=True)
    ):
        freedom = weights @ (misses[ids] ** 2).sum(1)
        sigma2 = weights @ (misses[ids] @ Y) ** 2 / freedom
        close(answers.spread[row, 0], np.sqrt(sigma2 * (own**2).sum()))


def test_no_rounds_are_the_smoother_itself():
    for base in SMOOTHERS.values():
        close(ld.boosted(base, 0)(ld.Exact(X, Y), Q).values, base(ld.Exact(X, Y), Q).values, 1e-12)


def test_many_rounds_interpolate():
    """THEORY B1: as kernel ridge regression does without a ridge."""
    keys = np.linspace(0, 1, 30)[:, None]
    index = ld.Exact(keys, Y[:30])
    errors = [
        np.abs(
            ld.boosted(ld.local_mean(30, "gaussian", 0.03), rounds)(index, keys).values[:, 0].numpy() - Y[:30]
        ).max()
        for rounds in (0, 10, 100, 1000)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6 < errors[0]


def test_only_the_neighbors_of_the_query_take_part():
    answers = ld.boosted(ld.local_mean(20), 2)(ld.Exact(X, Y), Q, want=WANTS)
    for row, query in enumerate(Q):
        near = answers.ids[row].numpy()
        alone = ld.boosted(ld.local_mean(20), 2)(ld.Exact(X[near], Y[near]), query[None])
        close(answers.values[row], alone.values[0])


# --------------------------------------------------------------------------- the hat matrix

METHODS = {
    "local-mean": {"k": 30},
    "local-linear": {"k": 30, "ridge": 0.05},
    "local-polynomial": {"k": 40, "ridge": 0.05},
    "kernel-ridge": {"k": 30},
    "local-gp": {"k": 30},
    "barycenter": {"k": 12},
    "boosted": {"base": {"name": "local-mean", "k": 30}, "rounds": 2},
}


@pytest.mark.parametrize("name", METHODS)
def test_the_trace_of_the_hat_matrix_and_what_follows_from_it(name, tmp_path):
    chosen = method(name, {**METHODS[name], "own": True})
    hat = rows_of(chosen, X)
    support = ld.dataset({"key": X, "y": Y}, key="key", target="y")
    told = ld.transform(chosen, support, tmp_path / "out").diagnostics
    residual, own = Y - hat @ Y, hat.diagonal()
    rss, enp = (residual**2).sum(), own.sum()
    close([told.rss, told.enp], [rss, enp])
    close(told.gcv, N * rss / (N - enp) ** 2)
    close(told.aicc, N * (np.log(rss / N) + np.log(2 * np.pi) + (N + enp) / (N - 2 - enp)))
    free = 1 - own > FREE
    close(told.loo, np.sqrt(((residual / (1 - own))[free] ** 2).mean()))
    assert "GCV" in str(told)


@pytest.mark.parametrize("name", ["local-mean", "local-linear", "kernel-ridge"])
def test_the_closed_form_is_leave_one_out_where_no_bandwidth_depends_on_a_row(name, tmp_path):
    more = {"scales": 2.0} if name == "kernel-ridge" else {"bandwidth": 1.0}
    kernel = "uniform" if name == "kernel-ridge" else "gaussian"
    support = ld.dataset({"key": X, "y": Y}, key="key", target="y")
    counted = method(name, {"k": N, "kernel": kernel, "own": True, **more})
    told = ld.transform(counted, support, tmp_path / "counted").diagnostics
    if name == "kernel-ridge":  # its ridge is relative to the weights, which are fewer without a row
        more["ridge"] = 0.01 * N / (N - 1)
    left_out = ld.transform(method(name, {"k": N - 1, "kernel": kernel, **more}), support, tmp_path / "left")
    close(told.loo, np.sqrt(left_out.diagnostics.sigma2))
    assert left_out.diagnostics.enp is None


def test_rows_that_are_left_out_have_no_trace_even_when_they_are_explained(tmp_path):
    support = ld.dataset({"key": X, "y": Y}, key="key", target="y")
    told = ld.transform(ld.local_mean(20), support, tmp_path / "out", explain=3).diagnostics
    assert told.enp is None
    quantile = ld.transform(ld.local_quantile(20).counting(), support, tmp_path / "median").diagnostics
    assert (quantile.enp, quantile.n) == (None, N)


def test_a_method_that_counts_rows_is_told_and_explained(tmp_path):
    chosen = ld.local_linear(30).counting()
    assert chosen.spec["own"] is True
    assert method(chosen.spec) == chosen
    rows = {"east": X[:, 0], "north": X[:, 1], "y": Y}
    pa.parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    support = ld.dataset(tmp_path / "rows.parquet", key=["east", "north"], target="y")
    ld.transform(chosen, support, tmp_path / "out")
    told = ld.explain(tmp_path / "out", row=5)
    assert told.stored_equal
    assert told.neighbors[0].id == 5


def test_wrong_choices_are_refused():
    with pytest.raises(UsageError, match="rounds"):
        ld.boosted("local-mean", -1)
    with pytest.raises(UsageError, match="a linear smoother to boost"):
        ld.boosted("local-quantile")
    base = ld.local_linear(30, ridge=0.1)
    assert method(ld.boosted(base, 3).spec) == ld.boosted(base, 3)
    assert ld.boosted("local-linear", k=20).layer.k == 20


def test_weights_among_neighbors_are_rows_that_sum_to_one():
    import dataclasses

    import torch

    index = ld.Exact(X, Y)
    hood = index.gather(index.search(torch.from_numpy(Q), 15), frozenset({"keys"}))
    weights = among(ld.local_mean(15).layer.kernel, dataclasses.replace(hood))
    close(weights.sum(2), 1.0, 1e-12)
