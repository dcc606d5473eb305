"""`embed`: coordinates in which neighbors stay neighbors, and `place`: those of new rows.

a graph    of its own, below the output
axes       one task: the eigenvectors of its largest connected component
embed      every partition: the coordinates of its rows
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.dataset import Dataset, checked
from locdist.data.moments import Moments
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept, queries_of
from locdist.jobs.asking.block import Block, statuses
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.present import nullable
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.report import Report
from locdist.jobs.asking.tally import added
from locdist.jobs.coding import PlaceCodes
from locdist.jobs.coordinates import coordinate_fields, read_coordinates
from locdist.jobs.eigen import factor_bytes
from locdist.jobs.embedding import Embedding, FindAxes, Pointing, WriteCoordinates, embedded, status_of
from locdist.jobs.graph import graph
from locdist.jobs.lazy import FEWEST, MOST_ROWS
from locdist.jobs.linking import Linking, linking
from locdist.jobs.passing import Records, forget_bare, passed, sweep
from locdist.jobs.request import inputs, settled, snapshot
from locdist.jobs.spreading.whole import CHECKPOINT
from locdist.jobs.stored import StoredGraph
from locdist.jobs.telling.embedded import EmbedReport
from locdist.jobs.telling.kept import REPORT, spent
from locdist.local.graph import Graph
from locdist.local.layer import Layer
from locdist.methods.embedded import EmbedMethod, embed_method
from locdist.plan.cost import MEASURED, Estimate, Solve
from locdist.plan.manifest import Manifest, claimed, read_manifest
from locdist.plan.plan import Resources, Stage, Task, holding, remaining
from locdist.plan.records import history
from locdist.plan.versions import versions
from locdist.search.exact import Exact
from locdist.search.generation import open_index

AXES, EMBED, GRAPH = "axes", "embed", "_locdist/graph"
NUMBER, EDGE = 240, 80  # bytes of a coordinate while it is sought, and of an edge
SOLVED, STEP, PAIR = 1e-4, 5e-9, 5e-8  # seconds of a row of a surface, an edge of a step, two rows of one
_AXES = passed(AXES, "state-00000")


def embed(
    method: EmbedMethod | str | Mapping[str, Any],
    support: Dataset | Exact,
    out: str | Path | None = None,
    *,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> EmbedReport | Embedding:
    """Coordinates of the rows of a support in which neighbors stay neighbors.

    Parameters
    ----------
    method : EmbedMethod, name or spec
        `ld.lle`, `ld.spectral`, `ld.lazy_coordinates` or `ld.lazy_codes`.
    support : Dataset, or Exact without `out`
    out : path or URI, optional
        The output folder; the graph and its index are made below its `_locdist/`. One row for each of the
        support: its id and number, "coordinate_1", ..., and `status`: "empty" for a row outside of the
        largest connected component of the graph, which has null. Codes need no graph: every row has one.
    bad, recall, codes, executor, resources, overwrite, listener, command
        As in `transform`.

    Returns
    -------
    EmbedReport or Embedding
    """
    chosen = embed_method(method)
    if isinstance(support, Exact) or out is None:
        return _here(chosen, support)
    rows, folder, started = checked(support), Store.at(out), time.monotonic()
    manifest, runner = requested(chosen, rows, bad, recall, codes), executor or Local()
    with claimed(folder, manifest, inputs(rows.source), overwrite) as claim, runner.kept():
        rows = replace(rows, source=settled(rows.source.without(claim.added), folder))
        below = folder.child(GRAPH)
        graph(
            rows, below.uri, **chosen.links, bad=bad, recall=recall, codes=codes, executor=runner,
            resources=resources, listener=listener, command=command,
        )  # fmt: skip
        job = EmbedJob(folder, chosen, StoredGraph.at(below.uri), started, resources, claim.notes)
        past = history(folder).records
        if folder.exists(REPORT) and len(past.get(EMBED, {})) < len(job.parts):
            forget_bare(folder, past)
        return run(job, runner, listener=listener, command=command)


def requested(chosen: EmbedMethod, support: Dataset, bad: str, recall: float, codes: str | None) -> Manifest:
    """What `embed` pins in its folder."""
    if chosen.codes and not FEWEST <= support.rows <= MOST_ROWS:
        remedy = "Embed a sample, and place all rows in it."
        raise UsageError(f"{FEWEST} to {MOST_ROWS:,} rows for {chosen.name}", f"{support.rows:,}", remedy)
    told: dict[str, Any] = {"method": chosen.spec, "roles": support.roles.to_json()}
    told |= {"bad": bad, "recall": recall, "codes": codes}
    return Manifest("embed", told, snapshot(support.source), versions())


def linking_of(chosen: EmbedMethod) -> Linking:
    """The graph that a method wants."""
    usual = dict.fromkeys(("k", "radius", "kernel", "bandwidth", "method", "symmetrize"))
    return linking(**{**usual, **chosen.links})


def axes_cost(chosen: EmbedMethod, rows: int, edges: int) -> Estimate:
    """The task of the coordinates.

    memory = base + 240 for each row and coordinate + 80 for each edge + factors, at most; of a lazy map 16
    for each edge instead; of codes 16 (p + 3) for each two rows
    """
    count, told = chosen.components, dict(chosen.parameters)
    memory = MEASURED.base + NUMBER * rows * count + EDGE * edges
    formula = f"base {MEASURED.base:,} + {NUMBER} x {rows:,} rows x {count} + {EDGE} x {edges:,} edges"
    more, words, seconds = factor_bytes(rows), "factors of at most", rows * SOLVED
    if chosen.codes:
        more, words, seconds = 16 * (count + 3) * rows**2, "pairs", told["steps"] * rows**2 * PAIR
    elif chosen.name == "lazy-map":
        more, words, seconds = 16 * edges, "steps", told["steps"] * edges * count * STEP
    data = 24 * edges, 8 * rows * count
    return Estimate(memory + more, 0, MEASURED.task + seconds, f"{formula} + {words} {more:,}", *data)


@dataclass(frozen=True)
class EmbedJob:
    """The job of `embed`, when its graph is there."""

    folder: Store
    method: EmbedMethod
    graph: StoredGraph
    started: float
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The partitions, by name."""
        return tuple(f"part-{number:05}" for number in range(len(self.graph.spans)))

    def next_stage(self, records: Records) -> Stage | None:
        """Axes, embed."""
        spans, rows = self.graph.spans, self.graph.nodes
        tasks = tuple(
            Task(part, (f"{part}.parquet",), (number, span.start, span.stop), span.rows)
            for number, (part, span) in enumerate(zip(self.parts, spans, strict=True))
        )
        last = Stage(
            EMBED, tasks, WriteCoordinates(self.graph, _AXES), holding(self.resources, MEASURED.base)
        )
        if not remaining(last, records):
            return None
        cost = axes_cost(self.method, rows, self.graph.report.edges)
        task, function = Task(AXES, (_AXES,), (rows,), rows), FindAxes(self.method, self.graph)
        first = Stage(AXES, (task,), function, holding(self.resources, cost.memory), cost.formula)
        return first if remaining(first, records) else last

    def finish(self, records: Records) -> EmbedReport:
        """Write the report, and remove what only the job needed."""
        done = [record for stage in records.values() for record in stage.values()]
        parts, told = records[EMBED].values(), records[AXES][AXES].data
        report = EmbedReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in parts),
            status=reduce(added, (dict(record.data["status"]) for record in parts)),
            components=told["components"],
            eigenvalues=tuple(told["eigenvalues"]),
            settled=told["settled"],
            method=self.method.name,
            notes=self.notes,
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [AXES], records)
        self.folder.delete(CHECKPOINT)
        return report


