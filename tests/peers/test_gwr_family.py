"""The GWR family beside mgwr and GWR4: listwise results, families, offsets, great circles, bandwidths."""

import csv
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import locdist as ld
from locdist.errors import UsageError

DATA = Path(__file__).parents[2].parent / "shared/data/gwr"
Array = NDArray[np.float64]
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the GWR test data are not beside this repository")


class Study(NamedTuple):
    """A data set of GWR4: its file, roles, and what the features are called."""

    file: str
    key: tuple[str, str]
    features: tuple[str, ...]
    target: str
    family: str
    offset: str | None = None


SLOPES = ("Elev", "Slope", "SinAspct", "CosAspct", "AbsSouth", "DistStrm")
TOWNS = ("OCC_TEC", "OWNH", "POP65", "UNEMP")
COUNTIES = ("PctRural", "PctPov", "PctBlack")
STUDIES = {
    "georgia": Study("georgia/GData_utm.csv", ("X", "Y"), COUNTIES, "PctBach", "gaussian"),
    "tokyo": Study("tokyo/Tokyomortality.csv", ("X_CENTROID", "Y_CENTROID"), TOWNS, "db2564", "poisson"),
    "clearwater": Study("clearwater/landslides.csv", ("X", "Y"), SLOPES, "Landslid", "binomial"),
}
STUDIES["exposure"] = STUDIES["tokyo"]._replace(offset="eb2564")
LONGLAT = STUDIES["georgia"]._replace(key=("Longitud", "Latitude"))


@cache
def rows(file: str) -> dict[str, Array]:
    """The columns of a table, numbers alone."""
    lines = (DATA / file).read_text().splitlines()
    table = list(csv.DictReader(lines, skipinitialspace=True))
    return {name: np.array([float(row[name]) for row in table]) for name in table[0] if name != "UserID"}


def table(study: Study) -> pa.Table:
    columns = rows(study.file)
    wanted = [*study.key, *study.features, study.target, *([study.offset] if study.offset else [])]
    columns = {name: columns[name] for name in wanted}
    if study.offset:
        columns["log_exposure"] = np.log(columns[study.offset])
    return pa.table(columns)


def dataset(study: Study, **more: object) -> object:
    offset = {"offset": "log_exposure"} if study.offset else {}
    roles = {"key": study.key, "features": study.features, "target": study.target, "scaling": {"key": "none"}}
    return ld.dataset(table(study), **roles | offset | more)


def method(study: Study, kernel: str, bandwidth: float) -> object:
    """As GWR software has it: a whole number is a number of neighbors, and all sites weigh."""
    n, adaptive = table(study).num_rows, isinstance(bandwidth, int)
    width = {"nearest": 1.0000001, "rank": bandwidth} if adaptive else bandwidth
    return ld.gwr(n, kernel, width, study.family)


def listed(study: Study, kernel: str, bandwidth: float, **more: object) -> dict[str, Array]:
    return numbers(
        ld.transform(method(study, kernel, bandwidth), dataset(study, **more), extras=["listwise"])
    )


def numbers(told: pa.Table) -> dict[str, Array]:
    return {
        name: told[name].to_numpy() for name in told.column_names if pa.types.is_floating(told[name].type)
    }


def terms(told: dict[str, Array], kind: str, study: Study) -> Array:
    return np.column_stack([told[f"{kind}_{name}"] for name in ("intercept", *study.features)])


def close(ours: Array, theirs: Array, rtol: float, atol: float = 0.0) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


# mgwr 2.2

FITS = [
    ("georgia", "bisquare", 90), ("georgia", "bisquare", 209267.689), ("georgia", "gaussian", 49),
    ("georgia", "gaussian", 87308.298), ("georgia", "exponential", 80000.0),
    ("tokyo", "bisquare", 50), ("tokyo", "gaussian", 8764.474), ("exposure", "bisquare", 100),
    ("clearwater", "bisquare", 158), ("clearwater", "gaussian", 8929.061),
]  # fmt: skip


