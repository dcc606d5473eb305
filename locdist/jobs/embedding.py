"""Embeddings in memory, the tasks that compute them, and what places new queries."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.block import statuses
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.present import nullable
from locdist.jobs.coding import coded
from locdist.jobs.coordinates import coordinate_fields
from locdist.jobs.eigen import Axes, lle_axes, spectral_axes
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.spreading.whole import batch_of, tensor
from locdist.jobs.stored import StoredGraph
from locdist.jobs.walking import walked_axes
from locdist.local.answers import Answers, Status
from locdist.local.graph import Edges, Graph
from locdist.local.layer import Layer
from locdist.local.moments import Batch
from locdist.local.neighborhood import Neighborhood
from locdist.methods.embedded import EmbedMethod
from locdist.methods.method import ArrayLike
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record
from locdist.search.exact import Exact
from locdist.search.generation import Generation, open_index


@dataclass(frozen=True, eq=False)
class Embedding:
    """Coordinates of the rows of a support in memory.

    Attributes
    ----------
    coordinates : Tensor [n, q]
        nan for rows outside of the largest connected component.
    status : Tensor [n]
        EMPTY for these.
    eigenvalues : tuple of float
        One for each coordinate; of "lle" their sum is the reconstruction error. Of "lazy-map" what a step
        leaves; of "lazy-autoencoder" alone the mean squared error of rows that are told by the others.
    index : Index
    layer : Layer
        What places a new query.
    """

    coordinates: Tensor
    status: Tensor
    eigenvalues: tuple[float, ...]
    index: Exact
    layer: Layer

    def transform(self, queries: ArrayLike | Tensor) -> Answers:
        """Coordinates of new queries [q, d]: by their neighbors', and at a row of the support its own."""
        asked = torch.as_tensor(np.asarray(queries), dtype=torch.float64)
        return self.layer(Pointing(self.index, self.coordinates), asked)


@dataclass(frozen=True, eq=False)
class Pointing:
    """An index whose targets are the coordinates of its rows; those without any are nobody's neighbors."""

    index: Exact | Generation
    coordinates: Tensor

    @property
    def metric(self) -> str:
        """As of the index."""
        return self.index.metric

    @property
    def apart(self) -> bool:
        """As of the index."""
        return self.index.apart

    def search(self, queries: Tensor, k: int, own: Tensor | None) -> Neighborhood:
        """As of the index."""
        return self.index.search(queries, k, own)

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """As of the index."""
        return self.index.batches(needs)

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """What is needed, with coordinates for targets."""
        found = self.index.gather(hood, needs - {"targets"})
        if "targets" not in needs:
            return found
        rows = self.index.sources(hood.ids) if isinstance(self.index, Generation) else hood.ids
        targets = self.coordinates[rows.clamp(min=0)]
        lost = targets.isnan().any(2)
        ids, distances = found.ids.masked_fill(lost, -1), found.distances.masked_fill(lost, torch.inf)
        return replace(found, ids=ids, distances=distances, targets=targets.nan_to_num(0.0))


def embedded(
    method: EmbedMethod, graph: Graph, index: Exact | Generation, attempt: Attempt | None = None
) -> tuple[Tensor, Axes, int]:
    """Coordinates [n, q] of the nodes of a graph, its axes, and how many connected components it has.

    Parameters
    ----------
    method : EmbedMethod
    graph : Graph
    index : Index
        The rows themselves, for codes.
    attempt : Attempt, optional
        In whose folder checkpoints are left.

    Raises
    ------
    UsageError
        When the largest connected component has no more rows than there are coordinates.
    """
    components = graph.components()
    sizes = torch.bincount(components)
    coordinates = torch.full((len(graph), method.components), torch.nan, dtype=torch.float64)
    if method.codes:
        inside, axes = coded(method, index, len(graph))
    else:
        inside = components == sizes.argmax()
        axes = _axes(method, _part(graph, inside), attempt)
    coordinates[inside] = axes.vectors
    return coordinates, axes, int((sizes > 0).sum())


def _axes(method: EmbedMethod, graph: Graph, attempt: Attempt | None) -> Axes:
    if len(graph) <= method.components:
        wanted = f"more than {method.components} rows in the largest connected component"
        raise UsageError(wanted, f"{len(graph)}", "Take fewer components, or more neighbors.")
    if method.name == "lazy-map":
        return walked_axes(graph, method, attempt)
    return (lle_axes if method.name == "lle" else spectral_axes)(graph, method.components)


def status_of(coordinates: Tensor) -> Tensor:
    """EMPTY for rows without coordinates."""
    return coordinates.isnan().any(1).to(torch.int8) * int(Status.EMPTY)


def _part(graph: Graph, inside: Tensor) -> Graph:
    """The nodes of a component."""
    numbers = inside.cumsum(0) - 1
    edges = graph.edges.some(inside[graph.heads])
    count = int(inside.sum())
    edges = Edges(numbers[edges.heads], numbers[edges.tails], edges.weights)
    return Graph.of_sorted(edges, count, count)


@dataclass(frozen=True)
class FindAxes:
    """The coordinates of all nodes."""

    method: EmbedMethod
    graph: StoredGraph

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output has a batch for each partition."""
        index = open_index(Store.at(self.graph.folder).child(INDEX).uri)
        coordinates, axes, components = embedded(self.method, self.graph.whole(), index, attempt)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            parts = [slice(span.start, span.stop) for span in self.graph.spans]
            write_ipc(sink, name, *(batch_of(values=coordinates[part]) for part in parts))
        told = {"eigenvalues": list(axes.values), "settled": axes.settled, "components": components}
        return Record(rows=len(coordinates), data=told)


@dataclass(frozen=True)
class WriteCoordinates:
    """The coordinates of one partition."""

    graph: StoredGraph
    axes: str

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output: what names a row, its coordinates, and a status."""
        number, start, stop = task.inputs
        with attempt.folder.open(self.axes, mmap=True) as stream:
            (batch,) = read_batches(stream, self.axes, lambda schema: range(number, number + 1))
            values = tensor(batch, "values")
        named, status = self.graph.named(self.graph.spans[number]), status_of(values)
        columns = [*named.columns, *map(nullable, values.T), statuses(status)]
        fields = [*named.schema, *coordinate_fields(values.shape[1])]
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        (name,) = task.outputs
        with (
            attempt.writer(name) as sink,
            pq.ParquetWriter(sink, table.schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            writer.write_table(table)
        empty = int((status != 0).sum())
        counts = {"ok": len(status) - empty, "empty": empty}
        told = {name: count for name, count in counts.items() if count}
        return Record(rows=stop - start, data={"status": told})
