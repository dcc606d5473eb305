"""Multiscale GWR: the reference results of mgwr for Georgia, and mgwr itself beside it."""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import torch
from numpy.typing import NDArray

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.execute.threads import process_limited
from locdist.jobs.backfit import Backfitted
from locdist.local.answers import Status

DATA = Path(__file__).parents[2].parent / "shared/data/gwr"
NAMES = ["PctFB", "PctBlack", "PctRural"]
TERMS = ["intercept", *NAMES]
ENP = [3.844671080264143, 3.513770805151652, 2.2580525278898254, 1.7517564593926895]
Array = NDArray[np.float64]


@cache
def georgia() -> pa.Table:
    if not (DATA / "georgia").exists():
        pytest.skip("the data of GWR software are not beside this repository")
    return pyarrow.csv.read_csv(DATA / "georgia/GData_utm.csv")


def columns(table: pa.Table, names: list[str]) -> Array:
    return np.column_stack([table[name].to_numpy().astype(float) for name in names])


def standardized(values: Array) -> Array:
    return (values - values.mean(axis=0)) / values.std(axis=0)


@cache
def reference(suffix: str = "") -> Array:
    table = pyarrow.csv.read_csv(DATA / "georgia_mgwr_results.csv")
    return columns(table, [f"X{number}{suffix}" for number in range(4)])


@cache
def fitted() -> Backfitted:
    table = georgia()
    places, features, target = (columns(table, names) for names in (["X", "Y"], NAMES, ["PctBach"]))
    model = ld.mgwr(low=2, high=159)
    return ld.backfit(model, ld.Exact(places, standardized(target)[:, 0], features=standardized(features)))


def test_bandwidths_and_criteria_are_those_of_mgwr():
    found = fitted().scales
    assert found.bandwidths == (92, 101, 136, 158)
    assert found.together == 117
    assert found.rests
    np.testing.assert_allclose(found.enp, ENP, rtol=1e-10)
    told = [found.aicc, found.rss, sum(found.enp)]
    np.testing.assert_allclose(told, [297.12013812258783, 50.899379467870425, 11.36825087269831], rtol=1e-12)


def test_coefficients_their_errors_and_values_are_those_of_mgwr():
    sites = fitted().sites
    np.testing.assert_allclose(sites.coefficients, reference(), atol=1e-12)
    np.testing.assert_allclose(sites.errors, reference("_bse"), rtol=1e-10)
    np.testing.assert_allclose(sites.ratios, reference("_tvalues"), rtol=1e-8)
    significant = np.abs(sites.ratios.numpy()) >= fitted().scales.critical
    np.testing.assert_array_equal(significant, reference("_filter_tvalues") != 0)
    told = pyarrow.csv.read_csv(DATA / "georgia_mgwr_results.csv")
    np.testing.assert_allclose(sites.values, told["predy"], atol=1e-12)
    np.testing.assert_allclose(sites.residuals, told["resid_response"], atol=1e-4)


def test_at_a_site_its_value_is_predicted_but_for_what_the_last_sweep_moved():
    table = georgia()
    places, features = columns(table, ["X", "Y"]), standardized(columns(table, NAMES))
    answers = fitted().predict(places, features)
    np.testing.assert_allclose(answers.values[:, 0], fitted().sites.values, atol=1e-4)
    assert not answers.status.any()


def test_a_job_tells_the_same_in_the_units_of_the_data(tmp_path: Path):
    table = georgia()
    roles = {"key": ["X", "Y"], "features": NAMES, "target": "PctBach", "id": "AreaKey"}
    support = ld.dataset(table, scaling={"key": "none"}, **roles)
    report = ld.backfit(ld.mgwr(low=2), support, tmp_path / "out")
    scales = ld.scales(tmp_path / "out")
    assert scales.terms == tuple(TERMS)
    assert scales.bandwidths == fitted().scales.bandwidths
    np.testing.assert_allclose(scales.aicc, fitted().scales.aicc, rtol=1e-11)
    found = pa.parquet.read_table(tmp_path / "out/part-00000.parquet")
    target, features = columns(table, ["PctBach"]), columns(table, NAMES)
    units = np.append(1.0, 1 / features.std(axis=0)) * target.std()
    slopes = columns(found, [f"estimate_{name}" for name in NAMES])
    np.testing.assert_allclose(slopes, reference()[:, 1:] * units[1:], atol=1e-10)
    levels = columns(found, ["estimate_intercept"])[:, 0]
    np.testing.assert_allclose(levels, reference()[:, 0] * target.std() + target.mean(), atol=1e-9)
    np.testing.assert_allclose(
        columns(found, [f"error_{name}" for name in TERMS]), reference("_bse") * units, 1e-9
    )
    np.testing.assert_allclose(
        columns(found, [f"t_{name}" for name in TERMS]), reference("_tvalues"), rtol=1e-7
    )
    truth = found["prediction"].to_numpy() + found["residual"].to_numpy()
    np.testing.assert_allclose(truth, target[:, 0], rtol=1e-12)
    np.testing.assert_allclose(report.diagnostics.enp, sum(ENP), rtol=1e-9)
    np.testing.assert_allclose(found["influence"].to_numpy().sum(), sum(ENP), rtol=1e-9)


