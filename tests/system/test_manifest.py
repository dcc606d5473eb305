"""What a folder remembers: the request, the snapshot, the finished tasks; and who may write to it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from locdist.data.store import FileInfo, Store
from locdist.errors import DataError, LocdistError, MachineError, UsageError
from locdist.plan import lock
from locdist.plan.manifest import (
    MANIFEST,
    Manifest,
    Pinned,
    check_folder,
    claim,
    claimed,
    compared,
    differences,
    read_manifest,
)
from locdist.plan.plan import Attempt
from locdist.plan.records import CLAIM, COMMITS, Record, commit, compact, forget, history, sealed
from locdist.plan.status import Counts, RunStatus, read_status, write_status
from locdist.testing.tasks import finished

FILES = (Pinned("a.parquet", 100, 1, "f1", 10), Pinned("b.parquet", 200, 2, "f2", 20))
ASKED = Manifest(
    "predict", {"method": {"name": "local-linear", "k": 64}, "keep": ("id",)}, FILES, {"torch": "2.13"}
)


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "out")


def test_the_same_request_resumes(folder: Store):
    assert not claim(folder, ASKED).resumed
    again = claim(folder, ASKED)
    assert again.resumed
    assert again.notes == ()
    assert again.manifest == read_manifest(folder)
    assert again.manifest.snapshot == FILES


CHANGED = (
    replace(FILES[0], size=101),
    replace(FILES[0], modified=9, fingerprint=""),
    replace(FILES[0], rows=9),
)
COMMITTED = f"{COMMITS}/predict/part-00000.json"


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"kind": "neighbors"}, UsageError, ["kind", "predict", "neighbors", "another folder"]),
        (
            {"request": {"method": {"name": "local-linear", "k": 32}, "keep": ["id"]}},
            UsageError,
            ["method.k", "64", "32"],
        ),
        ({"request": {"method": {"name": "local-linear", "k": 64}}}, UsageError, ["keep", "None"]),
        ({"snapshot": (CHANGED[0], FILES[1])}, DataError, ["a.parquet", "size", "100", "101"]),
        ({"snapshot": (CHANGED[1], FILES[1])}, DataError, ["a.parquet", "fingerprint", "f1"]),
        ({"snapshot": (CHANGED[2], FILES[1])}, DataError, ["a.parquet", "rows", "10", "9"]),
        ({"snapshot": FILES[:1]}, DataError, ["b.parquet", "without it"]),
    ],
)
def test_another_request_is_refused_and_the_difference_named(folder: Store, change, error, words):
    claim(folder, ASKED)
    folder.write(COMMITTED, b"{}")
    before = folder.read(MANIFEST)
    with pytest.raises(error) as raised:
        claim(folder, replace(ASKED, **change))
    remedies = [] if "kind" in change else ["--overwrite"]
    assert all(word in str(raised.value) for word in [*words, *remedies])
    assert folder.read(MANIFEST) == before


def test_a_touched_file_is_the_same_file(folder: Store):
    claim(folder, ASKED)
    folder.write(COMMITTED, b"{}")
    touched = replace(ASKED, snapshot=(replace(FILES[0], modified=9), FILES[1]))
    again = claim(folder, touched)
    assert again.resumed
    assert "1 input files were written or copied after the job began" in " ".join(again.notes)
    assert FILES[0].path in " ".join(again.notes)
    assert not claim(folder, ASKED).notes


def test_where_no_footer_tells_the_time_does_and_is_shown_as_a_date(folder: Store):
    bare = replace(FILES[0], fingerprint="")
    claim(folder, replace(ASKED, snapshot=(bare,)))
    folder.write(COMMITTED, b"{}")
    with pytest.raises(DataError, match=r"modified 1970-01-01 00:00:00\.000\+00:00; got modified 2026-01-"):
        claim(folder, replace(ASKED, snapshot=(replace(bare, modified=1_768_000_000 * 10**9),)))


NESTED = "_locdist/index"  # as transform has it
BUILD = Manifest("build-index", {"bad": "raise"}, FILES)


@pytest.mark.parametrize(
    "kind, name, replaced",
    [
        ("build-index", f"{COMMITS}/profile/part-00000.json", True),
        ("build-index", f"{COMMITS}/profile.jsonl", True),
        ("build-index", f"{COMMITS}/train/train.json", False),
        ("build-index", f"{COMMITS}/assign.jsonl", False),
        ("build-index", "manifest.json", False),
        ("predict", f"{COMMITS}/predict/.part-00000.json.0123456789ab.tmp", True),
        ("predict", f"{COMMITS}/predict/part-00000.json", False),
        ("predict", "_locdist/report.json", False),
        ("transform", f"{NESTED}/{MANIFEST}", True),
        ("transform", f"{NESTED}/{COMMITS}/profile.jsonl", True),
        ("transform", f"{NESTED}/{COMMITS}/pack.jsonl", False),
        ("transform", f"{NESTED}/manifest.json", False),
    ],
)
def test_another_request_replaces_one_of_which_nothing_is_finished(
    folder: Store, kind: str, name: str, replaced: bool
):
    old = replace(BUILD, kind=kind)
    claim(folder, old)
    folder.write(name, b"{}")
    folder.write("notes.txt", b"mine")
    new = replace(old, request={"bad": "drop"}, snapshot=(FILES[0], CHANGED[0]))
    if not replaced:
        with pytest.raises(UsageError, match=r"bad 'raise'; got .*--overwrite"):
            claim(folder, new)
        return
    taken = claim(folder, new)
    assert not taken.resumed
    assert "bad 'raise', now " in taken.notes[0]
    assert {file.path for file in folder.files()} == {CLAIM, MANIFEST, "notes.txt"}
    assert read_manifest(folder).request == {"bad": "drop"}


def test_new_files_and_new_versions_are_reported_and_the_snapshot_stays(folder: Store):
    claim(folder, ASKED)
    new = replace(ASKED, snapshot=(*FILES, Pinned("c.parquet", 1, 1)), versions={"torch": "2.14"})
    claimed_ = claim(folder, new)
    assert claimed_.added == ("c.parquet",)
    assert claimed_.manifest.snapshot == FILES
    assert "c.parquet" in claimed_.notes[0]
    assert claimed_.notes[1] == "torch was 2.13, now 2.14"


def test_overwrite_leaves_nothing_of_an_earlier_run(folder: Store):
    claim(folder, ASKED)
    named = Record(stage="predict", task="odd", bytes={"odd/name.csv": 2}).to_json().encode()
    for name in ("part-00000.parquet", ".part-00007.parquet.0123456789ab.tmp", "odd/name.csv"):
        folder.write(name, b"{}")
    folder.write(f"{COMMITS}/predict/odd.json", named)
    folder.write(f"{COMMITS}/predict.jsonl", b"not a record")
    new = replace(ASKED, request={"method": "knn"})
    assert not claim(folder, new, overwrite=True).resumed
    assert [file.path for file in folder.files()] == [CLAIM, MANIFEST]
    assert read_manifest(folder).request == {"method": "knn"}


@pytest.mark.parametrize(
    "kind, name",
    [
        ("predict", "notes.txt"),
        ("predict", "mymodel.parquet"),
        ("predict", "method.json"),
        ("predict", "part-1.parquet"),
        ("predict", "old/part-00000.parquet"),
        ("predict", "manifest.json"),
        ("predict", "build/trained.arrow"),
        ("predict", ".draft.tmp"),
        ("build-index", "part-00000.parquet"),
        ("build-index", "build/notes.txt"),
        ("build-index", "shards/mine.arrow"),
    ],
)
def test_overwrite_refuses_to_delete_what_locdist_did_not_write(folder: Store, kind: str, name: str):
    asked = replace(ASKED, kind=kind)
    claim(folder, asked)
    folder.write(f"{COMMITS}/{kind}/part-00000.json", Record(stage=kind, task="a").to_json().encode())
    folder.write(name, b"mine")
    before = folder.files()
    with pytest.raises(UsageError) as raised:
        claim(folder, asked, overwrite=True)
    assert repr(name) in str(raised.value)
    assert "Move it away" in str(raised.value)
    assert folder.files() == before


@pytest.mark.parametrize("format", [1, 99])
def test_overwrite_does_not_replace_another_kind(folder: Store, format: int):
    claim(folder, BUILD)
    told = json.loads(folder.read(MANIFEST)) | {"format": format}
    folder.write(MANIFEST, json.dumps(told).encode())
    with pytest.raises(UsageError, match=r"'predict' to overwrite; got .* of kind 'build-index'"):
        claim(folder, ASKED, overwrite=True)
    assert json.loads(folder.read(MANIFEST)) == told
    assert not claim(folder, BUILD, overwrite=True).resumed


LEFT = [
    "build/runs/part-00000.arrow",
    "lists.arrow",
    "manifest.json",
    "shards/shard-00000.arrow",
    "_locdist/report.json",
    f"{COMMITS}/pack/shard-00000.json",
    f"{COMMITS}/pack.jsonl",
    f"{NESTED}/manifest.json",
    f"{NESTED}/lists.arrow",
    f"{NESTED}/{MANIFEST}",
    f"{NESTED}/{COMMITS}/pack.jsonl",
]


def test_an_interrupted_overwrite_leaves_nothing_that_says_finished(
    folder: Store, monkeypatch: pytest.MonkeyPatch
):
    claim(folder, BUILD)
    for name in LEFT:
        folder.write(name, b"{}")
    seen, delete = [], Store.delete

    def watched(self: Store, name: str) -> None:
        seen.append({file.path for file in folder.files()})
        delete(self, name)

    monkeypatch.setattr(Store, "delete", watched)
    claim(folder, BUILD, overwrite=True)
    outputs = {name for name in LEFT if name.endswith(".arrow")}
    ends = ("report.json", "manifest.json")
    claims = {name for name in LEFT if name.endswith(ends)} - {f"{NESTED}/{MANIFEST}"}
    for names in seen:  # what a driver that died before this deletion would have left
        assert MANIFEST in names
        if claims & names or any(COMMITS in name for name in names):
            assert outputs <= names
        if f"{NESTED}/{MANIFEST}" not in names:
            assert not any(name.startswith(NESTED) for name in names)
        if any(COMMITS in name for name in LEFT if name not in names):
            assert not claims & names
    assert len(seen) == len(LEFT)


def test_comparing_writes_nothing(folder: Store):
    with pytest.raises(UsageError, match="without"):
        compared(folder, ASKED)
    assert folder.files() == []
    claim(folder, ASKED)
    folder.write(COMMITTED, b"{}")
    before = folder.files()
    assert compared(folder, ASKED).resumed
    with pytest.raises(UsageError, match="neighbors"):
        compared(folder, replace(ASKED, kind="neighbors"))
    assert folder.files() == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_somebody_else_is_left_alone(folder: Store, overwrite: bool):
    folder.write("thesis.tex", b"years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"), claimed(folder, ASKED, overwrite=overwrite):
        pass
    assert [file.path for file in folder.files()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "left", [lock.LOCK, "_locdist/.manifest.json.0123456789ab.tmp", "_locdist/plan.json"]
)
def test_a_driver_may_die_before_the_manifest_is_written(folder: Store, left: str):
    folder.write(left, b"")
    with claimed(folder, ASKED) as taken:
        assert not taken.resumed
    assert {file.path for file in folder.files()} == {CLAIM, MANIFEST, lock.LOCK}


def test_another_driver_that_just_began_is_no_stranger(folder: Store, monkeypatch: pytest.MonkeyPatch):
    with lock.hold(folder):
        files = Store.files

        def late(self: Store) -> list[FileInfo]:
            self.write(MANIFEST, ASKED.to_json().encode())
            self.write("part-00000.parquet", b"")
            return files(self)

        monkeypatch.setattr(Store, "files", late)
        with pytest.raises(MachineError, match="lock held by process"), claimed(folder, ASKED):
            pass


@pytest.mark.parametrize(
    "change, version",
    [
        ({"format": 99}, 99),
        ({"format": 2, "mood": "good"}, 2),
    ],
)
def test_a_manifest_of_another_version_is_told(folder: Store, change: dict[str, object], version: int):
    folder.write(MANIFEST, json.dumps(json.loads(ASKED.to_json()) | change).encode())
    with pytest.raises(DataError, match=rf"another version of locdist \(format {version}\).*--overwrite"):
        claim(folder, ASKED)
    assert not claim(folder, ASKED, overwrite=True).resumed


@pytest.mark.parametrize(
    "change, told",
    [
        ({"mood": "good"}, "mood: Unexpected"),
        ({"snapshot": [{"path": "a", "size": 1, "modified": 1, "etag": "x"}]}, "snapshot.0.etag"),
        ({"snapshot": None}, "snapshot: "),
        ({"versions": {"torch": 2}}, "versions.torch: "),
        ({"request": {"k": 65}}, "not what was written"),
    ],
)
def test_a_manifest_with_another_content_is_refused(folder: Store, change: dict[str, object], told: str):
    folder.write(MANIFEST, json.dumps(json.loads(ASKED.to_json()) | change).encode())
    with pytest.raises(DataError, match=rf"a manifest of format 1; got .*{told}.*--overwrite"):
        claim(folder, ASKED)
    assert not claim(folder, ASKED, overwrite=True).resumed


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null"])
def test_a_manifest_that_cannot_be_read_is_refused(folder: Store, content: bytes):
    folder.write(MANIFEST, content)
    with pytest.raises(DataError, match="manifest"):
        claim(folder, ASKED)


@pytest.mark.parametrize(
    "out, given, word",
    [
        ("data", "data", "is the input"),
        (".", "data", "contains"),
        ("data/pred", "data", "lies in"),
        ("link", "data", "is the input"),
        ("data", "link", "is the input"),
        ("link/pred", "data", "lies in"),
        ("data/pred", "dat*", "lies in"),
        ("data/pred", "data/**/*.parquet", "lies in"),
        ("link", "data/*.parquet", "contains"),
        ("data", "data/a.parquet", "contains"),
    ],
)
def test_output_and_input_stay_apart(tmp_path: Path, out: str, given: str, word: str):
    """C68, in all spellings."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.parquet").write_bytes(b"input")
    (tmp_path / "link").symlink_to("data")
    with (
        pytest.raises(UsageError, match=word),
        claimed(Store(str(tmp_path / out)), ASKED, [str(tmp_path / given)], True),
    ):
        pass
    assert (tmp_path / "data" / "a.parquet").read_bytes() == b"input"
    assert not (tmp_path / "_locdist").exists()


