"""Pipeline files: what is read and what is refused, in which words; runs that are planned, stopped and
continued.
"""

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, TooManyBadRows, UsageError
from locdist.local.kernels import KERNELS
from locdist.methods.named import METHODS
from locdist.pipeline import amounts
from locdist.pipeline.document import document, scalar, written
from locdist.pipeline.sections import schema
from tests.chaos.pipelines import FILES
from tests.system.generated import parts
from tests.system.test_cli import MAIN, cli, error, process
from tests.system.towns import Towns, gapped, towns

NIGHTLY = """\
version: 1
name: nightly
support: {path: support/, key: [east, north, rooms], target: price, id: town}
queries: {path: queries/}
index: {path: built/}
steps:
  - predict:
      method: {name: local-linear, k: 20, kernel: tricube}
      out: prices/
      keep: [town, east]
  - neighbors: {k: 3, out: near/}
  - evaluate: {step: predict, target: price}
run: {workers: 2, max_bad: 10%}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Towns:
    return towns(tmp_path_factory.mktemp("world"))


@pytest.fixture
def here(world: Towns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data and a pipeline file."""
    for folder in ("support", "queries"):
        (tmp_path / folder).symlink_to(world.root / folder)
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def nightly(*changes: str) -> ld.Pipeline:
    return ld.Pipeline.read("nightly.yaml", changes)


def refused(text: str, *changes: str) -> str:
    """What is said about a file."""
    Path("wrong.yaml").write_text(text)
    with pytest.raises(UsageError) as told:
        ld.Pipeline.read("wrong.yaml", changes)
    return str(told.value)


# the text


