"""How a folder stands, told from the folder alone."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, TooManyBadRows, UsageError
from locdist.execute.executor import run
from locdist.execute.local import Local
from locdist.jobs.status import FailedTask, FolderStatus, StageState, status
from locdist.plan.lock import hold
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.status import RunStatus, read_status, write_status
from locdist.search.summary import Summary
from locdist.testing.tasks import ROWS, small_job
from tests.system.small_job import Write
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
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("part-*.parquet"))
    assert told.stages == (StageState("write-0", 8, 8, 8 * ROWS, 0, size),)
    assert "continue" not in str(told)


def test_a_failed_folder_says_why_and_what_continues(tmp_path):
    with pytest.raises(DataError):
        small(tmp_path, "data")
    told = status(tmp_path / "out")
    assert (told.state, told.exit_code) == ("failed", 3)
    assert [replace(stage, bytes=0) for stage in told.stages] == [StageState("write-0", 7, 8, 7 * ROWS, 0)]
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
    assert "300 rows, key of width 3, target price" in str(status(world.index))
    support = ld.dataset(world.support, key=["east"], target="price")
    ld.transform("knn", support, tmp_path / "fit")
    (tmp_path / "fit" / "_locdist" / "status.json").unlink()
    assert status(tmp_path / "fit").kind == "transform, its index"


def test_a_folder_that_is_not_ours(tmp_path):
    with pytest.raises(UsageError, match="that locdist wrote"):
        status(tmp_path)


@pytest.mark.parametrize("state, exit_code, code", [
    ("finished", 0, 0), ("finished", 5, 5), ("failed", 3, 3), ("failed", 4, 4), ("died", None, 4),
    ("damaged", 0, 4), ("stopped", 130, 130), ("running", None, 0), ("not started", None, 0),
])  # fmt: skip
def test_what_the_command_exits_with(state, exit_code, code):
    assert FolderStatus("out", "predict", state, exit_code).code == code


def test_too_many_bad_rows_are_told(tmp_path):
    world = towns(tmp_path)
    with pytest.raises(TooManyBadRows):
        ld.predict("knn", world.index, world.queries, tmp_path / "out", max_bad=0)
    told = status(tmp_path / "out")
    assert (told.state, told.exit_code, told.code) == ("finished", 5, 5)
    assert "predict, finished, with too many bad rows" in str(told)


def test_an_index_says_why_it_is_what_it_is(tmp_path):
    world = towns(tmp_path)
    ld.build_index(
        ld.dataset(world.queries, key=["east", "north"], target="price"), tmp_path / "i", bad="drop"
    )
    told = status(tmp_path / "i")
    assert told.index is not None
    assert (told.index.rows, told.index.left_out, told.index.width, told.index.nlist) == (87, 3, 2, 0)
    assert "exact search: fewer than 50,000 rows" in str(told)
    assert "3 rows dropped: 2 null in 'east', 2 null in 'price'" in str(told)
    assert json.loads(told.to_json())["index"]["dropped"][0] == {
        "column": "east",
        "reason": "null",
        "rows": 2,
    }


@pytest.mark.parametrize("changed, said", [
    ({}, "exact search: fewer than 50,000 rows"),
    ({"metric": "ip"}, "exact search: the inner product has no lists"),
    ({"codes": "flat", "nlist": 16}, "16 lists of single precision codes: asked for"),
    ({"codes": "flat", "nlist": 1024, "source": 60_000}, "1,024 lists of single precision codes: 50,000"),
    ({"codes": "fp16", "nlist": 8, "source": 60_000, "width": 64}, "half precision codes: 50,000 rows"),
    ({"source": 60_000}, "exact search: asked for"),
])  # fmt: skip
def test_reasons_of_an_index(tmp_path, changed, said):
    layout = ld.open_index(towns(tmp_path).index).layout
    rows = changed.pop("source", 300)
    told = Summary.of(replace(layout, **changed, rows=rows, source=replace(layout.source, rows=rows)))
    assert said in str(told)


def flip(file: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_verifying_finds_bytes_that_changed(tmp_path):
    rows = {"x": np.arange(50.0), "y": np.arange(50.0)}
    index = ld.build_index(ld.dataset(rows, key="x", target="y"), tmp_path / "index")
    ld.predict(ld.knn(k=2), index, rows, tmp_path / "out")
    for folder, name in (("out", "part-00000.parquet"), ("index", "shards/shard-00000.arrow")):
        place = tmp_path / folder
        assert status(place, verify=True).state == "finished"
        flip(place / name)
        assert status(place).state == "finished"
        told = status(place, verify=True)
        assert (told.state, told.code) == ("damaged", 4)
        assert f"{name} is not what was written" in str(told)
