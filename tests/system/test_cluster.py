"""`cluster` and `assign` as jobs: the same bytes wherever and however often they begin; the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import DataError, UsageError
from locdist.jobs.clustering.planned import plan_assign, plan_cluster
from tests.system.clusters import until
from tests.system.drivers import Drivers
from tests.system.generated import parts, read
from tests.system.interrupted import cluster, small

ROWS, PARTS = 400, 8
CENTERS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
MERGED = Path("_locdist/clusters/clusters.parquet")
MOMENTS = [
    ("unsealed", "shards/shard-00000.arrow"),
    ("unsealed", "part-00002.parquet"),
    ("created", "climb/part-00004.json"),
    ("begun", "cells-00001.parquet"),
    ("unsealed", "clusters.parquet"),
    ("committed", "merge/merge.json"),
    ("created", "cluster/part-00003.json"),
    ("unsealed", "_locdist/report.json"),
]
OTHERS = {
    "processes": lambda: ld.Local(2, processes=True),
    "ray": lambda: ld.Ray(workers=2),
    "dask": lambda: ld.Dask(workers=2),
}


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, ROWS)
    places = CENTERS[group] + rng.normal(size=(ROWS, 2))
    return pa.table({"id": np.arange(ROWS), "x": places[:, 0], "y": places[:, 1], "group": group})


def written(whole: pa.Table, folder: Path, files: int) -> Path:
    folder.mkdir(parents=True)
    size = -(-whole.num_rows // files)
    for part in range(files):
        pq.write_table(whole.slice(part * size, size), folder / f"{part:02}.parquet")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, and what an undisturbed run makes of them."""
    place = tmp_path_factory.mktemp("cluster")
    written(table(), place / "support", PARTS)
    with small():
        cluster(place, place / "one")
    return place


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    pool = Drivers("tests.system.interrupted")
    yield pool
    pool.close()


def assert_same(out: Path, place: Path) -> None:
    assert len(parts(out)) == PARTS
    assert parts(out) == parts(place / "one")
    assert (out / MERGED).read_bytes() == (place / "one" / MERGED).read_bytes()


def test_a_job_killed_again_and_again_ends_with_the_same_bytes(place: Path, drivers: Drivers, tmp_path: Path):
    out, signal = tmp_path / "out", tmp_path / "signal"
    for kind, name in MOMENTS:
        words = {"verb": "cluster", "place": str(place), "out": str(out)}
        driver = drivers.command(kind=kind, name=name, signal=str(signal), **words)
        until(lambda driver=driver: signal.exists() or driver.poll() is not None, 60)
        assert signal.exists(), driver.communicate()[1].decode()
        driver.kill()
        driver.communicate()
        signal.unlink()
    drivers.finish(kind="", name="", signal="", **words)
    assert_same(out, place)
    climbed = [path.stat().st_mtime_ns for path in sorted((out / "_locdist/climb").glob("part-*"))]
    drivers.finish(kind="", name="", signal="", **words)
    assert climbed == [path.stat().st_mtime_ns for path in sorted((out / "_locdist/climb").glob("part-*"))]


@pytest.mark.parametrize("name", OTHERS)
def test_every_executor_gives_the_same_bytes(place: Path, name: str, tmp_path: Path):
    with small(), OTHERS[name]().kept() as executor:
        cluster(place, tmp_path / "out", executor)
    assert_same(tmp_path / "out", place)


@pytest.mark.parametrize("grain", [0.0, 0.25])
@pytest.mark.parametrize("files", [1, 17])
def test_clusters_do_not_depend_on_the_partitions(place: Path, tmp_path: Path, grain: float, files: int):
    found = []
    for count in (3, files):
        support = written(table(), tmp_path / f"in-{count}", count)
        rows = ld.dataset(support, key=["x", "y"], id="id", scaling="none")
        with small():
            ld.cluster(ld.mean_shift(1.5), rows, tmp_path / f"out-{count}", grain=grain)
        found.append((read(tmp_path / f"out-{count}"), ld.clusters(tmp_path / f"out-{count}")))
    assert found[0][0]["cluster"].equals(found[1][0]["cluster"])
    for name in found[0][1].schema.names:
        np.testing.assert_allclose(found[0][1][name], found[1][1][name], rtol=1e-9)


def test_rows_keep_their_place_and_groups_are_found(place: Path):
    found = read(place / "one")
    assert found["id"].to_pylist() == list(range(ROWS))
    pairs = set(zip(found["cluster"].to_pylist(), table()["group"].to_pylist(), strict=True))
    assert len(pairs) == 4
    assert set(found["status"].to_pylist()) == {"ok"}
    told = ld.clusters(place / "one")
    assert told["rows"].to_pylist() == sorted(np.bincount(table()["group"]), reverse=True)
    centers = np.column_stack([told["mode_x"], told["mode_y"]])
    assert np.abs(CENTERS[:, None] - centers).max(2).min(1).max() < 0.7


