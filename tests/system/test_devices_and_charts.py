"""Groups of devices, named estimators, and charts, files to files: as in memory, and the same again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import DataError, UsageError
from locdist.jobs.coupling.models import StoredModels
from locdist.jobs.coupling.planned import plan_apply, plan_couple
from locdist.jobs.status import status
from locdist.local.answers import Status
from locdist.methods.estimators import estimator_of
from tests.system.generated import parts, read
from tests.system.test_label import kill_at

ROWS, DEVICES = 360, 12
KINDS = np.array(["calm", "gusty", "wild"])
NAMES = [f"device {number:02}" for number in range(DEVICES)]
CITIES, LANDS = np.arange(DEVICES) // 4, np.append(np.zeros(DEVICES - 1, int), -1)
BAYES = {"name": "logifold", "estimator": "sklearn.naive_bayes.GaussianNB", "var_smoothing": 1e-6}


def table() -> pa.Table:
    """Rows of ten devices, in three sites, with a number, a class, and a weight; 0 for some."""
    rng = np.random.default_rng(0)
    owners, x = rng.integers(0, DEVICES - 2, ROWS), rng.normal(size=(ROWS, 2))
    kind = np.digitize(x @ [1, -1] + 0.3 * rng.normal(size=ROWS), [-0.7, 0.7])
    numbers = {"a": x[:, 0], "b": x[:, 1], "power": x @ [1, 2] + owners / 6, "owner": owners, "code": kind}
    words = {"device": np.array(NAMES)[owners], "kind": KINDS[kind], "site": rng.choice(list("nsw"), ROWS)}
    more = {"held": rng.random(ROWS) < 0.3, "w": rng.integers(0, 4, ROWS) / 2}
    return pa.table(numbers | words | more)


TABLE = table()
X = np.column_stack([TABLE["a"], TABLE["b"]])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in three files, and again in five in another order; groups and edges of the devices."""
    folder = tmp_path_factory.mktemp("devices")
    for name, order, count in (("rows", slice(None), 3), ("other", slice(None, None, -1), 5)):
        whole = TABLE.take(pa.array(np.arange(ROWS)[order]))
        (folder / name).mkdir()
        for part in range(count):
            pq.write_table(
                whole.slice(part * ROWS // count, ROWS // count), folder / name / f"{part}.parquet"
            )
    lands = [None if land < 0 else bool(land) for land in LANDS]
    groups = pa.table({"device": NAMES, "city": CITIES, "land": lands}).take(pa.array([*range(1, 12), 0]))
    pq.write_table(groups, folder / "groups.parquet")
    ring = {"source": NAMES, "target": NAMES[1:] + NAMES[:1]}
    pq.write_table(pa.table(ring), folder / "edges.parquet")
    pq.write_table(TABLE.slice(0, 30), folder / "shared.parquet")
    return folder


@contextmanager
def small(rows: int = 70) -> Iterator[None]:
    with (
        mock.patch("locdist.jobs.coupling.passes.rows_per_task", return_value=rows),
        mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=rows),
    ):
        yield


def rows_of(folder: Path, **roles: object) -> object:
    return ld.dataset(folder, key=["a", "b"], scaling="none", **roles)


def run(*words: object) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_groups_on_files_are_those_in_memory(place: Path, tmp_path: Path):
    """Two devices without rows, one in no land, and the table in another order than the names."""
    method = ld.dem_learn(mu=4.0, tolerance=1e-13)
    with small():
        support = rows_of(place / "rows", target="power", id="device", weight="w")
        report = ld.couple(method, support, place / "groups.parquet", tmp_path / "models")
        ld.apply(tmp_path / "models", place / "rows", tmp_path / "out", keep="device")
    groups = np.stack([CITIES, LANDS])
    weights = TABLE["w"].to_numpy()
    found = method(groups, TABLE["owner"].to_numpy(), X, TABLE["power"].to_numpy(), weights)
    assert (report.nodes, report.edges, report.rests) == (DEVICES, 2 * DEVICES - 1, True)
    assert report.objective == pytest.approx(found.objective, rel=1e-10)
    models = read(tmp_path / "models")
    assert models["device"].to_pylist() == NAMES
    told = [Status(code).name.lower() for code in found.status.tolist()]
    assert models["status"].to_pylist() == told
    assert told == ["ok"] * 10 + ["low_support"] * 2
    slopes = np.column_stack([models[name] for name in ("intercept", "coefficient_a", "coefficient_b")])
    np.testing.assert_allclose(slopes, found.values, atol=1e-10)
    expected = found.predict(TABLE["owner"].to_numpy(), X).values[:, 0]
    np.testing.assert_allclose(read(tmp_path / "out")["prediction"], expected, atol=1e-10)
    with small(50):
        support = rows_of(place / "other", target="power", id="device", weight="w")
        ld.couple(
            method, support, place / "groups.parquet", tmp_path / "other", ends=["device", "city", "land"]
        )
    np.testing.assert_allclose(read(tmp_path / "other")["coefficient_b"], slopes[:, 2], atol=1e-12)
    plan = plan_couple(method, support, place / "groups.parquet", tmp_path / "plan")
    assert [stage.name for stage in plan.stages] == ["profile", "gather-00000", "couple-00000", "nodes"]