def place(
    embedding: str | Path,
    queries: Any,
    out: str | Path | None = None,
    *,
    keep: str | Sequence[str] | None = None,
    recall: float | None = None,
    limit: int | None = None,
    max_bad: float | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Report | pa.Table:
    """Coordinates of new rows in an embedding: by those of their neighbors, with the weights of the method; a
    row of the support has the coordinates that it has there.

    With codes (`ld.lazy_codes`) also what these tell of the row, in a column "reconstructed_NAME" for each of
    the key, in its units. A row with gaps in its key is filled in first, so that what is told fills them:
    "not_converged" where that did not come to rest. None of it where keys are mapped, of length 1, or places
    on a sphere.

    Parameters
    ----------
    embedding : path
        What `embed` wrote.
    queries, out, keep, recall, limit, max_bad, executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    Report or pa.Table
        A table when `out` is None.
    """
    request, question = placing(embedding, queries, keep, recall)
    running = Running(executor, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        return ask_here(request, question, running)
    return ask(request, lambda folder, source: replace(question, source=source), out, running)


def placing(
    embedding: str | Path, queries: Any, keep: str | Sequence[str] | None = None, recall: float | None = None
) -> tuple[Request, "PlaceRows | PlaceCodes"]:
    """What `place` runs: the request that is pinned, and the question of its tasks."""
    folder = Store.at(embedding)
    if not folder.exists(REPORT) or read_manifest(folder).kind != "embed":
        given = f"{folder.uri}, which holds none that is finished"
        raise UsageError("the folder of an embedding", given, "Make it with ld.embed or `locdist embed`.")
    method = embed_method(dict(read_manifest(folder).request["method"]))
    layer = method.extension(EmbedReport.read(folder).eigenvalues)
    index, rows = open_index(folder.child(GRAPH).child(INDEX).uri), queries_of(queries)
    found = source(folder.uri).fingerprint  # of the coordinates: those of other components have one graph
    columns = kept(keep, rows, index.layout.roles.id)
    question: PlaceRows | PlaceCodes
    if method.codes:
        question = PlaceCodes(
            source=rows, index=index, keep=columns, folder=folder.uri, fingerprint=found,
            components=method.components, k=layer.neighbors,
        )  # fmt: skip
    else:
        question = PlaceRows(
            source=rows, index=index, keep=columns, layer=layer, folder=folder.uri, fingerprint=found
        )
    choices = {
        "embedding": method.spec, "coordinates": found, "index": index.fingerprint, "keep": question.keep,
    }  # fmt: skip
    target = index.layout.recall if recall is None else recall
    taken = (folder.uri,)
    return Request("place", rows, layer.neighbors, choices, target, taken), question


@dataclass(frozen=True, kw_only=True)
class PlaceRows(Ask):
    """The coordinates of each row of a source in an embedding."""

    layer: Layer
    folder: str
    fingerprint: str

    @property
    def coordinates(self) -> Pointing:
        """The rows of the support with theirs."""
        return Pointing(self.index, read_coordinates(self.folder, self.fingerprint))

    def columns(self) -> pa.Schema:
        """Coordinates and status."""
        return pa.schema(coordinate_fields(self.coordinates.coordinates.shape[1]))

    @property
    def work(self) -> Solve:
        """The weights of each query."""
        return Solve(self.layer.neighbors, self.index.layout.width, self.index.layout.width)

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Coordinates of one block."""
        found = self.layer(self.coordinates, block.queries, block.features, None, block.bad)
        columns = [*map(nullable, found.values.T), statuses(found.status)]
        return pa.Table.from_arrays(columns, schema=self.columns()), {}


def _here(method: EmbedMethod, support: Dataset | Exact) -> Embedding:
    if not isinstance(support, Exact):
        raise UsageError("`out` for a dataset, or ld.Exact", "neither", "Give a folder, or arrays.")
    made = graph(support, **method.links)
    assert isinstance(made, Graph)
    coordinates, axes, _ = embedded(method, made, support)
    layer = method.extension(axes.values)
    return Embedding(coordinates, status_of(coordinates), axes.values, support, layer)
