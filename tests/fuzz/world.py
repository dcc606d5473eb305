"""A small world of everything that locdist writes and reads, and what can be asked of it."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import locdist as ld
from locdist.data.source import source
from locdist.data.store import Store
from locdist.execute.events import Event, StageStarted, TaskFinished
from locdist.jobs import build_index, plans
from locdist.jobs.asking import ask
from locdist.jobs.batches import Predictor
from locdist.jobs.status import status
from locdist.search import files
from tests.fuzz.mutations import TRAP
from tests.system import generated

SUPPORT, QUERIES = generated.table(120, 1), generated.table(30, 2)
METHOD = ld.local_linear(12)
ROLES: dict[str, Any] = {"key": ["a", "b", "color"], "features": ["f1", "f2"], "target": "y", "weight": "w"}
WORDS: dict[str, Any] = {"extras": ["spread"], "explain": 2, "keep": ["id", "y"]}
LISTS: dict[str, Any] = {"codes": "flat", "nlist": 4, "recall": 1.0}
PIPELINE = """
version: 1
name: nightly
support:
  path: {root}/support
  key: {{a: 1, b: 2.5, color: 1}}
  target: y
  id: id
queries:
  path: {root}/queries
index:
  path: {root}/piped
  recall: 0.9
steps:
  - predict:
      method: {{name: local-linear, k: 12, kernel: tricube}}
      out: {root}/told
      extras: [spread, coefficients]
      keep: [id, y]
  - evaluate:
      target: y
run:
  workers: 1
  resources: {{cpus: 1, memory: 1GiB}}
  max_bad: 1%
