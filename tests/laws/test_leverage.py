"""The leverage of a row is its weight in its own answer, in memory and in files."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import locdist as ld
from locdist.errors import UsageError

RNG = np.random.default_rng(0)
ROWS = 700
PLACES, FEATURES = RNG.uniform(0, 10, (ROWS, 2)), RNG.standard_normal((ROWS, 2))
TARGETS = FEATURES.sum(1) + 0.1 * RNG.standard_normal(ROWS)
OWN = np.arange(ROWS)


def index() -> ld.Exact:
    return ld.Exact(PLACES, TARGETS, features=FEATURES)


def of_neighbors(answers: ld.Answers, own: np.ndarray) -> torch.Tensor:
    assert answers.smoother is not None
    mine = answers.ids == torch.from_numpy(own)[:, None]
    return answers.smoother.where(mine, 0.0).sum(1)


def test_it_is_the_weight_among_the_neighbors():
    method, asked = ld.gwr(k=30), {"features": FEATURES, "own": OWN}
    listed = method(index(), PLACES, **asked, want={"neighbors", "leverage"})
    alone = method(index(), PLACES, **asked, want={"leverage"})
    assert listed.leverage.equal(of_neighbors(listed, OWN))
    assert alone.leverage.equal(listed.leverage)
    assert alone.smoother is None
    assert alone.ids is None
    assert 2 < float(alone.leverage.sum()) < ROWS


def test_who_is_nobody_has_none_and_who_is_bad_is_null():
    own, places = np.where(OWN % 2, OWN, -1), PLACES.copy()
    places[3] = np.nan
    told = ld.gwr(k=30)(index(), places, features=FEATURES, own=own, want={"leverage"}).leverage
    assert told[::2].equal(torch.zeros(350, dtype=torch.float64))
    assert told[3].isnan()
    assert (told[5::2] > 0).all()


def test_a_row_that_is_left_out_has_none():
    told = ld.local_linear(k=20)(index(), PLACES, features=FEATURES, own=OWN, want={"leverage"})
    assert told.leverage.equal(torch.zeros(ROWS, dtype=torch.float64))


def test_its_sum_is_the_trace_that_files_tell(tmp_path):
    columns = {"x": PLACES[:, 0], "y": PLACES[:, 1], "a": FEATURES[:, 0], "b": FEATURES[:, 1], "t": TARGETS}
    rows = ld.dataset(pa.table(columns), key=["x", "y"], features=["a", "b"], target="t", scaling="none")
    report = ld.transform(ld.gwr(k=30), rows, tmp_path / "out")
    told = ld.gwr(k=30)(index(), PLACES, features=FEATURES, own=OWN, want={"leverage"}).leverage
    assert report.diagnostics.enp == pytest.approx(float(told.sum()), rel=1e-10)


def test_what_cannot_be_told_is_refused():
    with pytest.raises(UsageError, match="row of the support"):
        ld.gwr(k=30)(index(), PLACES, features=FEATURES, want={"leverage"})
    everywhere = ld.local_mean(k=None, kernel="gaussian", bandwidth=1.0)
    with pytest.raises(UsageError, match="k neighbors"):
        everywhere(ld.Exact(PLACES, TARGETS), PLACES, own=OWN, want={"leverage"})
    with pytest.raises(UsageError, match="queries that move"):
        ld.mean_shift(k=9, bandwidth=1.0)(ld.Exact(PLACES), PLACES, own=OWN, want={"leverage"})
