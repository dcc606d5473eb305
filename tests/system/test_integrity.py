"""A flipped bit is told, with the file and what to do, before anything is computed with it."""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.artefacts import packed, unpacked
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError
from locdist.execute.events import Event, StageFinished, TaskStarted
from locdist.jobs import build_index
from locdist.jobs.request import ipc, read_batches
from locdist.plan.records import COMMITS, Record
from locdist.search import cache, files, intact
from locdist.search.layout import ShardFile, digest
from tests.system import generated

SUPPORT, QUERIES = generated.table(300, seed=21), generated.table(60, seed=22)
ROLES: dict[str, Any] = {"key": ["a", "b"], "target": "y", "id": "name"}
METHOD = ld.local_mean(8)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index and an output, to be copied."""
    place = tmp_path_factory.mktemp("made")
    generated.write(QUERIES, place / "queries")
    ld.build_index(ld.dataset(SUPPORT, **ROLES), place / "index", codes="flat", nlist=4)
    ld.predict(METHOD, place / "index", place / "queries", place / "out", keep=["id", "y"])
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    for name in ("index", "out"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["shards/shard-00000.arrow", "lists.arrow"])
def test_no_flipped_byte_of_an_index_gets_into_an_answer(name: str, place: Path):
    file = place / "index" / name
    good = file.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 12)):
        flip(file, at, at % 8)
        with pytest.raises(DataError, match=rf"{name}|{file.name}") as told:
            ld.predict(METHOD, place / "index", QUERIES)
        assert "build it again" in told.value.remedy
        file.write_bytes(good)
    assert ld.predict(METHOD, place / "index", QUERIES).num_rows == 60


def test_a_flipped_byte_of_an_index_is_told_before_any_task(place: Path, made: Path):
    flip(place / "index/shards/shard-00000.arrow", 5000)
    told: list[Event] = []
    with pytest.raises(DataError, match=r"shard-00000\.arrow with the checksum [0-9a-f]{32} of its manifest"):
        ld.predict(METHOD, place / "index", made / "queries", place / "new", listener=told.append)
    assert not any(isinstance(event, TaskStarted) for event in told)


@pytest.mark.parametrize("verb", ["evaluate", "explain"])
def test_no_flipped_byte_of_an_output_is_evaluated_or_explained(verb: str, place: Path):
    file = place / "out/part-00000.parquet"
    good = file.read_bytes()
    for at in range(4, len(good), max(1, len(good) // 15)):
        flip(file, at, at % 8)
        with pytest.raises(LocdistError, match=r"out.part-00000\.parquet|in .*out"):
            ld.evaluate(place / "out", "y") if verb == "evaluate" else ld.explain(place / "out", 7)
        file.write_bytes(good)


def test_the_pages_of_an_output_are_checked_by_whoever_reads_them(place: Path):
    """Also where nobody knows what was written: the next step of a pipeline, another library."""
    file = place / "out/part-00000.parquet"
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(2)
    begin = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    flip(file, begin + chunk.total_compressed_size - 2)
    with pytest.raises(DataError, match=r"readable content in .*part-00000\.parquet; got .*CRC"):
        list(source(place / "out").read())
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(file, page_checksum_verification=True)


@pytest.mark.parametrize("name", ["manifest.json", "plan.json", "places.json", "report.json", "status.json"])
def test_no_flipped_byte_of_what_a_job_was_told_is_believed(name: str, place: Path):
    """Or it is the same content: a key in another place, a space for a line's end."""
    file = place / "out/_locdist" / name
    good = file.read_bytes()
    for at in range(len(good)):
        flip(file, at, at % 8)
        try:
            told = unpacked(dict, file.read_bytes(), name, name, "Again.")  # type: ignore[type-var]
        except DataError:
            continue
        assert packed(told) == packed(unpacked(dict, good, name, name, "Again."))  # type: ignore[type-var]


def test_a_changed_plan_does_not_continue_a_job(place: Path, made: Path):
    """Half of the partitions would be searched otherwise than the rest."""
    plan = place / "out/_locdist/plan.json"
    plan.write_bytes(plan.read_bytes().replace(b'"nprobe": ', b'"nprobe": 1'))
    shutil.rmtree(place / "out/_locdist/commits")
    with pytest.raises(DataError, match=r"the plan of a job; got .*plan\.json: its content is not what was"):
        ld.predict(METHOD, made / "index", made / "queries", place / "out", keep=["id", "y"])


