"""`move` as a job: a new index for each layer, killed between and inside of layers, on every executor."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import DataError, UsageError
from locdist.jobs.layers.planned import plan_move
from tests.system.clusters import until
from tests.system.drivers import Drivers
from tests.system.generated import parts, read
from tests.system.interrupted import move, small
from tests.system.test_cluster import OTHERS, PARTS, ROWS, table, written

MOMENTS = [
    ("unsealed", "part-00002.parquet"),
    ("committed", "layer/part-00004.json"),
    ("unsealed", "_locdist/report.json"),
    ("begun", "build/trained.arrow"),
    ("unsealed", "shards/shard-00000.arrow"),
    ("created", "layer/part-00007.json"),
    ("created", "move/part-00003.json"),
    ("committed", "move/part-00006.json"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, and what an undisturbed run makes of them."""
    place = tmp_path_factory.mktemp("move")
    written(table(), place / "support", PARTS)
    with small():
        move(place, place / "one")
    return place


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    pool = Drivers("tests.system.interrupted")
    yield pool
    pool.close()


def keys() -> torch.Tensor:
    return torch.tensor(np.column_stack([table()["x"], table()["y"]]))


def points(rows: pa.Table) -> np.ndarray:
    return np.column_stack([rows["moved_x"], rows["moved_y"]])


def test_a_job_is_the_loop_in_memory(place: Path):
    found = read(place / "one")
    moved = ld.denoise_manifold(1, k=25, layers=3).loop(ld.Exact, keys())
    np.testing.assert_allclose(points(found), moved.keys, rtol=1e-9)
    assert found["id"].to_pylist() == list(range(ROWS))
    assert set(found["status"].to_pylist()) == {"ok"}


def test_a_job_killed_again_and_again_ends_with_the_same_bytes(place: Path, drivers: Drivers, tmp_path: Path):
    out, signal = tmp_path / "out", tmp_path / "signal"
    words = {"verb": "move", "place": str(place), "out": str(out)}
    for kind, name in MOMENTS:
        driver = drivers.command(kind=kind, name=name, signal=str(signal), **words)
        until(lambda driver=driver: signal.exists() or driver.poll() is not None, 60)
        assert signal.exists(), driver.communicate()[1].decode()
        driver.kill()
        driver.communicate()
        signal.unlink()
    drivers.finish(kind="", name="", signal="", **words)
    assert len(parts(out)) == PARTS
    assert parts(out) == parts(place / "one")


@pytest.mark.parametrize("name", OTHERS)
def test_every_executor_gives_the_same_bytes(place: Path, name: str, tmp_path: Path):
    with small(), OTHERS[name]().kept() as executor:
        move(place, tmp_path / "out", executor)
    assert parts(tmp_path / "out") == parts(place / "one")


def test_what_no_layer_reads_any_more_is_removed(place: Path):
    below = place / "one" / "_locdist"
    assert sorted(path.name for path in (below / "layers").iterdir()) == ["001", "002"]
    assert not list((below / "indexes").glob("*/*"))
    assert (below / "index" / "manifest.json").exists()


def test_blurring_stops_by_what_all_partitions_say(place: Path, tmp_path: Path):
    rows = ld.dataset(place / "support", key=["x", "y"], id="id", scaling="none")
    method = ld.blurring_mean_shift(1.5, layers=30)
    with small():
        report = ld.move(method, rows, tmp_path / "out")
    moved = method.loop(ld.Exact, keys())
    np.testing.assert_allclose(points(read(tmp_path / "out")), moved.keys, rtol=1e-9)
    assert report.notes[0].startswith(f"{moved.layers} layers, ")
    assert report.notes[0].endswith(moved.why)
    assert 1 < moved.layers < 30


