"""`label`, files to files: whole or by partitions, on every executor, killed and continued: the same."""

import json
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import DataError, UsageError
from locdist.jobs.spreading.whole import CHECKPOINT
from locdist.jobs.status import status
from locdist.jobs.stored import StoredGraph
from locdist.local.targets import TargetLoop
from locdist.methods.labels import LABEL_METHODS, label_method
from tests.system.generated import parts, read

ROWS, CLASSES = 400, ["blue", "green", "red"]
SPECS = {name: {"name": name, "sweeps": 8, "tolerance": 0} for name in LABEL_METHODS} | {
    "settled": {"name": "label-propagation", "alpha": 0.9, "tolerance": 0.05},
    "mean": {"name": "relaxation-labeling", "form": "mean", "rule": "labels"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of five partitions, labels of every tenth row in order, and the same by id."""
    folder, rng = tmp_path_factory.mktemp("label"), np.random.default_rng(0)
    points = rng.normal(size=(ROWS, 2))
    names = [f"row {number}" for number in rng.permutation(ROWS)]
    truth = np.array(CLASSES)[np.digitize(points[:, 0], [-0.5, 0.5])]
    labels = pa.array(truth, mask=np.arange(ROWS) % 10 != 0)
    table = pa.table({"x": points[:, 0], "y": points[:, 1], "name": names, "color": labels, "truth": truth})
    pq.write_table(table, folder / "rows.parquet")
    known = table.filter(table["color"].is_valid()).select(["name", "color"])
    pq.write_table(known.take(pa.array(rng.permutation(len(known)))), folder / "known.parquet")
    support = ld.dataset(folder / "rows.parquet", key=["x", "y"], scaling="none", id="name")
    with mock.patch("locdist.jobs.linking.rows_per_task", return_value=90):
        kernel = {"k": 8, "kernel": "gaussian", "bandwidth": 0.3}
        ld.graph(support, folder / "graph", **kernel, symmetrize="mean")
        ld.graph(support, folder / "directed", k=3)
    return folder


def spread(place: Path, out: Path, method: object = "label-propagation", **choices: object) -> object:
    chosen = {"target": "color"} | choices
    return ld.label(method, place / "graph", place / "rows.parquet", out, **chosen)


def scores(out: Path, kind: str = "probability") -> np.ndarray:
    found = read(out)
    return np.column_stack([found[f"{kind}_{name}"] for name in CLASSES])


@pytest.mark.parametrize("name", SPECS)
def test_files_say_what_memory_says_whole_and_by_partitions(place: Path, name: str, tmp_path: Path):
    colors = pq.read_table(place / "rows.parquet")["color"].to_pylist()
    codes = [-1 if color is None else CLASSES.index(color) for color in colors]
    expected = label_method(SPECS[name])(StoredGraph.at(place / "graph").whole(), codes)
    whole = spread(place, tmp_path / "whole", SPECS[name])
    apart = spread(place, tmp_path / "apart", SPECS[name], partitioned=True)
    kind = "score" if "poisson" in name else "probability"
    np.testing.assert_array_equal(scores(tmp_path / "whole", kind), expected.values)
    np.testing.assert_allclose(scores(tmp_path / "apart", kind), expected.values, rtol=1e-10, atol=1e-13)
    assert read(tmp_path / "apart")["label"].equals(read(tmp_path / "whole")["label"])
    assert (whole.sweeps, whole.rests, whole.known) == (apart.sweeps, apart.rests, ROWS // 10)
    assert whole.rests == (name in ("settled", "mean"))
    assert not whole.partitioned
    assert apart.tasks > 5 * whole.sweeps
    for out in ("whole", "apart"):
        assert not (tmp_path / out / "passing").exists()
        assert not (tmp_path / out / CHECKPOINT).exists()
        assert status(tmp_path / out).state == "finished"
    truth = pq.read_table(place / "rows.parquet")["truth"].to_pylist()
    right = np.mean(np.array(read(tmp_path / "whole")["label"].to_pylist()) == truth)
    assert right > 0.75


@pytest.mark.parametrize("partitioned", [False, True])
def test_every_executor_gives_the_same_bytes(place: Path, partitioned: bool, tmp_path: Path):
    for number, executor in enumerate([ld.Local(1), ld.Local(2), ld.Local(2, processes=True)]):
        spec = {"name": "label-spreading", "sweeps": 5}
        spread(place, tmp_path / str(number), spec, partitioned=partitioned, executor=executor)
    assert len(parts(tmp_path / "0")) == 5
    assert parts(tmp_path / "0") == parts(tmp_path / "1") == parts(tmp_path / "2")


def test_labels_go_by_id_in_any_order(place: Path, tmp_path: Path):
    spread(place, tmp_path / "rows")
    ld.label(
        "label-propagation",
        place / "graph",
        place / "known.parquet",
        tmp_path / "ids",
        target="color",
        id="name",
    )
    assert parts(tmp_path / "rows") == parts(tmp_path / "ids")


def test_shares_go_in_as_predictions_write_them(place: Path, tmp_path: Path):
    colors = pq.read_table(place / "rows.parquet")["color"].to_pylist()
    shares = {f"probability_{name}": [float(color == name) for color in colors] for name in CLASSES}
    ld.label("label-propagation", place / "graph", shares, tmp_path / "shares", target=list(shares))
    spread(place, tmp_path / "classes")
    np.testing.assert_array_equal(scores(tmp_path / "shares"), scores(tmp_path / "classes"))


def test_the_order_of_the_sweeps_does_not_matter(place: Path, tmp_path: Path):
    spread(place, tmp_path / "as they are", SPECS["label-spreading"])
    with mock.patch("locdist.jobs.spreading.order.CACHED", 0):
        spread(place, tmp_path / "near", SPECS["label-spreading"])
    np.testing.assert_allclose(scores(tmp_path / "near"), scores(tmp_path / "as they are"), atol=1e-14)
    assert parts(tmp_path / "near") != parts(tmp_path / "as they are")


def kill_at(verb: str, place: Path, out: Path, kind: str, name: str) -> None:
    """Run a job in a process of its own that is killed at a moment; see `interrupted`."""
    signal = out.with_name(out.name + "-signal")
    command = {
        "verb": verb,
        "place": str(place),
        "out": str(out),
        "kind": kind,
        "name": name,
        "signal": str(signal),
    }
    root = Path(__file__).parents[2]
    words = [sys.executable, "-W", "error", "-m", "tests.system.interrupted"]
    with subprocess.Popen(
        words, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        while not signal.exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert signal.exists()


@pytest.mark.parametrize(
    "verb, kind, name",
    [
        ("label", "unsealed", "checkpoint.arrow"),
        ("label", "begun", "spread/state-00000.arrow"),
        ("label", "created", "spread/spread.json"),
        ("label-apart", "begun", "sweep-00003/part-00002.arrow"),
        ("label-apart", "committed", "sweep-00004/part-00001.json"),
        ("label-apart", "begun", "label.jsonl"),
    ],
)
def test_a_killed_run_is_continued_to_the_same_bytes(
    place: Path, verb: str, kind: str, name: str, tmp_path: Path
):
    from tests.system.interrupted import VERBS

    kill_at(verb, place, tmp_path / "out", kind, name)
    begun = []
    states = TargetLoop.states

    def watched(loop: TargetLoop, graph: object, given: object, state: object) -> object:
        begun.append(state.number)
        return states(loop, graph, given, state)

    with mock.patch.object(TargetLoop, "states", watched):
        VERBS[verb](place, tmp_path / "out")
    VERBS[verb](place, tmp_path / "calm")
    assert parts(tmp_path / "out") == parts(tmp_path / "calm")
    assert not (tmp_path / "out/passing").exists()
    if name == "spread/state-00000.arrow":
        assert begun[0] >= 10


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_part_that_was_lost_is_made_again(place: Path, partitioned: bool, tmp_path: Path):
    for _ in range(2):
        spread(place, tmp_path, SPECS["label-propagation"], partitioned=partitioned)
        before = parts(tmp_path)
        (tmp_path / "part-00002.parquet").unlink()
    spread(place, tmp_path, SPECS["label-propagation"], partitioned=partitioned)
    assert parts(tmp_path) == before


def test_nodes_that_no_label_reaches_are_null(place: Path, tmp_path: Path):
    report = ld.label(
        "label-propagation",
        place / "directed",
        {"color": ["red"] + [None] * (ROWS - 1)},
        tmp_path,
        target="color",
    )
    found = read(tmp_path)
    assert report.status["empty"] > 0
    empty = [label is None for label in found["label"].to_pylist()]
    assert empty == [each == "empty" for each in found["status"].to_pylist()]
    assert found.filter(pa.array(empty))["probability_red"].null_count == sum(empty)


def test_what_does_not_fit_is_refused(place: Path, tmp_path: Path):
    out, rows = tmp_path / "out", place / "rows.parquet"
    nothing = pa.table({"color": pa.nulls(ROWS, pa.string())})
    for wrong, error, given in (
        ("both ways", UsageError, ("label-spreading", place / "directed", rows, out)),
        ("folder of a graph", UsageError, ("label-spreading", place, rows, out)),
        ("each of 400 nodes", UsageError, ("label-spreading", place / "graph", {"color": ["red"]}, out)),
        (
            "a label of some node",
            DataError,
            ("label-spreading", place / "graph", nothing, out),
        ),
    ):
        with pytest.raises(error, match=wrong):
            ld.label(*given, target="color")
    with pytest.raises(UsageError, match="a column of classes"):
        spread(place, out, target="x")
    spread(place, tmp_path / "done")
    with pytest.raises(UsageError, match="partitioned"):
        spread(place, tmp_path / "done", partitioned=True)


def test_the_command_line_says_all(place: Path, tmp_path: Path):
    words = ["label", place / "graph", place / "known.parquet", "--target", "color", "--id", "name"]
    words += ["-m", "label-spreading", "--param", "alpha=0.5", "--out", tmp_path / "out"]

    def run(*given: object) -> str:
        done = CliRunner().invoke(app, list(map(str, given)))
        assert done.exit_code == 0, done.output
        return done.stdout

    planned = json.loads(run("plan", *words, "--json"))
    assert [stage["name"] for stage in planned["stages"]] == ["known", "spread", "label"]
    assert json.loads(run(*words, "-q", "--json"))["known"] == ROWS // 10
    assert json.loads(run("plan", *words, "--json"))["state"] == "finished"
    spec = {"name": "label-spreading", "alpha": 0.5}
    ld.label(spec, place / "graph", place / "known.parquet", tmp_path / "python", target="color", id="name")
    assert parts(tmp_path / "out") == parts(tmp_path / "python")
