"""The claims of docs/security.md that no other test checks."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import locdist as ld
from locdist.data.artefacts import CHECKSUM, packed, typed, unpacked
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, UsageError
from locdist.jobs.asking.places import Places
from locdist.jobs.status import status
from locdist.plan.manifest import MANIFEST, read_manifest
from locdist.plan.records import COMMITS, Record, history
from locdist.search.layout import digest
from tests.system import generated
from tests.test_repository import PACKAGE, ROOT

SUPPORT, QUERIES = generated.table(120, seed=41), generated.table(30, seed=42)
DOCS = ROOT / "docs/security.md"

# ------------------------------------------------------------------------------------- what could run code

LOADERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "runpy"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "os.exec",
    "os.spawn",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.load_all",
    "torch.load",
    "np.load",
    "numpy.load",
    "pd.read_pickle",
    "faiss.read_index",
    "faiss.deserialize_index",
    "pa.deserialize",
    "pyarrow.deserialize",
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_output",
    "importlib.import_module",
}
ALLOWED = {
    (
        "locdist/execute/seats.py",
        "pickle",
    ): "calls and answers, between a driver and the processes it spawned",
    ("locdist/execute/seats.py", "pickle.loads"): "the same",
    ("locdist/sklearn.py", "joblib"): "a number of cores; nothing is loaded with it",
    ("locdist/testing/stores.py", "pickle"): "a contract: stores travel",
    ("locdist/testing/stores.py", "pickle.loads"): "the same, of what it has just pickled",
    ("locdist/__init__.py", "import_module"): "public names, from a table in that file",
    ("locdist/testing/__init__.py", "import_module"): "public names, from a table in that file",
    ("locdist/local/parametric.py", "import_module"): "functions that Python code names; files cannot",
}


def suspects(path: Path) -> Iterator[str]:
    """What a module imports or calls that could run what it reads."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in LOADERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LOADERS:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            if (
                name in CALLS
                or last == "import_module"
                or (name.split(".")[0] in LOADERS and last in ("load", "loads"))
            ):
                yield last if last == "import_module" else name


def test_nothing_in_the_package_could_run_what_it_reads_but_what_is_named_here():
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in suspects(path)
    }
    assert found == set(ALLOWED)


SUSPICIOUS = """import pickle
from joblib import load
import marshal as m
eval(text)
np.load(file)
torch.load(file)
yaml.load(text, Loader=x)
faiss.read_index(name)
os.system(text)
importlib.import_module(name)"""


@pytest.mark.parametrize("line", SUSPICIOUS.splitlines())
def test_what_could_run_code_is_recognized(line: str, tmp_path: Path):
    (tmp_path / "module.py").write_text(line)
    assert list(suspects(tmp_path / "module.py"))


def test_there_is_one_door_for_json_that_is_read_again():
    """What decides something: not what people and programs read, nor what the command line is given."""
    elsewhere = {
        "locdist/jobs/request.py": "checksums of batches, compared with what is read",
        "locdist/search/build.py": "the first lists of batches, in a file whose checksums were compared",
        "locdist/cli/options.py": "a parameter that the user typed",
        "locdist/pipeline/call.py": "an evaluation, read through the door after it was written",
        "locdist/pipeline/report.py": "what the report itself has just made",
        "locdist/execute/log.py": "a log that nothing is decided from",
        "locdist/data/artefacts.py": "the door",
    }
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "json.loads",
                "json.load",
                "from_json",
            ):
                found.add(str(path.relative_to(ROOT)))
    assert found - {name for name in found if "/testing/" in name} <= set(elsewhere)


# ---------------------------------------------------------------------------------------------- artefacts


