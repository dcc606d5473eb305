"""A planted wrong input of each kind, of each verb: its message comes before any task; that of wrong values,
before the partition that holds them is committed.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError, UsageError
from locdist.execute.choose import executor
from locdist.execute.events import Event, TaskFinished, TaskStarted
from locdist.jobs import build_index
from locdist.jobs.asking import ask
from locdist.plan.records import history
from tests.system import generated
from tests.test_repository import ROOT

SUPPORT, QUERIES = generated.table(200, seed=31), generated.table(40, seed=32)
METHOD = ld.local_linear(9)
PETA = 1 << 50


@dataclass
class World:
    """Right inputs below a folder, each verb on them with some of its words changed, and what was heard."""

    root: Path
    told: list[Event] = field(default_factory=list)

    def support(self, **words: Any) -> Any:
        roles = {"key": ["a", "embedding"], "features": ["f1"], "target": "y", "id": "id"}
        given = {"data": self.root / "support", **roles, **words}
        return ld.dataset(given.pop("data"), **given)

    def build(self, roles: dict[str, Any] | None = None, **words: Any) -> Any:
        words = {"out": self.root / "new", **words}
        return ld.build_index(self.support(**roles or {}), listener=self.told.append, **words)

    def predict(self, **words: Any) -> Any:
        words = {"method": METHOD, "index": self.root / "index", "queries": self.root / "queries", **words}
        return ld.predict(**{"out": self.root / "new", **words}, listener=self.told.append)

    def neighbors(self, **words: Any) -> Any:
        words = {"index": self.root / "index", "queries": self.root / "queries", "k": 3, **words}
        return ld.neighbors(**{"out": self.root / "new", **words}, listener=self.told.append)

    def transform(self, roles: dict[str, Any] | None = None, **words: Any) -> Any:
        words = {"method": METHOD, "out": self.root / "new", **words}
        return ld.transform(support=self.support(**roles or {}), listener=self.told.append, **words)

    def pipeline(self, text: str = "", **words: Any) -> Any:
        content = {
            "version": 1,
            "support": {"path": str(self.root / "support"), "key": ["a", "b"], "target": "y"},
            "queries": {"path": str(self.root / "queries")},
            "index": {"path": str(self.root / "piped")},
            "steps": [{"predict": {"method": {"name": "knn", "k": 3}, "out": str(self.root / "new")}}],
            **words,
        }
        made = ld.Pipeline.of(content, [text] if text else [])
        return made.run(listener=self.told.append)

    def write(self, name: str, table: pa.Table) -> Path:
        """Queries or support of another content."""
        (self.root / name).mkdir()
        pq.write_table(table, self.root / name / "a.parquet")
        return self.root / name

    def without(self, column: str) -> Path:
        return self.write("without", QUERIES.drop_columns([column]))

    def instead(self, column: str, values: Any) -> Path:
        place = QUERIES.schema.get_field_index(column)
        return self.write("instead", QUERIES.set_column(place, column, values))

    def spoiled(self, name: str, change: Callable[[Path], object]) -> Path:
        """A file of the world, changed."""
        change(self.root / name)
        return self.root / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    generated.write(SUPPORT, place / "support")
    generated.write(QUERIES, place / "queries")
    World(place).build(out=place / "index", codes="flat", nlist=4)
    World(place).predict(out=place / "out")
    (place / "foreign").mkdir()
    (place / "foreign/notes.txt").write_text("mine")
    (place / "empty").mkdir()
    return place


@pytest.fixture
def world(made: Path, tmp_path: Path) -> World:
    shutil.copytree(made, tmp_path / "world")
    return World(tmp_path / "world")


def wide() -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(40 * 7, np.float32)), 7)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-50])


Planted = tuple[Callable[[World], object], type[LocdistError], str]
KINDS: dict[str, Planted] = {
    # the support
    "a column that is not there": (lambda w: w.build({"target": "Y"}), UsageError, "'Y'.*Did you mean 'y'"),
    "a column that is missing in one file": (
        lambda w: (
            pq.write_table(SUPPORT.drop_columns(["f1"]), w.root / "support/part-9.parquet"),
            w.build(),
        ),
        DataError,
        r"column 'f1' in every file; got part-9\.parquet",
    ),
    "a column of another type in one file": (
        lambda w: (
            pq.write_table(
                SUPPORT.drop_columns("a").append_column("a", SUPPORT["word"]), w.root / "support/z.parquet"
            ),
            w.build(),
        ),
        DataError,
        r"one type of column 'a'.*z\.parquet",
    ),
    "a vector as the target": (
        lambda w: w.build({"target": "embedding"}),
        UsageError,
        "'embedding', the target",
    ),
    "words as the weight": (lambda w: w.build({"weight": "word"}), UsageError, "'word', the weight"),
    "floats as the id": (lambda w: w.build({"id": "a"}), UsageError, "'a', the id"),
    "no files": (lambda w: w.build({"data": w.root / "empty"}), DataError, r"files that end in \.parquet"),
    "no folder": (lambda w: w.build({"data": w.root / "nowhere"}), DataError, "nothing there"),
    "an unreadable file": (
        lambda w: (w.spoiled("support/part-0.parquet", cut), w.build()),
        DataError,
        r"part-0\.parquet",
    ),
    "a file of zero bytes": (
        lambda w: (w.spoiled("support/part-0.parquet", lambda f: f.write_bytes(b"")), w.build()),
        DataError,
        r"part-0\.parquet; got a file of zero bytes",
    ),
    "a folder without an end": (
        lambda w: ((w.root / "support/loop").symlink_to(w.root / "support"), w.build()),
        DataError,
        r"a folder that ends; got '.*loop', a link to",
    ),
    "an unknown metric": (lambda w: w.build({"metric": "cosin"}), UsageError, "'cosin'.*cosine"),
    "an unknown scaling": (lambda w: w.build({"scaling": "min"}), UsageError, "'min'"),
    "a path, not a dataset": (
        lambda w: ld.build_index(w.root / "support", w.root / "new", listener=w.told.append),  # type: ignore[arg-type]
        UsageError,
        r"ld\.dataset\(\.\.\.\) as the support",
    ),
    # options of an index
    "unknown codes": (lambda w: w.build(codes="fp8"), UsageError, "'fp8'"),
    "more lists than rows": (lambda w: w.build(codes="flat", nlist=500), (UsageError), "500"),
    "a recall of 2": (lambda w: w.build(recall=2.0), UsageError, "recall above 0, at most 1; got 2"),
    "a seed that is none": (lambda w: w.build(seed=-1), UsageError, "seed.*-1"),
    "an unknown policy for bad rows": (lambda w: w.build(bad="ignore"), UsageError, "'ignore'"),
    # the queries
    "queries without a column of the key": (
        lambda w: w.predict(queries=w.without("a")),
        DataError,
        "column 'a' of the key",
    ),
    "queries without a feature": (
        lambda w: w.predict(queries=w.without("f1")),
        DataError,
        "column 'f1' of the features",
    ),
    "vectors of another width": (
        lambda w: w.predict(queries=w.instead("embedding", wide())),
        DataError,
        "with 6 numbers; got 7 numbers",
    ),
    "words where numbers were": (
        lambda w: w.predict(queries=w.instead("a", QUERIES["word"])),
        DataError,
        "column 'a' of the key as number",
    ),
    "neighbors of queries without a key": (
        lambda w: w.neighbors(queries=w.without("embedding")),
        DataError,
        "column 'embedding' of the key",
    ),
    # the index
    "no index": (lambda w: w.predict(index=w.root / "support"), DataError, r"without manifest\.json"),
    "an index that is cut off": (
        lambda w: (w.spoiled("index/shards/shard-00000.arrow", cut), w.predict()),
        DataError,
        r"shard-00000\.arrow",
    ),
    "an index whose manifest was edited": (
        lambda w: (
            w.spoiled("index/manifest.json", lambda f: f.write_text(f.read_text().replace('"y"', '"z"'))),
            w.predict(),
        ),
        DataError,
        "its content is not what was written",
    ),
    "an index elsewhere": (lambda w: w.predict(index="nosuch://place/index"), UsageError, "nosuch"),
    # the method and its options
    "an unknown method": (
        lambda w: w.predict(method="local-liner"),
        UsageError,
        "Did you mean 'local-linear'",
    ),
    "an unknown parameter": (lambda w: w.predict(method={"name": "knn", "kk": 3}), UsageError, "'kk'.*'k'"),
    "an unknown kernel": (
        lambda w: w.predict(method={"name": "local-mean", "kernel": "tricub"}),
        UsageError,
        "tricube",
    ),
    "a kernel of another metric": (
        lambda w: w.predict(method=ld.local_mean(5, "dot-product")),
        UsageError,
        "dot-product.*'ip'",
    ),
    "votes on numbers": (lambda w: w.predict(method="local-vote"), UsageError, "a single target of classes"),
    "k of zero": (lambda w: w.predict(method={"name": "knn", "k": 0}), UsageError, "at least 1; got 0"),
    "k above the rows": (lambda w: w.predict(method=ld.knn(201)), UsageError, "k of at most 200.*got 201"),
    "k above the rows, of neighbors": (lambda w: w.neighbors(k=201), UsageError, "k from 1 to the 200 rows"),
    "k above the other rows": (
        lambda w: w.transform(method=ld.knn(200)),
        UsageError,
        "k of at most 199.*got 200",
    ),
    "a transform that explains less than nothing": (
        lambda w: w.transform(method="knn", explain=-1),
        UsageError,
        "explain",
    ),
    "a transform with a kernel of another metric": (
        lambda w: w.transform(method=ld.local_mean(5, "dot-product")),
        UsageError,
        "dot-product.*'ip'",
    ),
    "a transform that votes on numbers": (
        lambda w: w.transform(method="local-vote"),
        UsageError,
        "a single target of classes",
    ),
    "a transform that averages words": (
        lambda w: w.transform({"target": "word"}),
        UsageError,
        "a target of numbers",
    ),
    "a transform with an unknown extra": (lambda w: w.transform(extras=["spreads"]), UsageError, "'spreads'"),
    "a transform that keeps a column of the answers": (
        lambda w: w.transform({"data": SUPPORT.append_column("status", SUPPORT["word"])}, keep=["status"]),
        UsageError,
        "kept columns besides",
    ),
    "an unknown extra": (lambda w: w.predict(extras=["spreads"]), UsageError, "'spreads'"),
    "a column to keep that is not there": (
        lambda w: w.predict(keep="idd"),
        UsageError,
        "'idd'.*Did you mean 'id'",
    ),
    "a limit of zero": (lambda w: w.predict(limit=0), UsageError, "a limit of at least one row"),
    "bad rows below zero": (lambda w: w.predict(max_bad=-1), UsageError, "max_bad"),
    "a recall of zero": (lambda w: w.neighbors(recall=0.0), UsageError, "recall above 0"),
    # the output
    "output in the input": (lambda w: w.predict(out=w.root / "queries/out"), UsageError, "lies in the input"),
    "output around the input": (lambda w: w.predict(out=w.root), UsageError, "contains the input"),
    "output in the index": (lambda w: w.neighbors(out=w.root / "index"), UsageError, "is the input"),
    "an index in its data": (
        lambda w: w.build(out=w.root / "support/index"),
        UsageError,
        "lies in the input",
    ),
    "somebody's folder": (lambda w: w.predict(out=w.root / "foreign"), UsageError, r"holds 'notes\.txt'"),
    "somebody's folder, to overwrite": (
        lambda w: w.predict(out=w.root / "foreign", overwrite=True),
        UsageError,
        r"holds 'notes\.txt'",
    ),
    "the output of another request": (
        lambda w: w.predict(out=w.root / "out", method=ld.local_linear(10)),
        UsageError,
        r"method\.k 9; got .*10",
    ),
    "the output of another verb": (lambda w: w.neighbors(out=w.root / "out"), UsageError, "predict"),
    "an output below a file": (
        lambda w: w.predict(out=w.root / "foreign/notes.txt/out"),
        MachineError,
        "NotADirectory|Not a directory",
    ),
    "an output through a link": (
        lambda w: (
            (w.root / "linked").mkdir(),
            (w.root / "linked/_locdist").symlink_to(w.root / "foreign"),
            w.predict(out=w.root / "linked"),
        ),
        DataError,
        "which links to .*foreign",
    ),
    "an address with credentials": (
        lambda w: w.predict(out="s3://key:secret@bucket/out"),
        UsageError,
        "one with credentials in it",
    ),
    # the machines
    "an unknown executor": (lambda w: w.predict(executor=executor("spark")), UsageError, "'spark'"),
    "no executor at all": (lambda w: w.predict(executor="ray"), UsageError, "an executor; got 'ray'"),
    "no workers": (lambda w: w.predict(executor=ld.Local(0)), UsageError, "0"),
    "more memory than there is": (
        lambda w: w.predict(resources=ld.Resources(memory=PETA)),
        UsageError,
        "memory 1,125,899,906,842,624 asked",
    ),
    "more cores than there are": (
        lambda w: w.build(resources=ld.Resources(cpus=4096)),
        UsageError,
        "cpus 4,096 asked where the largest worker",
    ),
    "a resource that nobody has": (
        lambda w: w.transform(resources=ld.Resources(custom={"tape": 1.0})),
        UsageError,
        "tape 1.0 asked",
    ),
    "no cores": (lambda w: w.predict(resources=ld.Resources(cpus=0)), UsageError, "cpus > 0"),
    # pipelines
    "a pipeline of another version": (lambda w: w.pipeline(version=2), UsageError, "version"),
    "a pipeline with an unknown key": (lambda w: w.pipeline(suport={}), UsageError, "Did you mean 'support'"),
    "a step with an unknown method": (lambda w: w.pipeline("steps.predict.method=knnn"), UsageError, "'knn'"),
    "a step that reads what is not there": (
        lambda w: w.pipeline(queries={"path": str(w.root / "empty")}),
        DataError,
        r"files that end in \.parquet",
    ),
    "a step whose column is not there": (
        lambda w: w.pipeline(support={"path": str(w.root / "support"), "key": ["a", "bb"], "target": "y"}),
        UsageError,
        "'bb'",
    ),
    "a pipeline for machines that are not there": (
        lambda w: w.pipeline(run={"resources": {"memory": "1024TiB"}}),
        UsageError,
        "memory .* asked",
    ),
}


@pytest.mark.parametrize("plant, error, told", KINDS.values(), ids=KINDS.keys())
def test_a_wrong_input_is_told_before_any_task(
    plant: Callable[[World], object], error: type[LocdistError], told: str, world: World
):
    with pytest.raises(error, match=told) as raised:
        plant(world)
    assert not any(isinstance(event, TaskStarted) for event in world.told)
    assert all(part.strip() for part in (raised.value.expected, raised.value.given, raised.value.remedy))
    assert not list(world.root.glob("new/part-*"))


FINISHED: dict[str, Planted] = {
    "evaluating what is not finished": (
        lambda w: ld.evaluate(w.root / "index"),
        UsageError,
        "a finished output",
    ),
    "evaluating nothing": (
        lambda w: ld.evaluate(w.root / "empty"),
        UsageError,
        "a folder that locdist wrote",
    ),
    "evaluating a column that is not there": (
        lambda w: ld.evaluate(w.root / "out", "yy"),
        UsageError,
        "'yy'.*Did you mean 'y'",
    ),
    "evaluating words as numbers": (lambda w: ld.evaluate(w.root / "out", "word"), UsageError, "'word'"),
    "a truth of another length": (
        lambda w: ld.evaluate(w.root / "out", "y", truth=SUPPORT),
        DataError,
        "a truth of 40 rows",
    ),
    "explaining no row": (lambda w: ld.explain(w.root / "out"), UsageError, "the row or the id"),
    "explaining a row that is not there": (
        lambda w: ld.explain(w.root / "out", 40),
        UsageError,
        "from 0 to 39",
    ),
    "explaining an id that is not there": (
        lambda w: ld.explain(w.root / "out", id=-5),
        UsageError,
        "whose id is -5",
    ),
}


@pytest.mark.parametrize("plant, error, told", FINISHED.values(), ids=FINISHED.keys())
def test_a_wrong_question_about_a_finished_output_is_told(
    plant: Callable[[World], object], error: type[LocdistError], told: str, world: World
):
    before = {file: file.read_bytes() for file in (world.root / "out").rglob("*") if file.is_file()}
    with pytest.raises(error, match=told) as raised:
        plant(world)
    assert all(part.strip() for part in (raised.value.expected, raised.value.given, raised.value.remedy))
    assert {file: file.read_bytes() for file in (world.root / "out").rglob("*") if file.is_file()} == before


def test_a_folder_that_we_may_not_write_to_is_told_before_any_task(world: World):
    """By somebody who may not: another user of the machine."""
    code = f"""