def test_scaled_keys_have_their_modes_in_the_users_units(tmp_path: Path):
    rows = table().append_column("far", pa.array(1e4 + 1e3 * np.array(table()["y"])))
    found = ld.cluster(ld.mean_shift(0.4), ld.dataset(rows, key=["x", "far"]))
    modes = {
        tuple(row) for row in zip(found["mode_x"].to_pylist(), found["mode_far"].to_pylist(), strict=True)
    }
    assert len(modes) == 4
    assert all(9_000 < far < 20_500 for _, far in modes)


def test_bad_rows_have_no_cluster_and_are_told(tmp_path: Path):
    values = table()["x"].to_pylist()
    values[5] = None
    rows = ld.dataset(table().set_column(1, "x", pa.array(values)), key=["x", "y"], scaling="none")
    with pytest.raises(DataError):
        ld.cluster(ld.mean_shift(1.5), rows, tmp_path / "raise")
    report = ld.cluster(ld.mean_shift(1.5), rows, tmp_path / "drop", bad="drop")
    assert report.bad_rows == 1
    assert read(tmp_path / "drop")["cluster"].to_pylist()[5] is None
    assert sum(ld.clusters(tmp_path / "drop")["rows"].to_pylist()) == ROWS - 1


def test_lists_are_climbed_over_as_exact_rows_are(tmp_path: Path):
    rows = ld.dataset(table(), key=["x", "y"], scaling="none")
    exact = ld.cluster(ld.mean_shift(1.5, "uniform", k=60), rows)["cluster"]
    listed = ld.cluster(ld.mean_shift(1.5, "uniform", k=60), rows, codes="flat", recall=1.0)["cluster"]
    assert listed.equals(exact)


def test_another_request_in_the_same_folder_is_refused(place: Path):
    rows = ld.dataset(place / "support", key=["x", "y"], id="id", scaling="none")
    with small(), pytest.raises(UsageError, match="grain"):
        ld.cluster(ld.mean_shift(1.5), rows, place / "one", grain=0.5)
    with pytest.raises(UsageError, match="cluster"):
        ld.assign(place / "support", table())


def test_plans_tell_all_stages_and_what_is_finished(place: Path, tmp_path: Path):
    rows = ld.dataset(place / "support", key=["x", "y"], id="id", scaling="none")
    with small():
        new = plan_cluster(ld.mean_shift(1.5), rows, tmp_path / "out")
        done = plan_cluster(ld.mean_shift(1.5), rows, place / "one")
        new_rows = plan_assign(place / "one", place / "support", tmp_path / "labels")
    names = ["profile", "train", "assign", "pack", "climb", "cells", "merge", "cluster"]
    assert [stage.name for stage in new.stages] == names
    assert new.state == "new"
    assert done.state == "finished"
    assert [stage.finished for stage in done.stages if stage.name in ("climb", "cluster")] == [PARTS, PARTS]
    assert [stage.name for stage in new_rows.stages] == ["assign"]


def told(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_line(place: Path, tmp_path: Path):
    support, out, labels = str(place / "support"), str(tmp_path / "out"), str(tmp_path / "labels")
    asked = ["cluster", support, "--key", "x,y", "--scaling", "none", "--bandwidth", "1.5", "--id", "id"]
    assert "climb" in told("plan", *asked, "--out", out)
    report = json.loads(told(*asked, "--out", out, "--json", "-q"))
    assert report["notes"][0] == "4 clusters, 0 orphans"
    assert read(Path(out))["cluster"].equals(read(place / "one")["cluster"])
    told("assign", out, support, "--out", labels, "-q")
    assert read(Path(labels))["cluster"].equals(read(Path(out))["cluster"])
    assert "finished" in told("status", out)
    told("index", support, "--key", "x,y", "--scaling", "none", "--out", str(tmp_path / "index"), "-q")
    assert float(told("bandwidth", str(tmp_path / "index"), "--quantile", "0.1")) > 0


def test_a_step_of_a_pipeline_gives_the_same_bytes(place: Path, tmp_path: Path):
    support = {"path": str(place / "support"), "key": ["x", "y"], "id": "id", "scaling": "none"}
    step = {"cluster": {"method": {"name": "mean-shift", "bandwidth": 1.5}, "out": str(tmp_path / "out")}}
    after = {"predict": {"method": "knn", "queries": {"step": "cluster"}, "out": str(tmp_path / "next")}}
    pipeline = ld.Pipeline.of({"version": 1, "support": support, "steps": [step]})
    with small():
        assert "climb" in str(pipeline.plan())
        pipeline.run()
    assert_same(tmp_path / "out", place)
    with pytest.raises(UsageError, match="index"):
        ld.Pipeline.of({"version": 1, "support": support, "steps": [step, after]}).run()
