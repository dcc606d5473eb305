"""Models of nodes in files: what `couple` wrote, and `apply` reads."""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.artefacts import packed, unpacked
from locdist.data.columns import numbers
from locdist.data.encoding import Encoding
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUSES
from locdist.jobs.telling.kept import REPORT
from locdist.local.network import NodeModels
from locdist.methods.coupled import coupled_method
from locdist.plan.manifest import read_manifest

STORED = "_locdist/models.json"


@dataclass(frozen=True)
class Stored:
    """What models of nodes are models of.

    Parameters
    ----------
    encoding : Encoding
        Of the features.
    node, type : str
        The column that names a node, and its type in Arrow's words.
    target : str
    method : mapping
        The spec.
    """

    encoding: Encoding
    node: str
    type: str
    target: str
    method: Mapping[str, Any]

    def write(self, folder: Store) -> None:
        """Leave it in the folder."""
        folder.write(STORED, packed(asdict(self), indent=1))

    @staticmethod
    def read(folder: Store) -> "Stored":
        """What `write` left."""
        place, remedy = folder.path(STORED), "Make the models again with --overwrite."
        return unpacked(Stored, folder.read(STORED), "what models of nodes are of", place, remedy)


@dataclass(frozen=True)
class StoredModels:
    """Models that `couple` wrote.

    Parameters
    ----------
    folder, fingerprint : str
        The fingerprint tells what a folder held at other times apart.
    stored : Stored
    """

    folder: str
    fingerprint: str
    stored: Stored

    @staticmethod
    def at(folder: "str | Path | StoredModels") -> "StoredModels":
        """Open them; UsageError for a folder that holds none that are finished."""
        if isinstance(folder, StoredModels):
            return folder
        store = Store.at(folder)
        if not store.exists(REPORT) or read_manifest(store).kind != "couple":
            given = f"{store.uri}, which holds none that are finished"
            raise UsageError("the folder of models of nodes", given, "Make it with `locdist couple`.")
        return StoredModels(store.uri, source(store.uri).fingerprint, Stored.read(store))

    def read(self) -> tuple[pa.Array, NodeModels]:
        """The names of nodes, sorted, and their models of encoded features."""
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
