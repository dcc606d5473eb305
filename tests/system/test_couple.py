"""`couple` and `apply`, files to files: as in memory, on every executor, killed and continued: the same."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import DataError, UsageError
from locdist.jobs.apply import asked, stage_of
from locdist.jobs.asking.ask import Running
from locdist.jobs.coupling.fits import CHECKPOINT
from locdist.jobs.coupling.models import StoredModels
from locdist.jobs.coupling.planned import plan_couple
from locdist.jobs.coupling.relaxing import group_of
from locdist.jobs.status import status
from locdist.jobs.stored import StoredGraph
from locdist.local.answers import Status
from locdist.methods.federated import FedRelax
from tests.system.generated import parts, read
from tests.system.test_label import kill_at

NODES, ROWS = 24, 400
NAMES = [f"site {number:02}" for number in range(NODES)]
METHODS = {
    "norm": {"name": "gtvmin", "strength": 0.5, "ridge": 0.01},
    "squared": {"name": "gtvmin", "strength": 2.0, "coupling": "squared"},
    "logistic": {"name": "gtvmin", "family": "logistic", "coupling": "squared", "ridge": 0.1},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 22 nodes in three files, edges of a ring of 23, and of a node that stands apart."""
    folder, rng = tmp_path_factory.mktemp("couple"), np.random.default_rng(0)
    owners = rng.integers(0, NODES - 2, ROWS)
    x, kind = rng.normal([5, 1], [3, 0.1], (ROWS, 2)), rng.choice(["dry", "wet"], ROWS)
    price = x @ [1, 20] + 2 * (owners < 10) + 3 * (kind == "wet") + 0.1 * rng.normal(size=ROWS)
    table = pa.table(
        {
            "site": np.array(NAMES)[owners], "a": x[:, 0], "b": x[:, 1], "kind": kind, "price": price,
            "dear": (price > np.median(price)).astype(float), "w": rng.uniform(0.5, 2, ROWS),
        }
    )  # fmt: skip
    (folder / "rows").mkdir()
    for part in range(3):
        pq.write_table(table.slice(part * 134, 134), folder / f"rows/{part}.parquet")
    ring = np.arange(NODES - 1)
    ends = {"from": np.array(NAMES)[ring], "to": np.array(NAMES)[(ring + 1) % (NODES - 1)]}
    alone = {"from": [NAMES[-1]], "to": [NAMES[-1]], "much": [1.0]}
    edges = pa.concat_tables([pa.table(ends | {"much": np.full(NODES - 1, 0.5)}), pa.table(alone)])
    pq.write_table(edges, folder / "edges.parquet")
    return folder


ENDS = ["from", "to", "much"]


def couple(place: Path, out: Path, name: str = "norm", **more: object) -> object:
    target = "dear" if name == "logistic" else "price"
    support = ld.dataset(place / "rows", key=["a", "b", "kind"], target=target, id="site", weight="w")
    with mock.patch("locdist.jobs.coupling.passes.rows_per_task", return_value=100):
        return ld.couple(METHODS[name], support, place / "edges.parquet", out, ends=ENDS, **more)


@pytest.fixture(scope="module")
def models(place: Path) -> Path:
    """What one thread makes of the first method."""
    couple(place, place / "models", executor=ld.Local(1))
    return place / "models"


def here(place: Path, name: str) -> tuple[object, np.ndarray, np.ndarray]:
    """The models in memory, and rows as they see them."""
    rows = pq.read_table(place / "rows")
    numbers = np.column_stack([rows["a"], rows["b"]])
    wet = np.array(rows["kind"].to_pylist()) == "wet"
    scaled = (numbers - numbers.mean(0)) / numbers.std(0)
    x = np.column_stack([scaled, np.sqrt(0.5) * ~wet, np.sqrt(0.5) * wet])
    owners = np.array([NAMES.index(site) for site in rows["site"].to_pylist()])
    ring = np.arange(NODES - 1)
    graph = ld.Graph.of_pairs(ring, (ring + 1) % (NODES - 1), np.full(NODES - 1, 0.5), nodes=NODES)
    spec = {word: value for word, value in METHODS[name].items() if word != "name"}
    target = rows["dear" if name == "logistic" else "price"].to_numpy()
    return ld.gtvmin(**spec)(graph, owners, x, target, rows["w"].to_numpy()), owners, x


