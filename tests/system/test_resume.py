"""Jobs killed at chosen moments and asked again; and what is refused when it is asked differently.

The same output folder is killed ten times in a row, each time further on, and then finished: what an earlier
run finished must survive all later ones.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError, UsageError
from locdist.execute.executor import run
from locdist.execute.local import Local
from locdist.jobs.plans import plan_predict
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record, history
from locdist.testing.tasks import finished, small_job
from tests.system import generated
from tests.system.clusters import until
from tests.system.drivers import Drivers
from tests.system.generated import parts, read, write
from tests.system.interrupted import METHOD, ROLES, TASK_ROWS, build, predict, small

TASKS = 24
BAD = 16 * TASK_ROWS + 3  # a bad query, so that task 16 writes a quarantine file
Moment = tuple[str, str]
PREDICT: list[Moment] = [
    ("begun", "_locdist/plan.json"),
    ("begun", "part-00000.parquet"),
    ("unsealed", "part-00003.parquet"),
    ("created", "predict/part-00006.json"),
    ("committed", "predict/part-00009.json"),
    ("begun", "part-00012.parquet"),
    ("begun", "_locdist/quarantine/part-00016.parquet"),
    ("created", "predict/part-00019.json"),
    ("unsealed", "part-00023.parquet"),
    ("begun", "_locdist/commits/predict.jsonl"),
    ("unsealed", "_locdist/report.json"),
]
BUILD: list[Moment] = [
    ("unsealed", "build/sample/part-00002.arrow"),
    ("begun", "build/trained.arrow"),
    ("begun", "build/lists/part-00003.arrow"),
    ("unsealed", "shards/shard-00001.arrow"),
    ("unsealed", "manifest.json"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Support, queries, an index of lists, and what an undisturbed run writes."""
    folder = tmp_path_factory.mktemp("resume")
    write(generated.table(1000, seed=7), folder / "support")
    queries = generated.table(TASKS * TASK_ROWS, seed=8)
    features = queries["f1"].to_pylist()
    features[BAD] = None
    place = queries.schema.get_field_index("f1")
    write(queries.set_column(place, "f1", pa.array(features, pa.float64())), folder / "queries", files=1)
    with small():
        build(folder, folder / "index")
        predict(folder, folder / "undisturbed")
    assert len(parts(folder / "undisturbed")) == TASKS
    return folder


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    pool = Drivers("tests.system.interrupted")
    yield pool
    pool.close()


def killed(
    drivers: Drivers,
    moment: Moment,
    signal: Path,
    look: Callable[[int], object] = lambda pid: None,
    **words: str,
) -> None:
    """Run until the moment, look, and kill."""
    driver = drivers.command(kind=moment[0], name=moment[1], signal=str(signal), **words)
    end = time.monotonic() + 60
    while not signal.exists():
        if driver.poll() is not None or time.monotonic() > end:
            driver.kill()
            pytest.fail(f"{moment} did not come: {driver.communicate()[1].decode()}")
        time.sleep(0.005)
    look(driver.pid)
    driver.kill()
    driver.communicate()
    signal.unlink()


def assert_stopped_there(out: Path, moment: Moment) -> None:
    """The folder shows that the kill came at its moment, which is inside a write for the first two kinds."""
    kind, path = moment
    found = [file for file in out.rglob(Path(path).name) if str(file).endswith(path)]
    half = list(out.rglob(f".{Path(path).name}.*.tmp"))
    assert len(half) == (kind in ("begun", "unsealed"))
    assert bool(found) == (kind == "committed")
    if kind == "begun":
        assert half[0].read_bytes() == b"PAR1, and no more"


def done(out: Path, stage: str) -> dict[str, Record]:
    return finished(Store.at(out), stage)


# ------------------------------------------------------------------------------------------------- kills


@pytest.mark.slow
def test_a_predict_killed_ten_times_ends_as_if_undisturbed(place: Path, drivers: Drivers, tmp_path: Path):
    out, words = tmp_path / "out", {"verb": "predict", "place": str(place), "out": str(tmp_path / "out")}
    undisturbed, before = parts(place / "undisturbed"), dict[str, Record]()
    counts = []
    for moment in PREDICT:
        killed(drivers, moment, tmp_path / "signal", **words)
        assert_stopped_there(out, moment)
        now = done(out, "predict")
        assert {name: now[name] for name in before} == before
        written = parts(out)
        assert {name: undisturbed[name] for name in written} == written
        before = now
        counts.append(len(now))
    assert counts == sorted(counts)
    assert len(set(counts)) >= 7  # the kills are spread over the commits
    assert counts[-1] == TASKS
    drivers.finish(**words, kind="", name="", signal="")
    assert parts(out) == undisturbed
    after = done(out, "predict")
    assert after == before
    assert len({record.pid for record in after.values()}) >= 6
    assert {record.attempt for record in after.values()} == {1}
    assert history(Store.at(out)).leftovers == ()
    quarantine = "_locdist/quarantine/part-00016.parquet"
    assert (out / quarantine).read_bytes() == (place / "undisturbed" / quarantine).read_bytes()
    assert_reports_agree(out, place / "undisturbed")


