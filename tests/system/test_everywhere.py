"""Files to files over all the support, `-k all`: lists, shards and their number do not matter."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.data.dataset import Dataset
from locdist.errors import UsageError
from tests.system import generated
from tests.system.generated import parts, read

METHOD = ld.local_linear(None, "gaussian", 0.8)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("everywhere")
    generated.write(generated.table(600, 0), place / "support")
    generated.write(generated.table(120, 1), place / "queries", files=4)
    for name, bytes_of_a_shard in (("few", 1 << 30), ("many", 6_000)):
        with mock.patch("locdist.search.build.SHARD_BYTES", bytes_of_a_shard):
            ld.build_index(support(place), place / name, codes="flat", nlist=12)
    ld.build_index(support(place), place / "exact", codes="exact")
    return place


def support(place: Path) -> Dataset:
    return ld.dataset(
        place / "support", key=["a", "b"], features=["f1", "f2"], target=["y", "z"], id="id", weight="w"
    )


def numbers(out: Path) -> np.ndarray:
    found = read(out)
    return np.column_stack(
        [found[name] for name in ("prediction_y", "prediction_z", "spread_y", "effective")]
    )


def test_lists_and_shards_do_not_matter(place: Path, tmp_path: Path):
    for name in ("few", "many", "exact"):
        ld.predict(METHOD, place / name, place / "queries", tmp_path / name, extras=["spread", "effective"])
    assert len(list((place / "many/shards").iterdir())) > 5
    for other in ("many", "exact"):
        np.testing.assert_allclose(numbers(tmp_path / other), numbers(tmp_path / "few"), rtol=1e-9)
    report = json.loads((tmp_path / "few/_locdist/report.json").read_bytes())
    assert report["recall"] is None  # nothing was left out, so nothing was tuned


def test_every_executor_gives_the_same_bytes(place: Path, tmp_path: Path):
    for number, executor in enumerate([ld.Local(1), ld.Local(2), ld.Local(2, processes=True)]):
        with mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=30):
            ld.predict(METHOD, place / "many", place / "queries", tmp_path / str(number), executor=executor)
    assert len(parts(tmp_path / "0")) >= 4
    assert parts(tmp_path / "0") == parts(tmp_path / "1") == parts(tmp_path / "2")


def test_the_support_itself_leaves_each_row_out(place: Path, tmp_path: Path):
    ld.transform(METHOD, support(place), tmp_path / "all")
    ld.transform(ld.local_linear(599, "gaussian", 0.8), support(place), tmp_path / "neighbors")
    ours, theirs = (
        np.column_stack([read(tmp_path / name)[column] for column in ("prediction_y", "prediction_z")])
        for name in ("all", "neighbors")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_the_command_line_says_all(place: Path, tmp_path: Path):
    words = [
        "predict",
        place / "few",
        place / "queries",
        "-m",
        "local-linear",
        "-k",
        "all",
        "--kernel",
        "gaussian",
    ]
    words += ["--bandwidth", "0.8", "--out", tmp_path / "out"]

    def run(*given: object) -> str:
        done = CliRunner().invoke(app, list(map(str, given)))
        assert done.exit_code == 0, done.output
        return done.stdout

    planned = json.loads(run("plan", *words, "--json"))
    assert planned["stages"][0]["distances"] == 120 * 600
    run(*words, "--extras", "spread,effective", "-q")
    ld.predict(METHOD, place / "few", place / "queries", tmp_path / "python", extras=["spread", "effective"])
    assert parts(tmp_path / "out") == parts(tmp_path / "python")
    explained = CliRunner().invoke(app, ["explain", str(tmp_path / "out"), "--row", "3"])
    assert explained.exit_code == 2
    assert "k=None" in explained.stderr


def test_what_lists_neighbors_is_refused_before_any_task(place: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="explain"):
        ld.predict(METHOD, place / "few", place / "queries", tmp_path / "out", explain=3)
    assert not (tmp_path / "out").exists()


def test_a_pipeline_file_says_all(place: Path, tmp_path: Path):
    method = {"name": "local-linear", "k": "all", "kernel": "gaussian", "bandwidth": 0.8}
    file = {
        "version": 1,
        "index": {"path": str(place / "few")},
        "queries": {"path": str(place / "queries")},
        "steps": [{"predict": {"method": method, "out": str(tmp_path / "out")}}],
    }
    ld.Pipeline.of(file).run()
    ld.predict(METHOD, place / "few", place / "queries", tmp_path / "python")
    assert parts(tmp_path / "out") == parts(tmp_path / "python")
    again = ld.Pipeline.read(tmp_path / "out/_locdist/pipeline.yaml")
    assert again.file.steps[0].content.method.k == "all"


@pytest.mark.parametrize("name", ["localize", "local-gp"])
def test_all_is_never_taken_for_a_default(place: Path, tmp_path: Path, name: str):
    words = ["predict", place / "few", place / "queries", "-m", name, "-k", "all", "--bandwidth", "0.8"]
    done = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "a m" in done.stderr  # a method, or a model, of sums
