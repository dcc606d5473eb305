"""A sample of a support in memory: encoded keys and targets of rows drawn by their number."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.dataset import Dataset
from locdist.data.lengths import Profiles
from locdist.errors import DataError, UsageError
from locdist.jobs.indexing import BATCH_ROWS
from locdist.jobs.support import Fitted, Recipe
from locdist.search import build
from locdist.search.files import array


@dataclass(frozen=True)
class Drawn:
    """Good rows of a support.

    Attributes
    ----------
    keys : Tensor [n, d] float64
        As an index of the support encodes them.
    targets : Tensor [n, 1]
        float64, or int64 codes of classes.
    names : tuple of str
        Of the columns of the keys.
    rows : int
        Good rows of the support.
    """

    keys: Tensor
    targets: Tensor
    names: tuple[str, ...]
    rows: int


def drawn(support: Dataset, wanted: int, seed: int, bad: str, classes: bool) -> Drawn:
    """About `wanted` rows of a support, or all; read twice, a batch at a time.

    Raises
    ------
    UsageError
        When the support has no single target of the kind that is wanted.
    DataError
        For bad rows, unless they are dropped, or fewer than three good ones.
    """
    profile = reduce(Profiles.merge, _profiles(support)).settled()
    recipe = Fitted.of(profile, support.roles, bad).recipe
    parts = list(_stored(support, recipe, wanted, seed))
    name = "label" if classes else "target"
    if name not in parts[0] or len(support.roles.target) != 1:
        kind = "classes" if classes else "numbers"
        given = f"targets {list(support.roles.target) or 'none'}"
        raise UsageError(f"a single target of {kind}", given, "Name one, or tune another method.")
    keys = np.concatenate([array(part["key"]) for part in parts]).astype(np.float64)
    if len(keys) < 3:
        raise DataError("a support of at least three good rows", str(len(keys)), "Give it more rows.")
    targets = np.concatenate([array(part[name]) for part in parts])
    return Drawn(torch.from_numpy(keys), torch.from_numpy(targets), recipe.key.names, profile.good)


def _profiles(support: Dataset) -> Iterator[Profiles]:
    first = 0
    yield Profiles.of(_empty(support), support)
    for table in support.read(batch_rows=BATCH_ROWS):
        yield Profiles.of(table, support, first)
        first += table.num_rows


def _stored(support: Dataset, recipe: Recipe, wanted: int, seed: int) -> Iterator[dict[str, pa.Array]]:
    yield recipe.columns(_empty(support), 0)[0]
    first = 0
    for table in support.read(batch_rows=BATCH_ROWS):
        if wanted < support.rows:
            numbers = np.arange(first, first + table.num_rows)
            first += table.num_rows
            table = table.filter(pa.array(build.sampled(numbers, wanted, support.rows, seed)))
        yield recipe.columns(table, 0)[0]


def _empty(support: Dataset) -> pa.Table:
    names = support.roles.columns
    return pa.schema([support.source.schema.field(name) for name in names]).empty_table()