def test_a_device_that_no_group_names_is_alone(place: Path, tmp_path: Path):
    support = rows_of(TABLE, target="power", id="device")
    some = pq.read_table(place / "groups.parquet").slice(0, 5)
    ld.couple(ld.dem_learn(1e6, tolerance=1e-12), support, some, tmp_path / "some")
    ld.couple(ld.dem_learn(0.0), support, some, tmp_path / "alone")
    with_groups, alone = (read(tmp_path / name)["intercept"].to_numpy() for name in ("some", "alone"))
    assert np.ptp(with_groups[1:4]) < 1e-3 < np.ptp(alone[1:4])
    np.testing.assert_allclose(with_groups[6:10], alone[6:10], atol=1e-8)


def test_groups_that_do_not_fit_are_refused(place: Path, tmp_path: Path):
    support = rows_of(place / "rows", target="power", id="device")
    twice = {"device": NAMES[:2] + NAMES[:1], "city": [0, 0, 1]}
    for wrong, groups, ends, error in (
        ("device of its own", twice, None, DataError),
        ("for each level", {"device": NAMES, "city": CITIES / 3}, None, UsageError),
        ("for each level", {"device": NAMES}, None, UsageError),
        ("a column of the data", {"device": NAMES, "city": CITIES}, ["device", "town"], UsageError),
        ("as the nodes", {"device": np.arange(12), "city": CITIES}, None, UsageError),
        ("edges between nodes, or groups", None, None, UsageError),
    ):
        with pytest.raises(error, match=wrong):
            ld.couple("dem-learn", support, groups, tmp_path / "out", ends=ends)
    with pytest.raises(UsageError, match="shared rows for FedRelax"):
        ld.couple("dem-learn", support, place / "groups.parquet", tmp_path / "out", shared=TABLE)


SPEC = {"name": "fed-relax", "estimator": "sklearn.tree.DecisionTreeRegressor", "max_depth": 3}
SPEC |= {"strength": 3, "rounds": 2}
TREES = [word for name in list(SPEC)[1:] for word in ("--param", f"{name}={SPEC[name]}")]


def test_estimators_are_named_on_the_command_line(place: Path, tmp_path: Path):
    """They have a `random_state` of 0, and give the bytes of those made in Python."""
    words = ["couple", place / "rows", place / "edges.parquet", "--key", "a,b", "--target", "power", "--node"]
    words += ["device", "--scaling", "none", "-m", "fed-relax", *TREES, "--shared", place / "shared.parquet"]
    names = [
        stage["name"] for stage in json.loads(run("plan", *words, "--out", tmp_path, "--json"))["stages"]
    ]
    assert names == ["profile", "sort", "round-00000", "nodes"]
    run(*words, "--param", "rounds=1", "--out", tmp_path / "cli", "-q")
    before = StoredModels.at(tmp_path / "cli", {**SPEC, "rounds": 1})
    run(*words, "--out", tmp_path / "cli", "--overwrite", "-q")
    assert StoredModels.at(tmp_path / "cli", SPEC).fingerprint != before.fingerprint
    trees = ld.fed_relax(DecisionTreeRegressor(max_depth=3, random_state=0), 3, rounds=2)
    support = rows_of(place / "rows", target="power", id="device")
    shared = place / "shared.parquet"
    ld.couple(trees, support, place / "edges.parquet", tmp_path / "python", shared=shared)
    assert parts(tmp_path / "cli") == parts(tmp_path / "python")
    asked = ["apply", tmp_path / "cli", place / "rows", "--out", tmp_path / "out", "-m", "fed-relax", *TREES]
    assert json.loads(run("plan", *asked, "--json"))["stages"][0]["rows"] == ROWS
    run(*asked, "-q")
    expected = ld.apply(tmp_path / "python", place / "rows", method=trees)
    assert read(tmp_path / "out")["prediction"].equals(expected["prediction"])
    with pytest.raises(UsageError, match="the method"):
        ld.apply(tmp_path / "cli", place / "rows")


