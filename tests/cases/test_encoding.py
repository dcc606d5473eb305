"""One scaling and one vocabulary for all partitions: what the profile learns, how rows become points."""

import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from locdist.data.artefacts import packed, unpacked
from locdist.data.columns import matrix
from locdist.data.dataset import Dataset, dataset
from locdist.data.encoding import Encoding, spread_warning
from locdist.data.lengths import Profiles
from locdist.data.moments import Distinct, Moments
from locdist.data.profile import Profile
from locdist.data.source import Span
from locdist.errors import DataError, UsageError

RNG = np.random.default_rng(0)


def stored(value: Any) -> Any:
    """A value as it is read from the file that holds it."""
    return unpacked(type(value), packed(asdict(value)), "a value", "a file", "Write it again.")


def profiled(made: Dataset, span: Span | None = None) -> Profile:
    """The profile of some rows, read once."""
    start = 0 if span is None else span.start
    whole = Profile.of(made.source.schema.empty_table(), made)
    for table in made.read(span):
        whole = whole.merge(Profile.of(table, made, np.arange(start, start + table.num_rows)))
        start += table.num_rows
    return whole


def fitted(made: Dataset, role: Any = "key") -> Encoding:
    return Encoding.fit(profiled(made), made.roles, role)


def points(encoding: Encoding, data: Any) -> np.ndarray[Any, Any]:
    values, bad, rejected = encoding.encode(pa.table(data))
    assert not bad.any()
    assert not rejected
    return values


def mixed(rows: int) -> pa.Table:
    generator = np.random.default_rng(1)
    return pa.table(
        {
            "age": generator.uniform(20, 60, rows),
            "income": np.sort(generator.uniform(2e4, 2e5, rows)),
            "centred": generator.normal(size=rows),
            "epoch": 1.7e9 + generator.normal(size=rows),
            "const": np.full(rows, 3.7),
            "color": generator.choice(["red", "green", "blue"], rows),
            "e": pa.FixedSizeListArray.from_arrays(pa.array(generator.normal(size=3 * rows).astype("f4")), 3),
            "y": generator.integers(0, 4, rows),
        }
    )


NUMBERS = ["age", "income", "centred", "epoch", "const"]


@pytest.mark.parametrize("cuts", [(200,), (1, 100, 200), (7, 8, 50, 123, 199, 200)])
@pytest.mark.parametrize("backwards", [False, True])
def test_c29_scaling_does_not_depend_on_partitions(cuts: tuple[int, ...], backwards: bool) -> None:
    table = mixed(200)
    made = dataset(table, key=[*NUMBERS, "color", "e"], target="y", scaling="standard")
    spans = [Span(start, stop) for start, stop in zip((0, *cuts), cuts, strict=False)]
    parts = [profiled(made, span) for span in spans]
    whole = functools.reduce(Profile.merge, reversed(parts) if backwards else parts)
    encoding = Encoding.fit(whole, made.roles)
    assert encoding == fitted(made)
    assert whole.column("y").classes == profiled(made).column("y").classes
    values = points(encoding, table)
    assert np.isfinite(values).all()
    np.testing.assert_allclose(
        values[:, :4].std(axis=0), 1.0, rtol=2e-5
    )  # "epoch" is known to 1e-5 of its spread
    np.testing.assert_array_equal(values[:, 4], 0.0)
    for column in encoding.columns[:5]:
        np.testing.assert_array_equal(np.float32(column.scale), column.scale)