def made(rows: int) -> tuple[Array, Array, Array]:
    """Places, features and targets: one coefficient varies over the map, the other is the same everywhere."""
    rng = np.random.default_rng(0)
    places, features = rng.uniform(0, 10, (rows, 2)), rng.normal(size=(rows, 2))
    local = np.sin(places[:, 0]) * features[:, 0] + features[:, 1]
    return places, features, local + 0.3 * rng.normal(size=rows)


@pytest.mark.parametrize("kernel, fixed", [("bisquare", False), ("gaussian", True)])
def test_mgwr_finds_the_same_on_other_data(kernel: str, fixed: bool):
    gwr = pytest.importorskip("mgwr.gwr", reason="mgwr is the peer")
    search = pytest.importorskip("mgwr.sel_bw", reason="mgwr is the peer")
    places, features, target = made(50)
    features, target = standardized(features), standardized(target)
    choice = {"kernel": kernel, "fixed": fixed, "constant": True, "n_jobs": 1}
    selector = search.Sel_BW(places, target[:, None], features, multi=True, **choice)
    selector.search()
    theirs = gwr.MGWR(places, target[:, None], features, selector, sigma2_v1=True, **choice).fit()
    width = "fixed" if fixed else "nearest"
    ours = ld.backfit(ld.mgwr(kernel, width), ld.Exact(places, target, features=features))
    np.testing.assert_allclose(ours.scales.bandwidths, selector.bw[0], atol=0.005)  # it rounds distances
    tolerance = 1e-2 if fixed else 1e-10
    np.testing.assert_allclose(ours.sites.coefficients, theirs.params, atol=tolerance)
    np.testing.assert_allclose(ours.sites.errors, theirs.bse, atol=tolerance)
    np.testing.assert_allclose(ours.scales.aicc, theirs.aicc, rtol=tolerance)


def test_hat_matrices_make_the_parts_from_the_targets():
    """They are linear in the targets once bandwidths are known; blocks of columns are parts of one."""
    places, features, target = made(90)
    found = ld.backfit(ld.mgwr(), ld.Exact(places, target, features=features))
    rows, state, loop = found._rows, found._state, ld.mgwr().loop
    with process_limited(1):  # small operations on many threads wait for each other
        halves = [loop.columns(rows.sites, state, slice(*ends)) for ends in ((0, 40), (40, 90))]
    slopes, parts = (np.concatenate([half[place] for half in halves], axis=2) for place in (0, 1))
    np.testing.assert_allclose(parts @ rows.target.numpy(), state.parts, atol=1e-12)
    np.testing.assert_allclose(slopes @ rows.target.numpy(), state.coefficients, atol=1e-12)
    np.testing.assert_allclose((parts.sum(axis=1) @ rows.target.numpy())[:5], (rows.target - state.error)[:5])


def test_places_on_the_earth_are_as_far_apart_as_the_sphere_says():
    """Near the equator degrees are 111.19 km, so bandwidths and values are those of a plane of kilometres."""
    places, features, target = made(80)
    degrees, kilometres = places / 500, places / 500 * 6371 * np.pi / 180
    plane = ld.backfit(ld.mgwr(), ld.Exact(kilometres, target, features=features))
    earth = ld.backfit(ld.mgwr(), ld.Exact(degrees, target, features=features, metric="haversine"))
    assert earth.scales.bandwidths == plane.scales.bandwidths
    np.testing.assert_allclose(earth.sites.values, plane.sites.values, atol=1e-4)
    theirs = plane.predict(kilometres, features).values
    np.testing.assert_allclose(earth.predict(degrees, features).values, theirs, atol=1e-4)


