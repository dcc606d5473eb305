"""What the values of columns become: numbers of every kind, instants, labels, several targets, chunks."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.search.layout import Dropped
from tests.cases.arrangement import Arrangement, found, quarantine

CENTS = [decimal.Decimal("1.10"), decimal.Decimal("2.25")]
DAYS = [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]
MIXED = pa.table(
    {
        "id": [0, 1],
        "a": pa.array(CENTS),
        "t": pa.array(DAYS, pa.timestamp("us", tz="America/New_York")),
        "b": [True, None],
        "i": pa.array([1, None], pa.int32()),
    }
)


def test_decimals_booleans_and_integers_are_numbers_and_instants_are_refused_by_name(
    arrangement: Arrangement,
) -> None:
    """C41: 1.10 is 1.1 as key and as target, true is 1, a null follows the policy of bad rows; an instant has
    no unit that would be the right one, so it is refused before any work, and kept columns stay as they are.
    """
    index = arrangement.build(MIXED, key="a", target="a", scaling="none")
    answers = arrangement.ask(ld.knn(1), index, MIXED, keep=["id", "t", "b"])
    assert answers["prediction"].to_pylist() == [1.1, 2.25]
    assert answers.select(["t", "b"]).to_pydict() == MIXED.select(["t", "b"]).to_pydict()
    (pair,) = arrangement.ask(2, index, {"a": CENTS[:1]})["neighbors"].to_pylist()
    assert [each["distance"] for each in pair] == [0, pytest.approx(1.15)]
    for name in ("b", "i"):
        with pytest.raises(DataError, match=rf"1 null in '{name}' \(first: row \d of part-\d\.parquet\)"):
            arrangement.build(MIXED, key=name, target=name)
        index = arrangement.build(MIXED, "drop", key=name, target=name, scaling="none")
        assert index.layout.source.dropped == (Dropped(name, "null", 1),)
        answers = arrangement.ask(ld.knn(1), index, MIXED)
        assert answers["prediction"].to_pylist() == [1, None]
        assert [row["reason"] for row in quarantine(arrangement.last("out"))] == ["null"]
    for roles in ({"key": "t"}, {"key": "a", "target": "t"}, {"key": "a", "weight": "t"}):
        with pytest.raises(
            UsageError, match=r"column 't'.*timestamp\[us, tz=America/New_York\].*stated unit"
        ):
            arrangement.build(MIXED, **roles)


UNITS = {
    f"{name}.parquet": pa.table(
        {"id": [number], "t": pa.array(DAYS[:1], pa.timestamp(unit)), "x": [1.0], "y": [1.0]}
    )
    for number, (name, unit) in enumerate({"a": "ns", "b": "ms", "c": "s"}.items())
}


def test_instants_of_several_units_are_the_same_instant_and_those_with_a_zone_do_not_mix(
    arrangement: Arrangement,
) -> None:
    """C52: whichever file is first. The year 1600 is no instant in nanoseconds, and the file that has it is
    named; an instant with a time zone is another thing. None is a key: that is refused (C41).
    """
    files = arrangement.files(UNITS)
    index = arrangement.build(files, key="x", target="y")
    answers = arrangement.ask(ld.knn(3), index, files, keep=["id", "t"])
    assert answers["t"].to_pylist() == [DAYS[0]] * 3
    old = pa.array([dt.datetime(1600, 1, 1)], pa.timestamp("s"))
    zoned = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("s", tz="UTC"))
    rows = UNITS["a.parquet"]
    fourth = arrangement.files({"old.parquet": rows.set_column(1, "t", old)})
    with pytest.raises(DataError, match=r"column 't' in .*old\.parquet to fit.*out of bounds timestamp"):
        arrangement.ask(ld.knn(1), index, [*files, *fourth], keep=["id", "t"])
    fourth = arrangement.files({"zoned.parquet": rows.set_column(1, "t", zoned)})
    with pytest.raises(DataError, match=r"column 't' in all files; got .*tz=UTC\] in .*zoned\.parquet"):
        ld.dataset([*files, *fourth], key="x")


WORDS = {
    "a.parquet": pa.table({"id": [0, 1], "x": [0.0, 1.0], "lab": ["cat", "elephant"]}),
    "b.parquet": pa.table({"id": [2], "x": [2.0], "lab": pa.array(["hippopotamus"], pa.large_string())}),
}
NAMES = ["cat", "elephant", "hippopotamus"]
CLASSES = {
    "integers": pa.array([3, 300, -7], pa.int16()),
    "booleans": pa.array([True, False, True]),
}


def test_labels_come_back_whole_and_in_their_own_type(arrangement: Arrangement) -> None:
    """C63: words of any length in one string type over all partitions; integers stay integers of their
    width, truth values truth values.
    """
    files = arrangement.files(WORDS)
    index = arrangement.build(files, key="x", target="lab", scaling="none")
    answers = arrangement.ask(ld.local_vote(1), index, files)
    assert answers["label"].to_pylist() == NAMES
    assert answers["label"].type == pa.large_string()
    parts = arrangement.last("out").glob("part-*.parquet")
    assert {pq.read_schema(part).field("label").type for part in parts} == {pa.large_string()}
    for labels in CLASSES.values():
        rows = pa.table({"id": [0, 1, 2], "x": [0.0, 1.0, 2.0], "lab": labels})
        index = arrangement.build(rows, key="x", target="lab", scaling="none")
        answers = arrangement.ask(ld.local_vote(1), index, rows)
        assert answers["label"].to_pylist() == labels.to_pylist()
        assert answers["label"].type == labels.type


TARGETS = pa.table(
    {
        "id": [0, 1, 2],
        "x": [0.0, 1, 2],
        "u": ["a", "b", "b"],
        "v": ["x", "y", "z"],
        "r": [1.0, None, 3],
        "s": [10.0, 20, 30],
    }
)


def test_each_target_has_its_columns_and_a_gap_in_one_is_no_number_of_another(
    arrangement: Arrangement,
) -> None:
    """C64: several numbers are a column each, under their names; a target alone is the same as a list of it.
    Classes are predicted one target at a time: two of them are refused, so there is no ragged stack. A row
    without one of its targets is refused by the column's name, or left out whole and counted.
    """

    def asked(method: Any, target: Any, **more: Any) -> dict[str, Any]:
        index = arrangement.build(TARGETS, more.pop("bad", "raise"), key="x", target=target, scaling="none")
        answers = arrangement.ask(method, index, {"x": [0.1]}).drop_columns(["id", "status"])
        return {name: column[0] for name, column in answers.to_pydict().items()}

    for target, columns in (("u", ["a", "b"]), ("v", ["x", "y", "z"])):
        answer = asked(ld.local_vote(2), target)
        assert list(answer) == ["label", *(f"probability_{name}" for name in columns)]
    with pytest.raises(UsageError, match=r"a single target of classes.*got targets \['u', 'v'\]"):
        asked(ld.local_vote(2), ["u", "v"])
    assert asked(ld.knn(2), ["s"]) == asked(ld.knn(2), "s") == {"prediction": 15}
    with pytest.raises(DataError, match=r"1 of 3 rows that are not: 1 null in 'r'"):
        asked(ld.knn(2), ["r", "s"])
    assert asked(ld.knn(2), ["r", "s"], bad="drop") == {"prediction_r": 2, "prediction_s": 20}


HALF = np.random.default_rng(0).normal(size=(3, 8)).astype("f2")
HALF[1:] = np.array([[65504], [-65504]], "f2")


@pytest.mark.parametrize("codes", ["exact", "fp16"])
def test_half_precision_is_read_before_it_is_computed_with(arrangement: Arrangement, codes: str) -> None:
    """C65: the largest half has a square and a distance, and halves and singles are asked of each other."""
    halves = pa.table({"id": [0, 1, 2], "e": pa.FixedSizeListArray.from_arrays(pa.array(HALF.ravel()), 8)})
    assert halves["e"].type.value_type == pa.float16()
    singles = {"e": HALF.astype("f4")}
    away = np.sqrt(np.square(HALF[:, None].astype("f8") - HALF.astype("f8")).sum(axis=2))
    for rows, queries in ((halves, singles), (singles, halves)):
        answers = arrangement.ask(3, arrangement.build(rows, key="e", codes=codes), queries)
        told = [[pair["distance"] for pair in row] for row in answers["neighbors"].to_pylist()]
        np.testing.assert_allclose(told, np.sort(away, axis=1), 1e-3)
        assert [row[0] for row in found(answers)] == [0, 1, 2]


def test_a_column_of_many_chunks_is_one_matrix(arrangement: Arrangement) -> None:
    """C67, with five chunks that stand for more than 2^31 numbers: chunks are never joined as lists, whose
    offsets would overflow, and the sixth row has its own vector. No machine of the tests holds the real size.
    """
    small = pa.array([[float(row)] * 768 for row in range(10)], pa.list_(pa.float32()))
    rows = pa.table({"e": pa.chunked_array([small] * 5), "id": np.arange(50)})
    assert rows["e"].num_chunks == 5
    support = ld.dataset(rows, key="e", target="id", id="id")
    index = ld.build_index(support, arrangement.folder("index"), executor=arrangement.executor)
    assert (index.layout.rows, index.layout.width) == (50, 768)
    answers = arrangement.ask(5, index, rows)
    assert found(answers) == [[row % 10 + 10 * chunk for chunk in range(5)] for row in range(50)]
