"""Every registered method from files, beside the same method in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.local.answers import WANTS
from locdist.methods.named import METHODS, method

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(300, 2)) * [1.0, 20.0]
Y = _RNG.poisson(np.exp(0.5 + X @ [0.5, 0.02])).clip(1, 4)  # numbers, and classes
Q = _RNG.normal(size=(30, 2)) * [1.0, 20.0]
SCALE = X.std(axis=0)


def table(rows: np.ndarray, **more: np.ndarray) -> pa.Table:
    return pa.table({"east": rows[:, 0], "north": rows[:, 1], **more})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> ld.Generation:
    folder: Path = tmp_path_factory.mktemp("methods")
    (folder / "rows").mkdir()
    for part in range(3):
        some = slice(100 * part, 100 * part + 100)
        pq.write_table(table(X[some], count=Y[some]), folder / "rows" / f"{part}.parquet")
    support = ld.dataset(folder / "rows", key=["east", "north"], target="count", scaling="standard")
    return ld.build_index(support, folder / "index")


def fits(name: str) -> bool:
    """Whether it works on an index of distances whose rows have no shape of their own (rules have)."""
    layer = method(name, {"k": 60}).layer
    return layer.kernel.absolute and "shapes" not in layer.needs


@pytest.mark.parametrize("name", list(filter(fits, METHODS)))
def test_files_and_memory_agree(name: str, index: ld.Generation) -> None:
    chosen = method(name, {"k": 60})
    model = chosen.layer.model
    extras = sorted(model.tells & {"spread", "coefficients"})
    extras += ["parameters"] if "coefficients" in extras else []
    found = ld.predict(chosen, index, table(Q), extras=extras, explain=2)
    center = X.mean(axis=0)
    answers = chosen(ld.Exact((X - center) / SCALE, Y), (Q - center) / SCALE, want=WANTS)
    assert found["status"].to_pylist() == [ld.Status(each).name.lower() for each in answers.status.tolist()]
    assert {len(each) for each in found["neighbors"].to_pylist()} == {2}
    votes = "codes" in model.needs
    names = [f"_{label}" for label in range(1, 5)] if votes else [""]
    outputs = model.outputs(("count",), ("east", "north"))
    outputs = [f"probability{each}" for each in names] if votes else outputs
    values = answers.values.numpy().copy()
    if model.places:
        values[:, -2:] = values[:, -2:] * SCALE + center
    close(np.column_stack([found[each] for each in outputs]), values)
    if "spread" in extras:
        close(np.column_stack([found[f"spread{each}"] for each in names]), answers.spread)
    if "coefficients" in extras:
        own = answers.coefficients.numpy().copy()
        if model.slopes:
            own[:, 1:] /= SCALE[:, None]  # in the user's units
        close(np.array(found[f"coefficients{names[0]}"].to_pylist(), dtype=float), own[:, :, 0])
        flat = [f"parameter_{each}{names[0]}" for each in model.parameters(("east", "north"))]
        close(np.column_stack([found[each] for each in flat]), own[:, :, 0])


def close(ours: np.ndarray, theirs: object) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