class Boosted:
    """An estimator whose class takes any word, as those of XGBoost do."""

    def __init__(self, **words: object):
        self.words = {"depth": 6, "random_state": None} | words

    def get_params(self, deep: bool = True) -> dict[str, object]:
        return self.words

    def fit(self, rows: np.ndarray, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> object:
        return self

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(rows))


def test_a_named_estimator_draws_the_same_again():
    path = f"{__name__}.Boosted"
    assert estimator_of(path, {"depth": 2}).words == {"depth": 2, "random_state": 0}
    assert estimator_of(path, {"random_state": 7}).words["random_state"] == 7
    assert estimator_of(path, {"random_state": None}).words["random_state"] is None
    assert estimator_of("sklearn.tree.DecisionTreeRegressor").random_state == 0


def test_estimators_that_nobody_has_are_refused():
    for wrong, given in (
        ("package.module.Class", {}),
        ("package.module.Class", {"estimator": "Ridge"}),
        ("something to import", {"estimator": "sklearn.linear_model.Ridg"}),
        ("something to import", {"estimator": "no_such_library.Ridge"}),
        ("a class with fit, predict, get_params", {"estimator": "subprocess.Popen"}),
        ("a class with fit, predict, get_params", {"estimator": "sklearn.base.clone"}),
        ("'alpha'", {"estimator": "sklearn.linear_model.Ridge", "alhpa": 1}),
        ("'strength'", {"estimator": "sklearn.linear_model.Ridge", "strenght": 1}),
        ("sample_weight", {"estimator": "sklearn.neighbors.KNeighborsRegressor"}),
    ):
        with pytest.raises(UsageError, match=wrong):
            ld.couple(
                {"name": "fed-relax", **given}, rows_of(TABLE, target="power", id="device"), None, "out"
            )


def charts(place: Path, out: Path, method: object = BAYES, rows: str = "rows", **roles: object) -> object:
    with small():
        support = rows_of(place / rows, target="kind", weight="w", **roles)
        return ld.couple(method, support, None, out)


def answers(place: Path, models: Path, method: object = BAYES) -> pa.Table:
    return ld.apply(models, place / "rows", method=method, keep="kind")


def shares(found: pa.Table) -> np.ndarray:
    return np.column_stack([found[f"probability_{kind}"] for kind in KINDS])


@pytest.mark.parametrize("named", [True, False])
def test_charts_on_files_are_those_in_memory(place: Path, named: bool, tmp_path: Path):
    """Named by a column, and held out by one; or drawn by what rows say."""
    bayes = GaussianNB(var_smoothing=1e-6)
    method = ld.atlas(bayes, holdout="held", accuracy=0.8) if named else ld.atlas(bayes, 3, seed=5)
    report = charts(place, tmp_path / "models", method, id="site" if named else None)
    site = np.searchsorted(["n", "s", "w"], TABLE["site"].to_numpy()) if named else None
    held = TABLE["held"].to_numpy() if named else None
    found = method(X, TABLE["code"].to_numpy(), site, held, TABLE["w"].to_numpy())
    there = read(tmp_path / "models")
    assert there["site" if named else "chart"].to_pylist() == (["n", "s", "w"] if named else [0, 1, 2])
    limits = [float("inf") if limit is None else limit for limit in there["threshold"].to_pylist()]
    assert float("inf") not in there["threshold"].to_pylist()
    np.testing.assert_array_equal(limits, found.thresholds)
    ours, theirs = answers(place, tmp_path / "models", method), found(X)
    np.testing.assert_array_equal(shares(ours), theirs.values)
    assert ours["label"].to_pylist() == KINDS[theirs.values.argmax(1)].tolist()
    assert ours["status"].to_pylist() == [Status(code).name.lower() for code in theirs.status.tolist()]
    used = (TABLE["w"].to_numpy() > 0).sum()
    assert report.held_out == there["held_out"][0].as_py()
    assert sum(there["rows"].to_pylist()) + report.held_out == used
    assert (report.rows, report.bad_rows, report.charts) == (ROWS, 0, 3)


