"""Estimators of nodes, fitted again from what a job of FedRelax kept: files hold numbers, never code."""

import functools
import json
import threading
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
from locdist.jobs.coupling.charting import rows_of_chart
from locdist.jobs.coupling.relaxing import SHARED, kept_files, rows_of
from locdist.jobs.indexing import read_ipc
from locdist.jobs.spreading.whole import tensor
from locdist.local.losses import Rows
from locdist.methods.atlas import Atlas, Chart
from locdist.methods.charts import Logifold
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


_FOLDED: dict[tuple[str, str], Logifold] = {}
_FOLDING = threading.Lock()  # one thread of a process fits all charts, the others wait for it


def read_charts(folder: str, fingerprint: str, method: Atlas, classes: int) -> Logifold:
    """The charts of a folder, fitted once in a process; those of the last folder are kept."""
    key = (fingerprint, json.dumps(method.spec))
    with _FOLDING:
        if key not in _FOLDED:
            _FOLDED.clear()
            _FOLDED[key] = _charts(Store.at(folder), method, classes)
        return _FOLDED[key]


def _charts(store: Store, method: Atlas, classes: int) -> Logifold:
    """Each chart, fitted again on its rows, in the order of their names."""
    models, thresholds = [], list[float]()
    for number, part in enumerate(sorted(file.path for file in store.files(recursive=False))):
        with store.open(part) as stream:
            (threshold,) = pq.read_table(stream, columns=["threshold"]).column(0).to_pylist()
        own = rows_of_chart(read_ipc(store, kept_files(number)[0]))
        models.append(Chart(method.refit, method.fit(own)[0], classes))
        thresholds.append(float("inf") if threshold is None else threshold)
    return Logifold(tuple(models), (None,) * len(models), tuple(thresholds))


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
