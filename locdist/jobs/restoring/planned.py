"""What `restore` would run; nothing is computed or written."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from locdist.data.pictures import amounts
from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.jobs import plans
from locdist.jobs.asking.ask import Running
from locdist.jobs.passing import Records
from locdist.jobs.request import inputs
from locdist.jobs.restore import asked, manifest
from locdist.jobs.restoring.tasks import (
    MEASURE,
    RESTORE,
    SPAN_NUMBERS,
    RestoreRows,
    cut,
    measure_cost,
    measuring,
    restore_cost,
    restoring,
)
from locdist.jobs.telling.outlook import JobPlan, stage_plan
from locdist.methods.restored import ImageMethod
from locdist.plan.plan import Resources, Stage, remaining

_FIRST = 16  # images that all are taken to be as large as, until they are measured


def plan_restore(
    method: ImageMethod | str | Mapping[str, Any],
    images: Any,
    out: str | Path,
    *,
    column: str = "image",
    shape: Sequence[int] | None = None,
    keep: str | Sequence[str] | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `restore` would run with the same arguments; raises what that would refuse before any work. Until
    images are measured, a few are read to tell how large they are.
    """
    question, folder = asked(method, images, column, shape, keep), Store.at(out)
    pinned = manifest(question, limit)
    state, records, claim = plans.standing(folder, pinned, inputs(question.source), overwrite)
    question = replace(question, source=question.source.without(claim.added))
    first = measuring(question.source, column, Running(limit=limit).rows(question.source), resources)
    sizes, mean, largest, basis = _extent(question, first, records)
    measured = stage_plan(
        MEASURE, [task.rows for task in first.tasks], lambda rows: measure_cost(rows * mean), records,
        "one pass over the images",
    )  # fmt: skip
    last = stage_plan(
        RESTORE, sizes, lambda rows: restore_cost(question.method, rows, rows * mean, largest), records, basis
    )
    return JobPlan(
        kind=RESTORE,
        folder=folder.uri,
        state="finished" if state == "continues" and last.finished == last.tasks else state,
        **plans.size_of(question.source),
        choices={"method": " ".join(f"{name}={value}" for name, value in question.method.spec.items())},
        stages=(measured, last),
        notes=claim.notes,
        **plans.hands_of(executor, workers, resources),
    )


def _extent(question: RestoreRows, first: Stage, records: Records) -> tuple[list[int], int, int, str]:
    """Images of each task, numbers of one and of the largest, and what these rest on."""
    rows = sum(task.rows for task in first.tasks)
    if not remaining(first, records):
        told = [record.data for record in records[MEASURE].values()]
        sizes = [task.rows for task in restoring(question, records[MEASURE], None).tasks]
        mean = sum(each["numbers"] for each in told) // max(1, rows)
        return sizes, mean, max(each["largest"] for each in told), "spans of about as many numbers"
    few = question.source.read(0, min(rows, _FIRST), [question.pictures.column], 1)
    counts = [int(amounts(table.column(0))[0]) for table in few]
    mean = sum(counts) // max(1, len(counts))
    cuts = [cut(0, np.full(task.rows, mean), SPAN_NUMBERS).tolist() for task in first.tasks]
    sizes = [stop - start for ends in cuts for start, stop in itertools.pairwise(ends)]
    why = f"all images taken to be like the first {len(counts)}"
    return sizes, mean, max(counts, default=0), why