@cache
def peer(name: str, kernel: str, bandwidth: float):
    gwr = pytest.importorskip("mgwr.gwr", reason="mgwr is not installed")
    from spglm.family import Binomial, Gaussian, Poisson

    study, columns = STUDIES[name], rows(STUDIES[name].file)
    family = {"gaussian": Gaussian, "poisson": Poisson, "binomial": Binomial}[study.family]()
    places = np.column_stack([columns[each] for each in study.key])
    features = np.column_stack([columns[each] for each in study.features])
    offset = columns[study.offset][:, None] if study.offset else None
    return gwr.GWR(places, columns[study.target][:, None], features, bandwidth, family, offset,
                   kernel=kernel, fixed=not isinstance(bandwidth, int), n_jobs=1)  # fmt: skip


@pytest.mark.parametrize("name, kernel, bandwidth", FITS)
def test_listwise_results_and_diagnostics_are_those_of_mgwr(name, kernel, bandwidth, tmp_path: Path):
    study, fit = STUDIES[name], peer(name, kernel, bandwidth).fit(tol=1e-12, max_iter=200)
    chosen, out = method(study, kernel, bandwidth), tmp_path / "out"
    found = ld.transform(chosen, dataset(study), out, extras=["listwise"]).diagnostics
    close(found.enp, fit.tr_S, 1e-6)
    close(found.aicc, fit.aicc, 1e-6)
    if study.family != "gaussian":
        close(found.deviance, fit.global_deviance, 1e-6)
    told = numbers(pq.read_table(out))
    close(terms(told, "estimate", study), fit.params, 1e-6, 1e-8)
    close(terms(told, "error", study), fit.bse, 1e-6)
    close(terms(told, "t", study), fit.tvalues, 1e-6, 1e-7)
    close(told["prediction"], fit.mu.ravel(), 1e-6)
    close(told["residual"], fit.resid_response.ravel(), 1e-6, 1e-7)
    close(told["influence"], fit.influ[:, 0], 1e-6)
    if study.family == "gaussian":
        close(told["standardized_residual"], fit.std_res[:, 0], 1e-6)
        close(told["cooks_d"], fit.cooksD[:, 0], 1e-6)
        close(told["local_r2"], fit.localR2[:, 0], 1e-6)
    if study.family == "poisson":
        close(told["local_r2"], fit.pDev[:, 0], 1e-5)
    _, inflation, condition, _ = fit.local_collinearity()
    close(told["condition"], condition[:, 0], 1e-6)
    close(np.column_stack([told[f"vif_{each}"] for each in study.features]), inflation, 1e-6)


@pytest.mark.parametrize("name, kernel, bandwidth", FITS[:3] + FITS[5:6])
def test_new_sites_are_predicted_as_mgwr_predicts_them(
    name: str, kernel: str, bandwidth: float, tmp_path: Path
):
    study, model = STUDIES[name], peer(name, kernel, bandwidth)
    whole = table(study)
    new = whole.slice(0, 20).set_column(
        0, study.key[0], pa.array(whole[study.key[0]].to_numpy()[:20] + 1234.5)
    )
    index = ld.build_index(dataset(study), tmp_path / "index")
    told = ld.predict(method(study, kernel, bandwidth), index, new, extras=["coefficients"])
    places, features = (
        np.column_stack([new[each] for each in names]) for names in (study.key, study.features)
    )
    found = model.predict(places, features, fit_params={"tol": 1e-12, "max_iter": 200})
    slopes = np.array(told["coefficients"].to_pylist())[:, 1:]
    close(slopes, found.params[:, 1:], 1e-6, 1e-8)
    if study.family == "gaussian":
        close(told["prediction"].to_numpy(), found.predictions.ravel(), 1e-6)
    else:
        close(
            np.log(told["prediction"].to_numpy()), (found.params * np.insert(features, 0, 1, 1)).sum(1), 1e-6
        )
    model.points = None


# GWR4, from its printed tables

