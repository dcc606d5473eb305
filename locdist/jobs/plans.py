"""`plan`: what a job would run and why. It reads footers and manifests, starts no workers and writes nothing.

All take `executor` with `resources`, or `workers` (tasks at a time, on however many machines), to say how
long it would take.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute import machine
from locdist.execute.contract import Executor
from locdist.execute.local import Local
from locdist.jobs import neighbors as near
from locdist.jobs import predict as answers
from locdist.jobs import transform as itself
from locdist.jobs.asking.ask import Request, Running, search_of, spans_of, stage_of
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.tuning import AUDITED, PLAN, TUNED, Tuned
from locdist.jobs.build_index import BuildIndex, Options, requested
from locdist.jobs.chosen import read_method
from locdist.jobs.extent import Extent
from locdist.jobs.request import column_bytes, inputs, is_whole
from locdist.jobs.telling.outlook import (
    IndexPlan,
    JobPlan,
    StagePlan,
    ask_stage,
    index_choices,
    index_stages,
)
from locdist.methods.method import Method
from locdist.plan.cost import MEASURED, Search, Solve
from locdist.plan.manifest import MANIFEST, Claim, Manifest, check_folder, check_overwrite, compared
from locdist.plan.plan import Resources, remaining
from locdist.plan.records import Record, history
from locdist.search.generation import Generation, open_index
from locdist.search.layout import MANIFEST as INDEX_MANIFEST

Records = Mapping[str, Mapping[str, Record]]
LATER = "chosen on a sample of the queries when the run starts"
PASSES = 6  # over the rows, in seconds, measured: some queries are compared again until they are certain
STARTING = {"Ray": 8.0, "Dask": 5.0}  # seconds of a cluster on this machine; of processes, below
IMPORTING = 3.0  # seconds of a process to import torch, FAISS and Arrow, one on each core


def plan_index(
    support: Dataset,
    out: str | Path,
    *,
    recall: float = 0.99,
    codes: str | None = None,
    nlist: int | None = None,
    bad: str = "raise",
    seed: int = 0,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `build_index` would run with the same arguments; raises what that would refuse before any work."""
    options = Options(recall, codes, nlist, bad, seed)
    folder = Store.at(out)
    state, records, claim = standing(folder, requested(support, options), inputs(support.source), overwrite)
    support = replace(support, source=support.source.without(claim.added))
    finished = state == "continues" and folder.exists(INDEX_MANIFEST)
    return JobPlan(
        kind="index",
        folder=folder.uri,
        state="finished" if finished else state,
        **size_of(support.source),
        choices=index_choices(support, options),
        stages=() if finished else building(support, folder, options, records),
        notes=claim.notes,
        **hands_of(executor, workers, resources),
    )


