"""`tune` from outside: files to files, in memory, on the command line and in a pipeline; what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.artefacts import packed
from locdist.data.keymap import KeyMap
from locdist.errors import DataError, UsageError
from locdist.execute.events import Tried
from locdist.jobs.chosen import read_map, read_method, write_method
from locdist.search.layout import MANIFEST
from tests.system.test_cli import cli

KEY = ["wide", "narrow", "idle", "kind"]


def rows(count: int, seed: int) -> pa.Table:
    """Targets that turn fast along one column, slowly along another, and not at all along a third."""
    rng = np.random.default_rng(seed)
    wide, narrow, idle = rng.uniform(-50, 50, count), rng.uniform(0, 0.1, count), rng.normal(size=count)
    kind = rng.choice(["a", "b"], count)
    noise = rng.normal(size=count) * np.where(wide > 0, 4.0, 1.0)  # not the same everywhere
    price = 100 + 20 * np.sin(wide / 12) + 40 * narrow + 5 * (kind == "a") + noise
    label = np.where(price > 100, "dear", "cheap")
    columns = {"wide": wide, "narrow": narrow, "idle": idle, "kind": kind, "price": price, "label": label}
    return pa.table({"name": np.arange(count) + 1000 * seed, **columns})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("tune")
    for name, count, seed in (("train", 700, 1), ("new", 2000, 2)):
        (root / name).mkdir()
        table = rows(count, seed)
        for part in range(2):
            pq.write_table(table.slice(part * count // 2, count // 2), root / name / f"part-{part}.parquet")
    return root


def support(world, **more):
    return ld.dataset(world / "train", key=KEY, target="price", id="name", **more)


@pytest.fixture(scope="module")
def tuned(world):
    heard = []
    found = ld.tune(support(world), world / "tuned.json", k=48, steps=60, listener=heard.append)
    assert [type(event) for event in heard] == [Tried, Tried]
    assert [(event.number, event.total) for event in heard] == [(1, 2), (2, 2)]
    return found


@pytest.fixture(scope="module")
def index(world, tuned):
    return ld.build_index(support(world, map=read_map(world / "tuned.json")), world / "index")


def test_the_columns_that_count_are_found(tuned):
    scales = tuned.scales
    assert list(scales)[-1] == "idle"
    assert scales["wide"] > 5 * scales["idle"]
    assert tuned.map.names == ("wide", "narrow", "idle", "kind=a", "kind=b")
    assert tuned.best.error < 4
    assert tuned.calibration is not None
    assert [trial.options["covariance"] for trial in tuned.trials] == ["matern32", "mix"]


def test_the_same_call_gives_the_same_numbers(world):
    few = {"covariance": "mix", "steps": 3, "k": 48}
    one, again, other = (ld.tune(support(world), **few, seed=seed) for seed in (0, 0, 1))
    assert (one.method, one.map) == (again.method, again.map)
    assert one.map != other.map


def test_a_file_holds_method_and_map(world, tuned):
    place = world / "tuned.json"
    assert read_method(place) == tuned.method
    assert read_map(place) == tuned.map
    told = json.loads(place.read_bytes())
    assert [trial["error"] for trial in told["why"]["trials"]] == [trial.error for trial in tuned.trials]
    place = world / "changed.json"
    place.write_bytes((world / "tuned.json").read_bytes().replace(b'"nugget": 0', b'"nugget": 1', 1))
    with pytest.raises(DataError, match="not what was written"):
        read_map(place)
    write_method(ld.knn(), world / "plain.json", {})
    with pytest.raises(DataError, match="a file with a map"):
        read_map(world / "plain.json")


def test_files_to_files_with_a_map_equal_arrays_in_memory(world, tuned, index):
    ld.predict(world / "tuned.json", index, world / "new", world / "pred", extras=["spread", "interval"])
    told = pq.read_table(world / "pred")
    table, queries = (pq.read_table(world / name) for name in ("train", "new"))
    plain = ld.build_index(support(world), world / "plain-index").key
    keys, at = (tuned.map.points(plain.encode(each)[0]) for each in (table, queries))
    answers = tuned.method(ld.Exact(keys, table["price"].to_numpy()), at, want=["spread"])
    np.testing.assert_allclose(told["prediction"], answers.values[:, 0], rtol=1e-9)
    np.testing.assert_allclose(told["spread"], answers.spread[:, 0], rtol=1e-7)
    reach = dict(tuned.method.intervals)[0.9] * told["spread"].to_numpy()
    np.testing.assert_allclose(told["lower"], told["prediction"].to_numpy() - reach, rtol=1e-12)
    np.testing.assert_allclose(told["upper"], told["prediction"].to_numpy() + reach, rtol=1e-12)
    error = told["prediction"].to_numpy() - queries["price"].to_numpy()
    flat = ld.predict(ld.local_gp(64), ld.open_index(world / "plain-index"), queries)
    assert np.std(error) < np.std(flat["prediction"].to_numpy() - queries["price"].to_numpy())


def test_intervals_hold_what_they_promise_where_noise_differs(world, tuned, index):
    queries = pq.read_table(world / "new")
    told = ld.predict(tuned.method, index, queries, extras=["interval", "interval=0.5", "interval=0.99"])
    price = queries["price"].to_numpy()
    for level, ending in ((0.9, ""), (0.5, "_0.5"), (0.99, "_0.99")):
        held = (told[f"lower{ending}"].to_numpy() <= price) & (price <= told[f"upper{ending}"].to_numpy())
        allowed = 0.015 + 3 * np.sqrt(level * (1 - level) * (1 / len(price) + 1 / 700))
        assert abs(held.mean() - level) < allowed, level
    held = (told["lower"].to_numpy() <= price) & (price <= told["upper"].to_numpy())
    width, error = told["upper"].to_numpy() - told["lower"].to_numpy(), price - told["prediction"].to_numpy()
    loud = queries["wide"].to_numpy() > 0
    assert np.median(width[loud]) > 2 * np.median(width[~loud])
    even = np.abs(error) < np.quantile(np.abs(error), 0.9)  # intervals of one width with the same coverage
    assert held[loud].mean() > even[loud].mean() + 0.02
    assert held[~loud].mean() < even[~loud].mean() - 0.02


def test_explained_coefficients_are_in_the_users_units_through_the_map(world, tuned):
    queries = pq.read_table(world / "new").slice(0, 20)
    plane = 7 + 2 * queries["wide"].to_numpy() - 300 * queries["narrow"].to_numpy()
    table = queries.set_column(queries.schema.get_field_index("price"), "price", pa.array(plane))
    mixing = [[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.3, 0.0, 1.0], [1.0, 1.0, 1.0]]
    for matrix in (mixing, [[2.0, 0, 0], [0, 0.5, 0], [0, 0, 1]]):
        mapped = ld.dataset(table, key=KEY[:3], target="price", map=matrix)
        at = world / f"mapped-{len(matrix)}"
        told = ld.predict(
            ld.local_linear(k=20, kernel="uniform"), ld.build_index(mapped, at), table, extras=["parameters"]
        )
        np.testing.assert_allclose(told["parameter_wide"], 2, rtol=1e-7)
        np.testing.assert_allclose(told["parameter_narrow"], -300, rtol=1e-7)
        np.testing.assert_allclose(told["parameter_idle"], 0, atol=1e-7)


def test_a_map_is_applied_to_keys_of_any_kind():
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(30, dtype=np.float32)), 3)
    table = pa.table({"at": vectors, "y": np.arange(10.0)})
    told = ld.predict(
        "knn", _indexed(table, key="at", target="y", map=[[0.0, 0, 2]]), table, extras=[], explain=2
    )
    assert told["neighbors"][0][1]["distance"].as_py() == pytest.approx(6.0)


def _indexed(table, tmp=None, **roles):
    import tempfile

    folder = tempfile.mkdtemp()
    return ld.build_index(ld.dataset(table, **roles), f"{folder}/index")


def test_maps_that_do_not_fit_are_refused(world, tuned):
    with pytest.raises(UsageError, match=r"a map of 3 columns.*one of 2"):
        ld.dataset(world / "train", key=KEY[:3], target="price", map=[[1.0, 0.0]])
    with pytest.raises(UsageError, match="a map of column 'narrow'; got one that was learned for 'wide'"):
        ld.dataset(world / "train", key=["narrow"], target="price", map=KeyMap(((1.0,),), ("wide",)))
    with pytest.raises(UsageError, match="a map of 5 columns"):  # known once the categories are
        ld.build_index(support(world, map=[[1.0, 1.0]]), world / "never")
    for wrong in ([], [[]], [[1.0], [1.0, 2.0]], [[float("nan")]], "map", [["a"]]):
        with pytest.raises(UsageError, match="a map as a matrix"):
            ld.dataset(world / "train", key="wide", target="price", map=wrong)


def test_an_index_of_before_there_were_maps_still_opens(world, tuned, tmp_path):
    layout = ld.build_index(support(world), tmp_path / "index").layout
    told = json.loads((tmp_path / "index" / MANIFEST).read_bytes())
    del told["checksum"], told["roles"]["map"], told["key"]["map"]
    (tmp_path / "index" / MANIFEST).write_bytes(packed(told))
    again = ld.open_index(tmp_path / "index")
    assert again.layout == layout
    assert "map" not in support(world).roles.to_json()


def test_other_methods_are_tuned_too(world):
    linear = ld.tune(support(world), method="local-linear", steps=60)
    assert linear.method.name == "local-linear"
    assert linear.method.layer.model.ridge > 0
    assert linear.best.error < 4
    vote = ld.tune(ld.dataset(world / "train", key=KEY, target="label"), method="local-vote", steps=60)
    assert vote.criterion == "LOO log-loss"
    assert vote.best.error < 0.3
    assert vote.method.intervals == ()
    mean = ld.tune(support(world), method="local-mean", k=32, steps=40, rank=[0, 1])
    assert [trial.options["rank"] for trial in mean.trials] == [0, 1]
    assert mean.method.layer.k == 32


def test_a_sample_is_learned_from_where_there_are_many_rows(world):
    found = ld.tune(support(world), method="local-mean", sample=200, steps=20)
    assert found.rows == 700
    assert 150 < found.sample < 250
    assert found.asked == found.sample


def test_what_cannot_be_tuned_is_refused(world):
    data = world / "train"
    for given, told in (
        ({"features": "idle"}, "features are its key"),
        ({"weight": "narrow"}, "rows weigh the same"),
        ({"map": [[1.0] * 5]}, "not mapped yet"),
    ):
        with pytest.raises(UsageError, match=told):
            ld.tune(support(world, **given))
    with pytest.raises(UsageError, match="metric 'l2'"):
        ld.tune(ld.dataset(data, key=KEY, target="price", metric="cosine"))
    with pytest.raises(UsageError, match="single target of numbers"):
        ld.tune(ld.dataset(data, key=KEY, target="label"))
    with pytest.raises(UsageError, match="Did you mean 'local-linear'"):
        ld.tune(support(world), method="local-liner")
    for options, told in (
        ({"covariance": "matern33"}, "Did you mean 'matern32'"),
        ({"rank": -1}, "rank, whole numbers"),
        ({"steps": []}, "steps, whole numbers"),
        ({"k": 0}, "k, a whole number"),
        ({"method": "local-mean", "covariance": "mix"}, "a covariance with method 'local-gp'"),
    ):
        with pytest.raises(UsageError, match=told):
            ld.tune(support(world), **options)
    with pytest.raises(UsageError, match=r"tuned for \(none\); got interval"):
        ld.predict("knn", ld.open_index(world / "index"), data, extras=["interval"])


def test_bad_rows_are_refused_or_dropped(world):
    table = rows(300, 3)
    gap = pa.array([None, *table["wide"].to_pylist()[1:]])
    table = table.set_column(table.schema.get_field_index("wide"), "wide", gap)
    data = ld.dataset(table, key=KEY, target="price")
    with pytest.raises(DataError, match="1 of 300 rows"):
        ld.tune(data, steps=5)
    assert ld.tune(data, method="local-mean", steps=5, bad="drop").rows == 299


def test_from_the_command_line(world, tuned, tmp_path):
    train, new, file = world / "train", world / "new", tmp_path / "tuned.json"
    key = ("--key", ",".join(KEY), "--target", "price")
    done = cli("tune", train, *key, "-k", 48, "--steps", 60, "--out", file)
    assert done.exit_code == 0, done.output
    assert "covariance=mix rank=0 steps=60" in done.stdout
    assert "best" in done.stdout
    assert read_method(file).parameters == tuned.method.parameters
    done = cli("index", train, *key, "--map", file, "--out", tmp_path / "index")
    assert done.exit_code == 0, done.output
    words = ("predict", tmp_path / "index", new, "--method", file, "--extras", "interval,interval=0.5")
    done = cli(*words, "--out", tmp_path / "pred")
    assert done.exit_code == 0, done.output
    told = pq.read_table(tmp_path / "pred")
    assert {"lower", "upper", "lower_0.5", "upper_0.5"} <= set(told.column_names)
    asked = json.loads((tmp_path / "pred/_locdist/manifest.json").read_bytes())["request"]
    assert asked["method"] == tuned.method.spec  # the numbers are pinned, not the file
    assert cli(*words, "-k", 32, "--out", tmp_path / "pred-32").exit_code == 0
    done = cli("index", train, *key, "--out", tmp_path / "unmapped")
    done = cli("predict", tmp_path / "unmapped", new, "--method", file, "--out", tmp_path / "lost")
    assert done.exit_code == 2
    assert "the map of the key that this local-gp was learned with" in done.output
    assert "a key without a map" in done.output
    done = cli("index", train, "--key", "wide", "--target", "price", "--map", file, "--out", tmp_path / "no")
    assert done.exit_code == 2
    assert "a map of 1 columns" in done.output
    done = cli("transform", train, *key, "--map", file, "-m", file, "--out", tmp_path / "fit")
    assert done.exit_code == 0, done.output


def test_in_a_pipeline(world, tuned, tmp_path):
    content = {
        "version": 1,
        "support": {
            "path": str(world / "train"), "key": KEY, "target": "price", "map": str(world / "tuned.json")
        },
        "queries": {"path": str(world / "new")},
        "index": {"path": str(tmp_path / "index")},
        "steps": [
            {
                "predict": {
                    "method": str(world / "tuned.json"), "out": str(tmp_path / "pred"),
                    "extras": ["interval", "interval=0.8"],
                }
            }
        ],
    }  # fmt: skip
    pipeline = ld.Pipeline.of(content)
    pipeline.run()
    told = pq.read_table(tmp_path / "pred")
    direct = ld.predict(tuned.method, tmp_path / "index", world / "new", extras=["interval"])
    assert told["lower"].equals(direct["lower"])
    assert ld.Pipeline.read(tmp_path / "pred/_locdist/pipeline.yaml").file == pipeline.file
    changed = ld.Pipeline.of(
        content, ["steps.predict.method={name: " + str(world / "tuned.json") + ", k: 9}"]
    )
    assert changed.file.steps[0].content.method.k == 9
    with pytest.raises(UsageError, match="no file"):
        ld.Pipeline.of(content, ["support.map=" + str(tmp_path / "none.json")])


def test_a_method_keeps_its_intervals_and_knows_its_map():
    method = replace(ld.local_linear(), intervals=((0.9, 2.0),))
    assert read_method(method.spec) == method
    mapped = replace(method, map=KeyMap(((1.0,),)).fingerprint)
    assert read_method(mapped.spec) == mapped
    assert KeyMap(((1.0,),)).fingerprint != KeyMap(((1.0,),), ("a",)).fingerprint
    with pytest.raises(UsageError, match="pairs"):
        replace(ld.local_linear(), intervals=((1.5, 2.0),))
