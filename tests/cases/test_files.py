"""What lies in a folder or in an object store and is no data, or is damaged, or may not be read."""

import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.source import source
from locdist.errors import DataError, MachineError
from tests.cases.arrangement import Arrangement
from tests.cases.tasks import Forgetful
from tests.system.generated import read


def test_strays_in_a_folder_are_no_data(arrangement: Arrangement) -> None:
    """C18: markers, checksums and hidden files are nobody's rows, from a folder, a pattern or a list that
    names them; a README is reported by name, and a folder without data is an error.
    """
    place = arrangement.folder("data")
    for name, rows in {"part-0.parquet": [1.0, 2.0], "sub/part-1.parquet": [3.0]}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": rows, "id": np.array(rows, int)}), place / name)
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_metadata.tmp", ".DS_Store"):
        (place / name).touch()
    (place / "README.txt").write_text("hi")
    names = ["part-0.parquet", "_SUCCESS", "sub/part-1.parquet", ".DS_Store"]
    listed = [place / names[number] for number in arrangement.order(len(names))]
    for files in (place, f"{place}/*", f"{place}/**/*.parquet", listed):
        index = arrangement.build(files, key="x", target="x", scaling="none")
        assert arrangement.ask(ld.knn(1), index, files)["prediction"].to_pylist() == [1, 2, 3]
    report = ld.predict(ld.knn(1), index, place, arrangement.folder("out"))
    assert any("README.txt (not one of .parquet" in note for note in report.notes)
    for nothing in (f"{place}/*.arrow", [place / "_SUCCESS"], [], place / "README.txt"):
        with pytest.raises(DataError, match="files that end in"):
            ld.dataset(nothing, key="x")


EMPTY = pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.float64())})
ROWS = pa.table({"id": [0, 1], "x": [0.0, 1.0]})


def test_empty_partitions_are_legal_and_a_file_of_no_bytes_is_not(arrangement: Arrangement) -> None:
    """C19: a file without rows adds none; queries of which a filter left none have an output with the full
    schema that can be read back; a truncated upload is named.
    """
    files = arrangement.files({"a.parquet": EMPTY, "b.parquet": ROWS})
    index = arrangement.build(files, key="x", target="x", scaling="none")
    answers = arrangement.ask(ld.knn(1), index, files)
    assert answers["prediction"].to_pylist() == [0, 1]
    for nobody in (files[0].parent / "a.parquet", ROWS.slice(0, 0), ROWS.filter(pa.array([False, False]))):
        out = arrangement.folder("out")
        report = ld.predict(ld.knn(1), index, nobody, out, executor=arrangement.executor)
        assert (report.rows, report.status) == (0, {})
        assert read(out).schema == answers.schema
        assert read(out).num_rows == 0
    (files[0].parent / "c.parquet").touch()
    with pytest.raises(DataError, match=r"c\.parquet"):
        ld.dataset(files[0].parent, key="x")
    with pytest.raises(DataError, match=r"c\.parquet"):
        ld.predict(ld.knn(1), index, files[0].parent, arrangement.folder("out"))


def test_no_queries_are_answered_with_the_full_schema_on_every_engine(placed: Arrangement) -> None:
    """C19, on clusters, which call functions on empty frames to guess a schema."""
    index = placed.build(ROWS, key="x", target="x")
    answers = placed.ask(ld.knn(1), index, EMPTY)
    assert answers.schema == placed.ask(ld.knn(1), index, ROWS).schema
    assert answers.num_rows == 0


TWENTY = {f"p{i:02}.parquet": pa.table({"id": [i], "x": [float(i)]}) for i in range(20)}


def test_a_damaged_file_is_named_at_once_or_skipped_and_told(arrangement: Arrangement) -> None:
    """C36: the default is an error that names p07 before any task; when files may be skipped there are 19
    rows, and report and index say which file is missing and why.
    """
    files = arrangement.files(TWENTY)
    broken = files[0].parent / "p07.parquet"
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    for refused in (lambda: ld.dataset(files, key="x"), lambda: source(files)):
        with pytest.raises(DataError, match=r"p07\.parquet"):
            refused()
    support = ld.dataset(files, key="x", target="x", id="id", scaling="none", bad_files="skip")
    assert support.rows == 19
    index = ld.build_index(support, arrangement.folder("index"), executor=arrangement.executor)
    assert index.layout.source.notes == ("1 damaged files were skipped: p07.parquet",)
    out = arrangement.folder("out")
    report = ld.predict(ld.knn(1), index, support, out, executor=arrangement.executor)
    assert report.rows == 19
    note, itself = report.notes
    assert "each is among its own neighbors" in itself
    assert note.startswith("1 left out of the input: p07.parquet (")
    assert note in (out / "_locdist/report.json").read_text()
    by_id = dict(zip(read(out)["id"].to_pylist(), read(out)["prediction"].to_pylist(), strict=True))
    assert by_id == {i: i for i in range(20) if i != 7}


