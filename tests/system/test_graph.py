"""`graph`, files to files: what it writes, that partitions and executors do not matter, and what a kill
leaves.
"""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.neighbors import kneighbors_graph
from typer.testing import CliRunner

import locdist as ld
from locdist.cli.app import app
from locdist.data.dataset import Dataset
from locdist.errors import UsageError
from locdist.jobs.status import status
from locdist.jobs.stored import StoredGraph
from tests.system.generated import parts, read

ROWS, K, BAD = 600, 5, 7
HOWS = {
    None: lambda one: one,
    "union": lambda one: np.maximum(one, one.T),
    "mutual": lambda one: np.minimum(one, one.T),
    "mean": lambda one: (one + one.T) / 2,
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Two clusters that lie far apart, and a row that cannot be used."""
    points = np.random.default_rng(0).normal(size=(ROWS, 3))
    points[ROWS // 2 :] += 50
    points[BAD] = np.nan
    names = [f"row {number}" for number in range(ROWS)]
    return pa.table({"name": names} | {axis: points[:, place] for place, axis in enumerate("xyz")})


@pytest.fixture(scope="module")
def support(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(rows, folder / "rows.parquet", row_group_size=97)
    return ld.dataset(folder, key=["x", "y", "z"], scaling="none", id="name")


@pytest.fixture(scope="module")
def expected(rows: pa.Table) -> np.ndarray:
    points = np.column_stack([rows[axis] for axis in "xyz"])
    good = np.delete(np.arange(ROWS), BAD)
    found = np.zeros((ROWS, ROWS))
    found[np.ix_(good, good)] = kneighbors_graph(points[good], K).toarray()
    return found


def made(support: Dataset, out: Path, how: str | None = None, **choices: object) -> object:
    with mock.patch("locdist.jobs.linking.rows_per_task", return_value=110):
        return ld.graph(support, out, k=K, symmetrize=how, bad="drop", codes="exact", **choices)


def matrix(folder: Path) -> np.ndarray:
    graph = StoredGraph.at(folder).whole()
    return sp.csr_matrix((graph.weights, graph.ends, graph.starts), shape=(ROWS, ROWS)).toarray()


@pytest.mark.parametrize("how", HOWS)
def test_edges_are_those_of_scikit_learn_whatever_the_partitions(
    support: Dataset, expected: np.ndarray, how: str | None, tmp_path: Path
):
    report = made(support, tmp_path / "out", how)
    wanted = HOWS[how](expected)
    np.testing.assert_array_equal(matrix(tmp_path / "out"), wanted)
    assert report.edges == np.count_nonzero(wanted)
    assert (report.degrees.most, report.degrees.most_in) == tuple(
        np.count_nonzero(wanted, axis=a).max() for a in (1, 0)
    )
    assert report.bad_rows == 1
    assert report.status["bad_query"] == 1
    assert not (tmp_path / "out/passing").exists()
    one = ld.graph(support, k=K, symmetrize=how, bad="drop", codes="exact")
    np.testing.assert_array_equal(sp.csr_matrix((one.weights, one.ends, one.starts)).toarray(), wanted)


def test_a_node_has_its_id_and_neighbors_from_the_nearest_on(support: Dataset, tmp_path: Path):
    report = made(support, tmp_path / "out", "union")
    found = read(tmp_path / "out")
    assert found["name"].to_pylist() == [None if row == BAD else f"row {row}" for row in range(ROWS)]
    assert found["node"].to_pylist() == list(range(ROWS))
    for row, near in enumerate(found["neighbors"].to_pylist()):
        assert [each["id"] for each in near] == [f"row {each['node']}" for each in near]
        assert [each["distance"] for each in near] == sorted(each["distance"] for each in near)
        assert row not in [each["node"] for each in near]
    assert report.components == 3  # two clusters, and the row that is left out
    assert report.sizes == (ROWS // 2, ROWS // 2 - 1, 1)


@pytest.mark.parametrize("how", [None, "mean"])
def test_every_executor_gives_the_same_bytes(support: Dataset, how: str | None, tmp_path: Path):
    for number, executor in enumerate([ld.Local(1), ld.Local(2), ld.Local(2, processes=True)]):
        made(support, tmp_path / str(number), how, executor=executor)
    assert len(parts(tmp_path / "0")) >= 6
    assert parts(tmp_path / "0") == parts(tmp_path / "1") == parts(tmp_path / "2")


@pytest.mark.parametrize("how", [None, "mutual"])
def test_a_part_that_was_lost_is_made_again(support: Dataset, how: str | None, tmp_path: Path):
    made(support, tmp_path / "out", how)
    before = parts(tmp_path / "out")
    (tmp_path / "out/part-00002.parquet").unlink()
    assert status(tmp_path / "out").state == "damaged"
    made(support, tmp_path / "out", how)
    assert parts(tmp_path / "out") == before
    assert status(tmp_path / "out").state == "finished"
    assert not (tmp_path / "out/passing").exists()


def test_a_run_that_fails_between_its_stages_is_continued_or_overwritten(support: Dataset, tmp_path: Path):
    fault = UsageError("a test", "a fault", "Go on.")
    for out in ("continued", "overwritten"):
        with (
            mock.patch("locdist.jobs.edges.combined", side_effect=fault),
            pytest.raises(UsageError, match="fault"),
        ):
            made(support, tmp_path / out, "mean")
        assert (tmp_path / out / "passing").exists()
    made(support, tmp_path / "undisturbed", "mean")
    made(support, tmp_path / "continued", "mean")
    assert parts(tmp_path / "continued") == parts(tmp_path / "undisturbed")
    made(support, tmp_path / "overwritten", None, overwrite=True)
    assert not (tmp_path / "overwritten/passing").exists()


def test_an_index_is_enough(support: Dataset, expected: np.ndarray, tmp_path: Path):
    index = ld.build_index(support, tmp_path / "index", bad="drop", codes="exact")
    ld.graph(tmp_path / "index", tmp_path / "out", k=K)
    np.testing.assert_array_equal(matrix(tmp_path / "out"), expected)
    with pytest.raises(UsageError, match=r"request\.k 5"):
        ld.graph(index, tmp_path / "out", k=K + 1)


def test_lists_find_what_they_are_tuned_to(support: Dataset, expected: np.ndarray, tmp_path: Path):
    report = ld.graph(support, tmp_path / "out", k=K, bad="drop", codes="flat", recall=0.95)
    assert report.recall.mean > 0.9
    found = matrix(tmp_path / "out")
    assert (found * expected).sum() > 0.9 * expected.sum()
    assert not np.diag(found).any()


def test_the_command_line_says_all(support: Dataset, tmp_path: Path):
    words = [
        "graph",
        support.source.store.uri,
        "--key",
        "x,y,z",
        "--id",
        "name",
        "--scaling",
        "none",
        "-k",
        K,
    ]
    words += ["--kernel", "gaussian", "--bandwidth", "0.5", "--symmetrize", "mean", "--bad", "drop"]
    words += ["--codes", "exact", "--out", tmp_path / "out"]

    def run(*given: object) -> str:
        done = CliRunner().invoke(app, list(map(str, given)))
        assert done.exit_code == 0, done.output
        return done.stdout

    planned = json.loads(run("plan", *words, "--json"))
    assert [stage["name"] for stage in planned["stages"]][-3:] == ["edges", "symmetrize", "summary"]
    told = json.loads(run(*words, "-q", "--json"))
    assert told["rows"] == ROWS
    assert json.loads(run("plan", *words, "--json"))["state"] == "finished"
    made(support, tmp_path / "python", "mean", kernel="gaussian", bandwidth=0.5)
    np.testing.assert_array_equal(matrix(tmp_path / "out"), matrix(tmp_path / "python"))