GWR4 = [
    ("georgia", "BS_F", "bisquare", 209267.689), ("georgia", "BS_NN", "bisquare", 90),
    ("georgia", "GS_F", "gaussian", 87308.298), ("georgia", "GS_NN", "gaussian", 49),
    ("tokyo", "BS_F", "bisquare", 26029.625), ("tokyo", "BS_NN", "bisquare", 50),
    ("tokyo", "GS_F", "gaussian", 8764.474), ("tokyo", "GS_NN", "gaussian", 50),
    ("exposure", "BS_NN_OFF", "bisquare", 100),
    ("clearwater", "BS_F", "bisquare", 19642.170), ("clearwater", "BS_NN", "bisquare", 158),
    ("clearwater", "GS_F", "gaussian", 8929.061), ("clearwater", "GS_NN", "gaussian", 64),
]  # fmt: skip


@pytest.mark.parametrize("name, file, kernel, bandwidth", GWR4)
def test_listwise_results_have_the_printed_digits_of_gwr4(
    name: str, file: str, kernel: str, bandwidth: float
):
    study, place = STUDIES[name], STUDIES[name].file.partition("/")[0]
    printed, told = rows(f"{place}/{place}_{file}_listwise.csv"), listed(study, kernel, bandwidth)
    close(told["prediction"], printed["yhat"], 1e-4)
    names = {"intercept": "Intercept"} | {each: each for each in study.features}
    for ours, theirs in names.items():
        spread = np.abs(printed[f"est_{theirs}"]).max()
        close(told[f"estimate_{ours}"], printed[f"est_{theirs}"], 1e-4, 1e-4 * spread + 5.1e-7)
        error = told[f"error_{ours}"] * _variance(place, file)
        close(error, printed[f"se_{theirs}"], 1e-2, 1e-4 * spread + 5.1e-7)
    explained = printed["localR2" if study.family == "gaussian" else "localpdev"]
    if study.family != "binomial":
        close(told["local_r2"], explained, 1e-4, 1e-5)
    close(told["influence"], printed["influence" if study.family == "gaussian" else "Ginfluence"], 1e-3, 1e-5)


def _variance(place: str, file: str) -> float:
    """GWR4's variance of numbers is over n − 2 tr S + tr S'S, ours, as mgwr's, over n − tr S."""
    text = (DATA / f"{place}/{place}_{file}_summary.txt").read_text()
    freedoms = re.findall(r"Degree of freedom \((?:model|residual): .*\): +([\d.]+)", text)
    if place != "georgia":
        return 1.0
    model, residual = map(float, freedoms)
    return float(np.sqrt(model / residual))


def test_longitude_and_latitude_have_the_printed_digits_of_gwr4():
    printed = rows("ga_bs_nn_longlat_listwise.csv")
    told = listed(LONGLAT, "bisquare", 90, metric="haversine", scaling={"key": "none"})
    close(told["prediction"], printed["yhat"], 1e-5)
    for each in LONGLAT.features:
        close(told[f"estimate_{each}"], printed[f"est_{each}"], 1e-4, 1e-6)
    close(told["local_r2"], printed["localR2"], 1e-5)
    close(told["influence"], printed["influence"], 1e-4, 1e-6)


# the search for a bandwidth; numbers of mgwr's own tests

NEAR, FAR = {"k": (48, 159)}, {"bandwidth": "fixed"}
FOUND = [
    ("georgia", "bisquare", NEAR, "aicc", 93), ("georgia", "gaussian", NEAR, "aic", 50),
    ("georgia", "gaussian", NEAR, "bic", 62), ("georgia", "gaussian", NEAR, "loo", 68),
    ("georgia", "bisquare", FAR, "aicc", 211020.83), ("georgia", "gaussian", FAR, "aic", 76201.66),
    ("georgia", "gaussian", FAR, "bic", 1117795.47), ("georgia", "gaussian", FAR, "loo", 130289.26),
    ("tokyo", "bisquare", {"k": (50, 262)}, "aicc", 51),
    ("exposure", "bisquare", {"k": (50, 262)}, "aicc", 95),
]  # fmt: skip


def chosen(best: object) -> float:
    """The bandwidth of a method: neighbors, or a distance."""
    width = best.spec["bandwidth"]
    return width if isinstance(width, float) else width.get("rank", best.spec["k"])


