"""Models of nodes in files: what `couple` wrote, and `apply` reads."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.columns import MISSING, NULL, REASONS, codes, numbers
from locdist.data.encoding import Rejected
from locdist.data.schema import row_bytes
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUSES
from locdist.jobs.asking.present import Presentation
from locdist.jobs.coupling.estimators import read_charts, read_estimators
from locdist.jobs.coupling.relaxing import MODELS
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.telling.kept import REPORT
from locdist.local.answers import Answers
from locdist.local.network import NodeModels
from locdist.methods.atlas import Atlas
from locdist.methods.coupled import CoupledMethod, OfNodes, coupled_method
from locdist.methods.federated import FedRelax, NodeEstimators
from locdist.plan.manifest import read_manifest

Choice = OfNodes | str | Mapping[str, Any]
OF_ESTIMATORS = ("fed-relax", "logifold")  # which a folder does not name, so that no code is read
ASKED = 4096  # rows that all charts are asked about at a time


@dataclass(frozen=True)
class StoredModels:
    """Models that `couple` wrote.

    Parameters
    ----------
    folder, fingerprint : str
        The fingerprint tells what a folder held at other times apart: by its table, and by what it was made
        of, as estimators have no numbers there.
    stored : Stored
    held : int
        Bytes of all models; of estimators of what these are fitted on.
    method : FedRelax or Atlas, optional
        Whose estimators they are.
    """

    folder: str
    fingerprint: str
    stored: Stored
    held: int
    method: FedRelax | Atlas | None = None

    @staticmethod
    def at(folder: "str | Path | StoredModels", method: Choice | None = None) -> "StoredModels":
        """Open them; UsageError for a folder that holds none that are finished, or those of another method:
        a file names no code, so who asks has to say again whose estimators they are.
        """
        if isinstance(folder, StoredModels):
            return folder
        store = Store.at(folder)
        manifest = read_manifest(store) if store.exists(REPORT) else None
        if manifest is None or manifest.kind != "couple":
            given = f"{store.uri}, which holds none that are finished"
            raise UsageError("the folder of models of nodes", given, "Make it with `locdist couple`.")
        stored = Stored.read(store)
        chosen = None if method is None else coupled_method(method)
        told = None if chosen is None else chosen.spec
        other = json.dumps(told, sort_keys=True) != json.dumps(stored.method, sort_keys=True)
        if (stored.method["name"] in OF_ESTIMATORS or chosen is not None) and other:
            remedy = "Name the method that the models were made with again (method=, -m and --param)."
            raise UsageError(f"the method {stored.method}", f"{told}", remedy)
        rows = source(store.uri)
        held = rows.rows * row_bytes(rows.schema, rows.schema.names)
        held += sum(file.size for file in store.files(MODELS))
        if stored.classes is not None:
            held += rows.rows * len(stored.classes.values) * 8 * ASKED
        kept = None if isinstance(chosen, CoupledMethod) else chosen
        files = [(file.path, file.size, file.fingerprint or file.modified) for file in manifest.snapshot]
        made = [rows.fingerprint, manifest.request, files]
        fingerprint = hashlib.blake2b(json.dumps(made, sort_keys=True).encode(), digest_size=16).hexdigest()
        return StoredModels(store.uri, fingerprint, stored, held, kept)

    @property
    def columns(self) -> list[str]:
        """What queries have to have: the features, and the name of a node; charts are asked about all."""
        needed = [column.name for column in self.stored.encoding.columns]
        return needed if self.stored.classes else [*needed, self.stored.node]

    @property
    def shown(self) -> Presentation:
        """The columns of the answers."""
        return Presentation(("prediction",), self.stored.labels if self.stored.classes else None, (), 0)

    def answers(self, table: pa.Table, features: Tensor) -> tuple[Answers, list[Rejected]]:
        """What models say of rows, with encoded features [q, d]; and rows that name no node."""
        if isinstance(self.method, Atlas):
            charts = read_charts(self.folder, self.fingerprint, self.method, len(self.stored.labels))
            return Answers.concatenate([charts(some) for some in torch.split(features, ASKED)]), []
        if self.method is None:
            names, models = _read(self.folder, self.fingerprint)
            return self._of_nodes(names, models, table, features)
        names, estimators = read_estimators(self.folder, self.fingerprint, self.method)
        return self._of_nodes(names, estimators, table, features)

    def _of_nodes(
        self, names: pa.Array, models: NodeModels | NodeEstimators, table: pa.Table, features: Tensor
    ) -> tuple[Answers, list[Rejected]]:
        places = codes(table.column(self.stored.node), names)
        nameless = np.flatnonzero(places == MISSING)
        rejected = [Rejected(self.stored.node, REASONS[NULL], nameless)] if len(nameless) else []
        return models.predict(torch.from_numpy(places).clamp(min=-1), features), rejected


@functools.lru_cache(maxsize=4)
def _read(folder: str, fingerprint: str) -> tuple[pa.Array, NodeModels]:
    store = Store.at(folder)
    stored = Stored.read(store)
    with store.open("part-00000.parquet") as stream:
        table = pq.read_table(stream).combine_chunks()
    encoding, method = stored.encoding, coupled_method(stored.method)
    assert isinstance(method, CoupledMethod)  # `at` has refused others
    first, *slopes = (numbers(table.column(name))[0] for name in table.column_names[2:-1])
    scaled = np.column_stack(slopes) / encoding.units[1:]
    values = np.column_stack([first - scaled @ encoding.origin, scaled])
    told = pa.compute.index_in(table.column("status").cast(pa.string()), STATUSES)
    status = torch.from_numpy(numbers(told)[0]).to(torch.int8)
    rows: Tensor = torch.from_numpy(numbers(table.column("rows"))[0])
    models = NodeModels(torch.from_numpy(values), status, rows, 0, 0.0, 0.0, 0.0, True, method.family)
    return table.column(0).combine_chunks(), models