def test_a_folder_with_brackets_in_its_name_is_no_pattern(tmp_path: Path):
    (tmp_path / "data[1]").mkdir()
    with pytest.raises(UsageError, match="is the input"):
        check_folder(Store.at(tmp_path / "data[1]"), [str(tmp_path / "data[1]")])


def test_neighboring_folders_are_apart(tmp_path: Path):
    (tmp_path / "data").mkdir()
    names = [
        str(tmp_path / "data"),
        "s3://bucket/data",
        str(tmp_path / "*.parquet"),
        str(tmp_path / "data" / "**"),
    ]
    check_folder(Store.at(tmp_path / "data2"), names)
    with pytest.raises(UsageError, match="lies in"):
        check_folder(Store("s3://bucket/data/out?region=x"), ["s3://bucket/data/"])


def test_differences_name_every_leaf():
    old, new = {"a": [1, {"b": 2}], "c": 1, "d": True}, {"a": [1, {"b": 3}], "e": None, "d": 1}
    assert list(differences(old, new)) == [("a[1].b", 2, 3), ("c", 1, None), ("d", True, 1)]


# ---- records ----


def done(folder: Store, name: str, stage: str = "predict", content: bytes = b"rows") -> Record:
    folder.write(f"{name}.parquet", content)
    record = Record(rows=4, stage=stage, task=name, inputs=[0, 4], pid=1)
    return commit(folder, sealed(folder, record, [f"{name}.parquet"], {}))


