"""How a folder stands, told from the folder alone."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.executor import run
from locdist.execute.local import Local
from locdist.jobs.status import FailedTask, StageState, status
from locdist.plan.lock import hold
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.status import RunStatus, read_status, write_status
from tests.system.small_job import ROWS, Write, small_job
from tests.system.towns import towns


def small(root: Path, fault: str = "") -> Store:
    """A folder that a job of eight tasks wrote; with a fault, all but part-00003."""
    folder, log = Store.at(root / "out"), root / "log"
    log.mkdir(exist_ok=True)
    job = small_job(folder, Write(str(log), fault=fault))
    with claimed(folder, Manifest("small", {})):
        run(job, Local(2), command="locdist again")
    return folder


def test_a_finished_folder(tmp_path):
    told = status(small(tmp_path).uri)
    assert (told.state, told.exit_code, told.message, told.failures) == ("finished", 0, "", ())
    assert told.stages == (StageState("write-0", 8, 8, 8 * ROWS, 0),)
    assert "continue" not in str(told)


def test_a_failed_folder_says_why_and_what_continues(tmp_path):
    with pytest.raises(DataError):
        small(tmp_path, "data")
    told = status(tmp_path / "out")
    assert (told.state, told.exit_code) == ("failed", 3)
    assert told.stages == (StageState("write-0", 7, 8, 7 * ROWS, 0),)
    assert told.failures == (
        FailedTask("write-0", "part-00003", "expected good rows; got bad ones. Mend them."),
    )
    text = str(told)
    assert "failed: part-00003 of write-0: expected good rows" in text
    assert text.endswith("to continue: locdist again")
    assert json.loads(told.to_json())["failures"][0]["task"] == "part-00003"
    assert status(small(tmp_path).uri).failures == ()


@pytest.mark.parametrize("change, state", [
    ({}, "died"),
    ({"pid": 1}, "died"),
    ({"host": "elsewhere"}, "running"),
    ({"host": "elsewhere", "updated": 0.0}, "died"),
])  # fmt: skip
def test_a_run_whose_driver_is_gone_has_died(tmp_path, change, state):
    folder = small(tmp_path)
    write_status(folder, replace(RunStatus("running", command="locdist again"), **change))
    told = status(folder.uri)
    assert told.state == state
    assert ("to continue: locdist again" in str(told)) == (state == "died")
    assert read_status(folder) is not None


def test_a_run_is_there_while_it_has_the_lock(tmp_path):
    folder = small(tmp_path)
    write_status(folder, RunStatus("running"))
    with hold(folder):
        assert status(folder.uri).state == "running"
    assert status(folder.uri).state == "died"


def test_it_writes_nothing(tmp_path):
    folder = small(tmp_path)
    before = {file.path: (file.size, file.modified) for file in folder.files()}
    status(folder.uri)
    assert {file.path: (file.size, file.modified) for file in folder.files()} == before


def test_an_output_that_changed_runs_again(tmp_path):
    folder = small(tmp_path)
    os.truncate(tmp_path / "out" / "part-00005.parquet", 10)
    told = status(folder.uri)
    assert told.state == "damaged"
    assert [each.split(",")[0] for each in told.dropped] == ["part-00005 of write-0"]


def test_a_folder_that_was_only_claimed(tmp_path):
    folder = Store.at(tmp_path / "out")
    with claimed(folder, Manifest("predict", {})):
        pass
    told = status(folder.uri)
    assert (told.state, told.stages) == ("not started", ())
    assert "run the same command again" in str(told)


def test_an_index_and_what_transform_does_below(tmp_path):
    world = towns(tmp_path)
    assert "300 rows, key of width 3, target price, exact search" in str(status(world.index))
    support = ld.dataset(world.support, key=["east"], target="price")
    ld.transform("knn", support, tmp_path / "fit")
    (tmp_path / "fit" / "_locdist" / "status.json").unlink()
    assert status(tmp_path / "fit").kind == "transform, its index"


def test_a_folder_that_is_not_ours(tmp_path):
    with pytest.raises(UsageError, match="that locdist wrote"):
        status(tmp_path)
