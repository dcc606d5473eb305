"""The code of the tables, on rows made here; and the smallest public one, where it lies beside us."""

import numpy as np
import pytest

from tests.speed.sets import TABLES, Split, Table, missing
from tests.speed.tables import HEAD, LEVEL, Score, main, row, scored, table


def split(seed: int) -> Split:
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(400, 3))
    targets = np.sin(2 * keys[:, 0]) + 0.1 * rng.normal(size=400)
    keys[350:360], targets[350:360] = keys[:10], targets[:10]
    return Split(str(seed), keys[:300], targets[:300], keys[300:], targets[300:])


@pytest.mark.slow
def test_a_split_is_scored_and_told():
    score = scored(split(0))
    assert score.rmse < 0.2
    assert score.known == pytest.approx(0.1)
    assert score.new == pytest.approx(score.rmse, rel=0.3)  # the same, but for the rows that are known
    assert abs(score.held - LEVEL) < 0.1
    assert np.mean(score.thirds) == pytest.approx(score.held, abs=0.01)
    assert "covariance=" in score.chosen
    cells = row("yacht", [score, score])
    assert len(cells) == len(HEAD)
    assert table([cells]).count("\n") == 1
    assert dict(zip(HEAD, cells, strict=True))["known"] == "10.0%"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yacht"])
def test_a_public_table_reaches_what_is_wanted(name, capsys):
    if why := missing(name):
        pytest.skip(why)
    assert main(["--sets", name, "--splits", "1"]) == 0
    told = capsys.readouterr().out
    assert f"{name} 0:" in told
    assert "yes" in told.splitlines()[-1]


def test_scores_are_kept_and_not_measured_again(tmp_path, monkeypatch, capsys):
    told = Score(300, 0.2, 0.3, 0.1, 0.2, 0.9, [0.9, 0.9, 0.9], 1.0, 1.0, "covariance=mix")
    measured = []
    monkeypatch.setattr("tests.speed.tables.scored", lambda split: measured.append(split.name) or told)
    monkeypatch.setattr("tests.speed.tables.missing", lambda name: "")
    monkeypatch.setitem(TABLES, "yacht", Table("", lambda place: map(split, range(5)), 0.42))
    for splits in ("2", "2", "3"):
        assert main(["--sets", "yacht", "--splits", splits, "--json", str(tmp_path / "scores.json")]) == 0
    assert measured == ["0", "1", "2"]
    assert capsys.readouterr().out.splitlines()[-1].split()[1] == "3"


def test_every_table_says_where_it_lies():
    assert all(table.reach > 0 and not table.folder.startswith("/") for table in TABLES.values())
