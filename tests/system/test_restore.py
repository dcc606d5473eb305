"""`restore` as a job: what is no image is told, the same bytes in memory, on any executor, in a pipeline."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import TooManyBadRows, UsageError
from locdist.jobs.restoring.chosen import RESTORE_METHODS, restore_method
from locdist.jobs.restoring.planned import plan_restore
from locdist.jobs.restoring.tasks import cut
from tests.system.clusters import until
from tests.system.drivers import Drivers
from tests.system.generated import parts, read, scans
from tests.system.interrupted import OF_IMAGES, restore

FILE = """
version: 1
steps:
  - restore: {{method: {{name: nonlocal-means, h: 0.2, patch: 5, distance: 3}}, keep: [id],
              images: {{path: {place}/scans}}, out: {out}/clean}}
  - restore: {{name: again, method: bilateral, images: {{step: restore}}, column: restored_image, keep: [id],
              out: {out}/again}}
"""
BAD = {3: "null", 7: "not finite", 9: "smaller than the method's window", 11: "rows of several lengths"}
ROWS = 14


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of several sizes in two files, some of which are none, and what one thread makes of them."""
    place = scans(tmp_path_factory.mktemp("scans"))
    restore(place, place / "one", ld.Local(1))
    return place


def test_every_image_is_that_of_the_function_and_what_is_none_is_told(place: Path):
    found, given = read(place / "one"), pq.read_table(place / "scans")["image"].to_pylist()
    assert found["id"].to_pylist() == list(range(ROWS))
    status = ["bad_query" if row in BAD else "ok" for row in range(ROWS)]
    assert found["status"].to_pylist() == status
    parameters = {name: value for name, value in OF_IMAGES.items() if name != "name"}
    for row, image in enumerate(found["restored_image"].to_pylist()):
        if row in BAD:
            assert image is None
        else:
            np.testing.assert_array_equal(image, ld.nonlocal_means(np.array(given[row]), **parameters))
    told = json.loads((place / "one/_locdist/report.json").read_text())
    assert told["reasons"] == {f"{reason} in 'image'": 1 for reason in BAD.values()}
    listed = pa.concat_tables(map(pq.read_table, (place / "one/_locdist/quarantine").iterdir()))
    assert sorted(listed["query"].to_pylist()) == sorted(BAD)


def test_in_memory_and_in_partitions_of_any_size_it_is_the_same(place: Path, tmp_path: Path):
    here = ld.restore(OF_IMAGES, place / "scans", keep="id")
    assert here.equals(read(place / "one").combine_chunks())
    assert len(parts(place / "one")) > 4
    ld.restore(OF_IMAGES, place / "scans", tmp_path / "out", keep="id", executor=ld.Local(2))
    assert read(tmp_path / "out").equals(here)
    few = ld.restore(OF_IMAGES, place / "scans", tmp_path / "few", keep="id", limit=5)
    assert few.rows == 5
    assert read(tmp_path / "few").equals(here.slice(0, 5))


def test_arrays_vectors_and_tensors_are_images(tmp_path: Path):
    stack = np.random.default_rng(0).random((3, 9, 8))
    whole = ld.restore("bilateral", stack)["restored_image"].to_pylist()
    np.testing.assert_array_equal(whole[1], ld.bilateral(stack[1]))
    tensors = pa.table({"pixels": pa.FixedShapeTensorArray.from_numpy_ndarray(stack)})
    pq.write_table(tensors, tmp_path / "tensors.parquet")
    for flat in (tmp_path / "tensors.parquet", {"pixels": stack.reshape(3, -1)}):
        found = ld.restore("bilateral", flat, column="pixels", shape=(9, 8))
        assert found["restored_pixels"].to_pylist() == whole
    colors = [np.dstack([image] * 3) for image in stack]
    found = ld.restore("bilateral", {"image": [*colors, None], "id": np.arange(4)}, keep="*")
    assert found["status"].to_pylist() == ["ok"] * 3 + ["bad_query"]
    masked = ld.restore("bilateral", [stack[0], np.ma.masked_greater(stack[1], 0.9)])
    assert masked["status"].to_pylist() == ["ok", "bad_query"]
    np.testing.assert_array_equal(found["restored_image"].to_pylist()[2], ld.bilateral(colors[2]))


@pytest.mark.parametrize("name", RESTORE_METHODS)
def test_values_of_any_size_are_answered(name: str):
    image = np.random.default_rng(1).random((12, 12))
    spec = {"name": name, **({"sigma": 0.1} if name == "nonlocal-bayes" else {})}
    found = ld.restore(spec, [image, 1e200 * image, 1e-200 * image, np.zeros((12, 12))])
    far = "not_finite" if name == "mean-shift" else "ok"  # its lattice ends before
    assert found["status"].to_pylist() == ["ok", far, "ok", "ok"]
    assert restore_method(restore_method(spec).spec) == restore_method(spec)
    assert json.loads(json.dumps(restore_method(spec).spec)) == restore_method(spec).spec


