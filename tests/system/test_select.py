"""Selection: many settings, one search; every score is what the setting's own run says."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner, Result

import locdist as ld
from locdist.cli.app import app
from locdist.errors import DataError, UsageError
from locdist.jobs.chosen import read_method, write_method
from locdist.local.select import golden
from locdist.methods.named import method

N = 400
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * _RNG.normal(size=N)
LABEL = (Y > 0.5).astype(int)
COUNT = _RNG.poisson(np.exp(0.4 * X[:, 0]))
INDEX = ld.Exact(X, Y)


def close(ours: object, theirs: object, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance)


GRID = {"k": [5, 20, 60], "kernel": ["tricube", "gaussian"], "bandwidth": ["nearest", 0.7]}


@pytest.mark.parametrize("name", ["local-mean", "local-linear", "kernel-ridge"])
def test_each_score_is_the_leave_one_out_error_of_that_setting(name):
    found = ld.select(name, INDEX, grid=GRID, sample=N)
    assert len(found.trials) == 12
    for trial in found.trials:
        answers = trial.method(INDEX, X, own=np.arange(N), want={"effective"})
        squares = np.square(Y - answers.values[:, 0].numpy())
        squares = np.where(np.isnan(squares), np.square(Y - Y.mean()), squares)
        close(trial.score.value, squares.mean())
        close(trial.score.error, squares.std(ddof=1) / math.sqrt(N))
        close(trial.score.effective, answers.effective.mean())
        assert trial.score.unanswered == int((answers.status >= ld.Status.EMPTY).sum())
    assert found.best == min(found.trials, key=lambda trial: trial.score.value).method


@pytest.mark.parametrize("name", ["local-vote", "local-logistic"])
def test_classes_are_judged_by_their_log_loss(name):
    index = ld.Exact(X, LABEL)
    for trial in ld.select(name, index, grid={"k": [10, 40]}, sample=N).trials:
        chances = trial.method(index, X, own=np.arange(N)).values.numpy()
        close(trial.score.value, -np.log(np.clip(chances[np.arange(N), LABEL], 1e-15, 1)).mean())


def test_the_likelihood_of_a_smoother_is_that_of_the_next_target():
    (trial,) = ld.select(ld.local_linear(40), INDEX, criterion="log-likelihood", sample=N).trials
    answers = trial.method(INDEX, X, own=np.arange(N), want=["spread", "neighbors"])
    noise = answers.spread[:, 0].square() / answers.smoother.square().sum(1)
    normal = torch.distributions.Normal(answers.values[:, 0], (noise + answers.spread[:, 0].square()).sqrt())
    close(trial.score.value, -normal.log_prob(torch.from_numpy(Y)).mean())


def test_the_likelihood_of_counts_is_their_familys():
    index = ld.Exact(X, COUNT)
    (trial,) = ld.select(ld.local_poisson(60), index, criterion="log-likelihood", sample=N).trials
    mean = trial.method(index, X, own=np.arange(N)).values[:, 0].numpy()
    own = COUNT * np.log(np.maximum(COUNT, 1))
    close(trial.score.value, (own - COUNT * np.log(mean) - (COUNT - mean)).mean())  # half the deviance


def hat(h: float) -> np.ndarray:
    """The hat matrix of the local mean with a Gaussian of width h over all rows."""
    weights = np.exp(-np.square(X[:, None] - X).sum(2) / (2 * h * h))
    return weights / weights.sum(1, keepdims=True)


def test_criteria_of_information_are_those_of_the_dense_hat_matrix():
    h = 0.4
    rest = Y - hat(h) @ Y
    rss, trace = rest @ rest, np.trace(hat(h))
    log = N * np.log(rss / N) + N * np.log(2 * np.pi)
    expected = {
        "aicc": log + N * (N + trace) / (N - 2 - trace),
        "aic": log + N + 2 * (trace + 1),
        "bic": log + N + (trace + 1) * np.log(N),
        "gcv": N * rss / (N - trace) ** 2,
    }
    for criterion, value in expected.items():
        setting = ld.local_mean(N, "gaussian", h)
        (trial,) = ld.select(setting, INDEX, criterion=criterion, sample=N).trials
        close(trial.score.value, value)
        assert trial.score.error == 0  # all rows were asked


def test_aicc_of_a_sample_estimates_that_of_all_rows():
    whole, some = (
        ld.select(ld.local_linear(60), INDEX, criterion="aicc", sample=size).trials[0].score
        for size in (N, 200)
    )
    assert some.error > 0
    assert abs(some.value - whole.value) < 4 * some.error


def test_methods_that_count_a_row_are_left_one_out_in_closed_form():
    """With a bandwidth that is not adaptive it is the same as asking without the row."""
    hollow, counted = ld.local_linear(N - 1, "gaussian", 0.5), ld.gwr(N, "gaussian", 0.5)
    found = ld.select([hollow, counted], INDEX, sample=N)
    close(found.trials[0].score.value, found.trials[1].score.value, 1e-8)


@dataclass(frozen=True, eq=False)
class Counting(ld.Exact):
    """An index that remembers what was searched."""

    searched: list = field(default_factory=list)

    def search(self, queries, k, own=None):
        self.searched.append((len(queries), k))
        return super().search(queries, k, own)


def test_the_sample_is_searched_once_with_the_largest_k():
    index = Counting(X, Y)
    ld.select(["local-mean", "local-linear"], index, grid=GRID, sample=100)
    ld.select("local-mean", index, grid={"k": ld.Between(4, 200)}, sample=100)
    assert sum(rows for rows, _ in index.searched) == 200
    assert {k for _, k in index.searched} == {61, 201}


def test_rows_at_one_place_are_left_out_by_their_id():
    keys = np.zeros((50, 1))
    found = ld.select(ld.knn(49), ld.Exact(keys, Y[:50]), sample=50)
    rest = (Y[:50].sum() - Y[:50]) / 49
    close(found.trials[0].score.value, np.square(Y[:50] - rest).mean())


# the golden section


@pytest.mark.parametrize("whole", [True, False])
def test_the_golden_section_finds_the_bottom_of_a_hollow(whole):
    asked = []

    def hollow(place: float) -> float:
        asked.append(place)
        return (place - 33.3) ** 2

    bottom = golden(hollow, 1, 400, whole)
    assert bottom == (33 if whole else pytest.approx(33.3, abs=1e-2))
    assert len(asked) == len(set(asked)) < 40
    assert all(place == round(place) for place in asked) or not whole


def test_a_range_is_searched_for_each_combination_of_the_rest():
    names = ["tricube", "epanechnikov"]
    found, every = (
        ld.select("local-linear", INDEX, grid={"k": tried, "kernel": names}).trials
        for tried in (ld.Between(10, 120), range(10, 121))
    )
    for name in names:
        mine, all_of_them = (
            [trial.score.value for trial in trials if dict(trial.method.parameters)["kernel"] == name]
            for trials in (found, every)
        )
        assert 4 < len(mine) < 25
        assert min(mine) <= 1.02 * min(all_of_them)


def test_a_bandwidth_is_a_number_between_the_ends():
    grid = {"k": [N - 1], "kernel": ["gaussian"], "bandwidth": ld.Between(0.02, 5.0)}
    best = dict(ld.select("local-mean", INDEX, grid=grid, sample=N).best.parameters)["bandwidth"]
    assert 0.1 < best < 0.6


# what is told


def test_the_simplest_setting_is_the_smoothest_within_one_standard_error():
    found = ld.select("local-mean", INDEX, grid={"k": [4, 8, 16, 32, 64, 128]}, sample=N)
    scores = {trial.method.layer: trial.score for trial in found.trials}
    limit = scores[found.best.layer].value + scores[found.best.layer].error
    assert scores[found.simplest.layer].value <= limit
    smoother = [s for s in scores.values() if s.effective > scores[found.simplest.layer].effective]
    assert all(score.value > limit for score in smoother)


def test_a_selection_is_a_table_a_text_a_picture_and_a_file(tmp_path):
    found = ld.select(["local-linear", "knn"], INDEX, grid={"k": [8, 16, 32], "ridge": [0, 0.1]})
    table = found.table
    assert table.num_rows == 9
    assert table.column_names == ["method", "k", "kernel", "bandwidth", "ridge", "loo", "error", "effective",
                                  "unanswered"]  # fmt: skip
    assert table["kernel"].null_count == 3
    assert str(found).count("\n") == 9
    assert str(found).count("<- best") == 1
    found.plot(tmp_path / "picture.svg")
    assert len(ElementTree.parse(tmp_path / "picture.svg").findall(".//{*}polyline")) == 3
    found.write(tmp_path / "best.json")
    assert read_method(tmp_path / "best.json") == found.best
    assert json.loads(found.to_json())["best"] == found.best.spec


def test_a_file_that_is_not_what_was_written_is_refused(tmp_path):
    place = tmp_path / "chosen.json"
    write_method(ld.knn(7), place, {"criterion": "loo"})
    assert read_method(str(place)) == ld.knn(7)
    place.write_text(place.read_text().replace("7", "8"))
    with pytest.raises(DataError, match="not what was written"):
        read_method(place)
    with pytest.raises(DataError, match="no file"):
        read_method(tmp_path / "other.json")


@pytest.mark.parametrize(
    "methods, more, said",
    [
        ("local-men", {}, "Did you mean 'local-mean'"),
        ("local-mean", {"grid": {"ridge": [0.1]}}, "a parameter of the methods"),
        ("local-mean", {"grid": {"k": []}}, "values to try"),
        ("local-mean", {"grid": {"k": [ld.Between(2, 9), 3]}}, "one parameter with a range"),
        ("local-mean", {"grid": {"k": ld.Between(2, 9), "bandwidth": ld.Between(0.1, 1.0)}}, "one parameter"),
        ("local-mean", {"criterion": "aicd"}, "Did you mean 'aic"),
        ("local-mean", {"sample": 1}, "at least 2"),
        (["local-mean", "local-vote"], {}, "one kind"),
        ("local-vote", {"criterion": "aicc"}, "a hat matrix"),
        ("kernel-ridge", {"criterion": "log-likelihood"}, "spread is that of a smoother"),
    ],
)
def test_what_cannot_be_selected_is_refused(methods, more, said):
    index = ld.Exact(X, LABEL)
    with pytest.raises(UsageError, match=said):
        ld.select(methods, index, **more)


# files


@pytest.fixture
def world(tmp_path: Path) -> Path:
    table = pa.table({"a": X[:, 0], "b": 100 * X[:, 1], "y": Y})
    for part in range(2):
        (tmp_path / "data").mkdir(exist_ok=True)
        pq.write_table(table.slice(part * 200, 200), tmp_path / f"data/{part}.parquet")
    return tmp_path


def cli(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_dataset_and_its_index_select_the_same(world):
    support = ld.dataset(str(world / "data"), key=["a", "b"], target="y")
    one = ld.select("local-linear", support, grid={"k": [8, 32]}, sample=N)
    index = ld.build_index(support, world / "index")
    other = ld.select("local-linear", index, grid={"k": [8, 32]}, sample=N)
    assert one.trials == other.trials
    told = ld.transform(one.best, support, world / "fit").diagnostics
    close(min(trial.score.value for trial in one.trials), told.sigma2)


def test_what_select_writes_is_a_method_of_the_other_commands(world):
    chosen = world / "chosen.json"
    words = ("select", world / "data", "--key", "a,b", "--target", "y", "-m", "local-linear,local-mean",
             "--k", "8,16,32", "--kernel", "tricube,gaussian", "--bandwidth", "nearest,0.5", "--out", chosen,
             "--plot", world / "picture.svg")  # fmt: skip
    done = cli(*words, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["settings"] == 24
    assert read_method(chosen).spec == told["best"]
    assert "<- best" in cli(*words).stdout
    assert (
        cli("index", world / "data", "--key", "a,b", "--target", "y", "--out", world / "index").exit_code == 0
    )
    for number, choice in enumerate([("-m", chosen), ("-m", chosen, "-k", 5)]):
        out = world / f"out{number}"
        done = cli("predict", world / "index", world / "data", *choice, "--out", out, "-q")
        assert done.exit_code == 0, done.output
    by_name = ld.predict(method(told["best"]), world / "index", str(world / "data"))
    assert pq.read_table(world / "out0")["prediction"].equals(by_name["prediction"])
    assert not pq.read_table(world / "out1")["prediction"].equals(by_name["prediction"])
    assert ld.predict(str(chosen), world / "index", str(world / "data")).equals(by_name)


def test_an_index_is_selected_on_without_naming_its_columns(world):
    ld.build_index(ld.dataset(str(world / "data"), key=["a", "b"], target="y"), world / "index")
    done = cli("select", world / "index", "-m", "local-mean", "--k", "4..64", "--json")
    assert done.exit_code == 0, done.output
    assert 4 <= json.loads(done.stdout)["best"]["k"] <= 64


def test_a_pipeline_takes_the_file_of_a_method(world):
    data = {"path": str(world / "data"), "key": ["a", "b"], "target": "y"}
    done = cli("select", world / "data", "--key", "a,b", "--target", "y", "-m", "knn", "--k", "3,30",
               "--out", world / "chosen.json")  # fmt: skip
    assert done.exit_code == 0, done.output
    content = {
        "version": 1,
        "support": data,
        "steps": [{"transform": {"method": str(world / "chosen.json"), "out": str(world / "fit")}}],
    }
    (world / "job.yaml").write_text(json.dumps(content))
    done = cli("run", world / "job.yaml", "-q")
    assert done.exit_code == 0, done.output
    by_name = ld.transform(
        read_method(world / "chosen.json"), ld.dataset(**{"data": data.pop("path")} | data)
    )
    assert pq.read_table(world / "fit")["prediction"].equals(by_name["prediction"])


SITES = ("--key", "a", "--features", "b", "--target", "y", "--scaling", "none", "-m", "gwr", "--json")


def test_the_bandwidth_of_gwr_is_searched_on_the_command_line(world):
    told = json.loads(cli("select", world / "data", *SITES).stdout)
    assert told["criterion"] == "aicc"
    assert told["sample"] == N
    assert 3 <= told["best"]["k"] <= N
    told = json.loads(cli("select", world / "data", *SITES, "--bandwidth", "fixed").stdout)
    assert 0 < told["best"]["bandwidth"] < 20
    told = json.loads(cli("select", world / "data", *SITES, "--k", "50..200", "--criterion", "loo").stdout)
    assert all(50 <= trial["method"]["k"] <= 200 for trial in told["trials"])


def test_composed_kernels_and_bandwidths_are_json_on_the_command_line(world):
    kernel = '{"product": [{"columns": 1}, {"columns": 1, "kernel": "gaussian", "bandwidth": 0.5}]}'
    words = (
        "select",
        world / "data",
        "--key",
        "a,b",
        "--target",
        "y",
        "-m",
        "local-mean",
        "--k",
        "20",
        "--json",
    )
    told = json.loads(cli(*words, "--kernel", "tricube,uniform", "--kernel", kernel).stdout)
    assert [trial["method"]["kernel"] for trial in told["trials"]][:2] == ["tricube", "uniform"]
    assert len(told["trials"][2]["method"]["kernel"]["product"]) == 2
    told = json.loads(cli(*words, "--bandwidth", '{"sample-point": 5, "scale": 2}').stdout)
    assert told["best"]["bandwidth"] == {"sample-point": 5, "scale": 2.0}
    assert cli(*words, "--bandwidth", "neerest").exit_code == 2