def test_names_of_charts_are_of_any_type_and_bad_rows_are_counted(tmp_path: Path):
    sites, whole = TABLE["site"], TABLE.drop(["site"])
    parts = [sites, sites.dictionary_encode(), sites.cast(pa.large_string())]
    parts += [pa.chunked_array([pa.array(TABLE["code"].to_numpy() << 40)])]
    for number, column in enumerate(parts):
        rows = whole.append_column("site", column)
        support = rows_of(rows, target="kind", id="site")
        ld.couple(BAYES, support, None, tmp_path / f"{number}")
        names = read(tmp_path / f"{number}")["site"].to_pylist()
        assert names == (["n", "s", "w"] if number < 3 else [0, 1 << 40, 2 << 40])
    holes = pa.array([None, "n", *TABLE["site"].to_pylist()[2:]])
    broken = whole.append_column("site", holes)
    support = rows_of(broken, target="kind", id="site")
    report = ld.couple(BAYES, support, None, tmp_path / "drop", bad="drop")
    assert (report.rows, report.bad_rows) == (ROWS, 1)
    with pytest.raises(DataError, match="null in 'site'"):
        ld.couple(BAYES, support, None, tmp_path / "raise")


@pytest.mark.parametrize("site", ["site", None])
def test_charts_do_not_depend_on_files(place: Path, site: str | None, tmp_path: Path):
    for name in ("rows", "other"):
        charts(place, tmp_path / name, rows=name, id=site)
    kept = [sorted((tmp_path / name / "_models").iterdir()) for name in ("rows", "other")]
    assert parts(tmp_path / "rows") == parts(tmp_path / "other")
    assert [file.read_bytes() for file in kept[0]] == [file.read_bytes() for file in kept[1]]
    assert len(kept[0]) == (3 if site else 8)
    other = charts(place, tmp_path / "seed", {**BAYES, "seed": 1}, id=site)
    assert parts(tmp_path / "seed") != parts(tmp_path / "rows")
    assert 0.1 < other.held_out / ROWS < 0.3


def test_without_rows_held_out_charts_are_averaged(place: Path, tmp_path: Path):
    """That is the average of scikit-learn's, each fitted on its rows; of one class a chart is certain."""
    rows = TABLE.set_column(TABLE.schema.get_field_index("w"), "w", pa.array(np.ones(ROWS)))
    odd = pa.array(np.where(TABLE["code"].to_numpy() == 1, "odd", TABLE["site"].to_numpy()))
    rows = rows.append_column("part", odd)
    method = {**BAYES, "holdout": 0}
    ld.couple(method, rows_of(rows, target="code", id="part"), None, tmp_path / "models")
    assert read(tmp_path / "models")["threshold"].to_pylist() == [0.0] * 4
    assert read(tmp_path / "models")["accuracy"].to_pylist() == [None] * 4
    expected = np.zeros((ROWS, 3))
    for part in ("n", "s", "w"):
        own = odd.to_numpy(False) == part
        fitted = GaussianNB(var_smoothing=1e-6).fit(X[own], TABLE["code"].to_numpy()[own])
        expected[:, [0, 2]] += fitted.predict_proba(X) / 4
    expected[:, 1] += 1 / 4
    found = ld.apply(tmp_path / "models", rows, method=method)
    ours = np.column_stack([found[f"probability_{code}"] for code in range(3)])
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_charts_that_are_no_good_have_a_status(place: Path, tmp_path: Path):
    """One whose rows are all held out; one that is never right often enough; a fit that fails."""
    held = pa.array((TABLE["site"].to_numpy() == "n") | TABLE["held"].to_numpy())
    rows = TABLE.append_column("out", held)
    method = ld.atlas(GaussianNB(), holdout="out", accuracy=1.0)
    report = ld.couple(method, rows_of(rows, target="kind", id="site"), None, tmp_path / "models")
    found = read(tmp_path / "models")
    assert found["status"].to_pylist() == ["empty", "ok", "ok"]
    assert report.status == {"empty": 1, "ok": 2}
    assert found["rows"][0].as_py() == 0
    assert found["accuracy"][0].as_py() is None
    assert found["threshold"].to_pylist()[0] is None
    queries = {"a": [0.0, np.nan, 9.0], "b": [0.0, 0.0, -9.0]}
    told = ld.apply(tmp_path / "models", queries, tmp_path / "out", method=method)
    answers = read(tmp_path / "out")
    assert answers["status"].to_pylist()[1] == "bad_query"
    assert answers["label"].to_pylist()[1:] == [None, "wild"]
    assert told.reasons == {"not finite in 'a'": 1}
    broken = {
        "name": "logifold",
        "estimator": "sklearn.linear_model.LogisticRegression",
        "solver": "newton-x",
    }
    report = ld.couple(broken, rows_of(rows, target="kind", id="site"), None, tmp_path / "broken")
    assert "solver" in report.notes[0]
    assert read(tmp_path / "broken")["status"].to_pylist() == ["not_finite"] * 3
    assert read(tmp_path / "broken")["accuracy"].to_pylist() == [None] * 3
    silent = ld.apply(tmp_path / "broken", queries, method=broken)
    assert silent["status"].to_pylist() == ["empty", "bad_query", "empty"]


