"""`learn_rules` and `locdist rules`: from data to a table of rules, an index of it, and predictions."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

import locdist as ld
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.events import Tried
from locdist.jobs.chosen import located
from locdist.jobs.telling.rules import LearnedRules
from locdist.jobs.telling.tuned import Trial, smallest
from locdist.local.rules import Fit, Premise
from tests.system.generated import read
from tests.system.test_cli import cli


def surface(rows: int, seed: int) -> pa.Table:
    x, z = np.random.default_rng(seed).uniform(-1, 1, (2, rows))
    return pa.table({"x": 100 * x, "z": z, "y": 50 + 10 * np.sin(2 * x) * z})


def support(**more: object) -> ld.dataset:
    return ld.dataset(surface(400, 0), key=["x", "z"], target="y", **more)


@pytest.fixture(scope="module")
def learned() -> LearnedRules:
    heard: list[Tried] = []
    found = ld.learn_rules(support(), rules=[1, 6], steps=20, listener=heard.append)
    assert [event.candidate for event in heard] == [
        "rules=1 steps=20 ridge=1e-08",
        "rules=6 steps=20 ridge=1e-08",
    ]
    return found


def test_the_best_number_of_rules_is_learned_from_all_rows(learned: LearnedRules):
    one, six = learned.trials
    assert six.error < 0.2 * one.error
    assert (learned.table.num_rows, learned.rows, learned.sample, learned.held) == (6, 400, 400, 80)
    names = ["x", "z", "y", "x_width", "z_width", "y_by_x", "y_by_z"]
    assert learned.table.schema.names == names
    new = surface(300, 1)
    answers = learned.method(
        ld.Exact(
            learned.table.select(["x", "z"]).to_pandas().to_numpy(),
            learned.table["y"].to_numpy(),
            shapes=learned.table.select(names[3:]).to_pandas().to_numpy(),
        ),
        new.select(["x", "z"]).to_pandas().to_numpy(),
    )
    missed = np.sqrt(np.square(answers.values[:, 0].numpy() - new["y"].to_numpy()).mean())
    assert missed < 3 * learned.error < 0.05 * np.std(new["y"])
    assert json.loads(learned.to_json())["rules"][0].keys() == set(names)


def test_the_same_rules_are_learned_again(learned: LearnedRules):
    assert ld.learn_rules(support(scaling="standard"), rules=6, steps=20).table.equals(learned.table)


def test_learned_rules_are_a_support(learned: LearnedRules, tmp_path: Path):
    index = ld.build_index(learned.dataset, tmp_path / "index")
    assert ld.predict(learned.method, index, surface(50, 1))["status"].to_pylist() == ["ok"] * 50


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_on_the_command_line(ending: str, tmp_path: Path):
    pq.write_table(surface(400, 0), tmp_path / "train.parquet")
    pq.write_table(surface(60, 1), tmp_path / "new.parquet")
    place = tmp_path / f"rules.{ending}"
    learn = (
        "rules",
        tmp_path / "train.parquet",
        "--key",
        "x,z",
        "--target",
        "y",
        "--rules",
        4,
        "--out",
        place,
    )
    done = cli(*learn, "--steps", 10, "--membership", "bell,gaussian", "--quiet")
    assert done.exit_code == 0, done.output
    shape = "x_width,x_slope,z_width,y_by_x,y_by_z"
    assert f"--shape {shape}" in done.output
    assert """--param 'membership=["bell", "gaussian"]'""" in done.output
    rules = pa.csv.read_csv(place) if ending == "csv" else pq.read_table(place)
    assert rules.num_rows == 4
    if ending == "csv":
        pq.write_table(rules, tmp_path / "rules.parquet")
    index = ("index", tmp_path / "rules.parquet", "--key", "x,z", "--target", "y", "--shape", shape)
    done = cli(*index, "--out", tmp_path / "base", "--quiet")
    assert done.exit_code == 0, done.output
    chosen = (
        "--method",
        "fuzzy-inference",
        "--param",
        "order=1",
        "--param",
        'membership=["bell", "gaussian"]',
    )
    done = cli(
        "predict", tmp_path / "base", tmp_path / "new.parquet", *chosen, "--out", tmp_path / "out", "--quiet"
    )
    assert done.exit_code == 0, done.output
    memory = ld.fuzzy_inference(["bell", "gaussian"], order=1)
    wanted = ld.predict(memory, tmp_path / "base", surface(60, 1))
    assert read(tmp_path / "out")["prediction"].equals(wanted["prediction"])


FILE = """
version: 1
name: braking
support: {path: rules.parquet, key: [x, z], target: y, shape: [x_width, z_width, y_by_x, y_by_z]}
queries: {path: new.parquet}
index: {path: base/}
steps:
  - predict: {method: {name: fuzzy-inference, order: 1}, out: out/}
