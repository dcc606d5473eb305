"""Every registered method from a data set of 17 partitions, on every executor: the same bytes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import Ridge

import locdist as ld
from locdist.data.dataset import Roles
from locdist.execute.contract import Executor
from locdist.methods.named import METHODS, method
from tests.system.generated import parts, read, scans, sites_and_loads
from tests.system.interrupted import both, restore

PARTITIONS, ROWS = 17, 12
_RNG = np.random.default_rng(0)
NAMES = [
    name for name in METHODS if method(name, {"k": 60}).layer.kernel.absolute
]  # on an index of distances
CHARTS = {"name": "logifold", "estimator": "sklearn.linear_model.LogisticRegression", "charts": 3}
CLASSES = Roles((("east", 1.0), ("north", 1.0)), target=("count",))
OTHERS = {
    "processes": lambda: ld.Local(2, processes=True),
    "ray": lambda: ld.Ray(workers=2),
    "dask": lambda: ld.Dask(workers=2),
}


def table(rows: int) -> pa.Table:
    east, north = _RNG.normal(size=(2, rows))
    count = _RNG.poisson(np.exp(0.5 + 0.5 * east + 0.2 * north)).clip(1, 4)  # a number, and a class
    widths = {f"{name}_width": _RNG.uniform(0.5, 1.5, rows) for name in ("east", "north")}  # of rules
    return pa.table({"east": east, "north": north, "count": count, **widths})


def partitioned(whole: pa.Table, folder: Path) -> Path:
    folder.mkdir()
    for part in range(PARTITIONS):
        size = whole.num_rows // PARTITIONS
        pq.write_table(whole.slice(part * size, size), folder / f"{part:02}.parquet")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A support and queries of 17 partitions each, an index, and what one thread makes of every method."""
    place = tmp_path_factory.mktemp("methods")
    support = partitioned(table(20 * PARTITIONS), place / "support")
    partitioned(table(ROWS * PARTITIONS), place / "queries")
    rules = ld.rule_base(support, key=["east", "north"], target="count")
    ld.build_index(ld.dataset(support, key=["east", "north"], target="count"), place / "index")
    ld.build_index(rules, place / "rules")
    for name in NAMES:
        predict(place, name, place / "one" / name, ld.Local(1))
    return place


def predict(place: Path, name: str, out: Path, executor: Executor) -> None:
    with mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=ROWS):
        chosen = method(name, {"k": 60})
        index = place / ("rules" if "shapes" in chosen.layer.needs else "index")
        ld.predict(chosen, index, place / "queries", out, executor=executor)


def couple(place: Path, out: Path, executor: Executor) -> None:
    """Models of the sides of a square, gathered from six partitions and coupled in several steps; of groups
    of them; and charts.
    """
    rows = pq.read_table(place / "support")
    sides = (rows["east"].to_numpy() > 0) * 2 + (rows["north"].to_numpy() > 0)
    support = ld.dataset(
        rows.append_column("side", pa.array(sides)), key=["east", "north"], target="count", id="side"
    )
    edges = {"source": [0, 1, 3, 2], "target": [1, 3, 2, 0]}
    with mock.patch("locdist.jobs.coupling.passes.rows_per_task", return_value=5 * ROWS):
        ld.couple(ld.gtvmin(family="poisson"), support, edges, out / "planes", executor=executor)
        refits, shared = (
            ld.fed_relax(Ridge(random_state=0), rounds=1),
            {"east": [0.0, 1.0], "north": [1.0, 0.0]},
        )
        ld.couple(refits, support, edges, out / "refits", shared=shared, executor=executor)
        groups = {"side": [0, 1, 2, 3], "half": ["east", "west", "east", "west"]}
        ld.couple("dem-learn", support, groups, out / "groups", executor=executor)
        ld.couple(CHARTS, replace(support, roles=CLASSES), None, out / "charts", executor=executor)
    with mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=5 * ROWS):
        votes = out / "votes"
        ld.apply(out / "charts", place / "queries", votes, method=CHARTS, keep="east", executor=executor)


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with OTHERS[request.param]().kept() as executor:
        yield executor


@pytest.mark.parametrize("name", NAMES)
def test_every_executor_gives_the_bytes_of_one_thread(
    place: Path, other: Executor, name: str, tmp_path: Path
):
    predict(place, name, tmp_path / "out", other)
    found = parts(tmp_path / "out")
    assert len(found) == PARTITIONS
    assert found == parts(place / "one" / name)
    assert read(tmp_path / "out").num_rows == PARTITIONS * ROWS


@pytest.fixture(scope="module")
def networks(place: Path) -> Path:
    """What one thread makes of networks of models."""
    couple(place, place / "networks", ld.Local(1))
    return place / "networks"


def test_networks_of_models_have_the_bytes_of_one_thread(
    place: Path, networks: Path, other: Executor, tmp_path: Path
):
    couple(place, tmp_path / "out", other)
    for kind, count in (("planes", 1), ("refits", 8), ("groups", 1), ("charts", 3), ("votes", 4)):
        found = parts(tmp_path / "out" / kind)
        assert len(found) == count
        assert found == parts(networks / kind)


def test_scales_and_series_have_the_bytes_of_one_thread(other: Executor, tmp_path: Path):
    sites_and_loads(tmp_path)
    for name, executor in (("one", ld.Local(1)), ("out", other)):
        both(tmp_path, tmp_path / name, executor)
    for job, count in (("terms", 2), ("next", 4)):
        found = parts(tmp_path / "out" / job)
        assert len(found) == count
        assert found == parts(tmp_path / "one" / job)


def test_images_have_the_bytes_of_one_thread(other: Executor, tmp_path: Path):
    scans(tmp_path)
    for name, executor in (("one", ld.Local(1)), ("out", other)):
        restore(tmp_path, tmp_path / name, executor)
    assert len(parts(tmp_path / "one")) > 4
    assert parts(tmp_path / "out") == parts(tmp_path / "one")
