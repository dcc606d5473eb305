"""Stores: the same promises on a local disk, in an S3 server that really runs, and behind fsspec."""

import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from locdist.data.filesystems import refuse_credentials
from locdist.data.source import source
from locdist.data.store import Store, natural
from locdist.errors import MachineError, UsageError
from locdist.testing import StoreContract


@pytest.fixture(params=["local", "s3", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "local":
        yield Store.at(tmp_path / "root")
        return
    if request.param == "s3":
        place = request.getfixturevalue("bucket").format("")
    else:
        place = f"memory://{tmp_path.name}"
    made = Store.at(place)
    yield made
    made.remove_all()


class TestDisk(StoreContract):
    def place(self, folder):
        return folder


class TestMemory(StoreContract):
    """Behind fsspec."""

    exclusive = dated = held = False

    def place(self, folder):
        return f"memory://{folder.name}"


class TestObjectStore(StoreContract):
    """A server that really runs."""

    exclusive = False

    @pytest.fixture(autouse=True)
    def server(self, bucket: str) -> None:
        self.bucket = bucket

    def place(self, folder):
        return self.bucket.format(f"/{folder.name}")


def test_create_where_hard_links_are_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*names: str) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    TestDisk().test_a_file_is_created_once(Store.at(tmp_path))


def test_local_addresses_are_absolute_and_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    places = ["data", "./data/", "link", "~/data", f"file://{tmp_path}/data", tmp_path / "x" / ".." / "data"]
    assert {Store.at(place).uri for place in places} == {str((tmp_path / "data").resolve())}
    assert Store.at("data").local == (tmp_path / "data").resolve()


def test_a_memory_mapped_file_is_read_without_a_copy(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    store.write("numbers", bytes(1 << 20))
    before = pa.total_allocated_bytes()
    with store.open("numbers", mmap=True) as stream:
        assert stream.read_buffer(1 << 20).size == 1 << 20
        assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("place", ["nope://bucket/x", "s3://bucket/x?no_such_option=1"])
def test_unknown_addresses_are_refused_with_a_remedy(place: str) -> None:
    with pytest.raises(UsageError, match=r"Install fsspec|Correct the address"):
        Store.at(place)


SECRET = "wJalrXUtnFEMI"
CREDENTIALS = [
    "s3://{}@bucket/x",
    "s3://KEY:{}@bucket/x",
    "s3://KEY:{}/more@bucket/x",
    "s3://KEY%3A{}@bucket/x",
    "simplecache::s3://KEY:{}@bucket/x",
    "abfss://container:{}@account.dfs.core.windows.net/x",
    "ftp://user:{}@host/x",
    "https://{}@host/x",
    "s3://bucket/x?secret_key={}&region=here",
    "s3://bucket/x?session_token={}",
    "abfss://container@account.dfs.core.windows.net/x?client_secret={}",
    "https://account.blob.core.windows.net/x?sv=1&sig={}",
]


@pytest.mark.parametrize("place", CREDENTIALS)
@pytest.mark.parametrize("take", [Store.at, source, lambda place: source(place + "/*.parquet")])
def test_credentials_in_an_address_are_refused_without_repeating_them(place: str, take: object) -> None:
    with pytest.raises(UsageError, match="the environment") as raised:
        take(place.format(SECRET))
    told = "".join(traceback.format_exception(raised.value))
    assert SECRET not in told + repr(raised.value)


@pytest.mark.parametrize(
    "place", ["memory://bucket/a@b/c:d", "memory://bucket/x", "hdfs://host:8020/x", "gs://anonymous@bucket/x"]
)
def test_names_that_only_look_like_credentials_are_taken(place: str) -> None:
    assert refuse_credentials(place) is None


def test_a_bucket_that_does_not_exist_is_the_machines_fault(s3: str) -> None:
    nowhere = Store.at(f"s3://nowhere/x?endpoint_override={s3}&scheme=http&region=us-east-1")
    with pytest.raises(MachineError, match="nowhere"):
        nowhere.write("a", b"a")


def test_the_endpoint_may_come_from_the_environment(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = Store.at("s3://bucket/environment/")
    store.write("a", b"a")
    assert store.uri == "s3://bucket/environment"
    assert [info.path for info in store.files()] == ["a"]


def test_partitions_in_an_object_store_are_a_source(store: Store) -> None:
    for name, first in (
        ("code=01/part-0.parquet", 0),
        ("code=02/part-0.parquet", 5),
        ("_locdist/x.parquet", 9),
    ):
        with store.writer(name) as stream:
            pq.write_table(pa.table({"id": range(first, first + 5)}), stream)
    root, mark, query = store.uri.partition("?")
    for place in (store, store.uri, f"{root}/code=*/*.parquet{mark}{query}"):
        found = source(place)
        assert found.schema == pa.schema({"id": pa.int64(), "code": pa.string()})
        (table,) = found.read(3, 7)
        assert table.to_pydict() == {"id": [3, 4, 5, 6], "code": ["01", "01", "02", "02"]}
    listed = source([store.path(f"code=0{number}/part-0.parquet") for number in (2, 1)])
    assert [file.path for file in listed.files] == ["code=02/part-0.parquet", "code=01/part-0.parquet"]


def test_digits_sort_as_numbers() -> None:
    assert sorted(["b", "a10", "a2", "a02", "2", "10"], key=natural) == ["2", "10", "a02", "a2", "a10", "b"]