@pytest.mark.parametrize(
    "text, told",
    [
        (b"", "EOF"),
        (b"\xff\xfe", "expected value"),
        (b"[1]", "no object"),
        (b"null", "no object"),
        (b'{"queries":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "recursion limit"),
        (b'{"queries":"a","index":' + b"9" * 6000 + b"}", "number out of range"),
        (b'{"queries":"a"}', "index: "),
        (b'{"queries":7,"index":"b"}', "queries: "),
        (b'{"queries":"a","index":"b","__class__":"os"}', "__class__: Unexpected"),
        (b'{"queries":"a","index":"b"}', "its content is not what was written"),
        (b'{"queries":"a","index":"b","checksum":"00"}', "its content is not what was written"),
        (b'{"queries":"a","index":"b","checksum":{"a":' * 3, "EOF"),
    ],
)
def test_json_that_is_not_what_was_written_becomes_nothing(text: bytes, told: str):
    with pytest.raises(DataError, match=told) as raised:
        unpacked(Places, text, "places", "a file", "Write it again.")
    assert len(str(raised.value)) < 4000


def test_what_was_packed_is_unpacked_and_one_line_unless_it_is_for_people():
    told = {"queries": "ä\n", "index": "b"}
    assert unpacked(Places, packed(told), "places", "a file", "Again.") == Places("ä\n", "b")
    assert unpacked(Places, packed(told, indent=1), "places", "a file", "Again.") == Places("ä\n", "b")
    assert packed(told).count(b"\n") == 0
    assert list(json.loads(packed(told))) == ["queries", "index", CHECKSUM]
    assert typed(Places, b'{"index": "b", "queries": null, "more": 1}', "", "", "") == Places(None, "b")


# -------------------------------------------------------------------------------------------------- paths

ESCAPES = ["../x", "a/../../x", "/etc/passwd", "a/../..", "..", "a\0b"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize(
    "do", ["read", "write", "delete", "create", "child", "path", "exists", "open", "files"]
)
def test_no_name_leads_out_of_a_folder(name: str, do: str, tmp_path: Path):
    folder = Store.at(tmp_path / "in")
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "x").write_text("precious")
    with pytest.raises(DataError, match=r"files below .*/in; got "):
        getattr(folder, do)(*((name, b"1") if do in ("write", "create") else (name,)))
    assert (tmp_path / "x").read_text() == "precious"


@pytest.mark.parametrize("name", ["../x", "a/../../x"])
def test_no_name_leads_out_of_a_prefix(name: str, bucket: str):
    folder = Store.at(bucket.format("/in"))
    Store.at(bucket.format("")).write("x", b"precious")
    for do in (folder.read, folder.child, folder.delete, lambda each: folder.write(each, b"1")):
        with pytest.raises(DataError, match="which steps out of it"):
            do(name)
    assert Store.at(bucket.format("")).read("x") == b"precious"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    generated.write(QUERIES, place / "queries")
    ld.build_index(
        ld.dataset(SUPPORT, key=["a", "b"], target="y", id="id"), place / "index", codes="flat", nlist=3
    )
    return place


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A finished output, beside it somebody's files."""
    ld.predict("knn", made / "index", made / "queries", tmp_path / "out")
    (tmp_path / "precious/predict").mkdir(parents=True)
    (tmp_path / "precious/mine.json").write_text("precious")
    (tmp_path / "precious/predict/part-00000.json").write_text("precious")
    (tmp_path / "precious/part-00000.parquet").write_text("precious")
    (tmp_path / "precious/status.json").write_text("precious")
    return tmp_path / "out"


def as_link(place: Path, target: Path) -> None:
    """A link where a file or a folder was."""
    if place.is_dir():
        place.rename(place.with_name(f"{place.name}.before"))
    elif place.exists():
        place.unlink()
    place.symlink_to(target)


LINKS: dict[str, tuple[str, str]] = {
    "the records": ("_locdist/commits", "precious"),
    "a folder of records": ("_locdist/commits/predict", "precious/predict"),
    "the lock": ("_locdist/lock", "precious/mine.json"),
    "the log": ("_locdist/events.jsonl", "precious/mine.json"),
    "the status": ("_locdist/status.json", "precious/status.json"),
    "a part": ("part-00000.parquet", "precious/part-00000.parquet"),
    "a folder more": ("_locdist/more", "precious"),
    "all that is ours": ("_locdist", "precious"),
}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("place, target", LINKS.values(), ids=LINKS.keys())
def test_nothing_is_written_or_deleted_through_a_link(
    place: str, target: str, overwrite: bool, out: Path, made: Path
):
    as_link(out / place, out.parent / target)
    before = {file: file.read_text() for file in (out.parent / "precious").rglob("*") if file.is_file()}
    try:
        ld.predict("knn", made / "index", made / "queries", out, overwrite=overwrite)
    except LocdistError as error:
        assert error.remedy  # noqa: PT017 - a refusal is right, and so is going on without the link
    after = {file: file.read_text() for file in (out.parent / "precious").rglob("*") if file.is_file()}
    assert after == before


def edited(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """An artefact as somebody writes it who knows how."""
    told = json.loads(file.read_text())
    del told[CHECKSUM]
    change(told)
    file.write_bytes(packed(told))


def test_names_in_records_lead_nowhere(out: Path, made: Path):
    (out.parent / "x").write_text("precious")
    folder, line = Store.at(out), out / f"{COMMITS}/predict.jsonl"
    edited(line, lambda told: told.update(bytes={"../x": 8}, checksums={"../x": "0"}))
    assert history(folder).dropped  # there is no such file in the listing
    edited(line, lambda told: told.update(stage="../..", task="x"))
    with pytest.raises(DataError, match="no name of a stage or a task"):
        history(folder)
    with pytest.raises(ValueError, match="no name of a stage"):
        Record(stage="a/b")
    assert (out.parent / "x").read_text() == "precious"


def test_names_in_manifests_lead_nowhere(out: Path):
    edited(out / MANIFEST, lambda told: told["snapshot"][0].update(path="../../x.parquet"))
    told = read_manifest(Store.at(out))
    with pytest.raises(DataError, match="which steps out of it"):
        Places.read(Store.at(out)).source(told)
    with pytest.raises(DataError, match="which steps out of it"):
        ld.explain(out, 1)


def test_a_folder_of_links_in_circles_is_refused(tmp_path: Path):
    """Two of them have no end that anybody lives to see."""
    generated.write(QUERIES, tmp_path / "data")
    (tmp_path / "data/a").symlink_to(tmp_path / "data")
    (tmp_path / "data/b").symlink_to(tmp_path / "data")
    with pytest.raises(DataError, match=r"a folder that ends; got .*, a link to"):
        source(tmp_path / "data")
    (tmp_path / "other").mkdir()
    generated.write(QUERIES, tmp_path / "elsewhere")
    (tmp_path / "other/link").symlink_to(tmp_path / "elsewhere")
    assert source(tmp_path / "other").rows == QUERIES.num_rows


def test_a_status_that_somebody_wrote_is_checked(out: Path):
    edited(out / "_locdist/status.json", lambda told: told.update(stages={"predict": {"total": "all"}}))
    with pytest.raises(DataError, match=r"the status of a run; got .*stages\.predict\.total"):
        status(out)


# ------------------------------------------------------------------------------------- files of other formats


def test_a_damaged_footer_never_ends_the_process(tmp_path: Path):
    """pyarrow ends it where it is asked for the metadata of a column. In a process of its own."""
    generated.write(SUPPORT.select(["id", "embedding", "color", "y"]), tmp_path / "data", files=1)
    code = """
import sys
from locdist.data.source import source
from locdist.errors import LocdistError
file = sys.argv[1] + "/part-0.parquet"
good, counts = open(file, "rb").read(), {"read": 0, "refused": 0}
length = int.from_bytes(good[-8:-4], "little") + 8
for at in range(len(good) - length, len(good), 2):
    changed = bytearray(good)
    changed[at] ^= 1 << at % 8
    open(file, "wb").write(changed)
    try:
        list(source(sys.argv[1]).read())
        counts["read"] += 1
    except LocdistError:
        counts["refused"] += 1
print(counts)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = ast.literal_eval(done.stdout)
    assert counts["refused"] > 100


@pytest.mark.parametrize("offsets", [(0, -5, 3), (0, 2, 10**6), (5, 2, 3)])
def test_offsets_that_point_nowhere_are_refused(offsets: tuple[int, ...], tmp_path: Path):
    """Arrow believes what a file says, unless it is asked to look."""
    file = tmp_path / "a.arrow"
    with pa.ipc.new_file(file, pa.schema([("name", pa.string())])) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict({"name": ["ab", "c"]}))
    right, wrong = (
        b"".join(each.to_bytes(4, "little", signed=True) for each in told) for told in ((0, 2, 3), offsets)
    )
    assert file.read_bytes().count(right) == 1
    file.write_bytes(file.read_bytes().replace(right, wrong))
    with pytest.raises(DataError, match=r"readable content in .*a\.arrow"):
        list(source(file).read())


def resealed(
    index: Path, name: str, change: Callable[[pa.Table], pa.Table], rows: int | None = None, **how: Any
) -> None:
    """A file of an index with other columns, and a manifest that says so."""
    table = change(pa.ipc.open_file((index / name).read_bytes()).read_all())
    with pa.ipc.new_file(index / name, table.schema, **how) as writer:
        for batch in table.combine_chunks().to_batches(rows):
            writer.write_batch(batch)
    content = (index / name).read_bytes()

    def seal(told: dict[str, Any]) -> None:
        for each in (*told["shards"], told["lists"]):
            if each["name"] == name:
                each.update(bytes=len(content), checksum=digest(content))

    edited(index / "manifest.json", seal)


def column(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        made = pa.array(values(table.column(name).to_pylist()), table.schema.field(name).type)
        return table.set_column(place, name, made)

    return change


SHARD = "shards/shard-00000.arrow"
HOSTILE: dict[str, tuple[str, Callable[[pa.Table], pa.Table], dict[str, Any]]] = {
    "longer lists": ("lists.arrow", column("rows", lambda rows: [rows[0] + 10**12, *rows[1:]]), {}),
    "negative lists": (
        "lists.arrow",
        column("rows", lambda rows: [rows[0] + 500, rows[1] - 500, *rows[2:]]),
        {},
    ),
    "lists of other shards": ("lists.arrow", column("shard", lambda shards: [7] * len(shards)), {}),
    "lists before the first shard": ("lists.arrow", column("shard", lambda shards: [-1] * len(shards)), {}),
    "fewer rows": (SHARD, lambda table: table.slice(0, 50), {}),
    "no keys": (SHARD, lambda table: table.drop_columns(["key"]), {}),
    "null keys": (SHARD, column("key", lambda keys: [None] * len(keys)), {}),
    "two batches": (SHARD, lambda table: table, {"rows": 60}),
    "compressed": (SHARD, lambda table: table, {"options": pa.ipc.IpcWriteOptions(compression="zstd")}),
    "rows that are words": (
        SHARD,
        lambda table: table.set_column(2, "row", pa.array(["x"] * table.num_rows)),
        {},
    ),
}


@pytest.mark.parametrize("name, change, how", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_index_that_somebody_made_up_is_refused_before_faiss_reads_it(
    name: str, change: Callable[[pa.Table], pa.Table], how: dict[str, Any], made: Path, tmp_path: Path
):
    """With right checksums. FAISS would read where the lists say, whatever is there."""
    shutil.copytree(made / "index", tmp_path / "index")
    resealed(tmp_path / "index", name, change, **how)
    with pytest.raises(DataError, match=r"an index as its manifest says|one batch") as raised:
        ld.predict("knn", tmp_path / "index", QUERIES)
    assert "build it again" in raised.value.remedy


# ------------------------------------------------------------------------------------------------ the page


def test_every_claim_of_the_page_names_a_test_that_is_there():
    tests = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    named = re.findall(r"`(test_\w+)`", DOCS.read_text())
    assert len(named) > 15
    assert [name for name in named if name not in tests] == []


def test_a_pipeline_file_cannot_say_more_than_its_sections():
    with pytest.raises(UsageError, match="__reduce__"):
        ld.Pipeline.of({"version": 1, "__reduce__": ["os.system", "true"], "steps": []})
    assert os.environ.get("LOCDIST") is None  # no variable is read from a file, or written
