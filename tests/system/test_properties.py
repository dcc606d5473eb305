"""Any schema, any gaps, any partitioning, any chunking: the answers are those of brute force.

Hypothesis draws the world (types and layouts of columns, nulls and values that are no numbers, files, row
groups, tasks, kind of index, method); NumPy answers it one query at a time. The worlds are always the same,
so a failure is one for everybody.
"""

import itertools
import os
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import locdist as ld
from locdist.jobs import build_index
from locdist.jobs.asking import ask
from tests.system.generated import nearest, read, weigh

Array = NDArray[np.float64]
NUMBERS = (pa.float64(), pa.float32(), pa.float16(), pa.int64(), pa.int16(), pa.uint8(), pa.decimal128(12, 4))
INSIDE = (pa.float32(), pa.float64(), pa.float16(), pa.int32())
WORDS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
CLASSES = (pa.string(), pa.int64(), pa.bool_(), pa.dictionary(pa.int32(), pa.string()))
IDS = (pa.int64(), pa.int32(), pa.string())
NAN, INF = float("nan"), float("inf")
HALF = 0.5**0.5


@dataclass(frozen=True)
class Choices:
    """What is drawn of a world besides its values."""

    rows: int
    queries: int
    seed: int
    number: pa.DataType | None
    vector: tuple[str, pa.DataType, int] | None
    word: pa.DataType | None
    classes: pa.DataType | None
    id: pa.DataType
    weighted: bool
    gaps: float
    scaling: str
    cosine: bool
    method: str
    k: int
    codes: str
    files: int
    group: int
    tasks: int
    kind: str


@st.composite
def choices(draw: st.DrawFn) -> Choices:
    number, word = draw(st.none() | st.sampled_from(NUMBERS)), draw(st.none() | st.sampled_from(WORDS))
    layouts = st.tuples(
        st.sampled_from(["list", "large", "fixed", "view"]), st.sampled_from(INSIDE), st.integers(1, 5)
    )
    vector = draw(layouts if number is None and word is None else st.none() | layouts)
    method = draw(st.sampled_from(["knn", "local-mean", "local-linear", "local-vote"]))
    cosine = vector is not None and number is None and word is None and draw(st.booleans())
    return Choices(
        rows=draw(st.integers(12, 70)),
        queries=draw(st.integers(1, 25)),
        seed=draw(st.integers(0, 2**20)),
        number=number,
        vector=vector,
        word=word,
        classes=draw(st.sampled_from(CLASSES)) if method == "local-vote" else None,
        id=draw(st.sampled_from(IDS)),
        weighted=draw(st.booleans()),
        gaps=draw(st.sampled_from([0.0, 0.1, 0.3])),
        scaling="none" if cosine else draw(st.sampled_from(["none", "standard"])),
        cosine=cosine,
        method=method,
        k=draw(st.integers(1, 9)),
        codes=draw(st.sampled_from(["exact", "flat"])),
        files=draw(st.integers(1, 4)),
        group=draw(st.integers(1, 40)),
        tasks=draw(st.integers(1, 5)),
        kind=draw(st.sampled_from(["parquet", "arrow", "memory"])),
    )


