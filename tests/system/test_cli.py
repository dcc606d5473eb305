"""The command line: every command, its exit codes, its JSON, and what its errors say."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import locdist as ld
from locdist.cli import frame, options
from locdist.cli.app import app
from locdist.errors import MachineError, UsageError
from locdist.execute.executor import Stopped
from tests.system.towns import Towns, table, towns

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from locdist.cli import main; main()"
KEY = ("--key", "east,north", "--key", "rooms:2", "--target", "price", "--id", "town")


def cli(*words: object) -> Result:
    """A command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def process(*words: object, cwd: Path, code: str = MAIN) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Towns:
    return towns(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def out(world) -> Path:
    """A finished prediction."""
    done = cli(
        "predict", world.index, world.queries, "-m", "local-linear", "-k", 30, "--out", world.root / "out"
    )
    assert done.exit_code == 0, done.output
    return world.root / "out"


# help


def test_help_names_the_commands_and_loads_nothing_heavy(tmp_path):
    code = """
import sys
sys.argv = ["locdist", "--help"]
from locdist.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code
print("MODULES", *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    text, loaded = done.stdout.split("MODULES", 1)
    for word in (
        "index",
        "predict",
        "neighbors",
        "transform",
        "evaluate",
        "explain",
        "plan",
        "status",
        "methods",
        "run",
        "schema",
    ):
        assert word in text
    assert not {"torch", "faiss", "pyarrow", "pandas", "numpy", "ray", "dask"} & set(loaded.split())


@pytest.mark.parametrize(
    "verb", ["index", "predict", "neighbors", "transform", "evaluate", "explain", "status", "run", "schema"]
)
def test_every_command_teaches_with_an_example(verb):
    done = cli(verb, "--help")
    assert done.exit_code == 0
    assert f"locdist {verb} " in done.output


def test_doctor_says_what_there_is_and_exits_with_4_when_it_does_not_go_together(monkeypatch):
    monkeypatch.delenv("KMP_DUPLICATE_LIB_OK", raising=False)
    found = cli("doctor", "--json")
    assert found.exit_code == 0
    assert set(json.loads(found.stdout)["versions"]) >= {"python", "locdist", "torch", "faiss-cpu"}
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "TRUE")
    found = cli("doctor")
    assert found.exit_code == 4
    assert "Unset it." in found.stdout


def test_version_and_methods():
    assert cli("--version").output == f"locdist {ld.__version__}\n"
    told = cli("methods").output
    for name in ("local-linear", "gwr", "tricube", "dot-product", "bandwidth"):
        assert name in told


# the commands


def test_from_files_to_metrics_in_processes(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(table(300, 1), tmp_path / "data" / "a.parquet")
    (tmp_path / "new").mkdir()
    pq.write_table(table(40, 2), tmp_path / "new" / "b.parquet")
    built = process("index", "data", *KEY, "--out", "index", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert "300 rows" in built.stdout
    words = ("predict", "index", "new", "-m", "knn", "-k", 5, "--out", "out dir", "--json", "--overwrite")
    done = process(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 40
    assert "predict" in done.stderr  # progress
    status = json.loads((tmp_path / "out dir" / "_locdist" / "status.json").read_text())
    told = shlex.split(status["command"])
    assert told == ["locdist", *map(str, words[:-1])]  # --overwrite would delete what it continues
    again = process(*told[1:], "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")


def test_index_says_what_it_is_and_continues(world, tmp_path):
    words = ("index", world.support, *KEY, "--recall", 0.9, "--out", tmp_path / "index", "--json")
    first, second = cli(*words), cli(*words)
    assert first.exit_code == second.exit_code == 0
    told = json.loads(first.stdout)
    assert (told["kind"], told["state"]) == ("build-index", "finished")
    layout = ld.open_index(tmp_path / "index").layout
    assert layout.recall == 0.9
    assert layout.roles.key == (("east", 1.0), ("north", 1.0), ("rooms", 2.0))


def test_predict_has_every_option(world, tmp_path):
    done = cli(
        "predict", world.index, world.queries, "-m", "local-linear", "-k", 20, "--kernel", "gaussian",
        "--bandwidth", "nearest:0.5", "--param", "ridge=0.01", "--keep", "town,east", "--extras", "spread",
        "--extras", "effective", "--explain", 2, "--limit", 30, "--max-bad", "10%", "--workers", 1,
        "--out", tmp_path / "out", "--json", "-q",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["rows"] == 30
    found = pq.read_table(tmp_path / "out")
    assert found.column_names == ["town", "east", "prediction", "status", "spread", "effective", "neighbors"]
    manifest = json.loads((tmp_path / "out" / "_locdist" / "manifest.json").read_text())
    assert manifest["request"]["method"] == {
        "name": "local-linear", "k": 20, "kernel": "gaussian", "bandwidth": {"nearest": 0.5}, "ridge": 0.01,
    }  # fmt: skip


def test_neighbors_and_transform(world, tmp_path):
    near = cli("neighbors", world.index, world.queries, "-k", 3, "--out", tmp_path / "near")
    assert near.exit_code == 0, near.output
    assert {len(row) for row in pq.read_table(tmp_path / "near").column("neighbors").to_pylist()} == {0, 3}
    words = (
        "transform",
        world.support,
        *KEY,
        "-m",
        "local-mean",
        "-k",
        9,
        "--out",
        tmp_path / "fit",
        "--json",
    )
    done = cli(*words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 300


def test_evaluate_and_explain(out):
    told = json.loads(cli("evaluate", out, "--json").stdout)
    assert told["metrics"] == ld.evaluate(out).metrics
    assert "rmse" in cli("evaluate", out, "--target", "price").stdout
    by_row, by_id = (cli("explain", out, *which) for which in (("--row", 7), ("--id", "t3-7")))
    assert by_row.exit_code == 0
    assert by_row.stdout == by_id.stdout
    assert "coefficients of prediction" in by_row.stdout
    assert json.loads(cli("explain", out, "--row", 7, "--json").stdout)["stored_equal"] is True


# plan and status


@pytest.mark.parametrize("verb", ["index", "predict", "neighbors", "transform"])
def test_plan_tells_and_writes_nothing(world, tmp_path, verb):
    words = {
        "index": (world.support, *KEY),
        "predict": (world.index, world.queries, "-m", "local-linear"),
        "neighbors": (world.index, world.queries, "-k", 4),
        "transform": (world.support, *KEY, "-m", "knn"),
    }[verb]
    done = cli("plan", verb, *words, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert f"{verb} into {tmp_path / 'out'}: new" in done.stdout
    assert not (tmp_path / "out").exists()
    told = json.loads(cli("plan", verb, *words, "--out", tmp_path / "out", "--json").stdout)
    assert told["rows"] == (300 if verb in ("index", "transform") else 90)
    assert all(stage["memory"] > 0 and stage["finished"] == 0 for stage in told["stages"])
    assert told["stages"][-1]["name"] == {"index": "pack"}.get(verb, verb)


def test_plan_knows_lists_and_what_is_finished(world, out, tmp_path):
    told = json.loads(
        cli(
            "plan",
            "index",
            world.support,
            *KEY,
            "--codes",
            "flat",
            "--nlist",
            16,
            "--out",
            tmp_path,
            "--json",
        ).stdout
    )
    assert told["choices"]["codes"] == "flat (asked for)"
    assert {stage["name"]: stage["distances"] for stage in told["stages"]}["assign"] == 16 * 300
    words = ("plan", "predict", world.index, world.queries, "-m", "local-linear", "-k", 30, "--out", out)
    assert "finished" in cli(*words).stdout.splitlines()[0]
    assert "replaces" in cli(*words, "--overwrite").stdout.splitlines()[0]
    other = cli(*words[:6], "-k", 29, "--out", out)
    assert other.exit_code == 2
    assert "30" in other.stderr


@pytest.mark.parametrize("executor", ["local", "ray", "dask"])
def test_plan_counts_tasks_at_a_time_by_what_each_asks(world, tmp_path, executor):
    words = ("plan", "neighbors", world.index, world.queries, "-k", 4, "--out", tmp_path / "out", "--json")
    run = ("--executor", executor, "--workers", 6, "--resources")
    told = [json.loads(cli(*words, *run, f"cpus={cpus}").stdout)["workers"] for cpus in (1, 2, 3)]
    assert told == [6, 3, 2]


def test_plan_says_that_nprobe_is_tuned(world, tmp_path):
    index = tmp_path / "lists"
    built = cli("index", world.support, *KEY, "--codes", "flat", "--nlist", 16, "--out", index)
    assert built.exit_code == 0, built.output
    words = ("predict", index, world.queries, "-k", 3, "--out", tmp_path / "out")
    told = json.loads(cli("plan", *words, "--json").stdout)
    assert told["choices"]["nprobe"] == "chosen on a sample of the queries when the run starts"
    assert "√nlist, assumed" in told["stages"][0]["basis"]
    assert cli(*words).exit_code == 0
    again = json.loads(cli("plan", *words, "--json").stdout)
    assert again["choices"]["nprobe"].isdigit()
    assert again["state"] == "finished"


def test_status_of_finished_folders(world, out):
    index = json.loads(cli("status", world.index, "--json").stdout)
    assert (index["kind"], index["state"], index["stages"]) == ("build-index", "finished", [])
    told = json.loads(cli("status", out, "--json").stdout)
    assert (told["state"], told["exit_code"], told["failures"]) == ("finished", 0, [])
    assert [stage["rows"] for stage in told["stages"]] == [90]


def test_status_of_a_folder_whose_output_is_gone(world, tmp_path):
    words = ("predict", world.index, world.queries, "-k", 3, "--out", tmp_path / "out")
    assert cli(*words).exit_code == 0
    (tmp_path / "out" / "part-00000.parquet").unlink()
    damaged = cli("status", tmp_path / "out")
    told = damaged.stdout
    assert damaged.exit_code == 4
    assert "damaged" in told
    assert "to run again: part-00000" in told
    assert "to continue: locdist" in told
    assert cli(*words).exit_code == 0
    assert "predict, finished" in cli("status", tmp_path / "out").stdout


def test_status_of_a_failed_run_says_why_and_what_continues(world, tmp_path):
    lists = pa.table({"v": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "y": [1.0, 2.0, 3.0]})
    (tmp_path / "data").mkdir()
    pq.write_table(lists, tmp_path / "data" / "a.parquet")
    index = tmp_path / "index"
    assert cli("index", tmp_path / "data", "--key", "v", "--target", "y", "--out", index).exit_code == 0
    (tmp_path / "new").mkdir()
    damaged = tmp_path / "new" / "damaged.parquet"
    pq.write_table(lists, damaged, compression="none", use_dictionary=False)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:4] + b"\xff" * 40 + content[44:])  # a page, not the footer
    done = cli("predict", index, tmp_path / "new", "-m", "knn", "-k", 1, "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "damaged.parquet" in done.stderr
    failed = cli("status", tmp_path / "out")
    told = failed.stdout
    assert failed.exit_code == 3
    assert "to continue:" in told
    assert "finished" not in told.splitlines()[0]


# exit codes and errors


def error(words: tuple[object, ...], code: int) -> str:
    """What a failing command says; nothing on stdout, no traceback, three parts."""
    done = cli(*words)
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in ("error\n", "  expected  ", "  got       ", "  do        "):
        assert part in done.stderr
    return done.stderr


def test_all_unknown_columns_of_the_support_are_told_at_once(world, tmp_path):
    told = error(
        ("index", world.support, "--key", "eats,north", "--target", "prise", "--out", tmp_path / "i"), 2
    )
    assert "'eats', 'prise'" in told
    assert "Did you mean 'east'? Did you mean 'price'?" in told
    assert not (tmp_path / "i").exists()


def test_columns_that_the_queries_lack(world, tmp_path):
    pq.write_table(
        table(5, 5).rename_columns(["town", "East", "nroth", "rooms", "price", "dear", "level"]),
        tmp_path / "q.parquet",
    )
    told = error(("predict", world.index, tmp_path / "q.parquet", "--out", tmp_path / "out"), 3)
    assert "'east', 'north' of the key" in told
    assert "Did you mean 'East'? Did you mean 'nroth'?" in told
    assert not (tmp_path / "out").exists()


def vectors(rows: int, width: int) -> pa.Table:
    flat = np.random.default_rng(0).normal(size=rows * width).astype(np.float32)
    return pa.table(
        {"v": pa.FixedSizeListArray.from_arrays(pa.array(flat), width), "y": np.arange(float(rows))}
    )


def test_vectors_of_another_width(tmp_path):
    for name, width in (("data", 8), ("new", 7)):
        (tmp_path / name).mkdir()
        pq.write_table(vectors(20, width), tmp_path / name / "a.parquet")
    index = tmp_path / "index"
    assert cli("index", tmp_path / "data", "--key", "v", "--target", "y", "--out", index).exit_code == 0
    told = error(("predict", index, tmp_path / "new", "-k", 3, "--out", tmp_path / "out"), 3)
    assert "8" in told
    assert "7" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["predict", "neighbors"])
def test_more_neighbors_than_rows(world, tmp_path, verb):
    told = error((verb, world.index, world.queries, "-k", 301, "--out", tmp_path / "out"), 2)
    assert "300" in told
    assert "301" in told


def test_an_output_inside_an_input(world):
    inside = world.queries / "out"
    assert "lies in" in error(("predict", world.index, world.queries, "-k", 3, "--out", inside), 2)
    assert not inside.exists()


def test_the_output_of_another_job(world, out):
    told = error(("predict", world.index, world.queries, "-m", "knn", "-k", 30, "--out", out), 2)
    assert "request.method" in told
    assert "--overwrite" in told


def test_a_kept_column_that_the_output_has_itself(world, tmp_path):
    (tmp_path / "new").mkdir()
    again = table(5, 5).rename_columns({"price": "prediction"})
    pq.write_table(again, tmp_path / "new" / "a.parquet")
    words = ("predict", world.index, tmp_path / "new", "--keep", "prediction", "--out", tmp_path / "out")
    assert "Rename" in error(words, 2)


def test_a_mean_has_no_slopes_among_its_coefficients(world, tmp_path):
    words = ("predict", world.index, world.queries, "-m", "knn", "-k", 3, "--extras", "coefficients")
    assert cli(*words, "--out", tmp_path / "out").exit_code == 0
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert all(row["coefficients"] in ([row["prediction"]], None) for row in found)


def test_a_folder_that_is_not_ours(world, tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    told = error(("predict", world.index, world.queries, "--out", tmp_path, "--overwrite"), 2)
    assert "thesis.tex" in told
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_that_is_not_parquet(world, tmp_path):
    (tmp_path / "new.parquet").write_text("not at all")
    assert "new.parquet" in error(
        ("predict", world.index, tmp_path / "new.parquet", "--out", tmp_path / "out"), 3
    )
    assert "nothing there" in error(
        ("predict", world.index, tmp_path / "old.parquet", "--out", tmp_path / "out"), 3
    )


@pytest.mark.parametrize("words, said", [
    (("-m", "local-linaer"), "Did you mean 'local-linear'?"),
    (("--kernel", "tricub"), "Did you mean 'tricube'?"),
    (("--param", "rigde=1", "-m", "local-linear"), "Did you mean 'ridge'?"),
    (("--extras", "spraed"), "spread"),
    (("--keep", "twon"), "Did you mean 'town'?"),
    (("--bandwidth", "wide"), "nearest:1.5"),
    (("--bandwidth", "-1"), "positive"),
    (("--max-bad", "some"), "0.1%"),
    (("--limit", "0"), "at least one row"),
    (("--workers", "0"), "workers"),
    (("--executor", "rya"), "Did you mean 'ray'?"),
    (("--address", "tls://here:8786"), "no address with executor 'local'"),
    (("--executor", "dask", "--processes"), "no processes with executor 'dask'"),
    (("--resources", "cpus"), "NAME=AMOUNT"),
    (("--resources", "cpus=two"), "'cpus=two'"),
    (("--resources", "memory=6 cows"), "6GiB"),
    (("--resources", "cpus=0"), "cpus > 0"),
    (("--executor", "spark"), "local, ray, dask"),
    (("-m", "local-vote"), "single target of classes"),
])  # fmt: skip
def test_wrong_words_are_named_with_what_to_do(world, tmp_path, words, said):
    assert said in error(("predict", world.index, world.queries, *words, "--out", tmp_path / "out"), 2)
    assert not (tmp_path / "out").exists()


def test_an_option_that_does_not_exist(world):
    done = cli("predict", world.index, world.queries, "--nearest", 3)
    assert done.exit_code == 2
    assert "--nearest" in done.stderr


def test_too_many_bad_rows_end_in_5_after_all_is_written(world, tmp_path):
    words = ("predict", world.index, world.queries, "-k", 3, "--out", tmp_path / "out", "--max-bad")
    told = error((*words, 1), 5)
    assert "2 " in told
    assert pq.read_table(tmp_path / "out").num_rows == 90
    assert cli(*words, 2).exit_code == 0


def test_bad_support_rows_stop_the_build_or_are_dropped(world, tmp_path):
    words = ("index", world.queries, *KEY, "--out", tmp_path / "index")
    told = error(words, 3)
    assert "'east'" in told
    assert "--bad drop" in told
    assert cli(*words, "--bad", "drop", "--overwrite").exit_code == 0
    assert ld.open_index(tmp_path / "index").layout.rows == 87


@pytest.mark.parametrize("raised, code", [
    (MachineError("a disk", "none", "Wait."), 4),
    (Stopped(signal.SIGINT), 130),
    (Stopped(signal.SIGTERM), 143),
    (KeyboardInterrupt(), 130),
])  # fmt: skip
def test_what_stops_a_run_has_its_exit_code(world, tmp_path, monkeypatch, raised, code):
    def stop(*args: object, **kwargs: object) -> None:
        raise raised

    monkeypatch.setattr("locdist.jobs.predict.predict", stop)
    done = cli("predict", world.index, world.queries, "--out", tmp_path / "out")
    assert done.exit_code == code
    assert done.stderr.strip()
    assert done.stdout == ""


ABANDON = """
import os, signal, threading, time
import torch
from locdist.jobs.asking.questions import Ask
from locdist.cli import main

def interrupt():
    for _ in range(2):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

def encoded(self, table, first):
    threading.Thread(target=interrupt, daemon=True).start()
    while True:
        torch.linalg.eigh(torch.rand(300, 300))

Ask.encoded = encoded
main()
"""


def test_a_second_interrupt_ends_at_once_with_its_exit_code(world, tmp_path):
    done = process("predict", world.index, world.queries, "--out", "out", cwd=tmp_path, code=ABANDON)
    assert done.returncode == 130, done.stderr
    assert "terminate" not in done.stderr
    assert "running the same again continues" in done.stderr


def test_minimum_norm_predictions_are_told(world, tmp_path):
    words = ("predict", world.index, world.queries, "-m", "local-linear", "-k", 3, "--out", tmp_path / "out")
    assert "all predictions are minimum-norm" in cli(*words).stdout
    assert "minimum-norm" not in cli(*words, "--json").stdout
    assert "minimum-norm" not in cli(*words, "--ridge", 0.1, "--overwrite").stdout


def test_a_fault_of_locdist_keeps_its_traceback(world, tmp_path, monkeypatch):
    monkeypatch.setattr("locdist.jobs.status.status", lambda folder, verify: 1 // 0)
    done = cli("status", world.index)
    assert done.exit_code == 1
    assert isinstance(done.exception, ZeroDivisionError)


# words into values


@pytest.mark.parametrize("given, meant", [
    (["a", "b:2"], {"a": 1.0, "b": 2.0}),
    (["a, b:0.5,c"], {"a": 1.0, "b": 0.5, "c": 1.0}),
    (["time:utc:1", "x:y:3"], {"time:utc": 1.0, "x:y": 3.0}),
    (None, {}),
])  # fmt: skip
def test_columns(given, meant):
    assert options.columns(given) == meant


@pytest.mark.parametrize("given, said", [
    ("lat:abc", "'lat:abc': bad multiplier 'abc'"),
    ("lon:,lat", "'lon:': bad multiplier ''"),
    (":2", "no column"),
])  # fmt: skip
def test_columns_with_a_bad_multiplier(given, said):
    with pytest.raises(UsageError, match=said):
        options.columns([given])


@pytest.mark.parametrize("given, meant", [(None, None), (["a,b", "c"], ["a", "b", "c"]), (["*"], "*")])
def test_keep(given, meant):
    assert options.keep(given) == meant


@pytest.mark.parametrize("given, meant", [("0.1%", 0.001), ("100", 100.0), ("0", 0.0), (None, None)])
def test_max_bad(given, meant):
    assert options.max_bad(given) == meant


@pytest.mark.parametrize("given", ["-1", "0.5", "100%", "x", "%"])
def test_max_bad_that_means_nothing(given):
    with pytest.raises(UsageError, match="share"):
        options.max_bad(given)


@pytest.mark.parametrize("given, meant", [
    (["cpus=2,memory=6GiB", "gpus=0.5"], {"cpus": 2.0, "memory": 6 << 30, "gpus": 0.5, "custom": {}}),
    (["fast_disk=1"], {"custom": {"fast_disk": 1.0}}),
    (None, {"custom": {}}),
])  # fmt: skip
def test_resources(given, meant):
    assert options.amounts(given) == meant


def test_parameters_are_json_where_they_can_be():
    given = ["k=3", "kernel=tricube", 'bandwidth={"nearest": 2}', "note=a=b"]
    assert options.parameters(given) == {
        "k": 3, "kernel": "tricube", "bandwidth": {"nearest": 2}, "note": "a=b",
    }  # fmt: skip
    with pytest.raises(UsageError, match="NAME=VALUE"):
        options.parameters(["k"])


def test_the_continuing_command_can_be_pasted():
    words = ["/somewhere/locdist", "predict", "my index", "q", "--overwrite", "--out", "o"]
    assert frame.continuing(words) == "locdist predict 'my index' q --out o"
    words = [
        "locdist",
        "run",
        "a.yaml",
        "--overwrite",
        "predict",
        "--overwrite=index",
        "--set",
        "run.workers=2",
    ]
    assert frame.continuing(words) == "locdist run a.yaml --set run.workers=2"


@pytest.mark.slow
def test_an_index_and_its_predictions_on_a_cluster(world, tmp_path):
    where = ("--executor", "dask", "--workers", 1, "--resources", "cpus=1,memory=100MiB")
    built = process("index", world.support, *KEY, "--out", "index", *where, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    for out, words in (("here", ()), ("there", where)):
        done = process("predict", "index", world.queries, "-k", 9, "--out", out, *words, "-q", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    here, there = (tmp_path / out / "part-00000.parquet" for out in ("here", "there"))
    assert here.read_bytes() == there.read_bytes()


def test_all_columns_can_be_kept(world, tmp_path):
    words = ("predict", world.index, world.queries, "-k", 3, "--keep", "*", "--out", tmp_path / "out")
    assert cli(*words).exit_code == 0
    found = pq.read_table(tmp_path / "out").column_names
    assert found == [*pq.read_schema(world.queries / "1.parquet").names, "prediction", "status"]


def test_scaling_may_differ_by_role(world, tmp_path):
    words = ("index", world.support, "--key", "east", "--features", "rooms", "--target", "price")
    done = cli(*words, "--scaling", "key=none,features=standard", "--out", tmp_path / "index")
    assert done.exit_code == 0, done.stderr
    roles = json.loads((tmp_path / "index" / "manifest.json").read_text())["roles"]
    assert dict(roles["scaling"]) == {"key": "none", "features": "standard"}
    refused = cli(*words, "--scaling", "key=none,rooms", "--out", tmp_path / "other")
    assert refused.exit_code == 2


@pytest.mark.parametrize("limit", [0, -1])
def test_plan_refuses_the_limit_that_the_run_refuses(world, tmp_path, limit):
    words = (world.index, world.queries, "-m", "knn", "-k", 5, "--limit", limit, "--out", tmp_path / "out")
    for verb in (("predict",), ("plan", "predict")):
        assert "a limit of at least one row" in error((*verb, *words), 2)


@pytest.mark.parametrize(
    "words, said",
    [
        (("--resources", "cpu=1"), "Did you mean 'cpus'?"),
        (("--executor", "ray", "--address", ""), "an empty one"),
    ],
)
def test_what_was_probably_meant_is_told(world, tmp_path, words, said):
    done = cli("neighbors", world.index, world.queries, "-k", 4, "--out", tmp_path / "out", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_the_status_of_a_refused_run_says_why(world, tmp_path):
    words = ("neighbors", world.index, world.queries, "-k", 4, "--out", tmp_path / "out")
    assert cli(*words, "--resources", "cpus=99").exit_code == 2
    told = cli("status", tmp_path / "out")
    assert told.exit_code == 2
    assert "cpus 99" in told.stdout
    assert cli(*words).exit_code == 0
    assert cli("status", tmp_path / "out").exit_code == 0