def test_a_pipeline_and_the_command_line_say_the_same(place: Path, tmp_path: Path):
    file = tmp_path / "images.yaml"
    file.write_text(FILE.format(place=place, out=tmp_path))
    for words in (["plan", "run"], ["run"], ["run"]):
        told = CliRunner().invoke(app, [*words, str(file)])
        assert told.exit_code == 0, told.output
    assert read(tmp_path / "clean").equals(read(place / "one"))
    assert read(tmp_path / "again")["status"].to_pylist()[:4] == ["ok"] * 3 + ["bad_query"]
    given = [f"--param={name}={value}" for name, value in OF_IMAGES.items() if name != "name"]
    words = [str(place / "scans"), *given, "--keep", "id", "--out", str(tmp_path / "out")]
    for before in (["plan", "restore"], ["restore"], ["status"]):
        told = CliRunner().invoke(app, [*before, *(words if before != ["status"] else words[-1:])])
        assert told.exit_code == 0, told.output
    assert read(tmp_path / "out").equals(read(place / "one"))
    assert "nonlocal-bayes" in CliRunner().invoke(app, ["methods"]).output


def test_a_job_that_was_killed_ends_with_the_same_bytes(place: Path, tmp_path: Path):
    drivers, signal = Drivers("tests.system.interrupted"), tmp_path / "signal"
    try:
        words = {"verb": "restore", "place": str(place), "out": str(tmp_path / "out")}
        driver = drivers.command(kind="begun", name="part-00002.parquet", signal=str(signal), **words)
        until(lambda: signal.exists() or driver.poll() is not None, 120)
        assert signal.exists(), driver.communicate()[1].decode()
        driver.kill()
        driver.communicate()
    finally:
        drivers.close()
    restore(place, tmp_path / "out")
    assert parts(tmp_path / "out") == parts(place / "one")
    (tmp_path / "out/part-00001.parquet").unlink()
    restore(place, tmp_path / "out")
    assert parts(tmp_path / "out") == parts(place / "one")


def test_a_plan_counts_images_that_were_measured(place: Path, tmp_path: Path):
    new = plan_restore(OF_IMAGES, place / "scans", tmp_path / "out", keep="id")
    assert [(stage.name, stage.rows > 0) for stage in new.stages] == [("measure", True), ("restore", True)]
    with mock.patch("locdist.jobs.restoring.tasks.SPAN_NUMBERS", 300):
        done = plan_restore(OF_IMAGES, place / "scans", place / "one", keep="id")
    assert done.state == "finished"
    assert sum(stage.rows for stage in done.stages) == 2 * ROWS
    with mock.patch("locdist.jobs.restoring.planned.SPAN_NUMBERS", 100):  # every image is larger
        large = plan_restore(OF_IMAGES, place / "scans", tmp_path / "out", keep="id")
    assert [(stage.rows, stage.tasks) for stage in large.stages][1] == (ROWS, ROWS)


def test_cuts_depend_on_the_numbers_of_images_alone():
    assert cut(5, np.array([60, 60, 0, 0, 250, 10]), 100).tolist() == [5, 7, 10, 11]
    assert cut(5, np.array([0, 0]), 100).tolist() == [5, 7]
    assert cut(0, np.zeros(0, np.int64), 100).tolist() == [0, 0]


def test_a_set_without_images_has_an_empty_partition(tmp_path: Path):
    empty = pa.table({"image": pa.array([], pa.list_(pa.list_(pa.float32())))})
    assert ld.restore("bilateral", empty, tmp_path / "out").rows == 0
    assert len(parts(tmp_path / "out")) == 1
    assert ld.restore("bilateral", np.zeros((0, 4, 4))).num_rows == 0


def test_what_cannot_be_restored_is_refused_before_any_work(place: Path, tmp_path: Path):
    given, out = place / "scans", tmp_path / "out"
    with pytest.raises(UsageError, match="Did you mean 'nonlocal-means'"):
        ld.restore("nonlocal-mean", given, out)
    with pytest.raises(UsageError, match="odd patch"):
        ld.restore({"name": "nonlocal-means", "patch": 4}, given, out)
    with pytest.raises(UsageError, match="join true or false"):
        ld.restore({"name": "mean-shift", "join": "no"}, given, out)
    with pytest.raises(UsageError, match="two passes"):
        ld.restore({"name": "nonlocal-bayes", "sigma": 0.1, "similar": 70}, given, out)
    with pytest.raises(UsageError, match="column of images"):
        ld.restore("bilateral", given, out, column="id")
    with pytest.raises(UsageError, match="flat vectors"):
        ld.restore("bilateral", given, out, shape=(3, 4))
    with pytest.raises(UsageError, match="restored_image"):
        ld.restore("bilateral", {"image": np.zeros((1, 4, 4)), "restored_image": [1]}, keep="*")
    with pytest.raises(UsageError, match="'pixels'"):
        ld.restore("bilateral", given, out, column="pixels")
    with pytest.raises(UsageError, match="both"):
        ld.restore("bilateral", [np.zeros((4, 4)), np.zeros((4, 4, 3))])
    assert not out.exists()
    with pytest.raises(TooManyBadRows):
        ld.restore(OF_IMAGES, given, max_bad=3)