class World:
    """Columns as lists with gaps, and the same as numbers: `keys` [n, d], which rows are `good` [n]."""

    def __init__(self, told: Choices, rows: int, rng: np.random.Generator, support: bool) -> None:
        self.told, self.rng, self.rows = told, rng, rows
        self.good = np.ones(rows, np.bool_)
        self.columns: dict[str, pa.Array] = {}
        self.parts: list[Array] = []
        if told.number is not None:
            self._number(told.number)
        if told.vector is not None:
            self._vector(*told.vector)
        if told.word is not None:
            self._word(told.word, support)
        self.y = rng.normal(size=rows)
        self.w = np.where(rng.random(rows) < 0.2, 0.0, rng.uniform(0.5, 2, rows))
        if support:
            self._target(told.classes)
        names = rng.permutation(rows) + 100
        self.names = names if pa.types.is_integer(told.id) else np.array([f"n{name}" for name in names])
        self.columns["id"] = pa.array(self.names.tolist(), told.id)

    def _gaps(self, values: list[Any], wrong: tuple[Any, ...]) -> list[Any]:
        """Some values are null, or no numbers."""
        for row in np.flatnonzero(self.rng.random(self.rows) < self.told.gaps / 3):
            values[row] = wrong[self.rng.integers(len(wrong))]
            self.good[row] = False
        return values

    def _number(self, kind: pa.DataType) -> None:
        plain = self.rng.uniform(0, 200, self.rows).round(3)
        if pa.types.is_integer(kind):
            plain = plain.round()
        if kind == pa.float16():
            plain = plain.astype(np.float16).astype(float)
        if kind == pa.float32():
            plain = plain.astype(np.float32).astype(float)
        made = [Decimal(str(value)) if pa.types.is_decimal(kind) else value for value in plain.tolist()]
        made = [int(value) for value in made] if pa.types.is_integer(kind) else made
        wrong = (None, NAN, INF, -INF) if pa.types.is_floating(kind) else (None,)
        made = self._gaps(made, wrong)
        if kind == pa.float16():
            made = [None if value is None else np.float16(value) for value in made]
        self.columns["x"] = pa.array(made, kind)
        self.parts.append(plain[:, None])

    def _vector(self, layout: str, inside: pa.DataType, width: int) -> None:
        plain = self.rng.normal(5, 3, (self.rows, width)).astype(inside.to_pandas_dtype()).astype(float)
        made = self._gaps([list(row) for row in plain], (None, None, [None] * width, [NAN] * width))
        if pa.types.is_integer(inside):
            made = [
                None if row is None or NAN in row or row[0] != row[0] else [v and int(v) for v in row]
                for row in made
            ]
        if inside == pa.float16():
            made = [
                None if row is None else [None if v is None else np.float16(v) for v in row] for row in made
            ]
        kinds = {
            "list": pa.list_(inside),
            "large": pa.large_list(inside),
            "fixed": pa.list_(inside, width),
            "view": pa.list_(inside),
        }
        self.columns["e"] = pa.array(made, kinds[layout])
        if self.told.cosine:
            self.good &= plain.any(axis=1)  # no direction
        self.parts.append(plain)

    def _word(self, kind: pa.DataType, support: bool) -> None:
        known = ["blue", "green", "red"]
        plain = self.rng.choice(known if support else [*known, "violet"], self.rows)
        made = self._gaps(plain.tolist(), (None,))
        self.columns["c"] = pa.array(made, pa.string()).cast(kind)
        self.parts.append(HALF * (plain[:, None] == np.array(known)))

    def _target(self, classes: pa.DataType | None) -> None:
        if classes is None:
            self.columns["y"] = pa.array(self._gaps(self.y.tolist(), (None, NAN, INF)))
        else:
            self.y = self.rng.integers(0, 2 if classes == pa.bool_() else 3, self.rows)
            names = {pa.int64(): [7, 9, 30], pa.bool_(): [False, True]}.get(classes, ["apple", "fig", "pear"])
            made = self._gaps([names[code] for code in self.y], (None,))
            plain = pa.string() if pa.types.is_dictionary(classes) else classes
            self.columns["y"] = pa.array(made, plain).cast(classes)
        if self.told.weighted:
            self.columns["w"] = pa.array(self._gaps(self.w.tolist(), (None, NAN, -1.0)))

    def keys(self, mean: Array, scale: Array) -> Array:
        """Keys [n, d] as points."""
        points = (np.concatenate(self.parts, axis=1) - mean) / scale
        length = np.linalg.norm(points, axis=1, keepdims=True)
        return points / np.where(length > 0, length, 1) if self.told.cosine else points

    def source(self, place: Path) -> Any:
        """The rows in files, or in memory in several chunks."""
        table, told = pa.table(self.columns), self.told
        cuts = [round(self.rows * (part / told.files) ** 1.5) for part in range(told.files + 1)]
        pieces = [table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)]
        if told.kind == "memory":
            return pa.concat_tables(pieces)
        place.mkdir()
        for number, piece in enumerate(pieces):
            if told.kind == "parquet":
                piece = piece.cast(pa.schema([_stored(field) for field in piece.schema]))
                pq.write_table(piece, place / f"part-{number}.parquet", row_group_size=told.group)
            else:
                with pa.ipc.new_file(place / f"part-{number}.arrow", piece.schema) as writer:
                    writer.write_table(piece.combine_chunks(), told.group)
        return place


def _stored(field: pa.Field) -> pa.Field:
    """A type that Parquet has."""
    return field.with_type(pa.string()) if field.type == pa.string_view() else field


def spread(support: World) -> tuple[Array, Array]:
    """What the columns of the support are centred and scaled by."""
    told, plain = support.told, np.concatenate(support.parts, axis=1)
    good = plain[support.good]
    mean, scale = good.mean(axis=0), good.std(axis=0)
    categories = 3 if told.word is not None else 0
    if categories:
        mean[-categories:], scale[-categories:] = 0, 1
    scale[scale <= 1e-12 * np.abs(good).max(axis=0, initial=0)] = 1
    return (np.zeros_like(mean), np.ones_like(scale)) if told.scaling == "none" else (mean, scale)


