"""`transform`: the support against itself. Every row is a query; by default it does not count among its own
neighbors.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.dataset import Dataset, checked
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.report import Report
from locdist.jobs.build_index import build_index
from locdist.jobs.chosen import read_method
from locdist.jobs.gwr import FIT, check_listed, listing, split
from locdist.jobs.predict import PredictRows, check, check_support, presentation
from locdist.methods.method import Method
from locdist.plan.plan import Resources
from locdist.search.build import check_lists
from locdist.search.files import release
from locdist.search.generation import Generation


def transform(
    method: Method | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path | None = None,
    *,
    keep: str | Sequence[str] | None = None,
    extras: Sequence[str] = (),
    explain: int = 0,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    limit: int | None = None,
    max_bad: float | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Report | pa.Table:
    """Answer every row of a support from the other rows.

    Parameters
    ----------
    method : Method, name, spec or file
        Methods leave each row out of its own neighbors, known by its place in the data, except those whose
        convention counts it (`gwr`).
    support : Dataset
        From `ld.dataset`.
    out : path or URI, optional
        The output folder; the index is built below its `_locdist/`. Without it the answers are returned as a
        table.
    bad : {"raise", "drop"}
        Support rows that cannot be used: an error, or no neighbors of anybody (their own output row stays,
        with a status).
    extras : list of str
        As in `predict`; of `gwr` also "listwise": the tables of GWR software, in the user's units. Columns
        estimate_NAME, error_NAME and t_NAME for "intercept" and each feature, residual,
        standardized_residual, influence, cooks_d, local_r2 (of counts and shares: the part of the local
        deviance that is explained), condition (number of the local design) and vif_NAME (variance inflation
        factors). The model is then fitted twice.
    keep, explain, recall, limit, max_bad, executor, resources, overwrite,
    listener, command
        As in `predict`.
    codes : str, optional
        As in `build_index`.

    Returns
    -------
    Report or pa.Table
        The report's `diagnostics` hold R², and for methods that count the row itself ENP and AICc.
    """
    chosen, support = read_method(method), checked(support)
    request = requested(chosen, support, keep, extras, explain, bad, recall, codes)

    runner = executor or Local()

    def prepare(folder: Store, source: Source) -> Ask:
        rows = replace(support, source=source)
        index = build_index(
            rows, folder.child(INDEX).uri, recall=recall, codes=codes, bad=bad,
            executor=runner, resources=resources, listener=listener, command=command,
        )  # fmt: skip
        question = _question(chosen, rows, index, request.choices["keep"], shown, explain)
        return listing(question, request, folder.child(FIT), running) if lists else question

    lists, shown = split(extras)
    running = Running(runner, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="locdist-") as place:
            question = prepare(Store.at(place), support.source)
            answers = ask_here(request, question, running)
            release(question.index.folder, question.index.fingerprint)
            return answers
    with runner.kept():  # for the index and for the answers
        return ask(request, prepare, out, running)


def _question(
    method: Method,
    support: Dataset,
    index: Generation,
    keep: tuple[str, ...],
    extras: Sequence[str],
    explain: int,
) -> PredictRows:
    """The rows of a support, asked of their own index."""
    check(method, index, own=True)
    targets, shown = support.roles.target, presentation(method, index, extras, explain)
    predicts = shown.classes is None and shown.outputs[:1] == ("prediction",)
    return PredictRows(
        source=support.source,
        index=index,
        keep=keep,
        own=True,
        method=method,
        presentation=shown,
        truth=targets[0] if len(targets) == 1 and index.numeric and predicts else None,
    )


def requested(
    chosen: Method,
    support: Dataset,
    keep: str | Sequence[str] | None = None,
    extras: Sequence[str] = (),
    explain: int = 0,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
) -> Request:
    """What `transform` pins in its folder."""
    check_lists(codes, None)
    lists, shown = split(extras)
    if lists:
        check_listed(chosen, support.roles.target)
    check_support(chosen, support, kept(keep, support.source, support.roles.id), shown, explain, own=True)
    choices = {
        "method": chosen.spec,
        "roles": support.roles.to_json(),
        "keep": kept(keep, support.source, support.roles.id),
        "extras": extras,
        "explain": explain,
        "bad": bad,
        "codes": codes,
    }
    return Request("transform", support.source, chosen.layer.neighbors, choices, recall)