def slopes(table: pa.Table) -> np.ndarray:
    return np.array(table["coefficient_b"].to_pylist()[:-1])


@pytest.mark.parametrize("name", METHODS)
def test_files_say_what_memory_says(place: Path, name: str, tmp_path: Path):
    report = couple(place, tmp_path / "models", name)
    models, owners, x = here(place, name)
    assert report.rests
    assert report.objective == pytest.approx(models.objective, rel=1e-6)
    assert (report.nodes, report.edges, report.rows) == (NODES, NODES - 1, ROWS)
    table = read(tmp_path / "models")
    assert table["site"].to_pylist() == NAMES
    told = [Status(code).name.lower() for code in models.status.tolist()]
    assert table["status"].to_pylist() == told
    assert told[-1] == "empty"
    assert table["intercept"].to_pylist()[-1] is None
    assert (report.steps == 1) == (name != "logistic")
    ld.apply(tmp_path / "models", place / "rows", tmp_path / "out", keep="site")
    expected = models.predict(torch.tensor(owners), torch.tensor(x)).values[:, 0]
    np.testing.assert_allclose(read(tmp_path / "out")["prediction"], expected, rtol=1e-5, atol=1e-6)
    whole = ld.apply(tmp_path / "models", place / "rows", keep="site")
    assert whole.equals(read(tmp_path / "out"))
    for folder in ("models", "out"):
        assert status(tmp_path / folder).state == "finished"
        assert not (tmp_path / folder / "passing").exists()
    assert not (tmp_path / "models" / CHECKPOINT).exists()


def test_coefficients_are_in_the_units_of_the_data(place: Path, models: Path):
    table, rows = read(models), pq.read_table(place / "rows")
    node = NAMES.index(rows["site"][0].as_py())
    told = {name: table[name][node].as_py() for name in table.column_names}
    slopes = {name: told[f"coefficient_{name}"] for name in ("a", "b")}
    assert slopes == {"a": pytest.approx(1, abs=0.1), "b": pytest.approx(20, abs=2)}
    kind = told[f"coefficient_kind={rows['kind'][0].as_py()}"]
    by_hand = told["intercept"] + kind + sum(slopes[name] * rows[name][0].as_py() for name in slopes)
    answer = ld.apply(models, rows.slice(0, 1))["prediction"][0].as_py()
    assert answer == pytest.approx(by_hand, rel=1e-9)


def test_two_threads_give_the_bytes_of_one(place: Path, models: Path, tmp_path: Path):
    couple(place, tmp_path / "models", executor=ld.Local(2))
    assert parts(tmp_path / "models") == parts(models)
    for number in (1, 2):
        with mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=90):
            ld.apply(models, place / "rows", tmp_path / str(number), executor=ld.Local(number))
    assert len(parts(tmp_path / "1")) >= 4
    assert parts(tmp_path / "1") == parts(tmp_path / "2")


def test_a_killed_run_is_continued_to_the_same_bytes(place: Path, tmp_path: Path):
    """In the second step, which has left a checkpoint."""
    from tests.system.interrupted import VERBS, small

    kill_at("couple", place, tmp_path / "out", "begun", "couple-00001/fit.arrow")
    assert (tmp_path / "out" / CHECKPOINT).exists()
    with small():
        VERBS["couple"](place, tmp_path / "out")
        VERBS["couple"](place, tmp_path / "calm")
    assert parts(tmp_path / "out") == parts(tmp_path / "calm")
    assert not (tmp_path / "out/passing").exists()