import os, sys
import locdist as ld, torch, faiss, pyarrow.parquet
from locdist.errors import MachineError
from locdist.execute.events import TaskStarted
ld.predict("knn", {str(world.root / "index")!r}, {str(world.root / "queries")!r})  # imports what it needs
if os.geteuid() == 0:
    os.chmod({str(world.root.parent)!r}, 0o755)
    for place in ({str(world.root.parent.parent)!r}, {str(world.root.parent.parent.parent)!r}):
        os.chmod(place, 0o755)
    os.setuid(65534)
else:
    os.chmod({str(world.root / "empty")!r}, 0o555)
told = []
try:
    ld.predict("knn", {str(world.root / "index")!r}, {str(world.root / "queries")!r},
               {str(world.root / "empty")!r} + "/new", listener=told.append)
except MachineError as error:
    assert not any(isinstance(event, TaskStarted) for event in told)
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT), "HOME": "/nowhere"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "PermissionError" in done.stdout, done.stdout + done.stderr
    assert "Check permissions" in done.stdout


# ------------------------------------------------------------------------------------------- wrong values


@pytest.fixture
def in_four(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ask, build_index):
        monkeypatch.setattr(module, "rows_per_task", lambda rows, row_bytes: max(1, -(-rows // 4)))


@pytest.mark.parametrize("verb", ["build", "transform"])
def test_wrong_values_of_a_support_are_told_before_a_row_of_it_is_stored(
    verb: str, in_four: None, world: World
):
    values = SUPPORT["a"].to_pylist()
    values[170] = None
    support = SUPPORT.set_column(SUPPORT.schema.get_field_index("a"), "a", pa.array(values))
    place = world.write("spoiled", support)
    with pytest.raises(DataError, match=r"1 null in 'a'.*row 170"):
        getattr(world, verb)({"data": place})
    stages = {event.stage for event in world.told if isinstance(event, TaskFinished)}
    assert stages == {"profile"}
    assert not list(world.root.glob("new/**/*.parquet")) + list(world.root.glob("new/**/shards/*"))


def test_wrong_values_of_queries_are_told_before_their_partition_is_committed(in_four: None, world: World):
    """Folders say another value than the column in the file: which of both is the id nobody knows."""
    place = world.root / "queries"
    for number in range(4):
        folder = place / f"code={number}"
        folder.mkdir()
        rows = QUERIES.slice(number * 10, 10)
        codes = [number] * 9 + [number if number != 2 else 7]
        pq.write_table(rows.append_column("code", pa.array(codes)), folder / "a.parquet")
    for file in place.glob("*.parquet"):
        file.unlink()
    world.build(
        out=world.root / "exact"
    )  # no search is tuned, which would read all queries before the first task
    with pytest.raises(DataError, match=r"code.*code=2/a\.parquet|code=2/a\.parquet.*code"):
        world.predict(index=world.root / "exact", keep=["code"], executor=ld.Local(1))
    done = history(Store.at(world.root / "new")).records["predict"]
    assert sorted(done) == ["part-00000", "part-00001", "part-00003"]
    assert sorted(file.name for file in (world.root / "new").glob("part-*")) == [
        f"{name}.parquet" for name in done
    ]