"""


class Interruption(BaseException):
    """The driver of an unfinished folder died here."""


@dataclass(frozen=True)
class World:
    """Folders below `root`: support, queries and arrow (the queries as Arrow files), index and exact, out (a
    finished prediction), half (an unfinished one), building (an unfinished index), self (a transform), and a
    pipeline file.
    """

    root: Path

    def build(self) -> None:
        """Make it."""
        (self.root / "empty").mkdir(parents=True)
        generated.write(SUPPORT, self.root / "support", files=2)
        generated.write(QUERIES, self.root / "queries", files=2)
        (self.root / "arrow").mkdir()
        with pa.ipc.new_file(self.root / "arrow/q.arrow", QUERIES.schema) as writer:
            writer.write_table(QUERIES, 16)
        self.index("index", **LISTS)
        self.index("exact")
        self.predict("out")
        self._stopped(lambda each: isinstance(each, TaskFinished), self.predict, "half")
        pack = lambda each: isinstance(each, StageStarted) and each.stage.name == "pack"  # noqa: E731
        self._stopped(pack, self.index, "building", **LISTS)
        ld.transform(METHOD, self.support, self.root / "self", keep=["id", "y"])
        (self.root / "pipeline.yaml").write_text(PIPELINE.format(root=self.root))

    @property
    def support(self) -> Any:
        return ld.dataset(self.root / "support", **ROLES)

    def index(self, name: str, **words: Any) -> Any:
        return ld.build_index(self.support, self.root / name, executor=ld.Local(1), **words)

    def predict(self, name: str, queries: str = "queries", index: str = "index", **words: Any) -> Any:
        return ld.predict(
            METHOD, self.root / index, self.root / queries, self.root / name,
            executor=ld.Local(1), **WORDS, **words,
        )  # fmt: skip

    def _stopped(
        self, when: Callable[[Event], bool], verb: Callable[..., Any], name: str, **words: Any
    ) -> None:
        def listener(event: Event) -> None:
            if when(event):
                raise Interruption

        try:
            verb(name, listener=listener, **words)
        except Interruption:
            return
        raise AssertionError(f"{name} was finished")


def in_pieces() -> None:
    """Have jobs work in several tasks, where these data would be one."""
    for module in (ask, build_index):
        module.rows_per_task = lambda rows, row_bytes: max(1, -(-rows // 3))  # type: ignore[attr-defined]
    os.fsync = lambda descriptor: None  # type: ignore[assignment] # no machine breaks here


def table(folder: Path) -> list[dict[str, Any]]:
    """The rows of an output."""
    return pa.concat_tables(list(source(folder).read())).to_pylist()


def _search(world: World) -> Any:
    return [
        ld.predict(METHOD, world.root / name, QUERIES, **WORDS).to_pylist() for name in ("index", "exact")
    ]


def _resume(world: World) -> Any:
    world.predict("half")
    return table(world.root / "half")


def _again(world: World) -> Any:
    world.predict("out")
    return table(world.root / "out")


def _over(world: World) -> Any:
    world.predict("out", overwrite=True)
    return table(world.root / "out")


def _build(world: World) -> Any:
    index = world.index("building", **LISTS)
    return [shard.checksum for shard in index.layout.shards], str(index)


def _rebuild(world: World) -> Any:
    index = world.index("building", **LISTS, overwrite=True)
    return [shard.checksum for shard in index.layout.shards]


def _transform(world: World) -> Any:
    ld.transform(METHOD, world.support, world.root / "self", keep=["id", "y"], executor=ld.Local(1))
    return table(world.root / "self")


def _evaluate(world: World) -> Any:
    told = [ld.evaluate(world.root / name, "y") for name in ("out", "self")]
    return [(each.metrics, each.rows, each.missing) for each in told]


def _explain(world: World) -> Any:
    told = [ld.explain(world.root / name, row) for name, row in (("out", 3), ("self", 100))]
    return [json.loads(each.to_json()) for each in told], [str(each) for each in told]


def _status(world: World) -> Any:
    for name in ("out", "half", "building", "index", "self"):
        for verify in (False, True):
            told = status(world.root / name, verify)
            _ = str(told), told.to_json()
    return None  # it says what it finds


def _predictor(world: World) -> Any:
    return Predictor.of(world.root / "out")(QUERIES.select(["a", "b", "color", "f1", "f2"])).to_pylist()


def _plan(world: World) -> Any:
    told = [
        plans.plan_predict(METHOD, world.root / "index", world.root / "queries", world.root / name, **WORDS)
        for name in ("out", "half")
    ]
    told += [plans.plan_index(world.support, world.root / "building", **LISTS)]
    _ = [str(each) for each in told]
    return None


def _fresh(world: World) -> Any:
    """Inputs that nobody pinned: what they say now is right, as long as there is a row for each of theirs."""
    for queries in ("queries", "arrow"):
        shutil.rmtree(world.root / "fresh", ignore_errors=True)
        report = world.predict("fresh", queries)
        assert report.rows == source(world.root / queries).rows == len(table(world.root / "fresh"))
    return None


def _fresh_index(world: World) -> Any:
    index = world.index("new", bad="drop")
    assert index.layout.rows <= source(world.root / "support").rows
    return None


def _pipeline(world: World) -> Any:
    told = ld.Pipeline.read(world.root / "pipeline.yaml")
    _ = told.to_yaml(), ld.Pipeline.read(world.root / "pipeline.yaml", ["run.workers=2"])
    return str(told.plan()) and None


@dataclass(frozen=True)
class Deed:
    """What is asked of the world, and of which files the answer hangs (patterns below its root)."""

    name: str
    do: Callable[[World], Any]
    files: tuple[str, ...]


JSONS = (
    *(f"_locdist/{name}.json" for name in ("manifest", "plan", "places", "report", "status")),
    *("_locdist/commits/**/*.json*", "_locdist/lock", "_locdist/events.jsonl"),
)


def _below(*folders: str, names: tuple[str, ...] = JSONS) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in folders for name in names)


INDEX = ("index/manifest.json", "index/lists.arrow", "index/shards/*.arrow", "exact/manifest.json",
         "exact/lists.arrow", "exact/shards/*.arrow")  # fmt: skip
DEEDS = (
    Deed("search", _search, INDEX),
    Deed("resume", _resume, (*_below("half"), *INDEX, "half/*.parquet", "queries/*.parquet")),
    Deed("again", _again, (*_below("out"), "out/*.parquet", "queries/*.parquet")),
    Deed("over", _over, (*_below("out"), "out/*.parquet")),
    Deed("build", _build, (*_below("building"), "building/build/**/*", "support/*.parquet")),
    Deed("rebuild", _rebuild, (*_below("building"), "building/build/**/*")),
    Deed("transform", _transform, (*_below("self", "self/_locdist/index"), "self/_locdist/index/**/*.arrow")),
    Deed("evaluate", _evaluate, (*_below("out", "self"), "*/*.parquet", *INDEX)),
    Deed("explain", _explain, (*_below("out", "self"), "*/*.parquet", *INDEX)),
    Deed("status", _status, _below("out", "half", "building", "index", "self")),
    Deed("predictor", _predictor, (*_below("out"), *INDEX)),
    Deed("plan", _plan, (*_below("out", "half", "building"), *INDEX)),
    Deed("fresh", _fresh, ("queries/*.parquet", "arrow/*.arrow")),
    Deed("fresh index", _fresh_index, ("support/*.parquet",)),
    Deed("pipeline", _pipeline, ("pipeline.yaml",)),
)
PINNED: Mapping[str, bool] = {
    deed.name: not deed.name.startswith(("fresh", "status", "plan", "pipe")) for deed in DEEDS
}


def forget() -> None:
    """Close what a case has opened."""
    files._OPEN.clear()


def trapped(root: Path) -> None:
    """Pipes where paths that lead out of a folder of the world would arrive."""
    for place in (root.parent / TRAP, root / TRAP):
        if not place.exists():
            os.mkfifo(place)


def plain(value: Any) -> Any:
    """An answer as text that can be compared."""
    return json.dumps(value, sort_keys=True, default=str)


__all__ = ["DEEDS", "PINNED", "Deed", "Store", "World", "forget", "in_pieces", "pc", "plain", "trapped"]