def plan_predict(
    method: Method | str | Mapping[str, Any],
    index: Generation | str | Path,
    queries: Any,
    out: str | Path,
    *,
    keep: str | Sequence[str] | None = None,
    extras: Sequence[str] = (),
    explain: int = 0,
    recall: float | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `predict` would run with the same arguments; raises what that would refuse before any work."""
    request, question = answers.asked(method, index, queries, keep, extras, explain, recall)
    choices = {"method": told_of(question.method)}
    hands = hands_of(executor, workers, resources)
    return asking(request, question, out, limit, hands, overwrite, choices)


def plan_neighbors(
    index: Generation | str | Path,
    queries: Any,
    out: str | Path,
    *,
    k: int,
    keep: str | Sequence[str] | None = None,
    recall: float | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `neighbors` would run with the same arguments; raises what that would refuse before any work."""
    request, question = near.asked(index, queries, k, keep, recall)
    hands = hands_of(executor, workers, resources)
    return asking(request, question, out, limit, hands, overwrite, {"k": str(k)})


def plan_transform(
    method: Method | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path,
    *,
    keep: str | Sequence[str] | None = None,
    extras: Sequence[str] = (),
    explain: int = 0,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `transform` would run with the same arguments: its index first, then every row of the support."""
    chosen, folder, options = read_method(method), Store.at(out), Options(recall, codes, None, bad)
    request = itself.requested(chosen, support, keep, extras, explain, bad, recall, codes)
    state, records, claim = standing(folder, request.manifest(limit), inputs(support.source), overwrite)
    support = replace(support, source=support.source.without(claim.added))
    below = folder.child(INDEX)
    built = state == "continues" and below.exists(INDEX_MANIFEST)
    done = history(below).records if state == "continues" else {}
    stages = () if built else building(support, below, options, done)
    extent, rows = Extent.of(support), Running(limit=limit).rows(support.source)
    choice = extent.choice(support, codes)
    lists = 0 if choice.codes == "exact" else choice.nlist
    search = Search(support.rows, lists, math.ceil(math.sqrt(lists)))
    sizes = [span.rows for span in spans_of(support.source, rows, support.roles.columns)]
    want = frozenset(extras) | ({"neighbors"} if explain else frozenset())
    solve = answers.work(chosen, extent.width, extent.width, want)
    kept = column_bytes(support.source, request.choices["keep"])
    answering = ask_stage("transform", sizes, search, solve, kept, records, search_basis(search, None))
    return JobPlan(
        kind="transform",
        folder=folder.uri,
        state=state,
        **size_of(support.source),
        choices={"method": told_of(chosen), **index_choices(support, options)},
        stages=(*stages, answering),
        notes=claim.notes,
        index=opened_plan(open_index(below.uri)) if built else index_to_build(stages[-1], folder),
        tuning=_tuning(Search(support.rows), solve) if lists else 0.0,
        **hands_of(executor, workers, resources),
    )


def asking(
    request: Request,
    question: Ask,
    out: str | Path,
    limit: int | None,
    hands: dict[str, Any],
    overwrite: bool,
    choices: dict[str, str],
) -> JobPlan:
    """What a job that answers queries would run."""
    folder, source, index = Store.at(out), question.source, question.index
    taken = (*inputs(source), *request.folders)
    state, records, claim = standing(folder, request.manifest(limit), taken, overwrite)
    source = source.without(claim.added)
    question = replace(question, source=source)
    nprobe = Tuned.read(folder).nprobe if state == "continues" and folder.exists(PLAN) else None
    complete = index.exact or not question.work.k
    search = Search(index.layout.rows) if complete else search_of(index.probing(nprobe or 0))
    stage = stage_of(request.kind, question, Running(limit=limit).rows(source))
    remaining(stage, records)  # refuses what another version planned
    sizes, kept = [task.rows for task in stage.tasks], column_bytes(source, question.keep)
    asking = ask_stage(stage.name, sizes, search, question.work, kept, records, search_basis(search, nprobe))
    how = "none, every row is met" if complete else str(nprobe) if nprobe else LATER
    return JobPlan(
        kind=request.kind,
        folder=folder.uri,
        state="finished" if asking.finished == asking.tasks and state == "continues" else state,
        **size_of(source),
        choices={**choices, "nprobe": how, "recall": f"{request.recall:g} wanted"},
        stages=(asking,),
        notes=claim.notes,
        index=opened_plan(index),
        tuning=0.0 if complete or nprobe else _tuning(Search(index.layout.rows), question.work),
        **hands,
    )


def opened_plan(index: Generation) -> IndexPlan:
    """An index that is there."""
    sizes = index.layout.sizes
    return IndexPlan(sum(sizes.values()), len(sizes), Store.at(index.folder).local is None)


def index_to_build(pack: StagePlan, folder: Store) -> IndexPlan:
    """An index that is built, by its last stage."""
    return IndexPlan(pack.written, pack.tasks + 1, folder.local is None)


def _tuning(scan: Search, work: Solve) -> float:
    """Seconds of the driver, on all its cores, to compare a sample of the queries with all rows."""
    return PASSES * scan.seconds(TUNED + AUDITED, work.d) / machine.cpus() + MEASURED.task


def building(support: Dataset, folder: Store, options: Options, records: Records) -> tuple[StagePlan, ...]:
    """The stages of an index build; its tasks over rows are those of the first one."""
    stage = BuildIndex(folder, support, options).next_stage({})
    assert stage is not None
    remaining(stage, records)
    return index_stages(support, options, [task.rows for task in stage.tasks], records)


def standing(
    folder: Store, manifest: Manifest, taken: Sequence[str], overwrite: bool
) -> tuple[str, Records, Claim]:
    """Whether a run would begin or continue, what is finished, and its notes; raises what it would."""
    check_folder(folder, taken)
    if overwrite:
        check_overwrite(folder, manifest.kind)
    if not folder.exists(MANIFEST):
        return "new", {}, Claim(manifest, resumed=False)
    if overwrite:
        return "replaces what the folder holds", {}, Claim(manifest, resumed=False)
    claim = compared(folder, manifest)
    return ("continues", history(folder).records, claim) if claim.resumed else ("new", {}, claim)


def search_basis(search: Search, nprobe: int | None) -> str:
    """What the number of distances rests on."""
    if not search.nlist:
        return f"every query meets all {search.rows:,} rows"
    why = "as this folder's plan says" if nprobe else "√nlist, assumed until it is chosen"
    return f"{search.nlist:,} lists, of which {search.nprobe:,} are searched ({why})"


def told_of(method: Method) -> str:
    """A method in words."""
    return f"{method.name} " + " ".join(f"{name}={value}" for name, value in method.parameters)


def size_of(source: Source) -> dict[str, Any]:
    """Files, rows and bytes of an input."""
    files = source.files
    return {"files": len(files), "rows": source.rows, "volume": sum(file.size for file in files)}


def hands_of(executor: Executor | None, workers: int | None, resources: Resources | None) -> dict[str, Any]:
    """How many tasks run at a time, and the seconds until they can."""
    if workers is not None and not (is_whole(workers) and workers >= 1):
        raise UsageError("workers, at least 1", repr(workers), "Leave it out for the cores of this machine.")
    executor = executor or Local()
    count = workers or _slots(executor, resources or Resources())
    if isinstance(executor, Local):
        return {"workers": count, "starting": IMPORTING * max(1, count / machine.cpus()) * executor.processes}
    return {"workers": count, "starting": STARTING.get(type(executor).__name__, 0.0)}


def _slots(executor: Executor, resources: Resources) -> int:
    """Tasks at a time; nobody asks a cluster, for which this machine stands."""
    if isinstance(executor, Local):
        return executor.slots(resources)
    cores = getattr(executor, "workers", None) or machine.cpus()
    return max(1, replace(machine.resources(), cpus=cores).over(resources))
