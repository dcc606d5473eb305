"""Geographically weighted regression: published numbers of FastGWR, and the hat matrix made densely."""

import io
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from numpy.typing import NDArray

import locdist as ld

DATA = Path(__file__).parents[2].parent / "shared/data/gwr_zillow"
PUBLISHED = {  # gwr_zillow/SOURCE.txt: k, AICc, ENP, R2
    "zillow_5k.csv": (121, 61867.18296256346, 528.262221238, 0.7741417970962883),
    "zillow_20k.csv.xz": (128, 246309.68704617335, 1984.7000479255407, 0.7655872633750118),
}


def zillow(name: str) -> pa.Table:
    content = (DATA / name).read_bytes()
    content = lzma.decompress(content) if name.endswith(".xz") else content
    return pyarrow.csv.read_csv(io.BytesIO(content))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_diagnostics(name: str, tmp_path: Path):
    if not (DATA / name).exists():
        pytest.skip(f"{name} of FastGWR's validation data is not beside this repository")
    k, *published = PUBLISHED[name]
    columns = {"key": ["utmX", "utmY"], "features": ["nbaths", "nbeds", "area", "age"], "target": "value"}
    support = ld.dataset(zillow(name), scaling="none", **columns)
    told = ld.transform(ld.gwr(k), support, tmp_path / "out").diagnostics
    np.testing.assert_allclose([told.aicc, told.enp, told.r2], published, rtol=1e-11)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_search_that_is_not_told_the_range_finds_a_bandwidth_no_worse_than_the_published(name: str):
    if not (DATA / name).exists():
        pytest.skip(f"{name} of FastGWR's validation data is not beside this repository")
    columns = {"key": ["utmX", "utmY"], "features": ["nbaths", "nbeds", "area", "age"], "target": "value"}
    found = ld.select("gwr", ld.dataset(zillow(name), scaling="none", **columns))
    assert min(trial.score.value for trial in found.trials) <= PUBLISHED[name][1] * (1 + 1e-11)
    assert len(found.trials) < 60


def sites(rows: int, repeated: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates [n, 2], some of them of two sites, features [n, 2] and targets [n]."""
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1000, (rows, 2))
    places[:repeated] = places[repeated : 2 * repeated]
    features = np.column_stack([rng.poisson(3, rows), rng.normal(1500, 400, rows)])
    return places, features, places[:, 0] * features[:, 0] / 100 + features[:, 1] / 50 + rng.normal(size=rows)


def hat_matrix(
    places: NDArray[np.float64], features: NDArray[np.float64], k: int, kernel: str
) -> NDArray[np.float64]:
    """Row i: x_i' (X' W_i X)^-1 X' W_i, with the bandwidth 1.0000001 times the k-th distance, itself counted.

    GWR software lets all sites weigh; the bisquare kernel lets only k of them anyway.
    """
    design = np.column_stack([np.ones(len(features)), features])
    away = np.linalg.norm(places[:, None] - places, axis=2)
    u = away / (1.0000001 * np.sort(away, axis=1)[:, k - 1 : k])
    shape = {"bisquare": np.where(u < 1, (1 - u**2) ** 2, 0), "tricube": np.where(u < 1, (1 - u**3) ** 3, 0)}
    rows = [
        x @ np.linalg.solve((design * w[:, None]).T @ design, (design * w[:, None]).T)
        for x, w in zip(design, shape[kernel], strict=True)
    ]
    return np.array(rows)


@pytest.mark.parametrize("kernel", ["bisquare", "tricube"])
@pytest.mark.parametrize("repeated", [0, 40], ids=["all apart", "two sites at one place"])
def test_diagnostics_of_the_dense_hat_matrix(kernel: str, repeated: int, tmp_path: Path):
    places, features, y = sites(400, repeated)
    columns = {"east": places[:, 0], "north": places[:, 1], "rooms": features[:, 0], "area": features[:, 1]}
    table = pa.table({**columns, "price": y})
    roles = {"key": ["east", "north"], "features": ["rooms", "area"], "target": "price"}
    report = ld.transform(ld.gwr(60, kernel), ld.dataset(table, scaling="none", **roles), tmp_path / "out")
    hat, n = hat_matrix(places, features, 60, kernel), len(y)
    rss, enp = float(((y - hat @ y) ** 2).sum()), float(np.trace(hat))
    aicc = n * np.log(rss / n) + n * np.log(2 * np.pi) + n * (n + enp) / (n - 2 - enp)
    told = report.diagnostics
    expected = [n, rss, rss / n, 1 - rss / (n * y.var()), enp, aicc]
    np.testing.assert_allclose([told.n, told.rss, told.sigma2, told.r2, told.enp, told.aicc], expected, 1e-9)
    fit = ld.transform(ld.gwr(60, kernel), ld.dataset(table, scaling="none", **roles))["prediction"]
    np.testing.assert_allclose(fit, hat @ y, 1e-9)


def test_scaling_changes_neither_fit_nor_diagnostics_of_the_features(tmp_path: Path):
    """Least squares does not care in which units its features are; distances do, so the key is not scaled
    unevenly here.
    """
    places, features, y = sites(300, 0)
    places = (places - places.mean(axis=0)) / places.std(axis=0)
    table = pa.table({"e": places[:, 0], "n": places[:, 1], "a": features[:, 0], "b": features[:, 1], "y": y})
    told = [
        ld.transform(
            ld.gwr(50),
            ld.dataset(table, key=["e", "n"], features=["a", "b"], target="y", scaling=scaling),
            tmp_path / scaling,
        ).diagnostics
        for scaling in ("none", "standard")
    ]
    np.testing.assert_allclose(
        [told[0].enp, told[0].aicc, told[0].r2], [told[1].enp, told[1].aicc, told[1].r2], 1e-5
    )


def test_without_a_trace_there_is_no_aicc(tmp_path: Path):
    """Leave-one-out methods have no row of their own in their hat matrix."""
    table = pa.table({"e": np.arange(50.0), "y": np.sin(np.arange(50.0))})
    told = ld.transform(ld.knn(4), ld.dataset(table, key="e", target="y"), tmp_path / "out").diagnostics
    assert (told.n, told.enp, told.aicc) == (50, None, None)
