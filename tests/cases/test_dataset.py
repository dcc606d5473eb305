"""Files as one table: strays, empty and broken files, drifting types, spelled folders, odd row groups."""

import datetime as dt
import hashlib
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locdist.data import memory
from locdist.data.columns import vectors
from locdist.data.dataset import dataset
from locdist.data.footers import SourceFile
from locdist.data.source import Source, Span, source
from locdist.data.store import Store, natural
from locdist.errors import DataError, UsageError
from locdist.jobs.request import column_bytes, rows_per_task


def write(table: pa.Table, path: Path, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, **options)
        return
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table, max_chunksize=options.get("row_group_size"))


def rows(found: Source, **options: Any) -> pa.Table:
    return pa.concat_tables([found.schema.empty_table(), *found.read(**options)])


def test_c18_strays_are_no_data(tmp_path: Path) -> None:
    write(pa.table({"x": [1.0, 2.0]}), tmp_path / "part-0.parquet")
    write(pa.table({"x": [3.0]}), tmp_path / "sub/part-1.parquet")
    write(pa.table({"x": [9.0]}), tmp_path / "_locdist/part-1.parquet")
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_metadata.tmp", ".DS_Store"):
        (tmp_path / name).touch()
    (tmp_path / "README.txt").write_text("hi")
    listed = [tmp_path / name for name in ("part-0.parquet", "_SUCCESS", "sub/part-1.parquet")]
    for place in (tmp_path, str(tmp_path / "*"), tmp_path / "**" / "*.parquet", listed):
        found = source(place)
        assert rows(found).to_pydict() == {"x": [1, 2, 3]}
    (stray,) = source(tmp_path).skipped
    assert stray[0].endswith("README.txt")
    for nothing in (tmp_path / "*.arrow", [tmp_path / "_SUCCESS"], [], tmp_path / "README.txt"):
        with pytest.raises(DataError, match="files that end in"):
            source(nothing)
    with pytest.raises(DataError, match=r"nowhere.*nothing there"):
        source(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="more than once"):
        source([tmp_path, tmp_path / "part-0.parquet"])


def test_patterns_do_not_cross_folders(tmp_path: Path) -> None:
    for name in ("a1.parquet", "b/a2.parquet", "b/c/a3.parquet", "x[1].parquet"):
        write(pa.table({"x": [1]}), tmp_path / name)
    expected = {
        "*.parquet": ["a1.parquet", "x[1].parquet"],
        "**/*.parquet": ["a1.parquet", "b/a2.parquet", "b/c/a3.parquet", "x[1].parquet"],
        "b": ["a2.parquet", "c/a3.parquet"],
        "?/*": ["b/a2.parquet", "b/c/a3.parquet"],
        "[!x]*.parquet": ["a1.parquet"],
        "x[1].parquet": ["x[1].parquet"],
    }
    for pattern, names in expected.items():
        assert [file.path for file in source(str(tmp_path / pattern)).files] == names


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_c19_c36_empty_is_legal_and_broken_is_named(tmp_path: Path, suffix: str) -> None:
    write(pa.table({"id": pa.array([], pa.int64())}), tmp_path / f"a{suffix}")
    write(pa.table({"id": [0, 1]}), tmp_path / f"b{suffix}")
    assert rows(source(tmp_path)).to_pydict() == {"id": [0, 1]}
    empty = source(tmp_path / f"a{suffix}")
    assert (list(empty.read()), empty.partitions(10), empty.schema.names) == ([], [Span(0, 0)], ["id"])
    whole = (tmp_path / f"b{suffix}").read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"not a partition", whole[:-3] + b"\xff" + whole[-2:]):
        (tmp_path / f"c{suffix}").write_bytes(content)
        with pytest.raises(DataError, match=rf"c\{suffix}"):
            source(tmp_path)
        skipping = source(tmp_path, bad_files="skip")
        assert rows(skipping).to_pydict() == {"id": [0, 1]}
        assert [path for path, _ in skipping.skipped] == [f"c{suffix}"]