def test_a_file_that_may_not_be_read_is_not_damaged(tmp_path: Path) -> None:
    """C36: a folder where a file should be stands for a permission, which the root of a container has; it is
    an error even when damaged files may be skipped.
    """
    pq.write_table(ROWS, tmp_path / "a.parquet")
    found = source(tmp_path, bad_files="skip")
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(MachineError, match=r"access to .*a\.parquet from .*Check permissions"):
        list(found.read())


# ------------------------------------------------------------------------------------------- object stores

Answer = Callable[[int], tuple[int, str] | None]  # of the n-th request: a status and a code, None to obey


@contextmanager
def bucket(content: bytes, answer: Answer, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """An object store of one file that says no when it is told to, and to those without the key; its
    address, and the requests it got.
    """
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requests.append(f"{self.command} {self.path}")
            known = key in self.headers.get("Authorization", "")
            refused = answer(len(requests)) if known else (403, "AccessDenied")
            status, code = refused or (200, "")
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else content
            start = self.headers.get("Range")
            if start and not refused:
                first, _, last = start.removeprefix("bytes=").partition("-")
                status, body = 206, content[int(first) : int(last) + 1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/xml" if code else "application/octet-stream")
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET  # noqa: N815 - so http.server names it

        def log_message(self, *told: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        port = server.server_address[1]
        yield f"s3://bucket/emb/a.parquet?endpoint_override=127.0.0.1:{port}&scheme=http", requests
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes of a file, and credentials to ask for it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENTITY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    pq.write_table(ROWS, tmp_path / "a.parquet")
    return (tmp_path / "a.parquet").read_bytes()


DENIED = {
    "credentials": ((403, "AccessDenied"), r"Credentials: AWS_ACCESS_KEY_ID of the environment.*the region"),
    "a wrong key": ((403, "InvalidAccessKeyId"), r"Credentials: AWS_ACCESS_KEY_ID of the environment"),
    "a wrong region": ((301, "PermanentRedirect"), r"the region"),
}


@pytest.mark.parametrize("refusal, told", DENIED.values(), ids=DENIED.keys())
def test_a_refusal_of_an_object_store_says_what_may_be_wrong_and_is_not_repeated(
    refusal: tuple[int, str], told: str, parquet: bytes
) -> None:
    """C37, with a store on this machine that refuses: one line with the call, the object, the machine, where
    the credentials came from and what to look at, at once, and without the credentials.
    """
    with bucket(parquet, lambda number: refusal) as (address, requests):
        begun = time.monotonic()
        with pytest.raises(MachineError, match=told) as caught:
            ld.dataset(address, key="x")
        assert time.monotonic() - begun < 5
        assert len(requests) <= 3
    message = str(caught.value)
    assert "bucket/emb/a.parquet" in message
    assert "HeadObject" in message
    assert socket.gethostname() in message
    assert "hush-hush" not in message
    assert "AKIDENTITY" not in message


def test_a_store_that_asks_for_patience_gets_it(parquet: bytes) -> None:
    """C37: throttled requests are sent again a little later."""
    with bucket(parquet, lambda number: (503, "SlowDown") if number in (1, 2, 4) else None) as (address, _):
        assert ld.dataset(address, key="x").rows == 2


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_credentials_that_only_the_driver_has_are_missed_by_name_on_the_workers(
    placed: Arrangement, parquet: bytes
) -> None:
    """C37: the driver reads the footer, workers may not read the rows (they are processes of this machine
    that forget what they inherited): the error names the machine, and what it looked for in vain.
    """
    with bucket(parquet, lambda number: None, key="AKIDENTITY") as (address, _):
        index = ld.build_index(ld.dataset(address, key="x", target="x"), placed.place / "index")
        begun = time.monotonic()
        told = rf"from {socket.gethostname()}.*Credentials: none in the environment or in /no/such/file"
        with pytest.raises(MachineError, match=told):
            ld.predict(ld.knn(1), index, address, placed.place / "out", executor=Forgetful(placed.executor))
        assert time.monotonic() - begun < 20


def test_credentials_do_not_travel_with_tasks(parquet: bytes, tmp_path: Path) -> None:
    """C37: what is sent to workers, and what a job writes down, holds an address and no credentials."""
    with bucket(parquet, lambda number: None) as (address, _):
        support = ld.dataset(address, key="x", target="x", id="id")
        assert b"hush-hush" not in pickle.dumps(support)
        index = ld.build_index(support, tmp_path / "index")
        ld.predict(ld.knn(1), index, address, tmp_path / "out")
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"hush-hush" not in file.read_bytes(), file
