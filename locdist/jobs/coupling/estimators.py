"""Estimators of nodes, fitted again from what a job of FedRelax kept: files hold numbers, never code."""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.columns import numbers
from locdist.data.store import Store
from locdist.jobs.asking.block import STATUSES
from locdist.jobs.coupling.relaxing import SHARED, kept_files, rows_of
from locdist.jobs.indexing import read_ipc
from locdist.jobs.spreading.whole import tensor
from locdist.local.losses import Rows
from locdist.methods.federated import FedRelax, NodeEstimators


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept of the nodes of a folder.

    Parameters
    ----------
    names : pa.Array [n]
    status : Tensor [n]
    own : list of Rows
        Of each node.
    shared : Tensor [s, d]
    heard : Tensor [n, s, 1]
        What its neighbors said of the shared rows.
    weights : Tensor [n]
        Of the neighbors that did.
    fitted : dict
        Estimators, by method and node, as far as somebody asked for them.
    """

    names: pa.Array
    status: Tensor
    own: list[Rows]
    shared: Tensor
    heard: Tensor
    weights: Tensor
    fitted: dict[tuple[str, int], Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Refitted(Sequence[Any]):
    """The estimators of nodes, each fitted when it is first asked for."""

    method: FedRelax
    kept: Kept

    def __len__(self) -> int:
        return len(self.kept.own)

    def __getitem__(self, node: Any) -> Any:
        kept, key = self.kept, (json.dumps(self.method.spec), node)
        if key not in kept.fitted:
            parts = (kept.own[node], kept.shared, kept.heard[node], float(kept.weights[node]))
            kept.fitted[key] = self.method.refit.refit(*parts)
        return kept.fitted[key]


def read_estimators(folder: str, fingerprint: str, method: FedRelax) -> tuple[pa.Array, NodeEstimators]:
    """The names of nodes, and their estimators."""
    kept = _kept(folder, fingerprint)
    refitted = Refitted(method, kept)
    return kept.names, NodeEstimators(method.refit, refitted, kept.status, kept.heard, 0, 0.0)


@functools.lru_cache(maxsize=2)
def _kept(folder: str, fingerprint: str) -> Kept:
    store = Store.at(folder)
    names, status, own, heard, weights = zip(*_groups(store), strict=True)
    shared, told = tensor(read_ipc(store, SHARED), "shared"), torch.cat(heard)[:, :, None]
    rows = [each for some in own for each in some]
    return Kept(pa.concat_arrays(names), torch.cat(status), rows, shared, told, torch.cat(weights))


def _groups(store: Store) -> Iterator[tuple[pa.Array, Tensor, list[Rows], Tensor, Tensor]]:
    """Names, statuses, rows, what was heard, and weights of each group of nodes."""
    for number, part in enumerate(sorted(file.path for file in store.files(recursive=False))):
        with store.open(part) as stream:
            table = pq.read_table(stream)
        mine, theirs = kept_files(number)
        batch = read_ipc(store, theirs)
        names = batch.column("node")
        codes = pa.compute.index_in(table.column("status").cast(pa.string()), STATUSES)
        status = torch.from_numpy(numbers(codes)[0].astype(np.int8))
        rows = rows_of([read_ipc(store, mine)], names).by_node(len(names))
        yield names, status, rows, tensor(batch, "heard"), tensor(batch, "weight")