def test_targets_move_in_a_stack_with_weights_and_bad_rows(tmp_path: Path):
    rng = np.random.default_rng(5)
    count = rng.normal(size=(ROWS, 2))
    whole = table().append_column("one", pa.array(count[:, 0])).append_column("two", pa.array(count[:, 1]))
    whole = whole.append_column("w", pa.array(rng.uniform(0.5, 2, ROWS)))
    gaps = whole["x"].to_pylist()
    gaps[7] = None
    whole = whole.set_column(1, "x", pa.array(gaps))
    rows = ld.dataset(whole, key=["x", "y"], target=["one", "two"], weight="w", scaling="none")
    method = ld.stack([ld.local_mean(20), ld.local_linear(30)], alpha=0.5)
    with pytest.raises(DataError):
        ld.move(method, rows)
    found = ld.move(method, rows, bad="drop")
    assert found["status"].to_pylist()[7] == "bad_query"
    assert found["prediction_one"].to_pylist()[7] is not None  # it stays what it was
    good = np.arange(ROWS) != 7
    weights = whole["w"].to_numpy()[good]
    moved = method.loop(
        lambda keys, targets: ld.Exact(keys, targets, weights=weights),
        keys()[good],
        torch.tensor(count[good]),
    )
    ours = np.column_stack([found["prediction_one"], found["prediction_two"]])[good].astype(float)
    np.testing.assert_allclose(ours, moved.targets, rtol=1e-9)
    assert "moved_x" not in found.schema.names


def test_moved_keys_are_told_in_the_users_units(tmp_path: Path):
    far = table().append_column("far", pa.array(1e4 + 1e3 * np.array(table()["y"])))
    found = ld.move(ld.blurring_mean_shift(0.4), ld.dataset(far, key=["x", "far"]))
    assert len(np.unique(np.round(found["moved_far"].to_numpy(), 0))) <= 8
    assert 9_000 < min(found["moved_far"].to_pylist()) < max(found["moved_far"].to_pylist()) < 20_500


@pytest.mark.parametrize(
    "method, roles",
    [
        (ld.stack(["local-mean"]), {}),
        (ld.denoise_manifold(1, k=900), {}),
        (ld.blurring_mean_shift(1.0), {"features": ["id"]}),
        (ld.blurring_mean_shift(1.0), {"metric": "ip"}),
        ("denoise", {}),
    ],
)
def test_what_cannot_move_is_refused_before_any_work(
    method: object, roles: dict[str, object], tmp_path: Path
):
    with pytest.raises(UsageError):
        ld.move(method, ld.dataset(table(), key=["x", "y"], scaling="none", **roles), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_plans_tell_the_layers(place: Path, tmp_path: Path):
    rows = ld.dataset(place / "support", key=["x", "y"], id="id", scaling="none")
    method = ld.denoise_manifold(1, k=25, layers=3)
    with small():
        new, done = plan_move(method, rows, tmp_path / "out"), plan_move(method, rows, place / "one")
    assert [stage.name for stage in new.stages] == ["profile", "train", "assign", "pack", "layer", "move"]
    assert new.stages[4].tasks == 3 * PARTS
    assert (new.state, done.state) == ("new", "finished")


def told(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_line_and_a_pipeline(place: Path, tmp_path: Path):
    support = str(place / "support")
    words = ["move", support, "--key", "x,y", "--scaling", "none", "--id", "id", "-m", "denoise-manifold"]
    words += ["-k", "25", "--param", "layers=3", "--param", "components=1"]
    assert "layer" in told("plan", *words, "--out", str(tmp_path / "out"))
    report = json.loads(told(*words, "--out", str(tmp_path / "out"), "--json", "-q"))
    assert report["notes"][0].startswith("3 layers")
    assert read(tmp_path / "out").equals(read(place / "one"))
    assert "denoise-manifold" in told("methods")
    rows = {"path": support, "key": ["x", "y"], "id": "id", "scaling": "none"}
    method = {"name": "denoise-manifold", "components": 1, "k": 25, "layers": 3}
    step = {"move": {"method": method, "out": str(tmp_path / "step")}}
    with small():
        ld.Pipeline.of({"version": 1, "support": rows, "steps": [step]}).run()
    assert parts(tmp_path / "step") == parts(place / "one")
    wrong = {"move": {"method": {**method, "depth": 2}, "out": str(tmp_path / "wrong")}}
    with pytest.raises(UsageError, match="depth"):
        ld.Pipeline.of({"version": 1, "support": rows, "steps": [wrong]})


def test_a_table_comes_back_without_a_folder(place: Path):
    rows = ld.dataset(pq.read_table(place / "support"), key=["x", "y"], id="id", scaling="none")
    found = ld.move(ld.denoise_manifold(1, k=25, layers=3), rows, keep="id")
    np.testing.assert_allclose(points(found), points(read(place / "one")), rtol=1e-9)