def test_damage_inside_a_file_and_a_change_after_listing_are_named(tmp_path: Path) -> None:
    write(pa.table({"x": np.random.default_rng(0).normal(size=9999)}), tmp_path / "a.parquet")
    found = source(tmp_path)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:4000] = bytes(3996)
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"readable content in .*a\.parquet"):
        list(found.read())
    write(pa.table({"x": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet as it was"):
        list(found.read())


PROMOTED = [
    (pa.int8(), pa.uint8(), pa.int16()),
    (pa.int64(), pa.uint32(), pa.int64()),
    (pa.int64(), pa.uint64(), None),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.int8(), pa.float32(), pa.float64()),
    (pa.bool_(), pa.int8(), None),
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.string(), pa.int64(), None),
    (pa.list_(pa.float32(), 2), pa.list_(pa.float64()), pa.large_list(pa.float64())),
    (pa.list_(pa.float32(), 2), pa.list_(pa.float16(), 2), pa.list_(pa.float32(), 2)),
    (pa.list_(pa.float32(), 2), pa.list_(pa.float32(), 3), None),
    (pa.list_(pa.float32(), 2), pa.float32(), None),
    (pa.fixed_shape_tensor(pa.float32(), [2]), pa.list_(pa.float32(), 2), pa.list_(pa.float32(), 2)),
    (pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("ns")),
    (pa.timestamp("s", "UTC"), pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("s", "UTC")),
    (pa.timestamp("s"), pa.timestamp("s", "UTC"), None),
    (pa.date32(), pa.date64(), pa.date64()),
    (pa.date32(), pa.timestamp("s"), None),
    (pa.decimal128(4, 2), pa.int32(), pa.float64()),
    (pa.binary(), pa.large_binary(), pa.large_binary()),
]


@pytest.mark.parametrize("one, other, expected", PROMOTED)
def test_c08_the_table_of_promotions(
    tmp_path: Path, one: pa.DataType, other: pa.DataType, expected: pa.DataType
) -> None:
    for name, kind in (("a", one), ("b", other), ("n", pa.null())):
        write(pa.table({"x": pa.nulls(1, kind)}), tmp_path / f"{name}.arrow")
    for order in ("abn", "nba"):
        places = [tmp_path / f"{name}.arrow" for name in order]
        if expected is None:
            with pytest.raises(
                DataError, match=r"column 'x'.*a\.arrow.*b\.arrow|column 'x'.*b\.arrow.*a\.arrow"
            ):
                source(places)
        else:
            found = source(places)
            assert found.schema.field("x").type == expected
            assert rows(found).to_pydict() == {"x": [None] * 3}


def test_c20_ids_are_exact(tmp_path: Path) -> None:
    ids = pa.array([2**53 + 1, 2**53 + 2, None], pa.int64())
    write(pa.table({"id": ids}), tmp_path / "a.parquet")
    write(pa.table({"id": pa.array([2**63 + 5], pa.uint64())}), tmp_path / "u.parquet")
    assert rows(source(tmp_path / "a.parquet")).column("id").to_pylist() == ids.to_pylist()
    assert rows(source(tmp_path / "u.parquet")).column("id").to_pylist() == [2**63 + 5]
    with pytest.raises(DataError, match=r"int64 in a\.parquet, uint64 in u\.parquet"):
        source(tmp_path)
    write(pa.table({"id": [0.5]}), tmp_path / "u.parquet")
    with pytest.raises(DataError, match=r"column 'id' in .*a\.parquet"):
        rows(source(tmp_path))


@pytest.mark.parametrize(
    "values", [("01001", "01002"), ("01001", "01002", "2A001"), ("2024-01-01", "2024-01-02")]
)
def test_c38_folders_spell_strings(tmp_path: Path, values: tuple[str, ...]) -> None:
    for value in values:
        write(pa.table({"x": [1.0]}), tmp_path / f"code={value}" / "a.parquet")
    assert rows(source(tmp_path)).to_pydict() == {
        "x": [1.0] * len(values),
        "code": sorted(values, key=natural),
    }
    (only,) = source(tmp_path / f"code={values[0]}" / "a.parquet").read(columns=["code"])
    assert only.to_pydict() == {"code": [values[0]]}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_c39_the_type_in_the_file_wins(tmp_path: Path, suffix: str) -> None:
    write(pa.table({"x": [1.0], "code": [1]}), tmp_path / f"code=01/a{suffix}")
    write(pa.table({"x": [2.0]}), tmp_path / f"code=02/b{suffix}")
    write(pa.table({"x": [3.0]}), tmp_path / f"code=__HIVE_DEFAULT_PARTITION__/b{suffix}")
    assert sorted(rows(source(tmp_path)).column("code").to_pylist(), key=str) == [1, 2, None]
    assert [table.column_names for table in source(tmp_path).read(columns=["code"])] == [["code"]]
    write(pa.table({"x": [2.0], "code": [3]}), tmp_path / f"code=02/b{suffix}")
    with pytest.raises(DataError, match=rf"code=02 in .*b\{suffix}, as its folder says"):
        rows(source(tmp_path))


def test_one_huge_row_group_is_read_in_bounded_batches(tmp_path: Path) -> None:
    """C44, scaled down: a file of less than 2 MB that holds 41 MB is read by bytes and not by rows, whatever
    its row groups; what a task may read is planned by what a row has in memory.
    """
    n, width = 40_000, 256
    tiled = np.tile(np.arange(width, dtype="f4"), (n, 1))
    table = pa.table(
        {"id": np.arange(n), "e": pa.FixedSizeListArray.from_arrays(pa.array(tiled.ravel()), width)}
    )
    write(table, tmp_path / "one.parquet", row_group_size=n)
    assert (tmp_path / "one.parquet").stat().st_size < table.nbytes / 20
    del table, tiled
    found, seen, before = source(tmp_path), 0, pa.total_allocated_bytes()
    assert column_bytes(found, ["id", "e"]) == 8 + 4 * width
    assert rows_per_task(10**7, column_bytes(found, ["e"])) * 4 * width <= 256 << 20
    for batch in found.read(batch_bytes=2 << 20):
        assert batch.nbytes <= 2 << 20
        assert pa.total_allocated_bytes() - before < 12 << 20
        assert batch.column("id")[0].as_py() == seen
        seen += batch.num_rows
    assert seen == n
    (last,) = found.read(n - 3, n, ["id"])
    assert last.column("id").to_pylist() == [n - 3, n - 2, n - 1]
    assert max(batch.num_rows for batch in found.read(0, 1000, batch_rows=300)) == 300


def test_row_groups_of_one_row_make_neither_batches_nor_tasks_of_one_row(tmp_path: Path) -> None:
    """C44, the other extreme."""
    write(pa.table({"id": np.arange(300)}), tmp_path / "tiny.parquet", row_group_size=1)
    for part in range(20):
        write(pa.table({"id": [300 + part]}), tmp_path / f"x{part}.parquet")
    found = source(tmp_path)
    assert [batch.num_rows for batch in found.read()] == [320]
    assert [span.rows for span in found.partitions(100)] == [80, 80, 80, 80]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_any_span_decodes_only_what_overlaps(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(3):
        table = pa.table({"id": np.arange(100 * part, 100 * part + 100), "s": ["x" * 5] * 100})
        write(table, tmp_path / f"p{part}{suffix}", row_group_size=30)
    found = source(tmp_path)
    assert [file.groups for file in found.files] == [(30, 30, 30, 10)] * 3
    for start, stop in ((0, 300), (0, 1), (29, 31), (95, 205), (290, 300), (150, 150), (299, 999)):
        tables = list(found.read(start, stop, ["id"]))
        ids = [row for table in tables for row in table.column("id").to_pylist()]
        assert ids == list(range(start, min(stop, 300)))
    if suffix == ".parquet":
        asked: list[list[int]] = []
        real = pq.ParquetFile.iter_batches

        def spy(self: Any, size: int, *, row_groups: list[int], **options: Any) -> Any:
            asked.append(row_groups)
            return real(self, size, row_groups=row_groups, **options)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
        list(found.read(165, 215, ["id"]))
        assert asked == [[2, 3], [0]]


def test_rows_have_addresses(tmp_path: Path) -> None:
    for part, count in (("a", 2), ("b", 0), ("c", 3)):
        write(pa.table({"x": np.arange(count)}), tmp_path / f"{part}.parquet")
    found = source(tmp_path)
    assert [found.locate(row) for row in (1, 2, 4)] == [("a.parquet", 1), ("c.parquet", 0), ("c.parquet", 2)]
    assert found.addresses(1, 4).to_pydict() == {
        "file": ["a.parquet", "c.parquet", "c.parquet"],
        "row": [1, 0, 1],
    }


def test_c52_instants_of_several_units(tmp_path: Path) -> None:
    for name, unit in (("a", "ns"), ("b", "ms"), ("c", "s")):
        write(
            pa.table({"t": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp(unit))}),
            tmp_path / f"{name}.arrow",
        )
    assert len(set(rows(source(tmp_path)).column("t").to_pylist())) == 1
    with pytest.raises(UsageError, match=r"column 't', the key; got type timestamp.*stated unit"):
        dataset(tmp_path, key="t")
    write(pa.table({"t": pa.array([dt.datetime(1600, 1, 1)], pa.timestamp("s"))}), tmp_path / "old.arrow")
    with pytest.raises(DataError, match=r"column 't' in .*old\.arrow"):
        rows(source(tmp_path))


def test_c68_places_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(pa.table({"x": [1.0]}), tmp_path / "data" / "a.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = [source(place) for place in ("data", "link", "~/data", "data/a.parquet", ["link/a.parquet"])]
    assert {str(each.store.local) for each in found if each.store} == {str((tmp_path / "data").resolve())}
    assert len({each.fingerprint for each in found}) == 1


def test_fingerprints_follow_the_rows_and_not_the_place(tmp_path: Path) -> None:
    for folder, value in (("one", 1.0), ("two", 1.0), ("three", 2.0)):
        write(pa.table({"x": [value]}), tmp_path / folder / "a.parquet")
    prints = [source(tmp_path / folder).fingerprint for folder in ("one", "two", "three")]
    assert prints[0] == prints[1] != prints[2]
    table = pa.table({"x": np.arange(10.0)})
    chunked = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    assert (
        source(table).fingerprint == source(chunked).fingerprint == source({"x": np.arange(10.0)}).fingerprint
    )
    assert source(table).fingerprint != source(table.slice(1)).fingerprint


def test_data_in_memory_become_a_file_that_is_the_same_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "BATCH_ROWS", 4)
    names = pa.chunked_array(
        [pa.array(["a", "b"] * 3).dictionary_encode(), pa.array(["c", None] * 2).dictionary_encode()]
    )
    table = pa.table({"x": [None, *range(9)], "e": vectors(np.arange(20.0).reshape(10, 2)), "name": names})
    here = source(table)
    assert here != source(table.slice(1))
    there = here.spill(Store.at(tmp_path))
    assert (there.files, there.fingerprint, there.schema) == (here.files, here.fingerprint, here.schema)
    assert here.files[0].groups == (4, 4, 2)
    assert pa.concat_tables(there.read(3, 9)).equals(pa.concat_tables(here.read(3, 9)))
    assert there.addresses(2, 4) == here.addresses(2, 4)
    assert here.starts == (0, 10)
    assert "starts" not in pickle.loads(pickle.dumps(here)).__dict__
    before = (tmp_path / "memory").stat().st_mtime_ns
    assert here.spill(Store.at(tmp_path)) == there == there.spill(Store.at(tmp_path / "elsewhere"))
    assert [(each.name, each.stat().st_mtime_ns) for each in tmp_path.iterdir()] == [("memory", before)]
    assert (
        hashlib.blake2b((tmp_path / "memory").read_bytes(), digest_size=16).hexdigest()
        == here.files[0].fingerprint
    )


def test_tasks_over_many_row_groups_are_cut_quickly() -> None:
    files = tuple(SourceFile(f"{number}", 1000, 0, 0, "", (100,) * 10) for number in range(10_000))
    begun = time.perf_counter()
    spans = Source(None, files, "parquet", pa.schema([])).partitions(1234)
    assert time.perf_counter() - begun < 2
    assert len(spans) == 8104
    assert all(span.start % 100 == 0 for span in spans)


def test_a_dataset_travels(tmp_path: Path) -> None:
    write(pa.table({"x": [1.0], "y": ["a"]}), tmp_path / "a.parquet")
    for place in (tmp_path, {"x": np.ones(3), "y": np.array(["a", "b", "a"])}):
        made = dataset(place, key={"x": 2.0}, target="y", scaling="none")
        copy = pickle.loads(pickle.dumps(made))
        assert copy == made
        assert pa.concat_tables(copy.read()) == pa.concat_tables(made.read())
    assert dataset({"key": np.ones((2, 3))}, key="key").rows == 2
    batches = list(source({"x": np.arange(10)}).read(2, 9, batch_rows=3))
    assert [batch.column("x").to_pylist() for batch in batches] == [[2, 3, 4], [5, 6, 7], [8]]


def test_outputs_of_earlier_jobs_are_no_data_unless_they_are_named(tmp_path: Path) -> None:
    write(pa.table({"x": [1.0]}), tmp_path / "data/part-0.parquet")
    for name in ("data/out-1", "data/deep/out-2", "data/_hidden"):
        write(pa.table({"x": [9.0]}), tmp_path / name / "part-0.parquet")
        write(pa.table({"x": [9.0]}), tmp_path / name / "shards/shard-0.arrow")
        (tmp_path / name / "_locdist").mkdir()
        (tmp_path / name / "_locdist/manifest.json").touch()
    for place in ("data", "data/*", "d*/**/*.parquet", "da*"):
        found = source(tmp_path / place)
        assert rows(found).to_pydict() == {"x": [1.0]}, place
        told = [(Path(path).name, why) for path, why in found.skipped]
        assert sorted(told) == [(name, "the output of an earlier job") for name in ("out-1", "out-2")], place
    for place in ("data/out-1/*.parquet", "data/out-*/part-0.parquet", "data/out-1/part-0.parquet"):
        assert rows(source(tmp_path / place)).to_pydict() == {"x": [9.0]}, place


def test_links_to_nothing_and_files_without_a_suffix(tmp_path: Path) -> None:
    write(pa.table({"x": [1.0]}), tmp_path / "part-0.parquet")
    (tmp_path / "part-0.parquet").rename(tmp_path / "plain")
    assert rows(source(tmp_path / "plain")).to_pydict() == {"x": [1.0]}
    write(pa.table({"x": [2.0]}), tmp_path / "part-1.parquet")
    (tmp_path / "part-2.parquet").symlink_to(tmp_path / "gone.parquet")
    (tmp_path / "part-3.parquet").symlink_to(tmp_path / "plain")
    found = source(tmp_path)
    assert rows(found).to_pydict() == {"x": [2.0, 1.0]}
    assert [(Path(path).name, why) for path, why in found.skipped] == [
        ("part-2.parquet", "a link to nothing"),
        ("plain", "not one of .parquet, .parq, .arrow, .feather, .ipc"),
    ]
    assert rows(source([tmp_path / "part-1.parquet", tmp_path / "plain"])).num_rows == 2
    with pytest.raises(DataError, match="files that end in"):
        source([tmp_path / "pl*"])


TABLE = {"rooms": [1.0], "Area": [2.0], "id": [0.5], "name": ["a"], "e": np.ones((1, 2)), "ok": [True]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"key": "area"}, "Did you mean 'Area'"),
    ({"key": "romos"}, "Did you mean 'rooms'"),
    ({"key": "zzz"}, "There are: 'rooms'"),
    ({"key": "rooms", "id": "id"}, "integers or strings in column 'id', the id; got type double"),
    ({"key": "rooms", "weight": "name"}, "numbers in column 'name', the weight"),
    ({"key": "rooms", "target": "e"}, "column 'e', the target"),
    ({"key": "rooms", "metric": "l3"}, "metric as one of l2, cosine, haversine, ip"),
    ({"key": "rooms", "scaling": "standart"}, "Did you mean 'standard'"),
    ({"key": "rooms", "scaling": {"kee": "none"}}, "'kee'. Did you mean 'key'"),
    ({"key": "rooms", "scaling": {"key": 1}}, "scaling of the key as one of standard, none; got 1"),
    ({"key": "rooms", "scaling": {"features": "none"}}, "features to scale; got none"),
    ({"key": "rooms", "scaling": ["none"]}, "scaling as one of standard, none"),
    ({"key": ["rooms", "rooms"]}, "each column of the key once"),
    ({"key": {"rooms": -1.0}}, "positive multiplier for 'rooms'"),
    ({"key": []}, "at least one column as the key"),
]


@pytest.mark.parametrize("roles, told", REFUSED)
def test_roles_are_checked_when_they_are_made(roles: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        dataset(TABLE, **roles)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40), max_size=5), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_partitions_cover_every_row_once(groups: list[list[int]], per_task: int) -> None:
    files = tuple(
        SourceFile(f"{number}", sum(sizes), 0, 0, "", tuple(sizes)) for number, sizes in enumerate(groups)
    )
    found = Source(None, files, "parquet", pa.schema([]))
    spans = found.partitions(per_task)
    edges = [spans[0].start, *(span.stop for span in spans)]
    assert (edges[0], edges[-1]) == (0, found.rows)
    assert [span.start for span in spans] == edges[:-1]
    assert all(span.rows > 0 for span in spans) or (found.rows == 0 and spans == [Span(0, 0)])
    assert all(span.rows <= 1.5 * per_task + 1 for span in spans)
    borders = set(np.cumsum([rows for file in files for rows in file.groups]).tolist())
    for cut in edges[1:-1]:
        assert cut in borders or min(abs(cut - border) for border in borders | {0}) > per_task / 4