@pytest.mark.parametrize("kind", ["runs", "sample", "lists", "profile"])
def test_no_flipped_byte_between_the_stages_of_a_build_gets_into_the_index(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Somebody's disk, after the task that wrote it has summed it up."""
    monkeypatch.setattr(build_index, "rows_per_task", lambda rows, row_bytes: 100)
    reader = {"sample": "train", "profile": "train", "runs": "pack", "lists": "pack"}[kind]

    def spoil(event: Event) -> None:
        before = {"train": "profile", "pack": "assign"}[reader]
        if isinstance(event, StageFinished) and event.stage == before:
            (file,) = (tmp_path / f"index/build/{kind}").glob("part-00001.*")
            flip(file, file.stat().st_size // 2)

    support = ld.dataset(SUPPORT, **ROLES)
    words: dict[str, Any] = {"codes": "flat", "nlist": 4, "executor": ld.Local(1)}
    with pytest.raises(DataError, match=rf"{kind}/part-00001\..*Delete that file and run the same command"):
        ld.build_index(support, tmp_path / "index", listener=spoil, **words)
    (file,) = (tmp_path / f"index/build/{kind}").glob("part-00001.*")
    file.unlink()
    again = ld.build_index(support, tmp_path / "index", **words)
    calm = ld.build_index(support, tmp_path / "calm", **words)
    assert [each.checksum for each in again.layout.shards] == [each.checksum for each in calm.layout.shards]


def test_no_flipped_bit_of_a_build_file_changes_a_value_or_a_type():
    """Its schema too: eight bytes are as well a float as an integer."""
    batch = pa.RecordBatch.from_pydict({"rows": list(range(9)), "radius": [0.5] * 9, "name": ["a"] * 9})
    good, refused = ipc("lists", batch), 0
    for at in range(len(good)):
        changed = bytearray(good)
        changed[at] ^= 1 << at % 8
        try:
            (found,) = read_batches(pa.BufferReader(bytes(changed)), "lists")
        except DataError:
            refused += 1
            continue
        assert found.equals(batch)
    assert refused > len(good) / 3
    with pytest.raises(
        DataError, match=r"runs of the job as it was written; got what was written as 'lists'"
    ):
        read_batches(pa.BufferReader(good), "runs")


def test_a_record_in_the_place_of_another_is_refused(place: Path, made: Path):
    folder = Store.at(place / "out")
    other = Record(stage="predict", task="part-00000").to_json().encode()
    folder.write(f"{COMMITS}/predict/part-00001.json", other)
    with pytest.raises(DataError, match=r"a record of the task that .*part-00001.* is named by"):
        ld.predict(METHOD, made / "index", made / "queries", place / "out", keep=["id", "y"])


# ------------------------------------------------------------------------------------ once on each machine


def kept(folder: Path, content: bytes) -> ShardFile:
    (folder / "a").write_bytes(content)
    return ShardFile("a", 1, len(content), digest(content))


def arrow(values: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict({"row": values})
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(intact, "SMALL", 0)
    monkeypatch.setattr(intact, "NOTES", tmp_path / "notes")
    return tmp_path / "notes"


def test_a_file_is_read_through_once_on_a_machine_until_it_changes(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looks: list[Path] = []
    through = intact._read_through
    monkeypatch.setattr(
        intact, "_read_through", lambda path, *rest: (looks.append(path), through(path, *rest))
    )
    file = kept(tmp_path, arrow([1, 2]))
    for _ in range(3):
        intact.verify(tmp_path, [file], "Again.")
    assert len(looks) == 1
    flip(tmp_path / "a", 40)
    with pytest.raises(DataError, match="a with the checksum"):
        intact.verify(tmp_path, [file], "Again.")
    with pytest.raises(DataError, match="a with the checksum"):  # what is bad is not noted
        intact.verify(tmp_path, [file], "Again.")
    assert len(looks) == 3


def test_a_note_is_not_believed_for_longer_than_a_day_or_after_a_restart(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = kept(tmp_path, arrow([1, 2]))
    intact.verify(tmp_path, [file], "Again.")
    (note,) = notes.rglob("*/*")
    os.utime(note, (0, 0))
    intact.verify(tmp_path, [file], "Again.")
    assert note.stat().st_mtime > 1e9
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(intact, "_BOOT", tmp_path / "boot")
    intact.verify(tmp_path, [file], "Again.")
    assert [each.name for each in notes.iterdir()] == ["another"]


def test_where_no_note_can_be_kept_every_process_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(intact, "SMALL", 0)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(intact, "NOTES", tmp_path / "file")
    file = kept(tmp_path, arrow([1, 2]))
    intact.verify(tmp_path, [file], "Again.")
    flip(tmp_path / "a", 40)
    with pytest.raises(DataError, match="a with the checksum"):
        intact.verify(tmp_path, [file], "Again.")


def test_a_flipped_byte_in_the_copy_of_a_machine_is_told_and_copied_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache, "ROOT", tmp_path / "cache")
    index = ld.build_index(ld.dataset(SUPPORT, **ROLES), bucket.format("/index"))
    answers = ld.predict(METHOD, index, QUERIES)
    (copy,) = (tmp_path / "cache").rglob("shard-*.arrow")
    flip(copy, 3000)
    files._OPEN.clear()  # another process
    with pytest.raises(DataError, match=r"cache.*Delete that copy and run the same again"):
        ld.predict(METHOD, index, QUERIES)
    copy.unlink()
    assert ld.predict(METHOD, index, QUERIES).equals(answers)
