"""Bandwidths that belong to rows, and products of kernels over columns: against formulas and peers."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import UsageError
from locdist.local.bandwidths import SamplePoint
from locdist.methods.named import method

Array = NDArray[np.float64]
_RNG = np.random.default_rng(0)
N = 300
X = _RNG.normal(size=(N, 3)) * np.where(_RNG.random((N, 1)) < 0.3, 3.0, 1.0)
Y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(20, 3))


def away(one: Array, other: Array) -> Array:
    return np.linalg.norm(one[:, None] - other, axis=2)


def own_reach(rank: int) -> Array:
    """Distance of each row to its own rank-th nearest other row."""
    return np.sort(away(X, X), axis=1)[:, rank]


def test_a_row_in_a_crowd_reaches_less_far():
    h = 2.0 * own_reach(5)
    weights = np.exp(-np.square(away(Q, X) / h) / 2) / h**3
    expected = weights @ Y / weights.sum(axis=1)
    chosen = ld.local_mean(N, "gaussian", {"sample-point": 5, "scale": 2.0})
    assert ld.local_mean(N, "gaussian", SamplePoint(5, 2.0)).layer == chosen.layer
    np.testing.assert_allclose(chosen(ld.Exact(X, Y), Q).values[:, 0], expected, rtol=1e-10)


def test_densities_of_sample_points_integrate_to_one():
    points = np.sort(_RNG.standard_t(2, 200))[:, None]
    grid = np.linspace(-200, 200, 400_001)[:, None]
    density = ld.kde(200, "epanechnikov", {"sample-point": 10})
    inside = density(ld.Exact(points), grid[::40]).values[:, 0].numpy()
    assert np.trapezoid(inside, dx=float(grid[40, 0] - grid[0, 0])) == pytest.approx(1, abs=2e-2)
    h = np.sort(np.abs(points - points.T), axis=1)[:, 10]
    u = (grid[200_000] - points[:, 0]) / h
    expected = (0.75 * np.clip(1 - u**2, 0, None) / h).mean()
    np.testing.assert_allclose(
        density(ld.Exact(points), grid[200_000:200_001]).values[0, 0], expected, rtol=1e-9
    )


@pytest.mark.parametrize("codes", ["exact", "flat"])
def test_files_know_the_reach_of_their_rows(codes: str, tmp_path: Path):
    table = pa.table({f"x{i}": X[:, i] for i in range(3)} | {"y": Y})
    support = ld.dataset(table, key=["x0", "x1", "x2"], target="y", scaling="none")
    index = ld.build_index(support, tmp_path / "index", codes=codes, nlist=None if codes == "exact" else 8)
    chosen = ld.local_linear(40, "tricube", {"sample-point": 6, "scale": 4.0})
    queries = pa.table({f"x{i}": Q[:, i] for i in range(3)})
    told = ld.predict(chosen, index, queries, recall=1.0)["prediction"]
    np.testing.assert_allclose(told, chosen(ld.Exact(X, Y), Q).values[:, 0], rtol=1e-9)


# products


def test_a_product_of_gaussians_has_a_bandwidth_for_each_column():
    widths = [0.5, 0.9, 1.7]
    groups = [{"columns": 1, "kernel": "gaussian", "bandwidth": width} for width in widths]
    for kind, make in (("lc", ld.local_mean), ("ll", ld.local_linear)):
        peer = sm.nonparametric.KernelReg(Y, X, "ccc", reg_type=kind, bw=widths, rng=np.random.default_rng(0))
        ours = make(N, {"product": groups})(ld.Exact(X, Y), Q).values[:, 0]
        np.testing.assert_allclose(ours, peer.fit(Q)[0], rtol=1e-7)


def test_groups_have_kernels_and_bandwidths_of_their_own():
    """Place by a bisquare kernel up to the farthest of 50 neighbors, time by an exponential one."""
    groups = [{"columns": 2, "kernel": "bisquare"}, {"columns": 1, "kernel": "exponential", "bandwidth": 0.7}]
    ids = np.argsort(away(Q, X), axis=1)[:, :50]
    for query, near, value in zip(Q, ids, ld.local_mean(50, {"product": groups})(ld.Exact(X, Y), Q).values,
                                  strict=True):  # fmt: skip
        place = np.linalg.norm(X[near, :2] - query[:2], axis=1)
        weights = (1 - np.square(place / (1.0000001 * place.max()))) ** 2
        weights = weights * np.exp(-np.abs(X[near, 2] - query[2]) / 0.7)
        np.testing.assert_allclose(value[0], weights @ Y[near] / weights.sum(), rtol=1e-10)


def test_the_density_of_a_product_is_the_product_estimate():
    groups = [{"columns": 1, "kernel": "gaussian", "bandwidth": width} for width in (0.5, 0.9, 1.7)]
    peer = sm.nonparametric.KDEMultivariate(X, "ccc", bw=[0.5, 0.9, 1.7], rng=np.random.default_rng(0))
    ours = ld.kde(N, {"product": groups}, None)(ld.Exact(X), Q).values[:, 0]
    np.testing.assert_allclose(ours, peer.pdf(Q), rtol=1e-9)


PRODUCT = {"product": [{"columns": 2, "bandwidth": 0.5}, {"columns": 1, "kernel": "gaussian"}]}


def test_a_product_is_a_spec_and_made_again_from_it():
    chosen = ld.local_mean(20, PRODUCT)
    assert method(json.loads(json.dumps(chosen.spec))) == chosen
    told = chosen.spec["kernel"]["product"]
    assert [group["kernel"] for group in told] == ["tricube", "gaussian"]


def test_products_are_given_on_the_command_line_and_in_files(tmp_path: Path):
    table = pa.table({f"x{i}": X[:, i] for i in range(3)} | {"y": Y})
    pq.write_table(table, tmp_path / "rows.parquet")
    support = ld.dataset(table, key=["x0", "x1", "x2"], target="y")
    index = ld.build_index(support, tmp_path / "index")
    expected = ld.predict(ld.local_mean(20, PRODUCT), index, table)["prediction"]
    words = ["predict", tmp_path / "index", tmp_path / "rows.parquet", "-q", "-k", 20]
    words += ["--kernel", json.dumps(PRODUCT), "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(pq.read_table(tmp_path / "out")["prediction"], expected)
    (tmp_path / "job.yaml").write_text(f"""
version: 1
index: {{path: {tmp_path}/index}}
queries: {{path: {tmp_path}/rows.parquet}}
steps:
  - predict:
      method: {{name: local-mean, k: 20, kernel: {json.dumps(PRODUCT)}}}
      out: {tmp_path}/yaml
""")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml"), "-q"])
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(pq.read_table(tmp_path / "yaml")["prediction"], expected)


@pytest.mark.parametrize(
    "kernel, said",
    [
        ({"product": []}, "groups of columns"),
        ({"product": [{"columns": 0}]}, "at least 1"),
        ({"product": [{"columns": 2}]}, "3 columns of the key"),
        ({"product": [{"column": 2}]}, "may have a bandwidth"),
        ({"produkt": [{"columns": 2}]}, "the name of a kernel"),
        ({"product": [{"columns": 3, "kernel": "dot-product"}]}, "a distance in a group"),
        ({"product": [{"columns": 3, "bandwidth": {"sample-point": 3}}]}, "a distance in a group"),
    ],
)
def test_a_product_that_says_nothing_is_refused(kernel: dict, said: str):
    with pytest.raises(UsageError, match=said):
        ld.local_mean(9, kernel)(ld.Exact(X, Y), Q)
