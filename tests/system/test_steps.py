"""Steps of a pipeline that learn, and steps that use what others have found: the same as the functions."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.errors import UsageError
from locdist.jobs.chosen import read_map, read_method
from locdist.jobs.learning import Lesson
from tests.system.generated import read
from tests.system.test_cli import cli

KEY = ["east", "north"]
LEARNING: dict[str, Any] = {
    "version": 1,
    "support": {"path": "rows", "key": KEY, "target": "price", "id": "id"},
    "queries": {"path": "new"},
    "index": {"path": "index"},
    "steps": [
        {"rules": {"out": "rules", "rules": [2, 3], "steps": 2, "sample": 50}},
        {"select": {"out": "selected", "methods": ["knn", "local-mean"], "grid": {"k": [3, 6]}}},
        {"tune": {"out": "tuned", "method": "local-mean", "steps": 3, "k": 8}},
        {
            "index": {
                "name": "base",
                "support": {
                    "step": "rules", "key": KEY, "target": "price",
                    "shape": ["east_width", "north_width", "price_by_east", "price_by_north"],
                },
                "out": "base",
            }
        },
        {"index": {"name": "mapped", "map": {"step": "tune"}, "out": "mapped"}},
        {"predict": {"name": "inferred", "method": {"step": "rules"}, "index": {"step": "base"}, "out": "a"}},
        {"predict": {"name": "best", "method": {"step": "select"}, "out": "b"}},
        {"predict": {"name": "learned", "method": {"step": "tune"}, "index": {"step": "mapped"}, "out": "c"}},
        {"neighbors": {"k": 2, "index": {"path": "mapped"}, "out": "near"}},
    ],
}  # fmt: skip
FOUND: dict[str, Any] = {
    "version": 1,
    "support": {"path": "rows", "key": KEY, "id": "id"},
    "queries": {"path": "new"},
    "steps": [
        {"cluster": {"method": {"name": "mean-shift", "bandwidth": 0.5}, "out": "groups"}},
        {"assign": {"clusters": {"step": "cluster"}, "out": "assigned", "keep": "id"}},
        {"embed": {"method": {"name": "lle", "k": 8}, "out": "picture"}},
        {"place": {"embedding": {"step": "embed"}, "out": "placed", "limit": 5}},
    ],
}


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    east, north = rng.normal(size=(2, rows))
    return pa.table({"id": range(rows), "east": east, "north": north, "price": np.sin(east) + 0.3 * north})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, rows, seed in (("rows", 120, 0), ("new", 10, 1)):
        (tmp_path / name).mkdir()
        pq.write_table(table(rows, seed), tmp_path / name / "a.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_steps_that_learn_give_what_the_functions_give(here: Path):
    report = ld.Pipeline.of(LEARNING).run(executor=ld.Local(1))
    assert {step.state for step in report.steps} == {"done"}
    rows = ld.dataset("rows", key=KEY, target="price", id="id")
    rules = ld.learn_rules(ld.dataset("rows", key=KEY, target="price"), rules=[2, 3], steps=2, sample=50)
    assert read(here / "rules").equals(rules.table)
    tuned = ld.tune(rows, method="local-mean", steps=3, k=8)
    assert read_method("tuned/method.json").spec == tuned.method.spec
    assert read_map("tuned/method.json") == tuned.map
    chosen = ld.select(["knn", "local-mean"], "index", grid={"k": [3, 6]}).best
    assert read_method("selected/method.json").spec == chosen.spec
    for out, method, index in (
        ("a", rules.method, "base"),
        ("b", chosen, "index"),
        ("c", tuned.method, "mapped"),
    ):
        assert read(here / out)["prediction"].equals(ld.predict(method, index, "new")["prediction"])
    assert {step.state for step in ld.Pipeline.of(LEARNING).run().steps} == {"finished before"}
    assert cli("status", "tuned").output.splitlines()[0].endswith("tune, finished")


def test_they_are_planned_as_far_as_is_known(here: Path):
    plans = {step.name: step for step in ld.Pipeline.of(LEARNING).plan().steps}
    assert {name for name in plans if plans[name].plan is not None} == {"index", "rules", "tune"}
    assert "'tune' is finished" in plans["mapped"].why
    assert not {path.name for path in here.iterdir()} - {"rows", "new"}
    ld.Pipeline.of(LEARNING).run()
    told = json.loads(ld.Pipeline.of(LEARNING).plan().to_json())
    assert {step["plan"]["state"] for step in told["steps"]} == {"finished"}


def test_new_rows_among_the_clusters_and_in_the_picture_of_steps(here: Path):
    assert {step.state for step in ld.Pipeline.of(FOUND).run().steps} == {"done"}
    assert read(here / "assigned")["cluster"].equals(ld.assign("groups", "new", keep="id")["cluster"])
    assert read(here / "placed").equals(ld.place("picture", "new", limit=5))
    assert {step.state for step in ld.Pipeline.of(FOUND).run().steps} == {"finished before"}


@pytest.mark.parametrize("change, said", [
    ("steps.rules.membership=square", "'gaussian'"),
    ("steps.rules.rules=0", "a number of at least 1"),
    ("steps.rules.ridge=[1, -1]", "a number above 0"),
    ("steps.tune.method=gwr", "local-gp"),
    ("steps.select.methods=knm", "Did you mean 'knn'?"),
    ("steps.select.grid={kk: [3]}", "kk"),
    ("steps.select.grid={k: 9..3}", "0 < low < high"),
    ("steps.mapped.map={step: rules}", "a step above (tune)"),
    ("steps.best.method={step: mapped}", "a step above (tune or select or rules)"),
    ("steps.learned.index={step: base}", "an index under the map that 'tune' learns its method with"),
    ("steps.learned.index=null", "an index under the map that 'tune' learns its method with"),
    ("steps.rules.name=index", "a name of its own"),
])  # fmt: skip
def test_what_they_cannot_do_is_told_before_anything_runs(here: Path, change: str, said: str):
    with pytest.raises(UsageError) as told:
        ld.Pipeline.of(LEARNING, [change])
    assert said in str(told.value)


def test_a_selection_holds_its_sample_however_many_rows_there_are(here: Path):
    index = ld.build_index(ld.dataset("rows", key=KEY, target="price"), "index")
    options = {
        "methods": ["knn"],
        "grid": None,
        "criterion": None,
        "sample": None,
        "seed": 0,
        "simplest": False,
    }
    with mock.patch.object(Lesson, "rows", 10**9):
        assert Lesson("select", index, options).cost.memory < 2 << 30


def test_what_cannot_be_learned_is_told_before_the_task(here: Path):
    with pytest.raises(UsageError, match="a covariance with method 'local-gp'"):
        ld.Pipeline.of(LEARNING, ["steps.tune.covariance=mix"]).run()
    assert not (here / "tuned/_locdist/commits").exists()
