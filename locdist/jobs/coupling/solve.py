"""All rounds of a step in one task, with checkpoints; and the models that came out, as a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from locdist.data.blocks import Matrix
from locdist.data.columns import codes
from locdist.data.encoding import Encoding
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.jobs.asking.block import statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.coupling.edges import NamedEdges
from locdist.jobs.coupling.fits import keep, kept, read_fit, said, write_fit
from locdist.jobs.coupling.gather import read_losses
from locdist.jobs.coupling.levels import NamedLevels
from locdist.jobs.coupling.stored import Stored
from locdist.local.answers import Status
from locdist.local.coupled import Fit, State
from locdist.local.losses import Losses, sums_over
from locdist.local.network import Network
from locdist.methods.coupled import CoupledMethod
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record


@dataclass(frozen=True)
class Nodes:
    """All nodes, by the losses of partitions and by the edges.

    Parameters
    ----------
    method : CoupledMethod
    edges : NamedEdges or NamedLevels
    gathered : tuple of str
        Files of the losses of each partition.
    """

    method: CoupledMethod
    edges: NamedEdges | NamedLevels
    gathered: tuple[str, ...]

    def network(self, folder: Store) -> tuple[pa.Array, Network]:
        """Names, sorted, and the network, which may have nodes without names behind those."""
        parts, losses = read_losses(folder, self.gathered)
        names, graph = self.edges.among(parts)
        if not len(names):
            raise DataError("nodes", "neither rows nor edges", "Check the data.")
        places = torch.from_numpy(codes(pa.chunked_array(parts, self.edges.kind), names))
        together = _joined(losses).summed(sums_over(places, len(graph)))
        return names, self.method.network(together, graph)


@dataclass(frozen=True)
class CoupleNodes:
    """A step of the fit of all nodes.

    Parameters
    ----------
    nodes : Nodes
    before : str or None
        The file of the fit so far.
    """

    nodes: Nodes
    before: str | None = None

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is the fit; the record's data say how good it is."""
        names, network = self.nodes.network(attempt.folder)
        method, width = self.nodes.method, network.losses.pull.shape[1]
        fit = Fit.begin(len(network.losses.rows), width)
        if self.before is not None:
            _, fit = read_fit(attempt.folder, self.before)
        loop, steps = method.loop, fit.steps

        def watch(state: State) -> None:
            if not loop.rests(state):
                keep(attempt.folder, steps, state)

        fit = fit.next(network, loop, method.family is None, kept(attempt.folder, steps), watch)
        told = said(fit, loop.rests(fit.state))
        write_fit(attempt, task.outputs[0], names, fit, told)
        more = {"edges": len(network.links.heads), "nodes": len(names)}
        return Record(rows=len(names), data={**asdict(told), **more})


@dataclass(frozen=True)
class WriteNodes:
    """The models of all nodes, in the user's units.

    Parameters
    ----------
    nodes : Nodes
    fit : str
        The file of the last fit.
    stored : Stored
        What `apply` has to know.
    """

    nodes: Nodes
    fit: str
    stored: Stored

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output has a node a row, sorted by name."""
        names, network = self.nodes.network(attempt.folder)
        _, fit = read_fit(attempt.folder, self.fit)
        found = self.nodes.method.models(network, fit).first(len(names))
        encoding = self.stored.encoding
        values = in_units(encoding, found.values.numpy(), found.intercept)
        told = {self.stored.node: names, "rows": found.rows.numpy()}
        told |= {
            name: nullable(torch.from_numpy(column))
            for name, column in zip(parameters(encoding), values.T, strict=True)
        }
        table = pa.table({**told, "status": statuses(found.status)})
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        self.stored.write(attempt.folder)
        counts = np.bincount(found.status.numpy(), minlength=len(Status)).tolist()
        status = {each.name.lower(): counts[each] for each in Status if counts[each]}
        return Record(rows=len(names), data={"status": status})


def parameters(encoding: Encoding) -> list[str]:
    """The columns of a model."""
    return ["intercept", *(f"coefficient_{name}" for name in encoding.names)]


def in_units(encoding: Encoding, values: Matrix, intercept: bool) -> Matrix:
    """Parameters [n, m] of encoded features as intercepts and slopes [n, 1 + d] in the user's units."""
    slopes = values[:, int(intercept) :]
    first = values[:, 0] if intercept else np.zeros(len(values))
    return np.column_stack([first + slopes @ encoding.origin, slopes * encoding.units[1:]])


def _joined(parts: Sequence[Losses]) -> Losses:
    return Losses(*(torch.cat(each) for each in zip(*(part.parts for part in parts), strict=True)))
