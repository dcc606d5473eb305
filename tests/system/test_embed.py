"""`embed` and `place`, files to files: the coordinates of memory, on every executor."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_swiss_roll
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.data.dataset import Dataset
from locdist.errors import UsageError
from locdist.jobs.status import status
from tests.system.generated import parts, read

ROWS, AXES = 300, "xyz"
ROLL = make_swiss_roll(ROWS, random_state=0)[0]
METHODS = {"lle": ld.lle(8), "spectral": ld.spectral(8, 3)}


@pytest.fixture(scope="module")
def support(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("roll")
    columns = {axis: ROLL[:, place] for place, axis in enumerate(AXES)}
    pq.write_table(
        pa.table({"name": [f"row {row}" for row in range(ROWS)]} | columns), folder / "rows.parquet"
    )
    return ld.dataset(folder, key=list(AXES), scaling="none", id="name")


def made(name: str, support: Dataset, out: Path, **choices: object) -> object:
    with mock.patch("locdist.jobs.linking.rows_per_task", return_value=70):
        return ld.embed(METHODS[name], support, out, **choices)


def coordinates(found: pa.Table) -> np.ndarray:
    return np.column_stack([found[name] for name in found.column_names if name.startswith("coordinate_")])


@pytest.mark.parametrize("name", METHODS)
def test_files_say_what_memory_says(support: Dataset, name: str, tmp_path: Path):
    report = made(name, support, tmp_path / "out")
    expected = ld.embed(METHODS[name], ld.Exact(ROLL))
    found = read(tmp_path / "out")
    np.testing.assert_allclose(coordinates(found), expected.coordinates, atol=1e-9)
    np.testing.assert_allclose(report.eigenvalues, expected.eigenvalues, rtol=1e-6, atol=1e-14)
    assert found["name"].to_pylist() == [f"row {row}" for row in range(ROWS)]
    assert status(tmp_path / "out").state == "finished"
    assert not (tmp_path / "out/passing").exists()
    placed = ld.place(tmp_path / "out", support.source.store.uri)
    np.testing.assert_allclose(coordinates(placed), coordinates(found), atol=1e-14)
    new = make_swiss_roll(40, random_state=1)[0]
    ld.place(tmp_path / "out", {axis: new[:, at] for at, axis in enumerate(AXES)}, tmp_path / "new")
    np.testing.assert_allclose(coordinates(read(tmp_path / "new")), expected.transform(new).values, atol=1e-9)


def test_every_executor_gives_the_same_bytes(support: Dataset, tmp_path: Path):
    for number, executor in enumerate([ld.Local(1), ld.Local(2), ld.Local(2, processes=True)]):
        made("lle", support, tmp_path / str(number), executor=executor)
    assert len(parts(tmp_path / "0")) >= 5
    assert parts(tmp_path / "0") == parts(tmp_path / "1") == parts(tmp_path / "2")


def test_a_part_that_was_lost_is_made_again(support: Dataset, tmp_path: Path):
    made("spectral", support, tmp_path)
    before = parts(tmp_path)
    (tmp_path / "part-00001.parquet").unlink()
    made("spectral", support, tmp_path)
    assert parts(tmp_path) == before


def test_another_request_is_refused(support: Dataset, tmp_path: Path):
    made("lle", support, tmp_path / "out")
    with pytest.raises(UsageError, match=r"method\.components"):
        ld.embed(ld.lle(8, 3), support, tmp_path / "out")
    with pytest.raises(UsageError, match="folder of an embedding"):
        ld.place(tmp_path / "out/_locdist/graph", support.source.store.uri)


def test_the_command_line_says_all(support: Dataset, tmp_path: Path):
    rows = support.source.store.uri
    words = ["embed", rows, "--key", "x,y,z", "--id", "name", "--scaling", "none", "-m", "lle", "-k", "8"]

    def run(*given: object) -> str:
        done = CliRunner().invoke(app, list(map(str, given)))
        assert done.exit_code == 0, done.output
        return done.stdout

    planned = json.loads(run("plan", *words, "--out", tmp_path / "out", "--json"))
    assert [stage["name"] for stage in planned["stages"]][-2:] == ["axes", "embed"]
    assert json.loads(run(*words, "--out", tmp_path / "out", "-q", "--json"))["rows"] == ROWS
    run("place", tmp_path / "out", rows, "--out", tmp_path / "placed", "-q")
    np.testing.assert_allclose(
        coordinates(read(tmp_path / "placed")), coordinates(read(tmp_path / "out")), atol=1e-14
    )
