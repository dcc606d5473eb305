"""Fuzzy rules beside scikit-fuzzy and scikit-pytsk, and as a table in files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import skfuzzy
import torch
from numpy.typing import NDArray

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.local.fuzzy import FORMS

Array = NDArray[np.float64]
_RNG = np.random.default_rng(1)
GRID = np.linspace(-6, 6, 6001)
CENTERS = _RNG.normal(size=(6, 2))
SAID = _RNG.normal(size=6)
SLOPES = _RNG.normal(size=(6, 2))
Q = _RNG.normal(size=(9, 2))
PEERS = {
    "gaussian": lambda x, c, parts: skfuzzy.gaussmf(x, c, parts[0]),
    "triangular": lambda x, c, parts: skfuzzy.trimf(x, [c - parts[0], c, c + parts[1]]),
    "trapezoid": lambda x, c, parts: skfuzzy.trapmf(
        x, [c - parts[0] - parts[1], c - parts[0], c + parts[0], c + parts[0] + parts[2]]
    ),
    "bell": lambda x, c, parts: skfuzzy.gbellmf(x, parts[0], parts[1], c),
}


@pytest.mark.parametrize("name", FORMS)
def test_memberships_are_those_of_scikit_fuzzy(name: str):
    parts = _RNG.uniform(0.5, 2.0, (4, len(FORMS[name].parts)))
    for center, size in zip((-1.0, 0.0, 0.5, 3.0), parts, strict=True):
        ours = FORMS[name].log(torch.from_numpy(GRID - center), torch.from_numpy(size)).exp()
        np.testing.assert_allclose(ours, PEERS[name](GRID, center, size), atol=1e-12)


@pytest.mark.parametrize("tnorm", ["product", "min"])
@pytest.mark.parametrize("name", FORMS)
def test_inference_is_the_centroid_of_scaled_and_summed_sets(name: str, tnorm: str):
    """Kosko: consequents that are triangles, scaled by how much their rules fire, added up, defuzzified."""
    count = len(FORMS[name].parts)
    widths, sides = _RNG.uniform(1.5, 3.0, (6, 2, count)), _RNG.uniform(0.2, 1.0, (6, 2))
    table = {"a": CENTERS[:, 0], "b": CENTERS[:, 1], "y": SAID, "y_left": sides[:, 0], "y_right": sides[:, 1]}
    for place, column in enumerate("ab"):
        table |= {f"{column}_{part}": widths[:, place, each] for each, part in enumerate(FORMS[name].parts)}
    rules = ld.rule_base(
        pa.table(table), key=["a", "b"], target="y", membership=name, consequent="triangular"
    )
    assert rules.roles.weight == "y_area"
    rows = rules.source.table
    index = ld.Exact(
        CENTERS, rows["y"].to_numpy(), shapes=widths.reshape(6, -1), weights=rows["y_area"].to_numpy()
    )
    answers = ld.fuzzy_inference(name, tnorm)(index, Q)
    sets = [
        skfuzzy.trimf(GRID, [y - left, y, y + right]) for y, (left, right) in zip(SAID, sides, strict=True)
    ]
    for q, ours in zip(Q, answers.values[:, 0].tolist(), strict=True):
        each = [
            [PEERS[name](np.array([q[j]]), CENTERS[r, j], widths[r, j])[0] for j in (0, 1)] for r in range(6)
        ]
        fires = np.prod(each, 1) if tnorm == "product" else np.min(each, 1)
        if fires.max() == 0:
            assert np.isnan(ours)
        else:
            assert ours == pytest.approx(skfuzzy.defuzz(GRID, fires @ np.array(sets), "centroid"), abs=1e-4)


def test_equal_symmetric_triangles_make_the_local_mean_of_their_centres():
    sets = np.array([skfuzzy.trimf(GRID, [y - 0.5, y, y + 0.5]) for y in SAID])
    fires = np.exp(-((Q[:, None] - CENTERS) ** 2).sum(2) / (2 * 0.8**2))
    theirs = [skfuzzy.defuzz(GRID, one @ sets, "centroid") for one in fires]
    ours = ld.fuzzy_inference()(ld.Exact(CENTERS, SAID, shapes=np.full((6, 2), 0.8)), Q).values[:, 0]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_first_order_rules_are_those_of_scikit_pytsk():
    antecedent = pytest.importorskip("pytsk.gradient_descent.antecedent", reason="scikit-pytsk is not pinned")
    peer = pytest.importorskip("pytsk.gradient_descent.tsk")
    widths = _RNG.uniform(0.5, 1.5, (6, 2))
    fires = antecedent.AntecedentGMF(2, 6, init_center=CENTERS.T, eps=0.0).double()
    tsk = peer.TSK(2, 1, 6, fires, order=1).double()
    with torch.no_grad():
        fires.center.copy_(torch.from_numpy(CENTERS.T))
        fires.sigma.copy_(torch.from_numpy(widths.T))
        heights = SAID - (SLOPES * CENTERS).sum(1)  # theirs are the planes at 0
        tsk.cons.weight.copy_(torch.from_numpy(np.concatenate([SLOPES.ravel(), heights]))[None])
        tsk.cons.bias.zero_()
        theirs = tsk(torch.from_numpy(Q))
    index = ld.Exact(CENTERS, SAID, shapes=np.column_stack([widths, SLOPES]))
    torch.testing.assert_close(ld.fuzzy_inference(order=1)(index, Q).values, theirs, rtol=1e-9, atol=1e-9)


# --------------------------------------------------------------------------- tables of rules


def table() -> pa.Table:
    numbers = {"a": CENTERS[:, 0], "b": CENTERS[:, 1], "y": SAID, "sure": np.linspace(0.1, 1, 6)}
    numbers |= {"a_left": np.full(6, 2.0), "a_right": np.full(6, 3.0), "b_width": np.full(6, 0.7)}
    return pa.table(numbers | {"y_by_a": SLOPES[:, 0], "y_by_b": SLOPES[:, 1]})


ASKED = {"key": ["a", "b"], "target": "y", "membership": ["triangular", "gaussian"], "order": 1}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_of_rules_answers_from_files_as_in_memory(ending: str, tmp_path: Path):
    place = tmp_path / f"rules.{ending}"
    pa.csv.write_csv(table(), place) if ending == "csv" else pq.write_table(table(), place)
    rules = ld.rule_base(place, **ASKED, weight="sure")
    assert rules.roles.shape == ("a_left", "a_right", "b_width", "y_by_a", "y_by_b")
    generation = ld.build_index(rules, tmp_path / "index")
    queries = pa.table({"b": Q[:, 1], "a": Q[:, 0]})
    for k in (None, 6):
        method = ld.fuzzy_inference(["triangular", "gaussian"], order=1, k=k)
        found = ld.predict(method, generation, queries, extras=["effective"], explain=2 if k else 0)
        shapes = table().select(rules.roles.shape).to_pandas().to_numpy()
        memory = method(
            ld.Exact(CENTERS, SAID, shapes=shapes, weights=table()["sure"]), Q, want=["effective"]
        )
        assert found["status"].to_pylist() == [
            ld.Status(each).name.lower() for each in memory.status.tolist()
        ]
        np.testing.assert_allclose(found["prediction"].to_pandas(), memory.values[:, 0], rtol=1e-12)
        np.testing.assert_allclose(found["effective"], memory.effective, rtol=1e-12)


def test_an_index_of_other_rules_is_refused(tmp_path: Path):
    rules = ld.build_index(ld.rule_base(table(), **ASKED), tmp_path / "index")
    with pytest.raises(UsageError, match="rules of shape a_width, b_width"):
        ld.predict("fuzzy-inference", rules, table())
    method = ld.fuzzy_inference(["triangular", "gaussian"], order=1)
    with pytest.raises(UsageError, match="extras that Affine has"):
        ld.predict(method, rules, table(), extras=["coefficients"])
    for more in ({"scaling": "standard"}, {"features": "y"}, {"metric": "cosine"}):
        with pytest.raises(UsageError, match="a key as it is"):
            ld.dataset(table(), key=["a", "b"], target="y", shape=["b_width"], **more)
    gaps = table().append_column("y_left", pa.array([None] * 6, pa.float64()))
    gaps = gaps.append_column("y_right", gaps["y"])
    with pytest.raises(DataError, match="a finite number in column 'y_left'"):
        ld.rule_base(gaps, key="b", target="y", consequent="triangular")