def assert_reports_agree(out: Path, other: Path) -> None:
    one, two = (json.loads((folder / "_locdist/report.json").read_text()) for folder in (out, other))
    for name in ("rows", "bad_rows", "status", "reasons", "recall", "nprobe", "tasks"):
        assert one[name] == two[name], name


@pytest.mark.slow
def test_a_build_killed_in_each_stage_ends_as_if_undisturbed(place: Path, drivers: Drivers, tmp_path: Path):
    out, words = tmp_path / "out", {"verb": "build", "place": str(place), "out": str(tmp_path / "out")}
    before: dict[str, Mapping[str, Record]] = {}
    for moment in BUILD:
        killed(drivers, moment, tmp_path / "signal", **words)
        now = history(Store.at(out)).records
        for stage, records in before.items():
            assert {name: now[stage][name] for name in records} == records, stage
        before = dict(now)
        with pytest.raises(DataError, match="Build it, or run the same build command again to finish it"):
            ld.open_index(out)
    assert set(before) == {"profile", "train", "assign", "pack"}
    drivers.finish(**words, kind="", name="", signal="")
    files = sorted(path.relative_to(place / "index") for path in (place / "index").rglob("*.arrow"))
    assert len(files) > 3
    assert sorted(path.relative_to(out) for path in out.rglob("*.arrow")) == files
    for name in (*files, "manifest.json"):
        assert (out / name).read_bytes() == (place / "index" / name).read_bytes(), name


def test_a_second_driver_is_refused_with_the_name_of_the_first(place: Path, drivers: Drivers, tmp_path: Path):
    refusals: list[str] = []

    def second(pid: int) -> None:
        with pytest.raises(MachineError, match=f"process {pid} on host .* since 20") as refused:
            predict(place, tmp_path / "out")
        refusals.append(str(refused.value))

    words = {"verb": "predict", "place": str(place), "out": str(tmp_path / "out")}
    killed(drivers, ("begun", "part-00001.parquet"), tmp_path / "signal", second, **words)
    assert len(refusals) == 1
    with small():
        predict(place, tmp_path / "out")  # the lock died with its holder
    assert parts(tmp_path / "out") == parts(place / "undisturbed")


# ----------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def started(place: Path, tmp_path: Path) -> Path:
    """A finished job on queries and an index of its own."""
    write(generated.table(90, seed=9), tmp_path / "queries")
    ld.build_index(ld.dataset(place / "support", **ROLES), tmp_path / "index")
    ld.predict(METHOD, tmp_path / "index", tmp_path / "queries", tmp_path / "out")
    return tmp_path


def again(folder: Path, method: Any = METHOD, **changed: Any) -> Any:
    return ld.predict(method, folder / "index", folder / "queries", folder / "out", **changed)


def _another_k(folder: Path) -> None:
    again(folder, ld.local_linear(13))


def _another_method(folder: Path) -> None:
    again(folder, ld.local_mean(12))


def _another_index(folder: Path) -> None:
    support = ld.dataset(generated.table(500, seed=10), **ROLES)
    ld.build_index(support, folder / "index", overwrite=True)
    again(folder)


def _changed_input(folder: Path) -> None:
    pq.write_table(generated.table(45, seed=11), folder / "queries/part-1.parquet")
    again(folder)


def _missing_input(folder: Path) -> None:
    (folder / "queries/part-1.parquet").unlink()
    again(folder)


def _another_verb(folder: Path) -> None:
    ld.neighbors(folder / "index", folder / "queries", folder / "out", k=12)


REFUSALS: dict[str, tuple[Callable[[Path], None], type[LocdistError], str]] = {
    "another k": (_another_k, UsageError, r"method\.k 12; got .*method\.k 13\. Use --overwrite"),
    "another method": (_another_method, UsageError, r"name 'local-linear'.*; got .*name 'local-mean'"),
    "another index": (_another_index, UsageError, r"index '[0-9a-f]+'; got \S*index '[0-9a-f]+'"),
    "another verb": (_another_verb, UsageError, r"kind 'predict'.*; got kind 'neighbors'"),
    "another recall": (
        lambda folder: again(folder, recall=0.5),
        UsageError,
        r"recall 0\.99; got \S*recall 0\.5",
    ),
    "another limit": (lambda folder: again(folder, limit=7), UsageError, r"limit None; got \S*limit 7"),
    "other extras": (
        lambda folder: again(folder, extras=["spread"]),
        UsageError,
        r"extras \[\]; got \S*extras \['spread'\]",
    ),
    "other columns": (
        lambda folder: again(folder, keep="name"),
        UsageError,
        r"keep\S* 'id'; got \S*keep\S* 'name'",
    ),
    "a changed file": (_changed_input, DataError, r"'part-1\.parquet' with \w+ .*It changed after the job"),
    "a missing file": (_missing_input, DataError, r"'part-1\.parquet' of this job; got a source without it"),
}


