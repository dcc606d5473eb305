"""`backfit`: a sum of local models, each with a bandwidth of its own, at the rows of a support."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locdist.data.dataset import Dataset, checked
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Request, Running, ask, kept
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.report import Report
from locdist.jobs.asking.spread import spread
from locdist.jobs.build_index import build_index
from locdist.jobs.scales.fit import COLUMNS, FIT, fit, weighed
from locdist.jobs.scales.fitted import Fitted, Standardized, explained, status_of
from locdist.jobs.scales.rows import TellRows
from locdist.jobs.support import numeric
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.telling.scales import Scales
from locdist.local.answers import Answers, Status
from locdist.local.multiscale import State
from locdist.local.sphere import points
from locdist.methods.method import ArrayLike
from locdist.methods.multiscale import BackfitMethod, backfit_method
from locdist.plan.plan import Resources
from locdist.search.exact import Exact

MOST = 20_000  # rows: every task weighs all pairs of them, again and again
CODES = "exact"  # of the index: nothing is searched


@dataclass(frozen=True, eq=False)
class Backfitted:
    """A model in memory: what is told of each row, and of each term.

    Attributes
    ----------
    sites : Fitted
        Coefficients, errors, values, ... of the rows [n].
    scales : Scales
        Bandwidths, parameters, AICc.
    """

    sites: Fitted
    scales: Scales
    _method: BackfitMethod
    _rows: Standardized
    _state: State

    def predict(self, keys: ArrayLike | Tensor, features: ArrayLike | Tensor) -> Answers:
        """Answers at other places [q, d] with features [q, m]: each coefficient is the local regression there
        of what the other terms leave at the rows.

        A place where a term has no row in reach is EMPTY; a coefficient that is not identified and parts that
        have not settled are told as they are of the rows.
        """
        places, asked = (torch.as_tensor(each, dtype=torch.float64) for each in (keys, features))
        self._check_asked(places, asked)
        rows, bad = self._rows, ~(places.isfinite().all(1) & asked.isfinite().all(1))
        places = places.masked_fill(bad[:, None], 0.0)
        places = points(places) if rows.sites.metric == "haversine" else places
        found = self._method.loop.elsewhere(rows.sites, self._state, places)
        values = (found.coefficients[:, :, 0] * rows.terms(asked)).sum(1) * rows.units[0] + rows.level
        answers = Answers(values[:, None], status_of(found.deficient, self._state.rests))
        answers = answers.refuse(~found.reached, Status.EMPTY)
        answers = answers.refuse(found.reached & ~values.isfinite(), Status.NOT_FINITE)
        return answers.refuse(bad, Status.BAD_QUERY)

    def _check_asked(self, places: Tensor, asked: Tensor) -> None:
        sites = self._rows.sites
        d, m = 2 if sites.metric == "haversine" else sites.keys.shape[1], sites.terms.shape[1] - 1
        if places.shape != (len(asked), d) or asked.shape != (len(places), m):
            given = f"{list(places.shape)} and {list(asked.shape)}"
            raise UsageError(f"places [q, {d}] and features [q, {m}]", given, "Give a row for each place.")


def backfit(
    method: BackfitMethod | str | Mapping[str, Any],
    support: Dataset | Exact,
    out: str | Path | None = None,
    *,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    max_bad: float | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Report | Backfitted:
    """Fit a sum of local models, each with a bandwidth of its own, and tell it of every row of a support.

    One task finds the bandwidths, with a checkpoint after each sweep; then the hat matrices, from which
    standard errors follow, are made exactly, some columns a task. All pairs of rows are weighed again and
    again, so the rows are at most 20,000: time grows with the cube of their number, memory with the number.

    Parameters
    ----------
    method : BackfitMethod, name or spec
        `ld.mgwr`.
    support : Dataset, or Exact without `out`
        Of one numeric target; key and features apart: the place, and the columns of the model.
    out : path or URI, optional
        The output folder. Columns are those kept, `prediction`, of "intercept" and each feature
        `estimate_NAME`, `error_NAME` and `t_NAME` in the user's units (the intercept is the value where all
        features have their means, its t that of its distance from the mean target), `residual`, `influence`
        and `status`, which is "not_converged" where sweeps ran out before the parts settled. `scales(out)`
        has the bandwidths.
    keep, bad, max_bad, executor, resources, overwrite, listener, command
        As in `transform`.

    Returns
    -------
    Report or Backfitted
        The report's diagnostics are in the user's units, as those of `transform` with `gwr`.

    Raises
    ------
    UsageError, DataError, MachineError, TooManyBadRows
    """
    chosen = backfit_method(method)
    if isinstance(support, Exact) or out is None:
        return _here(chosen, support)
    support, runner = checked(support), executor or Local()
    request = requested(chosen, support, keep, bad)
    running = Running(runner, resources, overwrite, None, max_bad, listener, command)
    told = list[Scales]()

    def prepare(folder: Store, source: Source) -> Ask:
        rows = replace(support, source=source)
        index = build_index(
            rows, folder.child(INDEX).uri, codes=CODES, bad=bad,
            executor=runner, resources=resources, listener=listener, command=command,
        )  # fmt: skip
        below = folder.child(FIT)
        told.append(fit(below, chosen, index, running))
        return TellRows(source=source, index=index, keep=request.choices["keep"], own=True, fit=below.uri)

    with runner.kept():  # for the index and all that follows
        report = ask(request, prepare, out, running)
    return replace(report, notes=(*str(told[0]).splitlines(), *report.notes))


def scales(folder: str | Path) -> Scales:
    """The bandwidths that `backfit` found, and how well the terms fit.

    Parameters
    ----------
    folder : path or URI
        Output of `backfit`.

    Raises
    ------
    UsageError
        When it is none, or not finished.
    """
    below = Store.at(folder).child(FIT)
    if not below.exists(REPORT):
        remedy = "Check the path, or run the job first."
        raise UsageError("the output folder of backfit", f"{folder} without {FIT}", remedy)
    return Scales.read(below)


def requested(
    method: BackfitMethod, support: Dataset, keep: str | Sequence[str] | None = None, bad: str = "raise"
) -> Request:
    """What `backfit` pins in its folder."""
    _check(support)
    method.loop.check(support.rows)
    columns = kept(keep, support.source, support.roles.id)
    choices = {"method": method.spec, "roles": support.roles.to_json(), "keep": columns, "bad": bad}
    return Request("backfit", support.source, 0, choices, 0.99)


def _check(support: Dataset) -> None:
    """UsageError for what is no support of sites with terms."""
    roles, schema = support.roles, support.source.schema
    kinds = [schema.field(name).type for name in roles.target]
    if len(kinds) != 1 or not numeric(kinds[0]):
        given = (
            ", ".join(f"{name} ({kind})" for name, kind in zip(roles.target, kinds, strict=True)) or "none"
        )
        raise UsageError("one target of numbers", given, "Name it.")
    if not roles.features:
        raise UsageError("features apart from the key", "none", "Name the columns of the model.")
    if roles.weight or roles.offset or roles.metric not in ("l2", "haversine"):
        given = f"metric {roles.metric!r}" + (
            ", a weight or an offset" if roles.weight or roles.offset else ""
        )
        raise UsageError("metric 'l2' or 'haversine', without weight and offset", given, "Leave them out.")
    check_rows(support.rows)


def check_rows(rows: int) -> None:
    """UsageError for too many."""
    if rows > MOST:
        remedy = "Fit a part or a sample, or use ld.gwr, whose bandwidth is one for all terms."
        raise UsageError(f"at most {MOST:,} rows, all pairs of which are weighed", f"{rows:,}", remedy)


def _here(method: BackfitMethod, support: Dataset | Exact) -> Backfitted:
    if not isinstance(support, Exact):
        raise UsageError("`out` for a dataset, or ld.Exact", "neither", "Give a folder, or arrays.")
    if support.targets is None or support.weights is not None or support.offsets is not None:
        given = "no targets" if support.targets is None else "weights or offsets"
        raise UsageError("keys, targets and features", given, "Give these three.")
    check_rows(len(support.rows))
    method.loop.check(len(support.rows))
    rows = Standardized.of(support)
    (state,) = spread(lambda target: list(method.loop.states(rows.sites, target))[-1], [rows.target])
    starts = range(0, len(rows.target), COLUMNS)
    blocks = [slice(start, min(start + COLUMNS, len(rows.target))) for start in starts]
    parts = spread(lambda some: weighed(method, rows, state, some), blocks)
    squares, own = (torch.stack(each).sum(0) for each in zip(*parts, strict=True))
    fitted, told = explained(rows, state, squares, own)
    return Backfitted(fitted, told, method, rows, state)