def test_moments_agree_with_numpy_and_merge() -> None:
    values = RNG.normal(1e6, 1.0, size=(500, 3))
    merged = functools.reduce(
        Moments.merge, [Moments.of(values[start : start + 77]) for start in range(0, 539, 77)]
    )
    np.testing.assert_allclose(merged.mean, values.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(np.array(merged.m2) / 500, values.var(axis=0), rtol=1e-9)
    assert (merged.count, merged.high) == (500, tuple(values.max(axis=0)))
    assert Moments.of(values[:0]).merge(merged) == merged


def test_c29_noise_is_not_a_spread() -> None:
    noisy = np.full(200, 3.7)
    noisy[::2] += 4.4e-16
    small = RNG.normal(size=200) * 1e-60
    made = dataset({"noisy": noisy, "zero": np.zeros(200), "small": small}, key=["noisy", "zero", "small"])
    values = points(fitted(made), {"noisy": noisy, "zero": np.zeros(200), "small": small})
    assert np.abs(values[:, :2]).max() < 1e-6
    np.testing.assert_allclose(values[:, 2].std(), 1.0, rtol=1e-6)
    with pytest.raises(DataError, match="whose squares are finite"):
        fitted(dataset({"x": np.array([1e200, -1e200])}, key="x"))


def test_c29_unscaled_columns_of_unlike_spread_are_told() -> None:
    data = {"age": RNG.uniform(20, 60, 50), "income": RNG.uniform(2e4, 2e6, 50), "const": np.ones(50)}
    for scaling, multiplier, told in (("none", 1.0, True), ("standard", 1.0, False), ("none", 1e-4, False)):
        made = dataset(data, key={"age": 1.0, "income": multiplier, "const": 1.0}, scaling=scaling)
        warning = spread_warning(profiled(made), made.roles)
        assert (warning is not None and "'income' spreads" in warning) == told


def test_what_scaling_applies_to() -> None:
    table = mixed(50)
    vectors = matrix(table.column("e"), np.float32)[0]
    plain = fitted(dataset(table, key="e"))
    assert (plain.dtype, plain.names) == ("float32", ("e[0]", "e[1]", "e[2]"))
    np.testing.assert_array_equal(points(plain, table), vectors)
    scaled = points(fitted(dataset(table, key="e", scaling="standard")), table)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-6)
    double = points(fitted(dataset(table, key={"e": 2.0})), table)
    np.testing.assert_array_equal(double, 2 * vectors)
    assert points(fitted(dataset(table, key=["e", "age"])), table).dtype == np.float64
    unscaled = points(fitted(dataset(table, key={"age": 3.0}, scaling="none")), table)
    np.testing.assert_array_equal(unscaled[:, 0], 3 * table.column("age").to_numpy())


def test_categories_are_at_distance_one() -> None:
    made = dataset({"c": ["b", "a", "c"], "x": [1.0, 2.0, 3.0]}, key={"c": 2.0, "x": 1.0}, scaling="none")
    encoding = fitted(made)
    assert encoding.names == ("c=a", "c=b", "c=c", "x")
    values, bad, rejected = encoding.encode(pa.table({"x": [0.0, 0, 0, 0], "c": ["a", "b", "zebra", None]}))
    assert np.linalg.norm(values[0] - values[1]) == pytest.approx(2.0)
    assert np.linalg.norm(values[0] - values[2]) == pytest.approx(2.0 * 0.5**0.5)
    assert bad.tolist() == [False, False, False, True]
    told = [(each.column, each.reason, each.rows.tolist()) for each in rejected]
    assert told == [("c", "null", [3]), ("c", "unseen category", [2])]
    dictionary = pa.table({"c": pa.array(["a"]).dictionary_encode(), "x": pa.array([0], pa.int8())})
    np.testing.assert_array_equal(points(encoding, dictionary), values[:1])


def test_too_many_categories_are_refused() -> None:
    many = [f"{number:04}" for number in range(1001)]
    with pytest.raises(UsageError, match="at most 1,000 categories; got more than 1,000 in column 'c'"):
        fitted(dataset({"c": many}, key="c"))
    assert fitted(dataset({"c": many[1:]}, key="c")).width == 1000
    halves = [Distinct.of(pa.chunked_array([many[start::2]]), 1000) for start in (0, 1)]
    assert halves[0].merge(halves[1]).overflow


CLASSES: list[tuple[Any, str, tuple[Any, ...]]] = [
    (pa.array(["b", "a"]), "string", ("a", "b")),
    (pa.array(["b", "a"], pa.large_string()), "large_string", ("a", "b")),
    (pa.array(["b", "a"]).dictionary_encode(), "string", ("a", "b")),
    (pa.array([True, False]), "bool", (False, True)),
    (pa.array([2**53 + 1, 2**53]), "int64", (2**53, 2**53 + 1)),
]


@pytest.mark.parametrize("labels, kind, classes", CLASSES)
def test_c63_classes_keep_their_type(labels: pa.Array, kind: str, classes: tuple[Any, ...]) -> None:
    made = dataset(pa.table({"x": [1.0, 2.0], "y": labels}), key="x", target="y")
    found = stored(profiled(made)).column("y").classes
    assert found is not None
    assert (found.type, found.values) == (kind, classes)
    assert found.array().type == pa.type_for_alias(kind)


def test_a_float_target_has_no_classes_and_ten_thousand_are_too_many() -> None:
    profile = profiled(dataset({"x": np.arange(10_001), "y": np.ones(10_001)}, key="x", target=["y", "x"]))
    assert profile.column("y").classes is None
    classes = profile.column("x").classes
    assert classes is not None
    assert (classes.overflow, classes.values) == (True, ())