"""


def test_a_pipeline_file_infers_from_rules(
    learned: LearnedRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    learned.write("rules.parquet")
    pq.write_table(surface(60, 1), "new.parquet")
    Path("rules.yaml").write_text(FILE)
    done = cli("run", "rules.yaml", "--quiet")
    assert done.exit_code == 0, done.output
    wanted = ld.predict(learned.method, "base", surface(60, 1))
    assert read(tmp_path / "out")["prediction"].equals(wanted["prediction"])
    wrong = FILE.replace("order: 1", "order: 1, membership: bell")
    Path("rules.yaml").write_text(wrong)
    done = cli("run", "rules.yaml", "--quiet")
    assert done.exit_code == 2
    assert "rules of shape x_width, x_slope" in done.output


class Failing(Fit):
    """No consequents are found where it has moved far."""

    def consequents(self, premise: Premise) -> torch.Tensor:
        found = Fit.consequents(self, premise)
        return found * torch.nan if (premise.centers - self.rows[:2]).norm() > 0.01 else found


def test_errors_that_are_no_numbers_are_the_largest():
    assert smallest([Trial({}, np.nan, 0.0), Trial({}, 1.0, 0.0)]).error == 1.0
    rows, heights = torch.rand(2, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fit = Failing(rows, heights[:, 0], ld.fuzzy_inference().layer.kernel, 1, 1e-8)
    start = fit.start(rows[:2])
    found = fit.refined(start, 20)
    error, before = (fit.loss(each, fit.consequents(each)) for each in (found, start))
    assert error <= before
    large = surface(50, 0).set_column(2, "y", pa.array(1e308 * np.linspace(-1, 1, 50)))
    with pytest.raises(DataError, match="rows that rules can be learned from"):
        ld.learn_rules(ld.dataset(large, key=["x", "z"], target="y"), rules=2, steps=2)


def test_a_file_at_the_root_is_not_beside_us():
    assert located("/rules.csv") == (Store.at("/"), "rules.csv")
    assert located("rules.csv") == (Store.at("."), "rules.csv")


def test_what_rules_cannot_be_learned_from_is_refused(tmp_path: Path):
    for more in ({"weight": "z"}, {"features": "z"}, {"metric": "cosine"}):
        with pytest.raises(UsageError, match="a key of metric 'l2' and a target"):
            ld.learn_rules(support(**more))
    for options in ({"rules": 0}, {"rules": []}, {"steps": -1}, {"ridge": 0.0}, {"sample": 2}, {"order": 3}):
        with pytest.raises(UsageError):
            ld.learn_rules(support(), **options)
    with pytest.raises(UsageError, match=r"a file that ends in \.parquet or \.csv"):
        ld.learn_rules(support(), tmp_path / "rules.json")
    kinds = surface(40, 0).append_column("kind", pa.array(["a", "b"] * 20))
    with pytest.raises(UsageError, match="a key of numbers"):
        ld.learn_rules(ld.dataset(kinds, key=["x", "kind"], target="y"))
