"""The same predictions through Ray Data and Dask dataframes as by `predict`."""

import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.execute.threads import alone
from tests.system.towns import Towns, towns

ROOT = Path(__file__).parents[2]
EXPLAINED = {"extras": ["spread", "effective", "coefficients"], "explain": 3}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Towns:
    return towns(tmp_path_factory.mktemp("towns"))


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Towns:
    """An index that is searched approximately, over vectors."""
    root = tmp_path_factory.mktemp("lists")
    world = Towns(root / "support", root / "queries", root / "index", root)
    rng = np.random.default_rng(0)

    def points(rows: int) -> pa.Table:
        vectors = rng.normal(size=(rows, 6)).astype("f4")
        columns = {"id": np.arange(rows), "place": vectors, "y": vectors[:, 0] + rng.normal(0, 0.1, rows)}
        return pa.table({name: pa.array(list(values)) for name, values in columns.items()})

    for folder, rows in ((world.support, 6000), (world.queries, 700)):
        folder.mkdir()
        pq.write_table(points(rows), folder / "a.parquet")
    support = ld.dataset(world.support, key="place", target="y", id="id")
    ld.build_index(support, world.index, codes="fp16", recall=0.9)
    return world


def rows(table: pa.Table) -> list[dict[str, object]]:
    return table.to_pylist()


def agree(one: object, other: object) -> bool:
    """Whether two values are the same, numbers but for rounding."""
    match one, other:
        case list(), list():
            return len(one) == len(other) and all(map(agree, one, other))
        case dict(), dict():
            return list(one) == list(other) and all(map(agree, one.values(), other.values()))
        case float(), float():
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def test_agreement_is_seen_and_disagreement_too():
    row = {"id": 1, "near": [{"distance": 0.1}], "y": None}
    assert agree([row], [row | {"near": [{"distance": 0.1 + 1e-15}]}])
    for change in ({"id": 2}, {"near": [{"distance": 0.11}]}, {"near": []}, {"y": 0.0}, {"z": 1}):
        assert not agree([row], [row | change])


# the predictor


@pytest.mark.parametrize("size", [1, 7, 90])
def test_batches_of_any_size_have_the_answers_of_predict(world, size):
    whole = ld.predict("local-linear", world.index, world.queries, keep="*", **EXPLAINED)
    predictor = pickle.loads(pickle.dumps(ld.ray.Predictor("local-linear", world.index, **EXPLAINED)))
    queries = pq.read_table(world.queries)
    answers = [predictor(queries.slice(start, size)) for start in range(0, len(queries), size)]
    answered = pa.concat_tables(answers)
    assert agree(rows(answered), rows(whole))
    assert answered.schema == whole.schema
    assert {row["status"] for row in rows(whole)} == {"ok", "bad_query"}


def test_a_batch_is_a_table_arrays_or_a_dataframe(world):
    predictor = ld.ray.Predictor("local-linear", world.index, keep=())
    queries = pq.read_table(world.queries).select(["east", "north", "rooms"])
    wanted = predictor(queries)
    arrays = {name: queries[name].to_numpy() for name in queries.column_names}
    assert predictor(arrays).equals(wanted)
    assert predictor(queries.to_pandas()).equals(wanted)
    assert wanted.column_names == ["prediction", "status"]
    assert predictor(queries.slice(0, 0)).schema == wanted.schema


def test_an_approximate_search_is_tuned_on_the_support_or_as_a_finished_run_was(lists):
    report = ld.predict("local-linear", lists.index, lists.queries, lists.root / "out", keep="id")
    whole = pq.read_table(lists.root / "out")
    queries = pq.read_table(lists.queries)
    tuned, again = (ld.ray.Predictor("local-linear", lists.index) for _ in range(2))
    assert 1 <= tuned.nprobe < ld.open_index(lists.index).layout.nlist
    assert tuned == again
    as_told = ld.ray.Predictor("local-linear", lists.index, keep="id", nprobe=report.nprobe)
    taken_over = ld.ray.Predictor.of(lists.root / "out", keep="id")
    assert taken_over == as_told
    answers = pa.concat_tables([taken_over(queries.slice(start, 50)) for start in range(0, 700, 50)])
    assert agree(rows(answers), rows(whole))


def test_a_higher_recall_searches_more_lists(lists):
    few, many = (ld.ray.Predictor("knn", lists.index, recall=recall).nprobe for recall in (0.5, 0.99))
    assert few < many


def test_what_does_not_fit_is_told(world, lists, tmp_path):
    with pytest.raises(UsageError, match="recall or nprobe"):
        ld.ray.Predictor("knn", lists.index, recall=0.9, nprobe=3)
    with pytest.raises(UsageError, match="nprobe, at least 1"):
        ld.ray.Predictor("knn", lists.index, nprobe=0)
    with pytest.raises(UsageError, match="k of at most 300"):
        ld.ray.Predictor(ld.knn(k=301), world.index)
    with pytest.raises(DataError, match="column 'north'"):
        ld.ray.Predictor("knn", world.index)(pa.table({"east": [1.0], "rooms": [2]}))
    with pytest.raises(UsageError, match="kept columns besides"):
        ld.ray.Predictor("knn", world.index)(
            pq.read_table(world.queries).append_column("status", [["x"] * 90])
        )
    ld.neighbors(world.index, world.queries, k=3, out=tmp_path / "near")
    with pytest.raises(UsageError, match="the output of predict"):
        ld.ray.Predictor.of(tmp_path / "near")


