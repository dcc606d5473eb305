"""`neighbors`: the kNN join itself, exactly once for every query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from locdist.data.moments import Moments
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept, queries_of
from locdist.jobs.asking.block import STATUS, Block, statuses
from locdist.jobs.asking.present import id_distance
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.report import Report
from locdist.jobs.request import is_whole
from locdist.local.answers import Status
from locdist.plan.cost import Solve
from locdist.plan.plan import Resources
from locdist.search.generation import Generation, open_index


@dataclass(frozen=True, kw_only=True)
class FindRows(Ask):
    """The k nearest rows of the support for each row of a source."""

    k: int

    def columns(self) -> pa.Schema:
        """Neighbors, nearest first, and status."""
        pair = pa.struct([("id", self.index.id_type), ("distance", pa.float64())])
        return pa.schema([("neighbors", pa.list_(pair)), ("status", STATUS)])

    @property
    def work(self) -> Solve:
        """Neighbors are only listed."""
        return Solve(self.k, self.index.layout.width, want={"neighbors"})

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Neighbors of one block, in its order."""
        hood = self.index.search(block.queries, self.k, block.rows if self.own else None)
        ids, distances = torch.empty_like(hood.ids), torch.empty_like(hood.distances)
        ids[hood.order], distances[hood.order] = hood.ids, hood.distances
        ids[block.bad] = -1
        found = (ids >= 0).sum(dim=1)
        status = torch.where(found < self.k, int(Status.FEW), int(Status.OK))
        status[found == 0], status[block.bad] = int(Status.EMPTY), int(Status.BAD_QUERY)
        schema = self.columns()
        return pa.Table.from_arrays(
            [id_distance(self.index, ids, distances), statuses(status)], schema=schema
        ), {}


def neighbors(
    index: Generation | str | Path,
    queries: Any,
    out: str | Path | None = None,
    *,
    k: int,
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
    """The k nearest rows of the support for every query: `neighbors: list<struct<id, distance>>`, nearest
    first.

    Parameters
    ----------
    index : Generation or path
    queries, out, keep, recall, limit, max_bad, executor, resources, overwrite, listener,
    command
        As in `predict`.
    k : int
        Neighbors of each query, 1 to the rows of the support.

    Returns
    -------
    Report or pa.Table
        A table when `out` is None. Distances are true distances; for the metric "ip", inner products.
    """
    request, question = asked(index, queries, k, keep, recall)
    running = Running(executor, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        return ask_here(request, question, running)
    return ask(request, lambda folder, source: replace(question, source=source), out, running)


def asked(
    index: Generation | str | Path,
    queries: Any,
    k: int,
    keep: str | Sequence[str] | None = None,
    recall: float | None = None,
) -> tuple[Request, FindRows]:
    """What `neighbors` runs and `plan` describes: the request pinned, and the question of its tasks."""
    index = index if isinstance(index, Generation) else open_index(index)
    if not (is_whole(k) and 1 <= k <= index.layout.rows):
        raise UsageError(
            f"k from 1 to the {index.layout.rows} rows of the index", repr(k), "Choose another k."
        )
    source = queries_of(queries)
    question = FindRows(source=source, index=index, keep=kept(keep, source, index.layout.roles.id), k=k)
    choices = {"index": index.fingerprint, "keep": question.keep}
    target = index.layout.recall if recall is None else recall
    return Request("neighbors", source, k, choices, target, (index.folder,)), question