def test_many_classes_are_a_list_that_is_scored(tmp_path: Path):
    """Whole numbers, more than have columns of their own; there is no index that knows them."""
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 25, 500)
    rows = pa.table({"x": kind + 0.1 * rng.normal(size=500), "kind": kind})
    support = ld.dataset(rows, key="x", target="kind")
    method = ld.atlas(GaussianNB(), 2)
    ld.couple(method, support, None, tmp_path / "models")
    ld.apply(tmp_path / "models", rows, tmp_path / "out", method=method, keep="kind")
    assert read(tmp_path / "out").column_names == ["kind", "label", "probability", "status"]
    assert ld.evaluate(tmp_path / "out").metrics["accuracy"] > 0.9


def test_what_does_not_fit_charts_is_refused(place: Path, tmp_path: Path):
    def fold(method: object = BAYES, rows: object = TABLE, edges: object = None, **roles: object) -> None:
        ld.couple(method, rows_of(rows, **{"target": "kind"} | roles), edges, tmp_path / "out")

    holes = TABLE.append_column("gap", pa.array([None, *[0] * (ROWS - 1)], pa.int8()))
    for error, wrong, given in (
        (UsageError, "without edges", {"edges": place / "edges.parquet"}),
        (UsageError, "'rows'", {"rows": TABLE.append_column("rows", TABLE["site"]), "id": "rows"}),
        (UsageError, "how many charts, or", {"method": {**BAYES, "charts": 3}, "id": "site"}),
        (UsageError, "one column of classes", {"target": "power"}),
        (UsageError, "at least two classes", {"rows": TABLE.slice(0, 1)}),
        (UsageError, "a column of 0 and 1", {"method": {**BAYES, "holdout": "site"}}),
        (UsageError, "held", {"method": {**BAYES, "holdout": "hold"}}),
        (UsageError, "hold out", {"method": {**BAYES, "holdout": 1.0}}),
        (UsageError, "one chart", {"method": {**BAYES, "charts": 0}}),
        (UsageError, "a seed", {"method": {**BAYES, "seed": 0.5}}),
        (UsageError, "accuracy", {"method": {**BAYES, "accuracy": 0}}),
        (UsageError, "random_state=0", {"method": ld.atlas(LogisticRegression())}),
        (DataError, "whether a row is held out", {"rows": holes, "method": {**BAYES, "holdout": "gap"}}),
        (DataError, "rows that are held out", {"method": {**BAYES, "holdout": 1e-9}}),
    ):
        with pytest.raises(error, match=wrong):
            fold(**given)
    number = np.arange(40_000)
    many = pa.table({"a": number, "b": number, "kind": KINDS[number % 2], "number": number})
    with pytest.raises(DataError, match="1 to 4,096 charts"):
        ld.couple(BAYES, rows_of(many, target="kind", id="number"), None, tmp_path / "many")
    assert not (tmp_path / "many/passing/sort").exists()  # a batch for each would take long
    for wrong, estimator in (
        ("sample_weight", KNeighborsClassifier()),
        ("predict_proba", DecisionTreeRegressor(random_state=0)),
    ):
        with pytest.raises(UsageError, match=wrong):
            ld.atlas(estimator)


def test_a_killed_run_of_charts_goes_on_to_the_same_bytes(place: Path, tmp_path: Path):
    from tests.system.interrupted import VERBS, small

    kill_at("fold", place, tmp_path / "out", "begun", "rows-00003.arrow")
    assert status(tmp_path / "out").state == "died"
    with small():
        VERBS["fold"](place, tmp_path / "out")
        VERBS["fold"](place, tmp_path / "calm")
        assert parts(tmp_path / "out") == parts(tmp_path / "calm")
        (tmp_path / "out" / "part-00002.parquet").unlink()
        VERBS["fold"](place, tmp_path / "out")
    assert parts(tmp_path / "out") == parts(tmp_path / "calm")
    assert not (tmp_path / "out/passing").exists()
    plan = plan_apply(tmp_path / "calm", place / "rows", tmp_path / "plan", method=BAYES)
    assert plan.stages[0].rows == ROWS