def certain(keys: Array, query: Array, k: int) -> bool:
    """Whether no rounding can change who the k neighbors are."""
    away = np.sort(np.linalg.norm(keys - query, axis=1))
    if k == len(away):
        return True
    return bool(away[k] - away[k - 1] > 1e-6 * (1 + away[k]))


def expected(told: Choices, keys: Array, support: World, query: Array) -> Array | None:
    """The prediction of one query [p]; None where brute force has its own opinion on a singular fit."""
    rows, away = nearest(keys, query[None], told.k)
    chosen = np.flatnonzero(support.good)[rows[0]]
    weight = support.w[chosen] if told.weighted else np.ones(told.k)
    if not weight.any():
        return None
    if told.method == "knn":
        raw = np.ones(told.k)[None] * weight
    elif away.max() < 1e-7 or (away[0][weight > 0]).max() < 1e-7:
        raw = weight[None]  # at the row itself all count alike
    else:
        raw = weigh("tricube", away, row_weights=weight[None])
    smoother = (raw / raw.sum(axis=1, keepdims=True))[0]
    if told.method == "local-vote":
        return np.array(
            [smoother[support.y[chosen] == code].sum() for code in np.unique(support.y[support.good])]
        )
    if told.method == "local-linear":
        features = keys[rows[0]]
        design = np.column_stack([np.ones(told.k), features - query]) * np.sqrt(smoother)[:, None]
        values = np.linalg.svd(design, compute_uv=False)
        if told.k <= design.shape[1] or values[-1] < 1e-4 * values[0]:
            return None
        return np.linalg.lstsq(design, np.sqrt(smoother) * support.y[chosen], rcond=None)[0][:1]
    return np.array([smoother @ support.y[chosen]])


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(told=choices())
def test_answers_are_those_of_brute_force(told: Choices):
    rng = np.random.default_rng(told.seed)
    support, queries = World(told, told.rows, rng, True), World(told, told.queries, rng, False)
    assume(support.good.sum() >= max(told.k, 4) and len(set(support.y[support.good])) > 1)
    event(f"{told.method}, {told.codes}, {told.kind}")
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "fsync"):
        answers, report = _answered(told, support, queries, Path(folder))
    assert answers.num_rows == report.rows == told.queries
    assert answers["id"].to_pylist() == queries.names.tolist()
    mean, scale = spread(support)
    if told.word is not None:  # a name that no row of the support has is as far from all of them
        queries.parts[-1][:, ~support.parts[-1][support.good].any(axis=0)] = 0
    keys, asked = support.keys(mean, scale)[support.good], queries.keys(mean, scale)
    statuses, values = answers["status"].to_pylist(), _values(answers, support)
    for row, status in enumerate(statuses):
        assert (status == "bad_query") == (not queries.good[row]), (row, status)
        if status in ("bad_query", "empty"):
            assert np.isnan(values[row]).all()
        elif certain(keys, asked[row], told.k):
            right = expected(told, keys, support, asked[row])
            if right is not None:
                np.testing.assert_allclose(values[row], right, rtol=1e-5, atol=1e-6)
    assert report.bad_rows == (~queries.good).sum()


def _answered(told: Choices, support: World, queries: World, folder: Path) -> tuple[pa.Table, Any]:
    """What locdist says, in small tasks."""
    roles = {"key": [name for name in ("x", "e", "c") if name in support.columns], "target": "y", "id": "id"}
    roles |= {"weight": "w"} if told.weighted else {}
    words = {"scaling": told.scaling, "metric": "cosine" if told.cosine else "l2"}
    made = ld.dataset(support.source(folder / "support"), **roles, **words)
    lists = {"codes": "flat", "nlist": min(3, int(support.good.sum()))} if told.codes == "flat" else {}
    method: dict[str, Any] = {"name": told.method, "k": told.k}
    pieces = {"rows_per_task": lambda rows, row_bytes: max(1, -(-rows // told.tasks))}
    with mock.patch.multiple(build_index, **pieces), mock.patch.multiple(ask, **pieces):
        index = ld.build_index(made, folder / "index", bad="drop", recall=1.0, executor=ld.Local(1), **lists)
        report = ld.predict(
            method, index, queries.source(folder / "queries"), folder / "out", executor=ld.Local(1)
        )
    assert index.layout.rows == support.good.sum()
    return read(folder / "out"), report


def _values(answers: pa.Table, support: World) -> Array:
    """Predictions or chances [q, p] as numbers, nan where there is none."""
    if support.told.classes is None:
        names = ["prediction"]
    else:
        names = [name for name in answers.column_names if name.startswith("probability_")]
    return np.array(
        [[NAN if value is None else value for value in answers[name].to_pylist()] for name in names]
    ).T