def test_the_first_of_twins_wins(folder: Store):
    first = done(folder, "part-1")
    assert commit(folder, replace(first, pid=2)) == first
    assert finished(folder, "predict") == {"part-1": first}
    assert first.bytes == {"part-1.parquet": 4}
    assert first.checksums == {"part-1.parquet": hashlib.blake2b(b"rows", digest_size=16).hexdigest()}


def test_what_is_written_through_an_attempt_is_not_read_again(folder: Store, monkeypatch: pytest.MonkeyPatch):
    attempt = Attempt(folder, "predict")
    table = pa.table({"x": range(100_000)})
    with attempt.writer("a.parquet") as stream:
        pq.write_table(table, stream)
    with attempt.writer("a.arrow") as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ZeroDivisionError), attempt.writer("b") as stream:
        stream.write(bytes(1 // 0))
    names = ["a.parquet", "a.arrow"]
    read = sealed(folder, Record(), names, {})
    monkeypatch.setattr(Store, "open", None)
    monkeypatch.setattr(Store, "exists", None)
    assert sealed(folder, Record(), names, attempt.written) == read
    assert set(attempt.written) == set(names)
    assert [read.checksums[name] for name in names] == [
        hashlib.blake2b(folder.read(name), digest_size=16).hexdigest() for name in names
    ]


def test_an_output_that_was_not_written_is_not_committed(folder: Store):
    with pytest.raises(LocdistError, match=r"part-9\.parquet"):
        sealed(folder, Record(stage="s", task="part-9"), ["part-9.parquet"], {})


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(
    "damage, word", [("missing", "is missing"), ("short", "has 2 bytes, 4 were recorded")]
)
def test_a_record_without_its_output_is_dropped(folder: Store, joined: bool, damage: str, word: str):
    records = {name: done(folder, name) for name in ("part-1", "part-2")}
    if joined:
        compact(folder, "predict", records)
    folder.delete("part-1.parquet")
    if damage == "short":
        folder.write("part-1.parquet", b"ro")
    past = history(folder)
    assert past.records == {"predict": {"part-2": records["part-2"]}}
    assert [item.task for item in past.dropped] == ["part-1"]
    assert word in past.dropped[0].reason
    forget(folder, past.dropped)
    again = done(folder, "part-1", content=b"other rows")
    assert finished(folder, "predict") == {"part-1": again, "part-2": records["part-2"]}


def test_joining_records_loses_nothing_wherever_it_stops(folder: Store, monkeypatch: pytest.MonkeyPatch):
    records = {name: done(folder, name) for name in ("part-1", "part-2", "part-3")}
    steps, watched = [], [(Store, "write"), (os, "unlink"), (os, "rmdir")]

    def watch(owner, step):
        real = getattr(owner, step)

        def call(*given, **named):
            real(*given, **named)
            steps.append(finished(folder, "predict"))

        monkeypatch.setattr(owner, step, call)

    for owner, step in watched:
        watch(owner, step)
    compact(folder, "predict", records)
    assert len(steps) == 5
    assert all(seen == records for seen in steps)
    assert [file.path for file in folder.files(COMMITS)] == [f"{COMMITS}/predict.jsonl"]


def test_stages_are_told_apart_and_leftovers_are_found(folder: Store):
    one, two = done(folder, "part-1", "a"), done(folder, "part-2", "a.b")
    folder.write(".part-7.parquet.0a1b0a1b0a1b.tmp", b"half")
    folder.write(".of-the-user.tmp", b"whole")
    past = history(folder)
    assert past.records == {"a": {"part-1": one}, "a.b": {"part-2": two}}
    assert past.leftovers == (".part-7.parquet.0a1b0a1b0a1b.tmp",)


def test_an_unreadable_record_is_named(folder: Store):
    folder.write(f"{COMMITS}/predict/part-1.json", b'{"rows": ')
    with pytest.raises(DataError, match=r"predict/part-1\.json"):
        history(folder)


def test_status_says_the_same_when_read_again(folder: Store):
    assert read_status(folder) is None
    status = RunStatus("failed", 3, "a message", "locdist predict ...", {"predict": Counts(5, 3, 2, 30, 1)})
    write_status(folder, status)
    assert read_status(folder) == status


# ---- lock ----

HOLD = """
import sys, time
from locdist.data.store import Store
from locdist.plan.lock import hold
with hold(Store.at(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_names_its_holder_and_dies_with_it(folder: Store):
    with subprocess.Popen([sys.executable, "-c", HOLD, folder.uri], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(MachineError) as raised, lock.hold(folder):
            pass
        holder.send_signal(signal.SIGKILL)
    assert f"process {holder.pid} on host" in str(raised.value)
    assert "since 20" in str(raised.value)
    with lock.hold(folder):
        assert json.loads(folder.read(lock.LOCK))["pid"] == os.getpid()


def test_a_folder_that_we_may_not_lock(folder: Store, monkeypatch: pytest.MonkeyPatch):
    def refuse(*given: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(MachineError, match="Permission denied"), lock.hold(folder):
        pass


def test_overwriting_keeps_the_lock(folder: Store):
    with claimed(folder, ASKED), pytest.raises(MachineError), claimed(folder, ASKED, overwrite=True):
        pass
    with claimed(folder, ASKED, overwrite=True), pytest.raises(MachineError), claimed(folder, ASKED):
        pass


def test_a_lease_is_renewed_and_taken_over_when_it_is_stale(folder: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock, "BEAT", 0.02)
    with lock._lease(folder):
        first = json.loads(folder.read(lock.LOCK))
        with pytest.raises(MachineError, match="lock held by process"), lock._lease(folder):
            pass
        end = time.monotonic() + 10
        while json.loads(folder.read(lock.LOCK))["beat"] == first["beat"] and time.monotonic() < end:
            time.sleep(0.01)
        assert json.loads(folder.read(lock.LOCK))["beat"] > first["beat"]
    assert not folder.exists(lock.LOCK)
    folder.write(lock.LOCK, json.dumps({**first, "beat": first["beat"] - 2 * lock.STALE}).encode())
    with lock._lease(folder):
        assert json.loads(folder.read(lock.LOCK))["token"] != first["token"]


@pytest.mark.parametrize("place", ["{}/out", "memory://{}/out"])
def test_a_lock_is_seen_while_it_is_held(tmp_path: Path, place: str):
    folder = Store.at(place.format(tmp_path))
    assert not lock.held(folder)
    with lock.hold(folder):
        assert lock.held(folder)
    assert not lock.held(folder)
