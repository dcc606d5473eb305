"""`cluster`: rows that climb to one mode of the density are one cluster.

Every row climbs (a task for each partition), the places where they end are merged, rows are labelled (a task
for each partition again). Each of the three is a job of its own below the output, and continues where it
stopped.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from locdist.data.dataset import Dataset, checked
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.questions import Ask, check_kept
from locdist.jobs.asking.report import Report
from locdist.jobs.build_index import build_index
from locdist.jobs.chosen import read_method
from locdist.jobs.clustering.climb import Climb, ClimbRows
from locdist.jobs.clustering.label import LabelRows, climbed, fingerprint_of, merged_in
from locdist.jobs.clustering.merge import CLUSTERS, MERGED, merge
from locdist.jobs.predict import check_method
from locdist.jobs.request import is_whole
from locdist.methods.method import Method
from locdist.plan.plan import Resources
from locdist.search.build import check_lists
from locdist.search.files import release
from locdist.search.generation import Generation

CLIMB = "_locdist/climb"  # below the output: the first job


def cluster(
    method: Method | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path | None = None,
    *,
    grain: float = 0.25,
    sample: int = 5_000,
    radius: float | None = None,
    least: int = 1,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    max_bad: float | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Report | pa.Table:
    """Cluster the rows of a support: those that climb to the same mode.

    Rows climb on a lattice, so that those that meet go on as one, over some rows of the support; the modes
    are then climbed to exactly, over all rows. `grain=0` lets every row climb for itself over all of them.

    Modes are ranked by the effective number of rows there, 1 / Σ w_j² (with the flat kernel the number of
    rows within the bandwidth), then by their coordinates. From the highest on, each takes in those within the
    radius. Clusters are numbered by their sizes.

    Parameters
    ----------
    method : Method, name or spec
        `ld.mean_shift(1.5, "uniform")`.
    support : Dataset
        From `ld.dataset`, of metric "l2", without features apart from its key.
    out : path or URI, optional
        The output folder. Without it the rows are returned as a table.
    grain : float
        Side of the cells of the lattice in bandwidths, at most 1; 0 is without one.
    sample : int
        Rows of the support, evenly spread over it, that climbs on the lattice look at.
    radius : float, optional
        Modes that are no farther apart are one, in units of the scaled key; the bandwidth by default.
    least : int
        Rows of a cluster. Those of smaller ones are orphans: no cluster, and the status "low_support".
    keep, bad, recall, codes, max_bad, executor, resources, overwrite, listener, command
        As in `transform`.

    Returns
    -------
    Report or pa.Table
        Columns are those kept, `cluster`, `mode_COLUMN` in the user's units, and `status`. `clusters(out)`
        has a row for each cluster.

    Raises
    ------
    UsageError, DataError, MachineError, TooManyBadRows

    References
    ----------
    Comaniciu, Meer, *Mean Shift: A Robust Approach Toward Feature Space Analysis*, IEEE PAMI 24, 2002.
    """
    climb, support = Climb.of(read_method(method), grain, sample, radius), checked(support)
    request = requested(climb, support, least, keep, bad, recall, codes)
    runner = executor or Local()
    running = Running(runner, resources, overwrite, None, max_bad, listener, command)
    told = list[Mapping[str, Any]]()

    def prepare(folder: Store, source: Source) -> Ask:
        rows = replace(support, source=source)
        index = build_index(
            rows, folder.child(INDEX).uri, recall=recall, codes=codes, bad=bad,
            executor=runner, resources=resources, listener=listener, command=command,
        )  # fmt: skip
        first, merged = folder.child(CLIMB), folder.child(MERGED)
        _climb(climb, index, source, request, first, running)
        index, counts = merge(merged, first, climb, index, least, running)
        told.append(counts)
        return LabelRows(
            source=source, index=index, keep=request.choices["keep"], own=True, climb=climb,
            merged=merged.uri, fingerprint=fingerprint_of(merged), climbed=climbed(first),
        )  # fmt: skip

    if out is None:
        with tempfile.TemporaryDirectory(prefix="locdist-") as place, runner.kept():
            question = prepare(Store.at(place), support.source)
            answers = ask_here(request, question, running)
            release(question.index.folder, question.index.fingerprint)
            return answers
    with runner.kept():  # for the index and all that follows
        report = ask(request, prepare, out, running)
    counted = f"{told[0]['clusters']:,} clusters, {told[0]['orphans']:,} orphans"
    return replace(report, notes=(counted, *report.notes))


def clusters(folder: str | Path) -> pa.Table:
    """The clusters that `cluster` found: their numbers, rows, effective number of rows at the mode, and the
    mode in the user's units, the largest cluster first.

    Parameters
    ----------
    folder : path or URI
        Output of `cluster`.

    Raises
    ------
    UsageError
        When it is none, or not finished.
    """
    with merged_in(Store.at(folder)).open(CLUSTERS) as stream:
        return pq.read_table(stream)


def requested(
    climb: Climb,
    support: Dataset,
    least: int,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
) -> Request:
    """What `cluster` pins in its folder."""
    check_lists(codes, None)
    columns = kept(keep, support.source, support.roles.id)
    _check(climb, support, least, columns)
    choices = {
        "method": climb.method.spec,
        "grain": climb.grain,
        "sample": climb.sample,
        "radius": climb.radius,
        "least": least,
        "roles": support.roles.to_json(),
        "keep": columns,
        "bad": bad,
        "codes": codes,
    }
    return Request("cluster", support.source, 0, choices, recall)


def _check(climb: Climb, support: Dataset, least: int, keep: tuple[str, ...]) -> None:
    """What the stages will check, as far as it is known before there is an index."""
    roles = support.roles
    if roles.metric != "l2" or roles.features:
        given = f"metric {roles.metric!r}" + (" and features apart from the key" if roles.features else "")
        remedy = "Rows move in the space of the key; leave the features out."
        raise UsageError("a support of metric 'l2' without features, to cluster", given, remedy)
    if not (is_whole(least) and least >= 1):
        raise UsageError("a cluster of at least one row", repr(least), "1 keeps all clusters.")
    check_method(climb.method, support.rows, roles, votes=False, numeric=False)
    modes = [f"mode_{name}" for name, _ in roles.key]
    check_kept(keep, pa.schema([(name, pa.float64()) for name in ("cluster", *modes, "status")]))


def _climb(
    climb: Climb, index: Generation, source: Source, request: Request, place: Store, running: Running
) -> None:
    """The first stage."""
    question = ClimbRows(source=source, index=index, keep=(), own=True, climb=climb)
    choices = {name: request.choices[name] for name in ("method", "grain", "sample")}
    k = climb.method.layer.neighbors
    asked = Request("climb", source, k, choices | {"index": index.fingerprint}, request.recall)
    quiet = replace(running, overwrite=False, max_bad=None)
    ask(asked, lambda folder, pinned: replace(question, source=pinned), place.uri, quiet)