def test_c04_bad_rows_are_counted_with_examples(tmp_path: Path) -> None:
    vectors = RNG.normal(size=(50, 8)).astype("f4")
    vectors[7, 0], vectors[9, 0] = np.nan, np.inf
    table = pa.table(
        {
            "e": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
            "y": [None if row == 3 else float(row) for row in range(50)],
            "w": [-1.0] + [1.0] * 49,
            "id": [None if row % 2 and row > 20 else row for row in range(50)],
        }
    )
    for part in range(5):
        pq.write_table(table.slice(10 * part, 10), tmp_path / f"p{part}.parquet", row_group_size=3)
    made = dataset(tmp_path, key="e", target="y", weight="w", id="id")
    whole = profiled(made)
    told = {(bad.column, bad.reason): bad.count for bad in whole.bad}
    expected = {("e", "not finite"): 2, ("id", "null"): 15, ("w", "negative"): 1, ("y", "null"): 1}
    assert told == expected
    assert (whole.rows, whole.good) == (50, 31)
    bad = next(bad for bad in whole.bad if bad.column == "id")
    assert [(one.row, one.file, one.file_row) for one in bad.examples[:5:4]] == [
        (21, "p2.parquet", 1),
        (29, "p2.parquet", 9),
    ]
    assert len(bad.examples) == 10
    assert next(each for each in whole.bad if each.column == "w").examples[0].value == "-1.0"
    parts = [profiled(made, span) for span in made.source.partitions(7)]
    assert functools.reduce(Profile.merge, parts[::-1]).bad == whole.bad
    good = matrix(table.column("e"), np.float64)[0][
        [*range(1, 3), *range(4, 7), 8, *range(10, 21), *range(22, 50, 2)]
    ]
    np.testing.assert_allclose(whole.column("e").moments.mean, good.mean(axis=0), rtol=1e-12)
    with pytest.raises(DataError, match="at least one good row of the support; got 3 null in 'x'"):
        fitted(dataset(pa.table({"x": pa.nulls(3)}), key="x"))