@pytest.mark.parametrize("name, kernel, grid, criterion, bandwidth", FOUND)
def test_bandwidths_are_those_that_mgwr_finds(name, kernel, grid, criterion, bandwidth):
    grid = {key: ld.Between(*each) if isinstance(each, tuple) else each for key, each in grid.items()}
    spec = {"name": "gwr", "kernel": kernel, "family": STUDIES[name].family}
    found = ld.select(spec, dataset(STUDIES[name]), grid=grid, criterion=criterion)
    close(chosen(found.best), bandwidth, 1e-7)


def test_the_bandwidth_of_longitude_and_latitude_is_that_of_mgwr():
    support = dataset(LONGLAT, metric="haversine")
    assert ld.select("gwr", support, grid={"k": ld.Between(48, 159)}).best.spec["k"] == 92


def test_a_search_scores_what_transform_reports(tmp_path: Path):
    for name in ("georgia", "exposure"):
        found = ld.select({"name": "gwr", "family": STUDIES[name].family}, dataset(STUDIES[name]))
        told = ld.transform(found.best, dataset(STUDIES[name]), tmp_path / name).diagnostics
        close(min(trial.score.value for trial in found.trials), told.aicc, 1e-9)
        assert found.criterion == "aicc"
        assert found.sample == found.rows == table(STUDIES[name]).num_rows


# in files, with weights, and what is refused


def test_listwise_results_in_files_are_those_in_memory(tmp_path: Path):
    study = STUDIES["georgia"]
    pq.write_table(table(study).slice(0, 100), tmp_path / "a.parquet")
    pq.write_table(table(study).slice(100), tmp_path / "b.parquet")
    roles = {"key": study.key, "features": study.features, "target": study.target, "scaling": "none"}
    support = ld.dataset([str(tmp_path / f"{part}.parquet") for part in "ab"], **roles)
    fit = method(study, "bisquare", 90)
    report = ld.transform(fit, support, tmp_path / "out", keep=["X"], extras=["listwise", "effective"],
                          executor=ld.Local(2, processes=True))  # fmt: skip
    in_files = pq.read_table(tmp_path / "out")
    assert report.diagnostics.enp == pytest.approx(in_files["influence"].to_numpy().sum())
    assert in_files["X"].equals(table(study)["X"])
    in_memory = listed(study, "bisquare", 90)
    for name in set(in_memory) & set(in_files.column_names):
        close(in_files[name].to_numpy(), in_memory[name], 1e-9, 1e-12)
    again = ld.transform(fit, support, tmp_path / "out", keep=["X"], extras=["listwise", "effective"])
    assert again.rows == 159


def test_weights_of_rows_are_repetitions():
    """Estimates as from repeated sites, with a fixed bandwidth; their errors are those of weights."""
    study, whole = STUDIES["georgia"], table(STUDIES["georgia"])
    times = np.random.default_rng(0).integers(1, 4, whole.num_rows)
    weighted = whole.append_column("times", pa.array(times))
    repeated = whole.take(pa.array(np.repeat(np.arange(len(times)), times)))
    roles = {"key": study.key, "features": study.features, "target": study.target, "scaling": "none"}
    one, other = (
        ld.transform(
            ld.gwr(each.num_rows, "gaussian", 90000.0), ld.dataset(each, **roles | more), extras=["listwise"]
        )
        for each, more in ((weighted, {"weight": "times"}), (repeated, {}))
    )
    first = np.cumsum(times) - times
    for name in ("prediction", "estimate_intercept", "estimate_PctPov", "vif_PctPov", "local_r2"):
        close(one[name].to_numpy(), other[name].to_numpy()[first], 1e-7)


@pytest.mark.parametrize("fit", [ld.local_linear(20), ld.gwr(None, "gaussian", 1e5), ld.local_mean(9)])
def test_tables_that_a_method_does_not_have_are_refused(fit):
    with pytest.raises(UsageError, match="for listwise results"):
        ld.transform(fit, dataset(STUDIES["georgia"]), extras=["listwise"])
    with pytest.raises(UsageError, match="Did you mean 'poisson'"):
        ld.gwr(20, family="poison")