def test_the_command_line_folds_and_scores(place: Path, tmp_path: Path):
    how = ["-m", "logifold", "--param", f"estimator={BAYES['estimator']}", "--param", "var_smoothing=1e-6"]
    words = ["couple", place / "rows", "--key", "a,b", "--target", "kind", "--scaling", "none", *how]
    words += ["--weight", "w", "--out", tmp_path / "models"]
    planned = json.loads(run("plan", *words, "--json"))
    assert [stage["name"] for stage in planned["stages"]] == ["profile", "sort", "fit"]
    assert planned["stages"][2]["tasks"] == 8
    assert json.loads(run(*words, "-q", "--json"))["charts"] == 8
    assert json.loads(run("plan", *words, "--json"))["state"] == "finished"
    charts(place, tmp_path / "python")
    assert parts(tmp_path / "models") == parts(tmp_path / "python")
    asked = ["apply", tmp_path / "models", place / "rows", "--keep", "kind", "--out", tmp_path / "out", *how]
    assert json.loads(run(*asked, "-q", "--json"))["rows"] == ROWS
    scores = json.loads(run("evaluate", tmp_path / "out", "--target", "kind", "--json"))
    assert scores["metrics"]["accuracy"] > 0.8
    assert read(tmp_path / "out").equals(answers(place, tmp_path / "python"))
    assert "logifold" in run("methods")


TREE = "{name: fed-relax, estimator: sklearn.tree.DecisionTreeRegressor, max_depth: 3, rounds: 2}"
FILE = """
version: 1
support: {path: PLACE/rows/, key: [a, b], scaling: none, target: power, id: device}
queries: {path: PLACE/rows/}
steps:
  - couple:
      name: groups
      method: {name: dem-learn, mu: 4}
      edges: {path: PLACE/groups.parquet}
      out: OUT/groups/
  - couple:
      name: trees
      method: TREE
      edges: {path: PLACE/edges.parquet}
      shared: {path: PLACE/shared.parquet}
      out: OUT/trees/
  - apply: {name: guesses, models: {step: trees}, keep: [device], out: OUT/guesses/}
  - couple:
      method: {name: logifold, estimator: BAYES, var_smoothing: 1.0e-6}
      support: {path: PLACE/rows/, key: [a, b], scaling: none, target: kind, weight: w}
      out: OUT/charts/
  - apply: {models: {step: couple}, keep: [kind], out: OUT/votes/}
  - evaluate: {step: apply}
"""
AGAIN = """
version: 1
steps:
  - apply:
      models: {path: OUT/trees/}
      method: TREE
      queries: {path: PLACE/rows/}
      keep: [device]
      out: OUT/again/
"""


def test_a_pipeline_file_says_all(place: Path, tmp_path: Path):
    """A step of `apply` has the estimator of the step that it reads; that of a folder has to be told it."""
    file, out = tmp_path / "file.yaml", tmp_path / "out"
    whole, again = (
        text.replace("PLACE", str(place)).replace("TREE", TREE).replace("BAYES", BAYES["estimator"])
        for text in (FILE, AGAIN)
    )
    with small():
        file.write_text(whole.replace("OUT", str(out)))
        report = ld.Pipeline.read(file).run()
        file.write_text(again.replace("OUT", str(out)))
        ld.Pipeline.read(file).run()
        charts(place, tmp_path / "python")
        support = rows_of(place / "rows", target="power", id="device")
        ld.couple(ld.dem_learn(4), support, place / "groups.parquet", tmp_path / "groups")
    assert report.steps[-1].result.metrics["accuracy"] > 0.8
    assert parts(out / "charts") == parts(tmp_path / "python")
    assert parts(out / "groups") == parts(tmp_path / "groups")
    assert parts(out / "guesses") == parts(out / "again")
    assert read(out / "votes").equals(answers(place, out / "charts"))
    for old, new, wrong in (
        ("sklearn.tree.DecisionTreeRegressor", "tests.system.code.Mine", "of sklearn, xgboost"),
        ("max_depth", "max_deep", "max_depth"),
        (f"{place}/groups.parquet", f"{place}/edges.parquet", "a column of the groups"),
        (", id: device", "", "an id, and one target"),
    ):
        file.write_text(whole.replace(old, new).replace("OUT", str(tmp_path / "wrong")))
        with pytest.raises(UsageError, match=wrong):
            ld.Pipeline.read(file).run()