def test_c16_c17_cosine_needs_a_direction_and_leaves_the_data_alone() -> None:
    rows = np.array([[1, 0], [0, 0], [3e-30, 4e-30], [3e30, 4e30]], "f4")
    rows.setflags(write=False)
    before = rows.copy()
    made = dataset({"e": rows}, key="e", metric="cosine")
    profile = profiled(made)
    assert [(bad.reason, bad.count, bad.examples[0].row) for bad in profile.bad] == [("zero vector", 1, 1)]
    encoding = Encoding.fit(profile, made.roles)
    for _ in range(2):
        values, bad, rejected = encoding.encode(next(made.read()))
        np.testing.assert_allclose(values, [[1, 0], [0, 0], [0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
        assert bad.tolist() == [False, True, False, False]
        assert [(each.reason, each.rows.tolist()) for each in rejected] == [("zero vector", [1])]
    np.testing.assert_array_equal(rows, before)
    assert not fitted(made, "features").normalize
    numbers = {"x": np.array([1.0, 2.0, 3.0])}
    plain = dataset(numbers, key="x", metric="cosine")  # a direction starts at zero, not at the mean
    assert not fitted(plain).encode(next(plain.read()))[1].any()
    assert not fitted(plain).late
    scaled = dataset(numbers, key="x", metric="cosine", scaling="standard")
    assert fitted(scaled).late
    assert fitted(scaled).encode(next(scaled.read()))[1].tolist() == [False, True, False]


def test_c42_queries_are_matched_by_name() -> None:
    encoding = fitted(dataset({"a": [0.0, 10.0], "b": [5.0, 7.0]}, key=["a", "b"], scaling="none"))
    np.testing.assert_array_equal(points(encoding, {"b": [5.0], "z": ["?"], "a": [10.0]}), [[10.0, 5.0]])
    with pytest.raises(
        DataError, match=r"column 'b' of the key; got the columns 'B', 'a'. Did you mean 'B'\?"
    ):
        encoding.encode(pa.table({"B": [5.0], "a": [10.0]}))


CHANGED = [
    (
        {"e": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "c": ["a"], "x": [1]},
        "with 3 numbers; got 2 numbers",
    ),
    ({"e": [1.0], "c": ["a"], "x": [1]}, "'e' of the key as vector of float; got type double"),
    ({"e": [[1.0, 2.0, 3.0]], "c": [1], "x": [1]}, "'c' of the key as category of string; got type int64"),
    ({"e": [[1.0, 2.0, 3.0]], "c": ["a"], "x": ["1"]}, "'x' of the key as number of double; got type string"),
]


@pytest.mark.parametrize("data, told", CHANGED)
def test_queries_of_other_types_are_refused(data: Any, told: str) -> None:
    support = {"e": np.ones((2, 3), "f4"), "c": ["a", "b"], "x": [1.0, 2.0]}
    encoding = fitted(dataset(support, key=["e", "c", "x"]))
    with pytest.raises(DataError, match=told):
        encoding.encode(pa.table(data))


def test_a_query_vector_of_another_length_is_a_bad_row_and_no_other_is_lost() -> None:
    encoding = fitted(dataset({"e": np.ones((2, 3), "f4")}, key="e"))
    values, bad, rejected = encoding.encode(pa.table({"e": [[1.0, 2.0], [1.0, 2.0, 3.0]]}))
    assert bad.tolist() == [True, False]
    assert values.tolist() == [[0, 0, 0], [1, 2, 3]]
    assert [(each.column, each.reason, each.rows.tolist()) for each in rejected] == [
        ("e", "wrong length", [0])
    ]


def test_coefficients_come_back_in_the_users_units() -> None:
    table = mixed(200)
    encoding = fitted(dataset(table, key="e", features={"age": 2.0, "income": 1.0, "color": 1.0}), "features")
    design = points(encoding, table)
    color = np.array(table.column("color").to_pylist())
    y = 3 * table.column("age").to_numpy() - 0.01 * table.column("income").to_numpy() + 5 * (color == "red")
    slopes = np.linalg.lstsq(np.column_stack([np.ones(200), design]), y, rcond=None)[0]
    natural = encoding.unscale(slopes[None, :, None])[0, :, 0]
    names = dict(zip(("value", *encoding.names), natural, strict=True))
    assert names["age"] == pytest.approx(3.0)
    assert names["income"] == pytest.approx(-0.01)
    assert names["color=red"] - names["color=blue"] == pytest.approx(5.0)
    assert natural[0] == slopes[0]


def test_an_encoding_is_stored_as_text() -> None:
    made = dataset(mixed(30), key=[*NUMBERS, "color", "e"], scaling="standard", metric="cosine")
    profile = profiled(made)
    encoding = Encoding.fit(profile, made.roles)
    assert stored(encoding) == encoding
    assert stored(profile) == profile


@pytest.mark.parametrize("cuts", [(60,), (1, 2, 30), (7, 8, 23, 59)])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_most_frequent_length_is_right_whatever_the_partitions(
    cuts: tuple[int, ...], backwards: bool
) -> None:
    lists: list[Any] = [[float(row), 1.0] for row in range(60)]
    lists[0], lists[5], lists[40], lists[41] = [1.0, 2.0, 3.0], None, [9.0], [9.0, None, 1.0]
    table = pa.table({"e": pa.array(lists, pa.list_(pa.float32())), "x": np.arange(60.0)})
    made = dataset(table, key=["e", "x"])
    spans = [Span(start, stop) for start, stop in zip((0, *cuts), (*cuts, 60), strict=True) if start < stop]
    parts = [Profiles.of(table.slice(span.start, span.rows), made, span.start) for span in spans]
    whole = functools.reduce(Profiles.merge, parts[::-1] if backwards else parts)
    assert stored(whole) == whole
    profile = whole.settled()
    told = {(bad.column, bad.reason): (bad.count, [one.row for one in bad.examples]) for bad in profile.bad}
    expected = {"null": (2, [5, 41]), "wrong length": (3, [0, 40, 41])}
    assert told == {("e", reason): found for reason, found in expected.items()}
    assert (profile.rows, profile.good) == (60, 56)
    good = np.delete(np.arange(60.0), [0, 5, 40, 41])
    assert profile.column("x").moments.low == (1.0,)
    np.testing.assert_allclose(profile.column("x").moments.mean, [good.mean()], rtol=1e-12)
    np.testing.assert_allclose(profile.column("e").moments.mean, [good.mean(), 1.0], rtol=1e-12)


def test_of_equally_frequent_lengths_the_smallest_is_right() -> None:
    made = dataset({"e": [[1.0, 2.0], [1.0], [2.0], [3.0, 4.0]]}, key="e")
    profile = Profiles.of(next(made.read()), made).settled()
    assert len(profile.column("e").moments.mean) == 1
    assert [(bad.reason, bad.count, bad.examples[0].value) for bad in profile.bad] == [
        ("wrong length", 2, "[1.0, 2.0]")
    ]
    many = dataset({"e": [[1.0] * length for length in range(1, 20)]}, key="e")
    with pytest.raises(DataError, match=r"vectors of one length in 'e' .at most 8"):
        Profiles.of(next(many.read()), many)


def test_scaling_is_per_role() -> None:
    data = {"x": [0.0, 10.0], "f": [5.0, 9.0]}
    made = dataset(data, key="x", features="f", scaling={"key": "none"})
    assert made.roles.to_json()["scaling"] == {"key": "none"}
    assert json.loads(json.dumps(made.roles.to_json())) == made.roles.to_json()
    assert points(fitted(made), data).tolist() == [[0.0], [10.0]]
    assert points(fitted(made, "features"), data).tolist() == [[-1.0], [1.0]]
    alone = dataset(data, key="x", scaling={"key": "none"})  # features that are the key are scaled like it
    assert points(fitted(alone, "features"), data).tolist() == [[0.0], [10.0]]
