"""What `data.store.Store` promises of every kind of address, as tests."""

import pickle
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from locdist.data.store import Store
from locdist.errors import DataError
from locdist.plan.records import temporary

NAMES = ("odd %20 name?#", "part-2", "part-10", "sub/deep/part-1", "sub/part-1")  # in the order of a listing
WRITERS = 8


class StoreContract:
    """The tests of a kind of store; subclass it in a test module and say where one is.

    Attributes
    ----------
    exclusive : bool
        Whether of several writers in the same instant exactly one creates a file. Where there is no
        put-if-absent several may, and what they write has to be equivalent.
    dated : bool
        Whether the store says when a file was modified.
    held : bool
        Whether who reads a file while it is replaced gets one version of it. A file system in memory may show
        one that is just written.

    Examples
    --------
    >>> class TestDisk(StoreContract):
    ...     def place(self, folder):
    ...         return folder
    """

    exclusive = True
    dated = True
    held = True

    def place(self, folder: Path) -> str | Path:
        """Where an empty store is: a path below an empty local folder, or an address that ends in
        `folder.name`, which is new in each test.
        """
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """The store of one test."""
        folder = tmp_path / f"store-{secrets.token_hex(4)}"
        folder.mkdir()
        made = Store.at(self.place(folder))
        yield made
        made.remove_all()

    # ---- files ----

    def test_an_empty_store_has_no_files(self, store: Store) -> None:
        assert store.files() == []
        assert store.files("sub") == []
        assert store.info("a") is None
        assert not store.exists("a")
        assert not store.is_folder("sub")

    def test_what_is_written_is_read_back(self, store: Store) -> None:
        large = random.Random(0).randbytes((16 << 20) + 5)  # more than goes in one piece
        for name, content in {"empty": b"", "small": b"x", "sub/large": large}.items():
            store.write(name, content)
            assert store.read(name) == content
            info = store.info(name)
            assert info is not None
            assert (info.path, info.size) == (name, len(content))
            assert info.modified > 0 or not self.dated
        with store.open("sub/large") as stream:
            assert stream.read_at(9, 16 << 20) == large[16 << 20 :]
        with store.open("small", mmap=True) as stream:
            assert stream.read() == b"x"

    def test_a_file_is_replaced_whole(self, store: Store) -> None:
        store.write("a", b"long content")
        store.write("a", b"new")
        assert store.read("a") == b"new"

    def test_files_are_listed_with_numbers_in_order(self, store: Store) -> None:
        for name in random.Random(0).sample(NAMES, len(NAMES)):
            store.write(name, name.encode())
        assert [file.path for file in store.files()] == list(NAMES)
        assert [file.size for file in store.files()] == [len(name) for name in NAMES]
        assert [file.path for file in store.files("sub")] == list(NAMES[3:])
        assert [file.path for file in store.files(recursive=False)] == list(NAMES[:3])

    def test_a_folder_of_a_store_is_a_store(self, store: Store) -> None:
        store.write("sub/part-1", b"1")
        below = store.child("sub")
        assert below.read("part-1") == b"1"
        assert [file.path for file in below.files()] == ["part-1"]
        assert store.is_folder("sub")
        assert not store.exists("sub")

    def test_the_address_of_a_file_is_read_as_it_is_shown(self, store: Store) -> None:
        for name in NAMES:
            store.write(name, b"content")
            folder, _, base = name.rpartition("/")
            assert Store.at(store.path(folder)).read(base) == b"content"
            assert Store.at(store.path(name)).uri == store.child(name).uri

    def test_a_store_is_a_word_that_travels(self, store: Store) -> None:
        store.write("a", b"a")
        copy = pickle.loads(pickle.dumps(store))
        assert copy == store == Store.at(store.uri)
        assert copy.read("a") == b"a"

    def test_what_is_deleted_is_gone(self, store: Store) -> None:
        for name in ("a", "sub/b"):
            store.write(name, b"content")
        store.delete("a")
        store.delete("a")
        assert [file.path for file in store.files()] == ["sub/b"]
        store.remove_all()
        store.remove_all()
        assert store.files() == []

    def test_what_is_not_there_is_named(self, store: Store) -> None:
        for read in (store.read, store.open):
            with pytest.raises(DataError, match="part-2"):
                read("part-2")

    # ---- writers ----

    def test_a_file_appears_when_its_writer_ends(self, store: Store) -> None:
        with store.writer("sub/a") as stream:
            stream.write(b"half")
            assert not store.exists("sub/a")
            assert all(temporary(file.path) for file in store.files())
            stream.write(b"whole")
        assert [file.path for file in store.files()] == ["sub/a"]
        assert store.read("sub/a") == b"halfwhole"

    @pytest.mark.parametrize("before", [[], ["a"]], ids=["new", "replaced"])
    def test_a_writer_that_fails_leaves_what_was(self, store: Store, before: list[str]) -> None:
        for name in before:
            store.write(name, b"old")
        with pytest.raises(KeyError, match="on purpose"):
            fail_halfway(store)
        assert [file.path for file in store.files()] == before
        assert all(store.read(name) == b"old" for name in before)

    def test_readers_see_the_old_content_or_the_new(self, store: Store) -> None:
        if not self.held:
            pytest.skip("it shows a file that is just written")
        contents = [bytes([number]) * (100_000 + 7 * number % 20) for number in range(20)]
        store.write("a", contents[0])
        done = threading.Event()

        def rewrite() -> None:
            for version in contents[1:]:
                store.write("a", version)
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(rewrite)
            seen = [store.read("a")]
            while not done.is_set() and not writing.done():
                seen.append(store.read("a"))
            writing.result()
        assert set(seen) <= set(contents)

    # ---- put if absent ----

    def test_a_file_is_created_once(self, store: Store) -> None:
        assert store.create("sub/claim", b"first")
        assert not store.create("sub/claim", b"second")
        assert store.read("sub/claim") == b"first"
        assert [file.path for file in store.files()] == ["sub/claim"]

    def test_of_many_that_create_one_is_there_and_whole(self, store: Store) -> None:
        for round in range(3):
            won = at_once(partial(claim, store, f"claim-{round}"))
            winners = [number for number, created in enumerate(won) if created]
            assert len(winners) == 1 if self.exclusive else winners
            assert store.read(f"claim-{round}") in {content(number) for number in winners}
        assert len(store.files()) == 3


def fail_halfway(store: Store) -> None:
    """Raise while a file is written."""
    with store.writer("a") as stream:
        stream.write(bytes(1 << 20))
        raise KeyError("on purpose")


def claim(store: Store, name: str, number: int) -> bool:
    """Try to be the one that creates a file."""
    return store.create(name, content(number))


def content(number: int) -> bytes:
    """What one of several writers writes."""
    return bytes([number]) * (1000 + number)


def at_once(call: Callable[[int], bool]) -> list[bool]:
    """What a call returns to each of several threads that make it at the same time."""
    gate = threading.Barrier(WRITERS)

    def make(number: int) -> bool:
        gate.wait()
        return call(number)

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(make, range(WRITERS)))