def test_a_coefficient_that_is_the_same_everywhere_gets_a_wide_bandwidth():
    places, features, target = made(160)
    intercept, local, wide = ld.backfit(
        ld.mgwr(), ld.Exact(places, target, features=features)
    ).scales.bandwidths
    assert local < 60
    assert min(wide, intercept) > 120


def test_a_term_that_is_zero_around_a_site_is_flagged_there():
    places, features, target = made(80)
    features[:, 1] = np.where(places[:, 0] > 7, features[:, 1], 0.0)
    features[:, 1] -= features[:, 1].sum() / (places[:, 0] > 7).sum() * (places[:, 0] > 7)
    found = ld.backfit(
        ld.mgwr(bandwidth="fixed", high=2.0, tolerance=1e-3), ld.Exact(places, target, features=features)
    )
    assert set(found.sites.status.tolist()) == {Status.OK, Status.RANK_DEFICIENT}
    assert not found.sites.status[torch.tensor(places[:, 0] > 7)].any()
    assert found.sites.values.isfinite().all()
    assert found.predict(places, features).status.equal(found.sites.status)


def test_what_places_or_sweeps_lack_is_a_status(tmp_path: Path):
    places, features, target = made(40)
    method = ld.mgwr(bandwidth="fixed", sweeps=1)
    found = ld.backfit(method, ld.Exact(places, target, features=features))
    assert not found.scales.rests
    assert found.sites.status.tolist() == [Status.NOT_CONVERGED] * 40
    asked, terms = np.array([[5.0, 5], [1e6, 0], [np.nan, 0], [5, 5]]), features[:4].copy()
    terms[3, 0] = np.inf
    answers = found.predict(asked, terms)
    lost = [Status.EMPTY, Status.BAD_QUERY, Status.BAD_QUERY]
    assert answers.status.tolist() == [Status.NOT_CONVERGED, *lost]
    assert answers.values[:, 0].isfinite().tolist() == [True, False, False, False]
    assert found.predict(asked[:0], terms[:0]).values.shape == (0, 1)
    for wrong in ((asked[:, :1], terms), (asked, terms[:3]), (asked, terms[:, :1])):
        with pytest.raises(UsageError, match=r"places \[q, 2\] and features \[q, 2\]"):
            found.predict(*wrong)
    rows = dict(zip(["e", "n", "a", "b", "y"], (*places.T, *features.T, target), strict=True))
    support = ld.dataset(pa.table(rows), key=["e", "n"], features=["a", "b"], target="y")
    ld.backfit(method, support, tmp_path / "out")
    told = pa.parquet.read_table(tmp_path / "out/part-00000.parquet")["status"]
    assert told.to_pylist() == ["not_converged"] * 40


def test_ranges_of_bandwidths_are_checked_one_by_one_and_against_the_rows():
    for low in (0, 0.5, -3, True, np.nan):
        with pytest.raises(UsageError, match="low, a number of at least 1"):
            ld.mgwr(low=low)
    with pytest.raises(UsageError, match="high, a number over 0"):
        ld.mgwr(bandwidth="fixed", high=0.0)
    with pytest.raises(UsageError, match="5 to 5"):
        ld.mgwr(low=5, high=5)
    places, features, target = made(60)
    support = ld.Exact(places, target, features=features)
    with pytest.raises(UsageError, match="42 to 30"):
        ld.backfit(ld.mgwr(high=30), support)
    with pytest.raises(UsageError, match="60 to 60"):
        ld.backfit(ld.mgwr(low=60), support)
    with pytest.raises(UsageError, match="larger high"):
        ld.backfit(ld.mgwr(bandwidth="fixed", high=1e-9), support)


def test_what_cannot_be_fitted_is_refused():
    places, features, target = made(60)
    features[:, 1] = 3.0
    with pytest.raises(DataError, match="feature_1"):
        ld.backfit(ld.mgwr(), ld.Exact(places, target, features=features))
    with pytest.raises(UsageError, match="20,000"):
        ld.backfit(ld.mgwr(), ld.Exact(np.zeros((20_001, 2)), np.zeros(20_001)))
    with pytest.raises(UsageError, match="fixed"):
        ld.mgwr(bandwidth="adaptive")
    table = pa.table({"e": [0.0], "n": [0.0], "y": [1.0]})
    with pytest.raises(UsageError, match="features"):
        ld.backfit(ld.mgwr(), ld.dataset(table, key=["e", "n"], target="y"), "unused")
