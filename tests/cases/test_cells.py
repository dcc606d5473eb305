"""Neighbors from the nearest cells of the rows are those of all rows, whatever the data."""

from unittest import mock

import numpy as np
import pytest
import torch

import locdist as ld
from locdist.search import cells

RNG = np.random.default_rng(0)
SURFACE = np.column_stack([RNG.random((3000, 2)), np.zeros((3000, 6))]) @ RNG.normal(size=(8, 8))
DATA = {
    "surface": SURFACE,
    "ties": np.round(5 * SURFACE),
    "the same place": np.zeros((3000, 8)),
    "solid": RNG.normal(size=(3000, 8)),
    "one far away": np.concatenate([SURFACE[:-1], np.full((1, 8), 1e6)]),
    "single precision": SURFACE.astype(np.float32) + 1000,
    "squares beyond single precision": 1e20 * SURFACE,
}
BEYOND = ("squares beyond single precision", "l2")


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("name", DATA)
def test_neighbors_are_those_of_all_rows(name: str, metric: str):
    if metric == "cosine" and name in ("ties", "the same place"):
        pytest.skip("rows of length 0 have no direction")
    index, own = ld.Exact(DATA[name], metric=metric), torch.arange(3000)
    queries, tried = torch.from_numpy(DATA[name] + 0.0), []
    propose = cells.Cells.propose

    def watched(found: cells.Cells, asked: torch.Tensor, width: int) -> object:
        tried.append(len(asked))
        return propose(found, asked, width)

    with (
        mock.patch.object(cells, "ROWS", 100),
        mock.patch.object(cells, "QUERIES", 100),
        mock.patch.object(cells.Cells, "propose", watched),
    ):
        found = index.search(queries, 4, own)
    expected = index.search(queries, 4, own)
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.distances, expected.distances)
    assert sum(tried) > 3000 if name == "surface" else tried or (name, metric) == BEYOND


@pytest.mark.parametrize("scale", [2.0**-74, 2.0**66])
def test_neighbors_do_not_change_with_the_unit(scale: float):
    rows = RNG.normal(size=(1000, 9)) + 3 * (np.arange(9) == 0)
    asked = torch.from_numpy(rows[:200])
    found = ld.Exact(scale * rows).search(scale * asked, 6)
    assert torch.equal(found.ids, ld.Exact(rows).search(asked, 6).ids)


def test_what_they_leave_out_is_told():
    queries = torch.from_numpy(SURFACE).float()
    found = cells.Cells.of(queries)
    ids, _, horizon = found.propose(queries[:50], 12)
    squares = torch.cdist(queries[:50].double(), queries.double()).square()
    squares.scatter_(1, ids, torch.inf)
    assert (squares.amin(1) >= horizon - 1e-6).all()
    assert (horizon > 0).double().mean() > 0.9
