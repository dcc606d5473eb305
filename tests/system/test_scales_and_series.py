"""`backfit` and `forecast` as jobs: in a pipeline, killed and continued."""

import json
import shlex
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.errors import MachineError
from locdist.jobs.scales.planned import plan_backfit
from locdist.jobs.series.planned import plan_forecast
from locdist.local import multiscale
from tests.system.clusters import until
from tests.system.drivers import Drivers
from tests.system.generated import parts, read, sites_and_loads
from tests.system.interrupted import backfit, both, forecast, small

ROWS, METERS, HOURS, STEPS = 64, 7, 60, 5
FILE = """
version: 1
steps:
  - backfit: {{support: {{path: {place}/sites, key: [east, north], features: [rooms], target: price, id: id,
                        scaling: {{key: none}}}}, keep: id, bad: drop, out: {out}/terms}}
  - forecast: {{method: {{name: local-ar, order: 3, k: 12}}, series: {{path: {place}/loads}}, target: load,
               time: hour, id: meter, steps: 5, out: {out}/next}}
run: {{workers: 1}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sites and series in several files, and what one thread makes of them."""
    place = sites_and_loads(tmp_path_factory.mktemp("scales"), ROWS, METERS, HOURS)
    both(place, place / "one", ld.Local(1))
    return place


def test_a_row_for_each_site_and_for_each_step_of_each_series(place: Path):
    terms = read(place / "one/terms")
    assert terms["id"].to_pylist() == list(range(ROWS))
    assert terms["status"].to_pylist()[7] == "bad_query"
    assert terms["estimate_rooms"].null_count == 1
    assert len(parts(place / "one/next")) == 4
    following = read(place / "one/next")
    assert following["meter"].to_pylist() == np.repeat(range(METERS), STEPS).tolist()
    assert following["hour"].to_pylist() == list(range(HOURS, HOURS + STEPS)) * METERS