@pytest.mark.parametrize("text, value", [
    ("64", 64), ("-3", -3), ("0", 0), ("0.5", 0.5), (".5", 0.5), ("1e-3", 1e-3), ("2.", 2.0),
    ("-1.5E+2", -150.0), ("true", True), ("false", False), ("null", None), ("~", None), ("", None),
])  # fmt: skip
def test_words_that_mean_something(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize("text", [
    "yes", "no", "on", "off", "True", "NULL", "010", "1_000", "1:30", "0x10", "0o7", "2026-11-01", ".inf",
    ".nan", "1.2.3", ".", "1e", "e5", "00.5", "12345678901234567890",
])  # fmt: skip
def test_everything_else_is_text_as_it_is_written(text):
    assert scalar(text) == text
    assert document(f"a: {text}", "f").value == {"a": text}


NUMBERS = st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_written_is_read_again(value):
    assert document(written({"a": value}), "f").value == {"a": value}


@pytest.mark.parametrize("text, said", [
    ("a: &x [1]\nb: *x", r"&x \(f:1\)"),
    ("a: 1\nb: *x", r"\*x \(f:2\)"),
    ("a: !!python/object/apply:os.system [touch code-was-run]", "No code is run"),
    ("a: !!python/name:os.system", "No code is run"),
    ("a: !x 1", "without tags"),
    ("a: !!int '1'", "without tags"),
    ("a: 1\n---\nb: 2", "one document.*f:2"),
    ("? [a]\n: 1", "text as a key"),
    ("a:\n\t- 1", r"\\t.*f:2.*indent with spaces"),
    ("a: b: c", "f:1"),
    ("a: [1", "f:1"),
    ("a: " + "[" * 10_000, "at most 20 levels"),
    ("a: " + "x" * 300_000, "at most 256 KiB"),
])  # fmt: skip
def test_what_yaml_allows_and_a_pipeline_does_not(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        document(text, "f")
    assert list(tmp_path.iterdir()) == []


def test_a_merge_is_a_key_like_any_other(here):
    assert "'<<'" in refused(NIGHTLY + "<<: {name: other}\n")


def test_a_key_given_twice_is_told_with_both_places(here):
    told = refused(NIGHTLY.replace("out: prices/", "out: prices/\n      out: others/"))
    assert "each key once" in told
    assert "wrong.yaml:10" in told
    assert "first at wrong.yaml:9" in told


@pytest.mark.parametrize("content, said", [
    (b"\xff\xfe", "UTF-8"), (b"", "a mapping"), (b"- a", "a mapping"), (b"nothing", "a mapping"),
])  # fmt: skip
def test_a_file_that_is_no_pipeline(content, said, here):
    Path("wrong.yaml").write_bytes(content)
    assert said in error(("run", "wrong.yaml"), 2)


def test_a_path_that_is_no_file(here):
    assert "nothing at nightly.yml" in error(("run", "nightly.yml"), 2)
    assert "_locdist/pipeline.yaml" in error(("run", "queries"), 2)


# what is wrong


METHOD = "{name: local-linear, k: 20, kernel: tricube}"
# What is changed in the file, to what; the line and the path of the mistake, and what is said about it.
WRONG = [
    ("name: nightly", "nam: nightly", 2, "nam", "Did you mean 'name'?"),
    ("version: 1", "version: 2", 1, "version", "expected 1; got 2"),
    ("target: price, id", "tarket: price, id", 3, "support.tarket", "Did you mean 'target'?"),
    ("key: [east", "metric: L2, key: [east", 3, "support.metric", "Did you mean 'l2'?"),
    ("key: [east, north, rooms]", "key: {east: 0}", 3, "support.key.east", "a number above 0"),
    ("key: [east, north, rooms]", "key: 3", 3, "support.key", "got 3"),
    ("key: [east, north, rooms]", "key: [east, 3]", 3, "support.key", "got a list"),
    ("key: [east, north, rooms], ", "", 3, "support.key", "What says how far"),
    ("key: [east, north, rooms], target: price", "key: east, target: [1]", 3, "support.target.0", "quotes"),
    ("path: support/, ", "", 3, "support", "path or step"),
    ("local-linear", "local-linaer", 8, "steps.0.predict.method.name", "Did you mean 'local-linear'?"),
    (METHOD, "kn", 8, "steps.0.predict.method", "Did you mean 'knn'?"),
    (METHOD, "gwr", 8, "steps.0.predict.method.k", "the key 'k'"),
    ("k: 20, kernel", "kk: 20, kernel", 8, "steps.0.predict.method.kk", "Did you mean 'k'?"),
    (METHOD, "{name: knn, kernel: uniform}", 8, "steps.0.predict.method.kernel", "There are: 'intervals'"),
    ("tricube", "tricub", 8, "steps.0.predict.method.kernel", "Did you mean 'tricube'?"),
    ("k: 20", 'k: "20"', 8, "steps.0.predict.method.k", "a whole number or all; got '20'"),
    ("k: 20", "k: 0", 8, "steps.0.predict.method.k", "at least 1"),
    ("k: 20", "k: true", 8, "steps.0.predict.method.k", "a whole number or all; got True"),
    ("k: 20", "bandwidth: -1", 8, "steps.0.predict.method.bandwidth", "positive"),
    ("out: prices/", "output: prices/", 9, "steps.0.predict.output", "Did you mean 'out'?"),
    ("keep: [town, east]", "extras: [spraed]", 10, "steps.0.predict.extras.0", "Did you mean 'spread'?"),
    ("keep: [town, east]", "recall: 1.5", 10, "steps.0.predict.recall", "at most 1"),
    ("keep: [town, east]", "explain: many", 10, "steps.0.predict.explain", "a whole number"),
    ("- predict:", "- predcit:", 7, "steps.0.predcit", "Did you mean 'predict'?"),
    ("{k: 3, out: near/}", "", 11, "steps.1", "one of predict, neighbors, transform, "),
    ("{k: 3,", "{k: 3, name: a b,", 11, "steps.1.neighbors.name", "letters, digits"),
    ("workers: 2", "workers: 0", 13, "run.workers", "at least 1"),
    ("workers: 2", "executor: rya", 13, "run.executor", "Did you mean 'ray'?"),
    ("workers: 2", "resources: {memory: 6 cows}", 13, "run.resources.memory", "6GiB"),
    ("workers: 2", "resources: {memory: 0}", 13, "run.resources.memory", "6GiB"),
    ("workers: 2", "resources: {gpu: 1}", 13, "run.resources.gpu", "Did you mean 'gpus'?"),
    ("max_bad: 10%", "max_bad: 0.1", 13, "run.max_bad", "0.1%"),
]  # fmt: skip
# What two keys mean together, and a schema cannot say.
UNFIT = [
    ("tricube", "dot-product, bandwidth: nearest", 8, "steps.0.predict.method", "a positive temperature"),
    ("evaluate: {step: predict", "evaluate: {step: predcit", 12, "steps.2.evaluate.step", "'predict'"),
    ("evaluate: {step: predict", "evaluate: {step: neighbors", 12, "steps.2.evaluate.step", "above (predict"),
    ("{k: 3,", "{k: 3, index: {step: predict},", 11, "steps.1.neighbors.index.step", "a step above (index)"),
    (METHOD, "{step: tuned}", 8, "steps.0.predict.method.step", "a step above (tune or select or rules)"),
    ("{k: 3,", "{k: 3, index: {},", 11, "steps.1.neighbors.index", "path or step"),
    ("{k: 3,", "{k: 3, queries: {step: later},", 11, "steps.1.neighbors.queries.step", "'predict'"),
    ("{k: 3,", "{k: 3, name: predict,", 11, "steps.1.neighbors", "a name of its own"),
    ("out: near/", "out: prices", 11, "steps.1.neighbors.out", "a folder of its own"),
    ("out: near/", "out: built", 11, "steps.1.neighbors.out", "where the index lies"),
    ("queries: {path: queries/}", "queries: {step: predict}", 4, "queries.step", "the path of the queries"),
    ("queries: {path: queries/}\n", "", 6, "steps.0.predict", "`queries: {path: ...}`"),
    ("index: {path: built/}\n", "", 6, "steps.0.predict", "`index: {path: ...}`"),
    ("workers: 2", "address: auto", 13, "run.address", "no address with executor 'local'"),
    ("workers: 2", "executor: dask, processes: true", 13, "run.processes", "its workers are processes"),
]  # fmt: skip


@pytest.mark.parametrize("right, wrong, line, path, said", WRONG + UNFIT)
def test_a_mistake_is_told_with_its_line_its_path_and_what_was_meant(here, right, wrong, line, path, said):
    assert right in NIGHTLY
    told = refused(NIGHTLY.replace(right, wrong))
    assert re.search(rf"wrong\.yaml:{line}, {re.escape(path)}[:)]", told), told
    assert said in told


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines(here):
    text = NIGHTLY.replace("tricube", "tricub").replace("target: price, id", "tarket: price, id")
    told = refused(text.replace("max_bad: 10%", "max_bad: 10 percent") + "rum: {}\n")
    assert told.count("expected") == 5
    assert [int(line) for line in re.findall(r"wrong\.yaml:(\d+),", told)] == [3, 8, 13, 14]


def test_a_key_that_nobody_knows_hides_no_other_mistake(here):
    told = refused(NIGHTLY.replace("name: nightly", "nam: nightly").replace("out: near/", "out: prices/"))
    assert "'nam'" in told
    assert "a folder of its own" in told


@pytest.mark.parametrize("key, said", [("support", "support.path"), ("queries", "queries.path")])
def test_an_address_with_a_secret_is_refused_and_not_repeated(here, key, said):
    told = refused(NIGHTLY.replace(f"path: {key}/", "path: s3://someone:hush@bucket/x"))
    assert said in told
    assert "credentials" in told
    assert "hush" not in told


@pytest.mark.parametrize("right, wrong, said", [
    ("rooms]", "romos]", "wrong.yaml:3, support.key"),
    ("target: price, id", "target: prise, id", "wrong.yaml:3, support.target"),
    ("[town, east]", "[twon]", "wrong.yaml:10, steps.0.predict.keep"),
    ("target: price}", "target: prise}", "wrong.yaml:12, steps.2.evaluate.target"),
])  # fmt: skip
def test_unknown_columns_are_told_before_anything_runs(here, right, wrong, said):
    Path("wrong.yaml").write_text(NIGHTLY.replace(right, wrong))
    for words in (("run", "wrong.yaml"), ("plan", "run", "wrong.yaml")):
        told = error(words, 2)
        assert said in told
        assert "Did you mean" in told
    assert not Path("built").exists()


@pytest.mark.parametrize("right, wrong, said", [
    ("k: 20", "k: 2000", "k of at most 300, the rows that a query can have"),
    ("k: 3,", "k: 3000,", "got 3000 (wrong.yaml:11, steps.1.neighbors)"),
    ("local-linear, k: 20", "local-logistic, k: 20", "a single target of classes for local-logistic"),
    ("target: price, id", "target: town, id", "a target of numbers for local-linear"),
    ("keep: [town, east]", "extras: [interval]", "wrong.yaml:7, steps.0.predict"),
    ("out: near/", "out: mine/", "mine, which has no _locdist/manifest.json but holds 'notes.txt'"),
    ("out: near/", "out: support/near", "which lies in the input"),
    ("out: near/", "out: prices/near", "which lies in"),
    ("index: {path: built/}", "index: {path: queries/index}", "wrong.yaml:5, index.path"),
])  # fmt: skip
def test_what_a_later_step_would_refuse_is_told_before_anything_runs(here, right, wrong, said):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    Path("wrong.yaml").write_text(NIGHTLY.replace(right, wrong))
    for words in (("run", "wrong.yaml"), ("plan", "run", "wrong.yaml")):
        assert said in " ".join(error(words, 2).split())
    assert not Path("built").exists()
    assert not Path("queries/index").exists()


def test_queries_without_a_column_of_the_key_are_told_before_the_index_is_built(here):
    Path("other").mkdir()
    pq.write_table(gapped(9, 4).rename_columns({"east": "East"}), "other/a.parquet")
    told = error(
        ("run", "nightly.yaml", "--set", "queries.path=other", "--set", "steps.predict.keep=town"), 3
    )
    assert "'east' of the key" in told
    assert not Path("built").exists()


def test_the_command_line_shows_mistakes_as_a_block(here):
    Path("wrong.yaml").write_text(NIGHTLY.replace("tricube", "tricub").replace("k: 3", "k: 0"))
    told = error(("run", "wrong.yaml"), 2)
    assert "2 in wrong.yaml" in told
    assert "wrong.yaml:8" in told
    assert "wrong.yaml:11" in told


# the schema


def described(node: Any, path: str = "") -> Iterator[str]:
    """The keys of a schema without a description."""
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items():
            if not field.get("description"):
                yield f"{path}.{name}"
        for name, part in node.items():
            yield from described(part, f"{path}.{name}")


def test_every_key_of_the_schema_is_described():
    assert list(described(schema())) == []


def test_the_schema_knows_the_methods_with_their_parameters():
    defined = schema()["$defs"]
    assert set(METHODS) <= set(defined)
    linear = defined["local-linear"]["properties"]
    assert set(linear) == {"name", "k", "kernel", "bandwidth", "ridge", "own", "map", "intervals"}
    assert set(linear["kernel"]["anyOf"][0]["enum"]) == set(KERNELS)
    assert defined["gwr"]["required"] == ["name", "k"]


def test_the_schema_command_prints_it():
    told = json.loads(cli("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(told)
    assert told == schema()


def valid(content: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(content))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_schema_accepts_the_shipped_files(path):
    assert valid(document(path.read_text(), path.name).value)


@pytest.mark.parametrize("right, wrong", [row[:2] for row in WRONG])
def test_the_schema_rejects_what_is_refused(right, wrong):
    assert not valid(document(NIGHTLY.replace(right, wrong), "f").value)


def test_the_schema_accepts_what_is_resolved(here):
    assert valid(yaml.safe_load(NIGHTLY))
    assert valid(document(nightly("run.resources={memory: 6GiB}").to_yaml(), "f").value)


# changes


@pytest.mark.parametrize("change, path, value", [
    ("run.executor=ray", ("run", "executor"), "ray"),
    ("run.resources.memory=2GiB", ("run", "resources", "memory"), 2 << 30),
    ("run.resources={cpus: 2, gpus: 0.5}", ("run", "resources", "gpus"), 0.5),
    ("steps.0.predict.method.k=5", ("steps", 0, "predict", "method", "k"), 5),
    ("steps.predict.method.k=5", ("steps", 0, "predict", "method", "k"), 5),
    ("steps.predict.method=knn", ("steps", 0, "predict", "method", "k"), 10),
    ("steps.neighbors.recall=0.9", ("steps", 1, "neighbors", "recall"), 0.9),
    ("steps.1.neighbors.name=near", ("steps", 1, "neighbors", "name"), "near"),
    ("name=", ("name",), None),
    ("name=a=b", ("name",), "a=b"),
    ("support.key={east: 2, north: 0.5}", ("support", "key", "east"), 2.0),
])  # fmt: skip
def test_a_change(here, change, path, value):
    found: Any = nightly(change).file.model_dump(mode="json")
    for part in path:
        found = found[part]
    assert found == value


def test_changes_come_one_after_the_other(here):
    names = ["steps.predict.name=first", "steps.evaluate.step=first"]
    changed = nightly(*names, "steps.first.method=gwr", "steps.first.method.k=9")
    told = {"name": "gwr", "k": 9, "kernel": "bisquare", "family": "gaussian"}
    assert changed.file.steps[0].content.method.model_dump(exclude_none=True) == told


@pytest.mark.parametrize("change, said", [
    ("run.exekutor=ray", "'exekutor' (--set run.exekutor)\n  do        Did you mean 'executor'?"),
    ("rnu.executor=ray", "Did you mean 'run'?"),
    ("run.executor=rya", "Did you mean 'ray'?"),
    ("steps.predcit.k=1", "Did you mean 'predict'?"),
    ("steps.3.evaluate.target=x", "a number below 3"),
    ("version.x=1", "nothing lies below a single value"),
    ("steps.predict.k=1", "a key of steps.0.predict"),
    ("run.workers", "PATH=VALUE"),
    ("=1", "PATH=VALUE"),
    ("run..workers=1", "PATH=VALUE"),
    ("run.workers=[1", "--set run.workers"),
    ("run.workers=!!python/name:os.system", "No code is run"),
])  # fmt: skip
def test_a_change_that_means_nothing(here, change, said):
    told = error(("run", "nightly.yaml", "--set", change), 2)
    assert said in told
    assert not Path("built").exists()


# amounts


@pytest.mark.parametrize("text, size", [
    (1024, 1024), ("1024", 1024), ("6GiB", 6 << 30), ("500MB", 500 * 10**6), ("1.5 GiB", 3 << 29),
    ("10kB", 10_000), ("2TB", 2 * 10**12),
])  # fmt: skip
def test_memory(text, size):
    assert amounts.memory(text) == size


@pytest.mark.parametrize("text", ["6 gib", "GiB", "-1", "", "0", -5, True, 1.5, None, "1e9", "6GiBs"])
def test_memory_that_means_nothing(text):
    with pytest.raises(UsageError, match="6GiB"):
        amounts.memory(text)


# runs


def test_a_pipeline_runs_in_python_as_on_the_command_line(here, world):
    report = nightly().run()
    assert [(step.name, step.verb, step.state) for step in report.steps] == [
        ("index", "index", "done"), ("predict", "predict", "done"),
        ("neighbors", "neighbors", "done"), ("evaluate", "evaluate", "done"),
    ]  # fmt: skip
    first = parts(here / "prices")
    ld.predict(ld.local_linear(20), here / "built", here / "queries", here / "plain", keep=["town", "east"])
    assert first == parts(here / "plain")
    assert report.steps[3].result == ld.evaluate(here / "prices", "price")
    told = json.loads(cli("run", "nightly.yaml", "--json", "-q").stdout)
    assert [step["state"] for step in told["steps"]] == ["finished before"] * 4
    assert told["steps"][3]["result"]["metrics"] == report.steps[3].result.metrics
    assert parts(here / "prices") == first


def test_the_same_content_in_python_is_the_same_pipeline(here):
    content = yaml.safe_load(NIGHTLY)
    made = ld.Pipeline.of(
        {**content, "queries": {"path": here / "queries"}, "steps": tuple(content["steps"])}
    )
    assert made.file == nightly().file
    with pytest.raises(UsageError, match=r"support\.kye.*Did you mean 'key'"):
        ld.Pipeline.of({**content, "support": {**content["support"], "kye": "a"}})


def test_progress_names_the_steps_and_quiet_does_not(here):
    loud = cli("run", "nightly.yaml", "--set", "steps.neighbors.name=near")
    assert "step 1 of 4: index in" in loud.stderr
    assert "step 3 of 4: near (neighbors) in" in loud.stderr
    assert "rmse" in loud.stdout
    again = cli("run", "nightly.yaml", "-q")
    assert again.stderr == ""
    assert again.stdout.count("finished before") == 4


def test_a_plan_writes_nothing_and_tells_what_it_cannot_know(here):
    told = json.loads(cli("plan", "run", "nightly.yaml", "--json").stdout)
    index, predict, near, evaluate = told["steps"]
    assert (index["plan"]["state"], index["plan"]["rows"]) == ("new", 300)
    assert predict["plan"] is near["plan"] is None
    assert "'index' is finished" in predict["why"]
    assert "'predict' is finished" in evaluate["why"]
    assert sorted(path.name for path in here.iterdir()) == ["nightly.yaml", "queries", "support"]
    cli("run", "nightly.yaml", "-q")
    plan = nightly().plan()
    assert [step.plan.state for step in plan.steps[:3]] == ["finished"] * 3
    assert "One pass" in str(plan)
    replaced = nightly().plan(overwrite=["predict"])
    assert "replaces" in replaced.steps[1].plan.state
    assert "'predict' is finished" in replaced.steps[3].why


def test_the_resolved_file_gives_the_same_bytes_from_anywhere(here, tmp_path_factory, monkeypatch):
    nightly("steps.predict.method.k=12", "run.workers=1").run()
    resolved = here / "prices" / "_locdist" / "pipeline.yaml"
    for folder in ("built", "near"):
        assert (here / folder / "_locdist" / "pipeline.yaml").read_text() == resolved.read_text()
    again = ld.Pipeline.read(resolved)
    assert again.to_yaml() == resolved.read_text()
    assert again.file.steps[0].content.method.k == 12
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert {step.state for step in again.run().steps} == {"finished before"}
    changes = [
        "index.path=built",
        "steps.predict.out=prices",
        "steps.neighbors.out=near",
        "run.executor=local",
    ]
    ld.Pipeline.read(resolved, changes).run(executor=ld.Local(2, processes=True))
    assert parts(Path("prices")) == parts(here / "prices") != {}
    assert parts(Path("near")) == parts(here / "near") != {}


def test_an_output_is_overwritten_only_by_name(here):
    nightly().run()
    changed = ("run", "nightly.yaml", "--set", "steps.predict.method.k=9", "-q")
    stopped = cli(*changed)
    assert stopped.exit_code == 2
    assert "request.method.k" in stopped.stderr
    assert "Did you mean 'predict'?" in error((*changed, "--overwrite", "predcit"), 2)
    done = json.loads(cli(*changed, "--overwrite", "predict", "--json").stdout)
    assert [step["state"] for step in done["steps"]] == ["finished before", "done", "finished before", "done"]
    status = json.loads((here / "prices" / "_locdist" / "status.json").read_text())
    assert status["exit_code"] == 0


def test_the_command_that_continues_does_not_overwrite(here):
    words = ("run", "nightly.yaml", "--overwrite", "predict", "--set", "run.workers=1", "--overwrite=index")
    done = process(*words, cwd=here)
    assert done.returncode == 0, done.stderr
    status = json.loads((here / "prices" / "_locdist" / "status.json").read_text())
    assert status["command"] == "locdist run nightly.yaml --set run.workers=1"


def test_without_a_command_line_the_resolved_file_continues(here):
    nightly().run()
    status = json.loads((here / "prices" / "_locdist" / "status.json").read_text())
    assert shlex.split(status["command"]) == ["locdist", "run", f"{here}/prices/_locdist/pipeline.yaml"]


def test_a_step_reads_what_another_one_wrote(here):
    text = NIGHTLY.replace("keep: [town, east]", 'keep: "*"').replace(
        "neighbors: {k: 3, out: near/}",
        "neighbors: {k: 3, out: near/, queries: {step: predict}, keep: prediction}",
    )
    Path("nightly.yaml").write_text(text)
    nightly().run()
    assert pq.read_table("near")["prediction"].equals(pq.read_table("prices")["prediction"])
    status = json.loads(cli("run", "nightly.yaml", "--json", "-q", "--overwrite", "predict").stdout)
    assert [step["state"] for step in status["steps"]] == [
        "finished before",
        "done",
        "finished before",
        "done",
    ]


def test_a_transform_reads_the_output_of_another_one(here):
    text = """
        version: 1
        support: {path: support/, key: [east, north], target: price, id: town}
        steps:
          - transform: {name: smooth, method: {name: local-mean, k: 8}, out: one/, keep: "*"}
          - transform:
              name: again
              support: {step: smooth, key: [east, north], target: prediction, id: town}
              method: {name: local-mean, k: 8}
              out: two/
          - evaluate: {step: smooth}
    """
    Path("layers.yaml").write_text(textwrap.dedent(text))
    report = ld.Pipeline.read("layers.yaml").run()
    assert [step.name for step in report.steps] == ["smooth", "again", "evaluate"]
    assert pq.read_table("two").num_rows == 300
    assert report.steps[2].result.n == 300


def test_an_index_is_opened_where_no_support_is_named(here, world):
    text = NIGHTLY.replace(
        "support: {path: support/, key: [east, north, rooms], target: price, id: town}\n", ""
    )
    Path("nightly.yaml").write_text(text)
    report = nightly(f"index.path={world.index}").run()
    assert [step.name for step in report.steps] == ["predict", "neighbors", "evaluate"]
    assert not (world.index / "_locdist" / "pipeline.yaml").exists()
    with pytest.raises(DataError, match="index"):
        nightly("index.path=nowhere").run()


def test_an_index_of_another_support_is_refused(here):
    nightly().run()
    with pytest.raises(UsageError, match=r"request\.recall"):
        nightly("index.recall=0.5").run()


def test_too_many_bad_rows_stop_the_steps_that_follow(here):
    with pytest.raises(TooManyBadRows, match="at most 1"):
        nightly("run.max_bad=1").run()
    assert pq.read_table("prices").num_rows == 90
    assert not Path("near").exists()
    assert nightly("run.max_bad=2").run().steps[1].state == "finished before"


def test_a_pipeline_in_an_object_store(here, bucket):
    outs = [f"steps.{name}.out={bucket.format('/' + name)}" for name in ("predict", "neighbors")]
    nightly(f"index.path={bucket.format('/index')}", *outs).run()
    nightly().run()
    assert (
        Store.at(bucket.format("/predict")).read("part-00000.parquet")
        == parts(here / "prices")["part-00000.parquet"]
    )
    again = ld.Pipeline.read(bucket.format("/predict/_locdist/pipeline.yaml")).run()
    assert {step.state for step in again.steps} == {"finished before"}


# stopped and continued: a pipeline as a process, in tasks of 20 rows

STOPPED = f"""
import os, signal, sys
from unittest import mock
from locdist.jobs.asking.questions import Ask

encoded, seen = Ask.encoded, []

def interrupted(self, table, first):
    seen.append(first)
    if len(seen) == 3 and "STOP" in os.environ:
        os.kill(os.getpid(), signal.SIGINT)
    return encoded(self, table, first)

mock.patch.object(Ask, "encoded", interrupted).start()
mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=20).start()
{MAIN}
"""


def test_ctrl_c_says_how_to_continue_and_the_same_command_continues(here, monkeypatch):
    words = ("run", "nightly.yaml", "--set", "run.workers=1")
    monkeypatch.setenv("STOP", "1")
    stopped = process(*words, cwd=here, code=STOPPED)
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.endswith("  locdist run nightly.yaml --set run.workers=1\n")
    done = [path.name for path in sorted((here / "prices").glob("*.parquet"))]
    assert 0 < len(done) < 5
    assert not (here / "near").exists()
    assert (here / "prices" / "_locdist" / "pipeline.yaml").exists()
    monkeypatch.delenv("STOP")
    told = process(*words, "--json", cwd=here, code=STOPPED)
    assert told.returncode == 0, told.stderr
    states = {step["name"]: step["state"] for step in json.loads(told.stdout)["steps"]}
    assert states == {"index": "finished before", "predict": "done", "neighbors": "done", "evaluate": "done"}
    whole = process(*words, "--set", "steps.predict.out=whole", "--json", cwd=here, code=STOPPED)
    assert whole.returncode == 0, whole.stderr
    assert parts(here / "whole") == parts(here / "prices")
    assert len(parts(here / "whole")) == 5