@pytest.mark.parametrize("change, error, told", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_folder_answers_one_request(
    change: Callable[[Path], None], error: type[LocdistError], told: str, started: Path
):
    kept = parts(started / "out")
    with pytest.raises(error, match=told):
        change(started)
    assert parts(started / "out") == kept


def test_the_same_request_computes_nothing_again(started: Path):
    files = sorted((started / "out").glob("part-*"))
    before, modified = done(started / "out", "predict"), [file.stat().st_mtime_ns for file in files]
    os.utime(started / "queries/part-1.parquet", ns=(1, 1))  # a copy, a restored backup: the same file
    report = again(started)
    assert report.rows == 90
    assert done(started / "out", "predict") == before
    assert [file.stat().st_mtime_ns for file in files] == modified


def test_a_file_that_appeared_later_is_told_and_left_out(started: Path):
    kept = parts(started / "out")
    pq.write_table(generated.table(45, seed=11), started / "queries/part-7.parquet")
    pq.write_table(generated.table(45, seed=11), started / "queries/a.parquet")  # sorts before the others
    report = again(started)
    assert report.rows == 90
    assert "2 input files appeared after the job began and are left out: a.parquet" in " ".join(report.notes)
    assert parts(started / "out") == kept


def test_a_lost_output_is_made_again(started: Path):
    kept = parts(started / "out")
    (started / "out/part-00000.parquet").unlink()
    again(started)
    assert parts(started / "out") == kept


@pytest.mark.parametrize("rows", [40, 7], ids=["larger tasks", "smaller tasks"])
def test_a_folder_whose_tasks_another_version_would_cut_otherwise_is_refused(
    started: Path, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr("locdist.jobs.asking.ask.rows_per_task", lambda *given: 20)
    again(started, overwrite=True)
    (started / "out/part-00001.parquet").unlink()
    kept = parts(started / "out")
    monkeypatch.setattr("locdist.jobs.asking.ask.rows_per_task", lambda *given: rows)
    with pytest.raises(UsageError, match=r"inputs \[0, \d+\], planned by another version.*--overwrite"):
        again(started)
    with pytest.raises(UsageError, match="planned by another version"):
        plan_predict(METHOD, started / "index", started / "queries", started / "out")
    assert parts(started / "out") == kept
    assert again(started, overwrite=True).rows == read(started / "out").num_rows == 90


def test_overwrite_replaces_everything(started: Path):
    (started / "out/part-00077.parquet").write_bytes(b"of an older, larger job")
    report = again(started, ld.knn(3), overwrite=True)
    assert report.rows == 90
    assert list(parts(started / "out")) == ["part-00000.parquet"]
    expected = ld.predict(ld.knn(3), started / "index", started / "queries")
    assert read(started / "out").equals(expected)


def test_limit_is_a_trial_of_the_first_rows(started: Path):
    folder, queries = started / "some", started / "queries"
    with small():
        report = ld.predict(METHOD, started / "index", queries, folder, limit=70)
    assert (report.rows, report.tasks) == (70, 2)
    assert read(folder).equals(read(started / "out").slice(0, 70))


@dataclass(frozen=True)
class Value:
    """Writes one number, and does not end its file before there is a file `gate`."""

    value: int
    gate: str = ""

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        with attempt.writer(task.outputs[0]) as stream:
            pq.write_table(pa.table({"value": [self.value]}), stream)
            while self.gate and not Path(self.gate).exists():
                time.sleep(0.01)
        return Record(rows=1)


def test_an_abandoned_attempt_writes_nothing_into_the_next_run(tmp_path: Path):
    """A thread, or a task of Dask, that nobody could stop ends after the folder was given to another run."""
    folder, gate = Store.at(tmp_path / "out"), tmp_path / "gate"
    with claimed(folder, Manifest("small", {"value": 1})), pytest.raises(MachineError, match="in flight"):
        run(small_job(folder, Value(1, str(gate)), tasks=1), Local(1), stall_after=0.5)
    with claimed(folder, Manifest("small", {"value": 2}), overwrite=True):
        records = run(small_job(folder, Value(2), tasks=1), Local(1))
    gate.touch()
    until(lambda: not list((tmp_path / "out").glob(".part-*")))
    assert pq.read_table(tmp_path / "out/part-00000.parquet")["value"].to_pylist() == [2]
    assert finished(folder, "write-0") == records["write-0"]