def test_a_table_that_was_lost_is_made_again(place: Path, tmp_path: Path):
    couple(place, tmp_path)
    before = parts(tmp_path)
    assert couple(place, tmp_path).nodes == NODES  # again, when all is finished
    (tmp_path / "part-00000.parquet").unlink()
    couple(place, tmp_path)
    assert parts(tmp_path) == before


def test_a_graph_of_neighbors_has_the_edges(tmp_path: Path):
    """Stations that lie near each other, and readings of each."""
    rng = np.random.default_rng(1)
    stations = pa.table({"station": np.arange(30) * 7, "x": rng.normal(size=30), "y": rng.normal(size=30)})
    ld.graph(ld.dataset(stations, key=["x", "y"], id="station", scaling="none"), tmp_path / "graph", k=4)
    owners = rng.integers(0, 25, 300)
    wind = rng.normal(size=300)
    readings = pa.table({"station": owners * 7, "wind": wind, "power": wind * 2 + owners / 10})
    support = ld.dataset(readings, key="wind", target="power", id="station")
    report = ld.couple("gtvmin", support, tmp_path / "graph", tmp_path / "models")
    assert report.nodes == 30
    ahead = plan_couple("gtvmin", support, tmp_path / "graph", tmp_path / "plan")
    assert ahead.choices["edges"].startswith(f"{StoredGraph.at(tmp_path / 'graph').report.edges:,} of ")
    models = StoredModels.at(tmp_path / "models")
    assert models.held > 30 * 24
    stage = stage_of(asked(models, readings), Running())
    assert stage.resources.memory > 3 * models.held
    with pytest.raises(UsageError, match="no columns of ends"):
        ld.couple("gtvmin", support, tmp_path / "graph", tmp_path / "models", ends=ENDS)
    graph = ld.graph(ld.Exact(np.column_stack([stations["x"], stations["y"]])), k=4)
    scaled = ((wind - wind.mean()) / wind.std())[:, None]
    models = ld.gtvmin()(graph, owners, scaled, readings["power"].to_numpy())
    found = ld.apply(tmp_path / "models", readings)["prediction"]
    expected = models.predict(torch.tensor(owners), torch.tensor(scaled)).values[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_rows_that_cannot_be_used_have_a_status(models: Path, tmp_path: Path):
    rows = pa.table(
        {
            "site": [NAMES[0], None, "nowhere", NAMES[0], NAMES[-1]], "a": [1.0, 1.0, 1.0, np.nan, 1.0],
            "b": [1.0] * 5, "kind": ["wet", "dry", "dry", "dry", "dry"],
        }
    )  # fmt: skip
    report = ld.apply(models, rows, tmp_path / "out")
    found = read(tmp_path / "out")
    assert found["status"].to_pylist() == ["ok", "bad_query", "empty", "bad_query", "empty"]
    assert [value is None for value in found["prediction"].to_pylist()] == [False, True, True, True, True]
    assert report.bad_rows == 2
    assert report.reasons == {"not finite in 'a'": 1, "null in 'site'": 1}
    quarantine = pq.read_table(tmp_path / "out/_locdist/quarantine/part-00000.parquet")
    assert sorted(quarantine["query"].to_pylist()) == [1, 3]


def test_bad_rows_of_nodes_are_refused_or_dropped(place: Path, tmp_path: Path):
    rows = pq.read_table(place / "rows")
    holes = pa.array([None, *rows["price"].to_pylist()[1:]])
    broken = rows.set_column(rows.schema.get_field_index("price"), "price", holes)
    edges = place / "edges.parquet"
    support = ld.dataset(broken, key=["a", "b"], target="price", id="site")
    with pytest.raises(DataError, match="null in 'price'"):
        ld.couple("gtvmin", support, edges, tmp_path / "out", ends=ENDS)
    report = ld.couple("gtvmin", support, edges, tmp_path / "out", ends=ENDS, bad="drop", overwrite=True)
    assert (report.rows, report.bad_rows) == (ROWS, 1)
    assert sum(read(tmp_path / "out")["rows"].to_pylist()) == ROWS - 1


def test_what_does_not_fit_is_refused(place: Path, tmp_path: Path):
    roles, edges = {"key": ["a", "b"], "target": "price", "id": "site"}, place / "edges.parquet"

    def run(rows: object = place / "rows", links: object = edges, ends: object = ENDS, **other: object):
        return ld.couple("gtvmin", ld.dataset(rows, **roles | other), links, tmp_path / "out", ends=ends)

    for wrong, given in (
        ("names the node", {"id": None}),
        ("one column of numbers", {"target": "kind"}),
        ("metric 'l2'", {"metric": "cosine"}),
        ("a column of the data", {"ends": None}),
        ("both ends", {"ends": ["from"]}),
    ):
        with pytest.raises(UsageError, match=wrong):
            run(**given)
    with pytest.raises(UsageError, match="as the nodes"):
        run(links={"source": [1], "target": [2]}, ends=None)
    with pytest.raises(DataError, match="weight of 0 or more"):
        run(links={"from": [NAMES[0]], "to": [NAMES[1]], "much": [-1.0]})
    with pytest.raises(UsageError, match="models of nodes"):
        ld.apply(place, place / "rows")
    for wrong in (None, "random"):
        trees = ld.fed_relax(DecisionTreeRegressor(random_state=wrong and np.random.RandomState(0)))
        with pytest.raises(UsageError, match="fitted again"):
            ld.couple(
                trees, ld.dataset(place / "rows", **roles), edges, tmp_path, ends=ENDS, shared=place / "rows"
            )
    couple(place, tmp_path / "done")
    with pytest.raises(UsageError, match="strength"):
        couple(place, tmp_path / "done", "squared")


@pytest.mark.parametrize("method", [ld.gtvmin(), ld.fed_relax(Ridge(random_state=0), tolerance=10.0)])
def test_edges_in_any_order_and_of_wider_names(method: object, tmp_path: Path):
    """Ids of 32 bits, ends of 64; an edge that is there twice, one of weight 0; a row that weighs nothing."""
    rng, far = np.random.default_rng(0), 1 << 40
    owners = np.repeat([1, 2, 3], 10)
    rows = pa.table({
        "site": pa.array(np.append(owners, 4), pa.int32()), "x": rng.normal(size=31),
        "y": rng.normal(size=31), "w": np.append(np.ones(30), 0.0),
    })  # fmt: skip
    links = [(1, 2, 0.1), (2, 1, 0.3), (1, 2, 5.0), (2, 3, 1.0), (3, far, 1.0), (3, 9, 0.0), (3, 3, 7.0)]
    support = ld.dataset(rows, key="x", target="y", id="site", weight="w")
    shared = {"x": [0.0, 1.0]} if isinstance(method, FedRelax) else None
    for number, order in enumerate((links, links[::-1])):
        edges = dict(zip(ENDS, map(list, zip(*order, strict=True)), strict=True))
        report = ld.couple(method, support, edges, tmp_path / str(number), ends=ENDS, shared=shared)
        assert (report.nodes, report.edges) == (6, 3)
    assert parts(tmp_path / "0") == parts(tmp_path / "1")
    found = read(tmp_path / "0").sort_by("site")
    assert found["site"].to_pylist() == [1, 2, 3, 4, 9, far]
    assert found["rows"].to_pylist() == [10, 10, 10, 0, 0, 0]
    told = found["status"].to_pylist()
    assert told[3:] == ["empty", "empty", "low_support"]
    given = {"method": method} if shared else {}
    queries = {"site": [far, 9], "x": [0.5, 0.5]}
    here, there = (ld.apply(tmp_path / number, queries, **given)["prediction"].to_pylist() for number in "01")
    assert here == there
    assert [value is None for value in here] == [False, True]
    fraction = {"source": pa.array([1.5]), "target": pa.array([2.0])}
    rows = rows.set_column(0, "site", pa.array([*owners, (1 << 60) + 1], pa.int64()))
    support = ld.dataset(rows, key="x", target="y", id="site", weight="w")
    with pytest.raises(DataError, match="names of nodes of type double"):
        ld.couple(method, support, pa.table(fraction), tmp_path / "wrong", shared=shared)


def test_the_group_of_a_node_is_that_of_its_name():
    names = pa.array([f"{number}" * (number % 3) for number in range(500)])
    found = group_of(names, 8)
    assert np.bincount(found, minlength=8).min() > 20
    for kind in (pa.large_string(), pa.binary(), pa.string_view()):
        np.testing.assert_array_equal(group_of(names.cast(kind).slice(3, 90), 8), found[3:93])
    numbers = pa.array(range(500), pa.int32())
    wide = group_of(numbers.cast(pa.int64()), 8)
    np.testing.assert_array_equal(group_of(numbers, 8), wide)
    np.testing.assert_array_equal(group_of(numbers.cast(pa.string()), 8), wide)
    assert not len(group_of(names[:0], 8))


TREES = ld.fed_relax(DecisionTreeRegressor(max_depth=3, random_state=0), strength=3.0, rounds=2)


def relax(place: Path, out: Path, **more: object) -> object:
    support = ld.dataset(place / "rows", key=["a", "b", "kind"], target="price", id="site", weight="w")
    shared = pq.read_table(place / "rows").slice(0, 40)
    with mock.patch("locdist.jobs.coupling.passes.rows_per_task", return_value=100):
        return ld.couple(TREES, support, place / "edges.parquet", out, ends=ENDS, shared=shared, **more)


def test_estimators_on_files_are_those_in_memory(place: Path, tmp_path: Path):
    report = relax(place, tmp_path / "models")
    _, owners, x = here(place, "norm")
    rows = pq.read_table(place / "rows")
    ring = np.arange(NODES - 1)
    graph = ld.Graph.of_pairs(ring, (ring + 1) % (NODES - 1), np.full(NODES - 1, 0.5), nodes=NODES)
    found = TREES(graph, owners, x, rows["price"].to_numpy(), x[:40], rows["w"].to_numpy())
    assert (report.rounds, report.nodes, report.rests) == (2, NODES, False)
    assert report.residual == pytest.approx(found.change, rel=1e-9)
    table = read(tmp_path / "models")
    told = dict(zip(table["site"].to_pylist(), table["status"].to_pylist(), strict=True))
    assert [told[name] for name in NAMES] == [Status(code).name.lower() for code in found.status.tolist()]
    assert told[NAMES[-1]] == "empty"
    support = ld.dataset(place / "rows", key=["a", "b", "kind"], target="price", id="site", weight="w")
    plan = plan_couple(
        TREES, support, place / "edges.parquet", tmp_path / "plan", ends=ENDS, shared=rows.slice(0, 40)
    )
    assert [stage.name for stage in plan.stages] == ["profile", "sort", "round-00000", "nodes"]
    report = ld.apply(tmp_path / "models", place / "rows", tmp_path / "out", method=TREES, keep="site")
    expected = found.predict(owners, x).values[:, 0]
    np.testing.assert_allclose(read(tmp_path / "out")["prediction"], expected, rtol=1e-9)
    assert report.status == {"not_converged": ROWS}
    assert not (tmp_path / "models/passing").exists()
    for wrong in (None, ld.fed_relax(DecisionTreeRegressor(max_depth=4, random_state=0), 3.0, rounds=2)):
        with pytest.raises(UsageError, match="method"):
            ld.apply(tmp_path / "models", place / "rows", method=wrong)


def test_estimators_have_the_same_bytes_again(place: Path, tmp_path: Path):
    relax(place, tmp_path, executor=ld.Local(1))
    before, kept = parts(tmp_path), sorted((tmp_path / "_models").iterdir())
    bytes_of = [file.read_bytes() for file in kept]
    assert (len(before), len(kept)) == (8, 17)
    (tmp_path / "part-00003.parquet").unlink()
    relax(place, tmp_path, executor=ld.Local(2))
    assert parts(tmp_path) == before
    assert [file.read_bytes() for file in kept] == bytes_of


def test_a_pipeline_file_says_all(place: Path, models: Path, tmp_path: Path):
    text = f"""
version: 1
steps:
  - couple:
      method: {{name: gtvmin, strength: 0.5, ridge: 0.01}}
      support: {{path: {place}/rows/, key: [a, b, kind], target: price, id: site, weight: w}}
      edges: {{path: {place}/edges.parquet}}
      ends: [from, to, much]
      out: {tmp_path}/models/
  - apply: {{models: {{step: couple}}, queries: {{path: {place}/rows/}}, keep: [site], out: {tmp_path}/out/}}
"""
    (tmp_path / "file.yaml").write_text(text)
    ld.Pipeline.read(tmp_path / "file.yaml").run()
    ours, theirs = read(tmp_path / "models"), read(models)
    np.testing.assert_allclose(slopes(ours), slopes(theirs), rtol=1e-6)
    assert read(tmp_path / "out").num_rows == ROWS
    (tmp_path / "file.yaml").write_text(text.replace("[from, to, much]", "[from]"))
    with pytest.raises(UsageError, match="ends"):
        ld.Pipeline.read(tmp_path / "file.yaml")
    for old, new, wrong in (
        ("[from, to, much]", "[from, too]", r"'too' .*steps\.0\.couple\.ends"),
        ("      ends: [from, to, much]\n", "", r"steps\.0\.couple\.edges"),
        ("id: site, ", "", r"an id, and one target; .*steps\.0\.couple\.support"),
        ("target: price, ", "", r"an id, and one target; .*steps\.0\.couple\.support"),
    ):
        (tmp_path / "file.yaml").write_text(text.replace(old, new))
        with pytest.raises(UsageError, match=wrong):
            ld.Pipeline.read(tmp_path / "file.yaml").run()


def test_the_command_line_says_all(place: Path, models: Path, tmp_path: Path):
    words = ["couple", place / "rows", place / "edges.parquet", "--key", "a,b,kind", "--node", "site"]
    words += ["--target", "price", "--weight", "w", "--ends", "from,to,much", "--out", tmp_path / "models"]
    words += ["-m", "gtvmin", "--param", "strength=0.5", "--param", "ridge=0.01"]

    def run(*given: object) -> str:
        done = CliRunner().invoke(app, list(map(str, given)))
        assert done.exit_code == 0, done.output
        return done.stdout

    planned = json.loads(run("plan", *words, "--json"))
    names = ["profile", "gather-00000", "couple-00000", "nodes"]
    assert [stage["name"] for stage in planned["stages"]] == names
    assert json.loads(run(*words, "-q", "--json"))["nodes"] == NODES
    assert json.loads(run("plan", *words, "--json"))["state"] == "finished"
    asked = ["apply", tmp_path / "models", place / "rows", "--keep", "site", "--out", tmp_path / "out"]
    assert json.loads(run("plan", *asked, "--json"))["stages"][0]["rows"] == ROWS
    assert json.loads(run(*asked, "-q", "--json"))["rows"] == ROWS
    assert json.loads(run("plan", *asked, "--json"))["state"] == "finished"
    assert "gtvmin" in run("methods")
    ours, theirs = read(tmp_path / "models"), read(models)
    np.testing.assert_allclose(slopes(ours), slopes(theirs), rtol=1e-6)
