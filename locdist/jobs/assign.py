"""`assign`: new rows to the clusters that `cluster` found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.artefacts import packed, typed
from locdist.data.store import Store
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept, queries_of
from locdist.jobs.asking.places import Places
from locdist.jobs.asking.report import Report
from locdist.jobs.chosen import read_method
from locdist.jobs.clustering.climb import Climb
from locdist.jobs.clustering.label import LabelRows, fingerprint_of, merged_in
from locdist.plan.manifest import read_manifest
from locdist.plan.plan import Resources
from locdist.search.generation import open_index


@dataclass(frozen=True)
class Clustered:
    """What a cluster job was asked, as its manifest pins it and as far as it is read again."""

    method: Mapping[str, Any]
    grain: float
    sample: int
    radius: float


def assign(
    clusters: str | Path,
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
    """Assign new rows to clusters: each climbs as the clustered rows did.

    A row belongs to the cluster of those rows whose climb ended where its own does. One whose climb ends
    farther than the radius from the end of any other is an orphan: no cluster, and the status "low_support".

    Parameters
    ----------
    clusters : path or URI
        Output of `cluster`.
    queries : path, pattern, list, table, arrays or Dataset
        Rows with the columns of the key.
    out, keep, recall, limit, max_bad, executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    Report or pa.Table
        Columns as of `cluster`.
    """
    request, question = assigned(clusters, queries, keep, recall)
    running = Running(executor, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        return ask_here(request, question, running)
    return ask(request, lambda folder, source: replace(question, source=source), out, running)


def assigned(
    clusters: str | Path, queries: Any, keep: str | Sequence[str] | None, recall: float | None
) -> tuple[Request, LabelRows]:
    """What `assign` runs: the request that is pinned, and the question of its tasks."""
    folder = Store.at(clusters)
    merged, source = merged_in(folder), queries_of(queries)
    asked = packed(read_manifest(folder).request)
    told = typed(Clustered, asked, "the manifest of a cluster job", folder.uri, "Run it with --overwrite.")
    climb = Climb.of(read_method(told.method), told.grain, told.sample, told.radius)
    index = open_index(Places.read(folder).index)
    question = LabelRows(
        source=source, index=index, keep=kept(keep, source, index.layout.roles.id), climb=climb,
        merged=merged.uri, fingerprint=fingerprint_of(merged),
    )  # fmt: skip
    choices = {"clusters": question.fingerprint, "keep": question.keep}
    target = index.layout.recall if recall is None else recall
    taken = (index.folder, folder.uri)
    return Request("assign", source, climb.method.layer.neighbors, choices, target, taken), question
