"""`embed` and `place`, files to files: the coordinates of memory, on every executor."""

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import make_swiss_roll
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.data.dataset import Dataset
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.spreading.whole import CHECKPOINT
from locdist.jobs.status import status
from locdist.jobs.walking import begun, keep
from locdist.local.lazy import Rested, Settling, Walk
from tests.system.generated import parts, read
from tests.system.interrupted import embed
from tests.system.test_label import kill_at

ROWS, AXES = 300, "xyz"
ROLL = make_swiss_roll(ROWS, random_state=0)[0]
WALK = ld.local_mean(10, "gaussian", 4.0)
METHODS = {
    "lle": ld.lle(8),
    "spectral": ld.spectral(8, 3),
    "lazy-map": ld.lazy_coordinates(WALK, steps=200),
    "lazy-autoencoder": ld.lazy_codes(2, 8, steps=5),
}


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


def test_more_coordinates_than_rows_are_refused():
    for method in (ld.lle(2, 4), ld.spectral(2, 4), ld.lazy_coordinates(k=2, components=4)):
        with pytest.raises(UsageError, match="more than 4 rows in the largest connected component; got 4"):
            ld.embed(method, ld.Exact(ROLL[:4]))


def test_rows_are_placed_in_the_coordinates_that_are_there(support: Dataset, tmp_path: Path):
    made("lle", support, tmp_path / "out")
    new = ld.place(tmp_path / "out", support.source.store.uri, tmp_path / "placed")
    ld.embed(ld.lle(8, 3), support, tmp_path / "out", overwrite=True)  # with the same graph
    assert coordinates(ld.place(tmp_path / "out", support.source.store.uri)).shape == (ROWS, 3)
    with pytest.raises(UsageError, match="coordinates"):
        ld.place(tmp_path / "out", support.source.store.uri, tmp_path / "placed")
    assert new.rows == ROWS


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


def test_a_lazy_map_in_files_is_that_of_memory(support: Dataset, tmp_path: Path):
    report = made("lazy-map", support, tmp_path / "out")
    expected = ld.lazy_map(WALK, ROLL, keep=True, steps=200)
    np.testing.assert_allclose(coordinates(read(tmp_path / "out")), expected.values, atol=1e-10)
    np.testing.assert_allclose(report.eigenvalues, expected.shares, atol=1e-10)
    assert report.settled == expected.rests
    new = make_swiss_roll(40, random_state=1)[0]
    placed = ld.place(tmp_path / "out", {axis: new[:, at] for at, axis in enumerate(AXES)})
    index = ld.Exact(ROLL, expected.values)
    told = WALK(index, new).values / expected.shares  # Nystroem: a step leaves that much
    np.testing.assert_allclose(coordinates(placed), told, atol=1e-9)


@pytest.mark.parametrize("kind, name", [("unsealed", "checkpoint.arrow"), ("created", "axes/axes.json")])
def test_a_killed_lazy_map_is_continued_to_the_same_bytes(
    support: Dataset, kind: str, name: str, tmp_path: Path
):
    rows, real, begun = Path(support.source.store.uri), Settling.states, []
    kill_at("embed", rows, tmp_path / "out", kind, name)

    def watched(loop: Settling, state: Rested) -> Iterator[Rested]:
        begun.append(state.steps)
        return real(loop, state)

    with mock.patch.object(Settling, "states", watched):
        embed(rows, tmp_path / "out")
    assert begun == [200 if name == "axes/axes.json" else 0]
    embed(rows, tmp_path / "calm")
    assert parts(tmp_path / "out") == parts(tmp_path / "calm")
    assert not (tmp_path / "out" / CHECKPOINT).exists()


def test_codes_in_files_tell_rows_and_fill_gaps(support: Dataset, tmp_path: Path):
    made("lazy-autoencoder", support, tmp_path / "out")
    coder = ld.lazy_autoencoder(ROLL, 2, k=8, steps=5)
    np.testing.assert_allclose(coordinates(read(tmp_path / "out")), coder.codes, atol=1e-10)
    new = make_swiss_roll(40, random_state=1)[0]
    new[3, 0] = new[7, 2] = np.nan
    new[9] = np.nan
    queries = pa.table({axis: pa.array(new[:, at], from_pandas=True) for at, axis in enumerate(AXES)})
    with mock.patch("locdist.jobs.asking.questions.BLOCK_ROWS", 7):
        report = ld.place(tmp_path / "out", queries, tmp_path / "placed", keep=["x"])
    placed = read(tmp_path / "placed")
    good = np.arange(40) != 9
    filled = coder.impute(new[good])
    np.testing.assert_allclose(coordinates(placed)[good], coder.encode(filled), atol=1e-10)
    told = np.column_stack([placed[f"reconstructed_{axis}"] for axis in AXES])
    np.testing.assert_allclose(told[good], coder.reconstruct(filled), atol=1e-10)
    assert np.isnan(told[9].astype(float)).all()
    assert placed["status"].to_pylist()[9] == "bad_query"
    assert report.bad_rows == 1


def test_too_many_rows_for_codes_are_refused_before_any_work(support: Dataset, tmp_path: Path):
    with (
        mock.patch("locdist.jobs.embed.MOST_ROWS", 200),
        pytest.raises(UsageError, match="Embed a sample, and place all rows in it"),
    ):
        made("lazy-autoencoder", support, tmp_path / "out")
    with pytest.raises(UsageError, match="leaves a row out of its own answer"):
        ld.lazy_coordinates(WALK.counting())


def test_a_lazy_map_goes_on_from_every_checkpoint_to_the_same_bits(tmp_path: Path):
    loop = Settling(Walk(ld.graph(ld.Exact(ROLL[:60]), method=WALK)), 1e-10, 200)
    start = Rested(torch.from_numpy(np.random.default_rng(0).normal(size=(60, 2))), None, 0, rests=False)
    kept = list(loop.states(start))
    for state in kept[:-1]:
        keep(Store.at(tmp_path), state)
        *_, last = loop.states(begun(Store.at(tmp_path)))
        assert last.steps == kept[-1].steps
        assert torch.equal(loop.turned(last).values, loop.turned(kept[-1]).values)
