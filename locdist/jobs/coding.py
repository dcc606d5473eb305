"""Codes of the rows of a support, and what the codes of new rows tell of them."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.encoding import UNSEEN_CATEGORY, Encoding, Rejected
from locdist.data.moments import Moments
from locdist.jobs.asking.block import Block, statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.asking.questions import Ask
from locdist.jobs.coordinates import coordinate_fields, read_coordinates
from locdist.jobs.eigen import Axes
from locdist.jobs.lazy import LazyAutoencoder, coder_of, lazy_autoencoder
from locdist.local import lazy
from locdist.local.answers import Status
from locdist.local.neighborhood import Neighborhood
from locdist.methods.embedded import EmbedMethod
from locdist.plan.cost import Solve
from locdist.search.exact import Exact
from locdist.search.generation import Generation, open_index

TOLD = "reconstructed_"


def coded(method: EmbedMethod, index: Exact | Generation, rows: int) -> tuple[Tensor, Axes]:
    """Which of the rows [n] of a source have codes, and the codes of these."""
    told: dict[str, Any] = dict(method.parameters)
    inside, keys = _rows(index, rows)
    coder = lazy_autoencoder(keys, method.components, k=told["k"], steps=told["steps"])
    error = (lazy.reconstructed(coder.codes, coder.rows) - coder.rows).square().sum(1).mean()
    return inside, Axes(coder.codes, (float(error),), True)


def _rows(index: Exact | Generation, rows: int) -> tuple[Tensor, Tensor]:
    """Which rows of a source an index has [n], and their keys."""
    ids, sources = index.stored(0, rows) if isinstance(index, Generation) else (torch.arange(rows),) * 2
    inside = torch.zeros(rows, dtype=torch.bool)
    inside[sources] = True
    found = index.gather(Neighborhood(torch.zeros(len(ids), 1), ids[:, None]), frozenset({"keys"}))
    assert found.keys is not None
    return inside, found.keys[:, 0].double()


@functools.lru_cache(maxsize=1)
def read_coder(index: str, folder: str, fingerprint: str, k: int) -> LazyAutoencoder:
    """The autoencoder of a finished embedding; the fingerprint tells it from others in the same place."""
    codes = read_coordinates(folder, fingerprint)
    inside, keys = _rows(open_index(index), len(codes))
    return coder_of(keys, codes[inside], k)


@dataclass(frozen=True, kw_only=True)
class PlaceCodes(Ask):
    """The code of each row of a source, and what it tells of the row; gaps in a row are filled before."""

    folder: str
    fingerprint: str
    components: int
    k: int

    @property
    def coder(self) -> LazyAutoencoder:
        """The rows that are known, and their codes."""
        return read_coder(self.index.folder, self.folder, self.fingerprint, self.k)

    @property
    def whole(self) -> bool:
        """Whether a key can be told in the units of its columns, and filled column by column."""
        key = self.index.key
        return not (key.map or key.normalize or key.sphere)

    def columns(self) -> pa.Schema:
        """Code, status, and the columns of the key as they are told."""
        names = self.index.key.names if self.whole else ()
        told = [pa.field(f"{TOLD}{name}", pa.float64()) for name in names]
        return pa.schema([*coordinate_fields(self.components), *told])

    @property
    def work(self) -> Solve:
        """The weights of each query."""
        return Solve(self.k, self.index.layout.width, self.index.layout.width)

    def encoded(self, table: pa.Table, first: int) -> Block:
        """Queries with nan where a column has no number; without any they are bad."""
        block = Ask.encoded(self, table, first)
        if not (self.whole and block.bad.any()):
            return block
        queries = torch.from_numpy(with_gaps(self.index.key, table))
        bad, key = queries.isnan().all(1), {column.name for column in self.index.key.columns}
        for each in block.rejected:
            bad[each.rows] |= each.column not in key and each.reason != UNSEEN_CATEGORY
        told = tuple(_left(each, bad) for each in block.rejected)
        rejected = tuple(each for each in told if len(each.rows))
        return Block(table, first, queries, block.features, bad, rejected, block.offsets)

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Codes and what they tell, of one block."""
        coder, bad = self.coder, block.bad
        rows, rests = coder.filled(block.queries.double().masked_fill(bad[:, None], 0.0))
        found = coder.answers(rows, bad)
        lost = found.values.isnan().any(1)
        status = found.status.where(rests | lost, int(Status.NOT_CONVERGED)).to(torch.int8)
        columns = [*map(nullable, found.values.T), statuses(status)]
        if self.whole:
            told = self.index.key.restore(coder.decode(found.values.nan_to_num(0.0)).numpy())
            told[lost.numpy()] = np.nan
            columns += map(nullable, torch.from_numpy(told).T)
        return pa.Table.from_arrays(columns, schema=self.columns()), {}


def _left(found: Rejected, bad: Tensor) -> Rejected:
    """Those rows of a reason that are bad."""
    if found.reason == UNSEEN_CATEGORY:
        return found
    return found._replace(rows=found.rows[bad[torch.from_numpy(found.rows)].numpy()])


def with_gaps(key: Encoding, table: pa.Table) -> NDArray[np.float64]:
    """Encoded rows [n, d] with nan in the columns of which a row has no number."""
    values, begin = np.empty((table.num_rows, len(key.names))), 0
    for column in key.columns:
        part = slice(begin, begin + column.width)
        values[:, part], found = column.block(table.column(column.name), np.float64)
        for reason, rows in found:
            if reason != UNSEEN_CATEGORY:
                values[rows, part] = np.nan
        begin += column.width
    return values
