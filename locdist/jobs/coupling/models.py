"""Models of nodes in files: what `couple` wrote, and `apply` reads."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.columns import numbers
from locdist.data.schema import row_bytes
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUSES
from locdist.jobs.coupling.estimators import read_estimators
from locdist.jobs.coupling.relaxing import MODELS
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.telling.kept import REPORT
from locdist.local.network import NodeModels
from locdist.methods.coupled import coupled_method
from locdist.methods.federated import FedRelax, NodeEstimators
from locdist.plan.manifest import read_manifest


@dataclass(frozen=True)
class StoredModels:
    """Models that `couple` wrote.

    Parameters
    ----------
    folder, fingerprint : str
        The fingerprint tells what a folder held at other times apart.
    stored : Stored
    held : int
        Bytes of all models; of FedRelax of what these are fitted on.
    method : FedRelax, optional
        Whose estimators they are.
    """

    folder: str
    fingerprint: str
    stored: Stored
    held: int
    method: FedRelax | None = None

    @staticmethod
    def at(folder: "str | Path | StoredModels", method: FedRelax | None = None) -> "StoredModels":
        """Open them; UsageError for a folder that holds none that are finished, or those of another method:
        a file names no code, so who asks has to say again whose estimators they are.
        """
        if isinstance(folder, StoredModels):
            return folder
        store = Store.at(folder)
        if not store.exists(REPORT) or read_manifest(store).kind != "couple":
            given = f"{store.uri}, which holds none that are finished"
            raise UsageError("the folder of models of nodes", given, "Make it with `locdist couple`.")
        stored = Stored.read(store)
        told = None if method is None else method.spec
        other = json.dumps(told, sort_keys=True) != json.dumps(stored.method, sort_keys=True)
        if (stored.method["name"] == "fed-relax" or method is not None) and other:
            remedy = "Give the method that the models were made with: method=ld.fed_relax(...)."
            raise UsageError(f"the method {stored.method}", f"{told}", remedy)
        rows = source(store.uri)
        held = rows.rows * row_bytes(rows.schema, rows.schema.names)
        held += sum(file.size for file in store.files(MODELS))
        return StoredModels(store.uri, rows.fingerprint, stored, held, method)

    def read(self) -> tuple[pa.Array, NodeModels | NodeEstimators]:
        """The names of nodes, and their models of encoded features."""
        if self.method is not None:
            return read_estimators(self.folder, self.fingerprint, self.method)
        return _read(self.folder, self.fingerprint)


@functools.lru_cache(maxsize=4)
def _read(folder: str, fingerprint: str) -> tuple[pa.Array, NodeModels]:
    store = Store.at(folder)
    stored = Stored.read(store)
    with store.open("part-00000.parquet") as stream:
        table = pq.read_table(stream).combine_chunks()
    encoding, method = stored.encoding, coupled_method(stored.method)
    first, *slopes = (numbers(table.column(name))[0] for name in table.column_names[2:-1])
    scaled = np.column_stack(slopes) / encoding.units[1:]
    values = np.column_stack([first - scaled @ encoding.origin, scaled])
    codes = pa.compute.index_in(table.column("status").cast(pa.string()), STATUSES)
    status = torch.from_numpy(numbers(codes)[0]).to(torch.int8)
    rows: Tensor = torch.from_numpy(numbers(table.column("rows"))[0])
    models = NodeModels(torch.from_numpy(values), status, rows, 0, 0.0, 0.0, 0.0, True, method.family)
    return table.column(0).combine_chunks(), models