def test_a_pipeline_does_both_and_the_next_run_finds_them_done(place: Path, tmp_path: Path):
    file = tmp_path / "both.yaml"
    file.write_text(FILE.format(place=place, out=tmp_path))
    for _ in range(2):
        told = CliRunner().invoke(app, ["run", str(file)])
        assert told.exit_code == 0, told.output
    assert read(tmp_path / "next").equals(read(place / "one/next"))
    ours, theirs = (
        read(folder)["prediction"].to_numpy() for folder in (tmp_path / "terms", place / "one/terms")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_the_command_line_says_the_same(place: Path, tmp_path: Path):
    words = [str(place / "sites"), "--key", "east,north", "--scaling", "key=none", "--features", "rooms"]
    words += ["--target", "price", "--id", "id", "--bad", "drop", "--out", str(tmp_path / "terms")]
    for before in (["plan", "backfit"], ["backfit"]):
        told = CliRunner().invoke(app, [*before, *words, "--bandwidth", "nearest", "--workers", "1"])
        assert told.exit_code == 0, told.output
    assert "rooms: bandwidth" in told.output
    ours, theirs = (
        read(folder)["t_rooms"].to_numpy() for folder in (tmp_path / "terms", place / "one/terms")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    words = [str(place / "loads"), "--target", "load", "--steps", "3", "--out", str(tmp_path / "next")]
    told = CliRunner().invoke(app, ["forecast", *words, "--time", "hour"])
    assert told.exit_code == 3  # without an id every hour is there seven times
    assert "different times" in told.output


def test_plans_tell_the_stages(place: Path, tmp_path: Path):
    roles = {"key": ["east", "north"], "features": ["rooms"], "target": "price"}
    told = plan_backfit("mgwr", ld.dataset(place / "sites", **roles), tmp_path / "out", bad="drop")
    assert [stage.name for stage in told.stages][-4:] == ["scales", "hat", "told", "backfit"]
    asked = {"target": "load", "time": "hour", "steps": STEPS}
    told = plan_forecast("local-ar", place / "loads", tmp_path / "out", id="meter", **asked)
    assert [stage.name for stage in told.stages] == ["find", "cut", "forecast"]
    done = plan_forecast(ld.local_ar(order=3, k=12), place / "loads", place / "one/next", id="meter", **asked)
    assert done.state == "finished"


def test_sweeps_go_on_from_the_last_checkpoint(place: Path, tmp_path: Path):
    made, real = list[int](), multiscale._Fitting.swept

    def broken(fitting: multiscale._Fitting, state: multiscale.State) -> multiscale.State:
        if state.number >= 1 and len(made) < 3:
            made.append(state.number)
            raise OSError("a disk that is gone for a while")
        return real(fitting, state)

    with mock.patch.object(multiscale._Fitting, "swept", broken), pytest.raises(MachineError, match="disk"):
        both(place, tmp_path, ld.Local(1))
    assert made == [1, 1, 1]  # attempts, each from what the one before kept
    both(place, tmp_path, ld.Local(1))
    assert parts(tmp_path / "terms") == parts(place / "one/terms")


def test_jobs_that_were_killed_end_with_the_same_bytes(place: Path, tmp_path: Path):
    drivers, signal = Drivers("tests.system.interrupted"), tmp_path / "signal"
    moments = {"backfit": ("begun", "_locdist/checkpoint.arrow"), "forecast": ("created", "cut/cut.json")}
    try:
        for verb, (kind, name) in moments.items():
            words = {"verb": verb, "place": str(place), "out": str(tmp_path / verb)}
            driver = drivers.command(kind=kind, name=name, signal=str(signal), **words)
            until(lambda driver=driver: signal.exists() or driver.poll() is not None, 120)
            assert signal.exists(), driver.communicate()[1].decode()
            driver.kill()
            driver.communicate()
            signal.unlink()
    finally:
        drivers.close()
    with small():
        backfit(place, tmp_path / "backfit")
        forecast(place, tmp_path / "forecast")
    assert parts(tmp_path / "backfit") == parts(place / "one/terms")
    assert parts(tmp_path / "forecast") == parts(place / "one/next")


def test_a_lost_part_is_made_again_with_what_had_been_removed(place: Path, tmp_path: Path):
    shutil.copytree(place / "one", tmp_path, dirs_exist_ok=True)
    for lost in ("terms/part-00001.parquet", "next/part-00002.parquet"):
        (tmp_path / lost).unlink()
    (tmp_path / "terms/_locdist/fit/sites.arrow").unlink()
    both(place, tmp_path, ld.Local(1))
    for job in ("terms", "next"):
        assert parts(tmp_path / job) == parts(place / "one" / job)


def test_a_backtest_tells_which_forecast_would_have_been_right(place: Path, tmp_path: Path):
    words = ["backtest", str(place / "loads"), "--target", "load", "--time", "hour", "--id", "meter"]
    words += ["--steps", "5", "--order", "2,4", "-k", "8,12", "--param", "model=local-mean", "--origins", "3"]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    expected = ld.backtest(
        {"name": "local-ar", "model": "local-mean"}, place / "loads", steps=5, origins=3,
        grid={"order": [2, 4], "k": [8, 12]}, target="load", time="hour", id="meter",
    )  # fmt: skip
    assert found["best"] == expected.best.spec
    assert sorted(trial["value"] for trial in found["trials"]) == sorted(
        score.value for _, score in expected.trials
    )
    told = CliRunner().invoke(app, words).stdout.splitlines()
    assert told[1].split() == ["error", "standard", "error", "unanswered", "order", "k"]
    assert len(told) == 8
    command = shlex.split(told[-1].partition("locdist ")[2].replace("DIR", str(tmp_path / "out")))
    assert CliRunner().invoke(app, command).exit_code == 0
    asked = json.loads((tmp_path / "out/_locdist/manifest.json").read_bytes())["request"]["method"]
    assert asked == {**expected.best.spec, "direct": False}
    refused = CliRunner().invoke(app, [*words, "--order", "2..9"])
    assert refused.exit_code == 2
    assert "values of order" in refused.stderr