def test_a_call_computes_in_one_thread_and_the_last_gives_the_others_back():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    inside, leave, seen = threading.Event(), threading.Event(), []

    def hold() -> None:
        inside.set()
        assert leave.wait(10)
        seen.append(torch.get_num_threads())

    other = threading.Thread(target=alone, args=(hold,))
    try:
        other.start()
        assert inside.wait(10)
        assert alone(torch.get_num_threads) == 1
        leave.set()
        other.join(10)
        assert seen == [1]
        assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


# Ray Data


@pytest.fixture(scope="module")
def from_ray(world: Towns) -> Callable[[str], pa.Table]:
    """What Ray Data has written: answers by case, sorted by town."""
    command = [sys.executable, "-m", "tests.system.ray_data", str(world.root)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return lambda case: pq.read_table(world.root / case).sort_by("town")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["predict", "numpy", "actors"])
def test_ray_data_gives_the_predictions_of_predict_and_ends_on_two_cpus(world, from_ray, case):
    explained = {} if case == "actors" else {"extras": ["spread"], "explain": 2}
    whole = ld.predict("local-linear", world.index, world.queries, keep="town", **explained)
    answers = from_ray(case)
    assert agree(rows(answers), rows(whole.sort_by("town")))
    assert answers.schema.names == whole.schema.names


# Dask dataframes

dd = pytest.importorskip("dask.dataframe")
dask = pytest.importorskip("dask")


@pytest.mark.parametrize(
    "target, method", [("price", "local-linear"), ("level", "local-vote"), ("dear", "local-vote")]
)
def test_a_dask_dataframe_gives_the_predictions_of_predict(tmp_path, target, method):
    world = towns(tmp_path, target)
    explained = EXPLAINED if method == "local-linear" else {"explain": 2}
    queries = pq.read_table(world.queries).to_pandas().set_index(np.arange(90) // 4 * 10)
    whole = ld.predict(method, world.index, world.queries, keep=["town", "east"], **explained)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(queries, npartitions=5)
    lazy = ld.dask.predict(frame, method, world.index, keep=["town", "east"], **explained)
    answers = lazy.compute(scheduler="threads")
    assert lazy.divisions == frame.divisions
    assert answers.dtypes.to_dict() == lazy.dtypes.to_dict()
    assert answers.index.equals(queries.index)
    assert agree(rows(pa.Table.from_pandas(answers, preserve_index=False)), rows(whole))


def test_vectors_of_a_dask_dataframe_are_arrays_and_not_text(lists):
    queries = pq.read_table(lists.queries).to_pandas()
    queries.at[3, "place"] = None
    predictor = ld.ray.Predictor("knn", lists.index, nprobe=4)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(queries, npartitions=3)
    answers = ld.dask.predict(frame, "knn", lists.index, nprobe=4).compute(scheduler="sync")
    wanted = predictor(queries)
    assert agree(rows(pa.Table.from_pandas(answers, preserve_index=False)), rows(wanted))
    assert answers["status"][3] == "bad_query"
    assert np.isnan(answers["prediction"][3])
    with pytest.raises(DataError, match="convert-string"):
        ld.dask.predict(dd.from_pandas(queries, npartitions=3), "knn", lists.index, nprobe=4)


def test_dask_reads_files_and_writes_files(lists, tmp_path):
    frame = dd.read_parquet(lists.queries)
    answers = ld.dask.predict(frame, "knn", lists.index, keep="id", nprobe=4)
    with pytest.warns(match="inplace"):  # Dask's own, of pandas 3.1
        answers.to_parquet(tmp_path / "out", write_index=False)
    wanted = ld.ray.Predictor("knn", lists.index, keep="id", nprobe=4)(pq.read_table(lists.queries))
    assert rows(pq.read_table(tmp_path / "out").select(wanted.column_names)) == rows(wanted)


def test_a_dask_partition_may_be_empty_or_without_a_class(tmp_path):
    world = towns(tmp_path, "dear")
    frame = pq.read_table(world.queries).to_pandas().reset_index(drop=True)
    parts = [frame[:0], frame[5:6], frame]
    lazy = dd.from_map(lambda number: parts[number], range(3), meta=frame[:0])
    answers = ld.dask.predict(lazy, "local-vote", world.index, keep=()).compute(scheduler="sync")
    assert len(answers) == 91
    assert answers["label"].dtype == pd.ArrowDtype(pa.bool_())
    assert pd.isna(answers["label"].iloc[0])


def test_dask_is_told_what_does_not_fit_before_anything_is_computed(world):
    frame = dd.from_pandas(pq.read_table(world.queries).to_pandas(), npartitions=2)
    with pytest.raises(UsageError, match=r"'twon'.*'town'"):
        ld.dask.predict(frame, "knn", world.index, keep="twon")
    with pytest.raises(DataError, match="column 'north'"):
        ld.dask.predict(frame.drop(columns="north"), "knn", world.index)
    with pytest.raises(UsageError, match="kept columns besides"):
        ld.dask.predict(frame.assign(status=1), "knn", world.index)
