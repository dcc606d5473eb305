"""`predict`: a local model at every query, files to files or in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.columns import is_class
from locdist.data.dataset import Dataset, Roles
from locdist.data.moments import Moments
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept, queries_of
from locdist.jobs.asking.block import Block
from locdist.jobs.asking.diagnostics import is_counted, residuals
from locdist.jobs.asking.present import Presentation
from locdist.jobs.asking.questions import Ask, check_kept
from locdist.jobs.asking.report import Report
from locdist.jobs.chosen import read_method
from locdist.jobs.support import numeric
from locdist.local.answers import LEVERAGE, NEGLECTED
from locdist.local.neglected import check_neglected
from locdist.methods.method import Method
from locdist.plan.cost import Solve
from locdist.plan.plan import Resources
from locdist.search.generation import Generation, open_index


@dataclass(frozen=True, kw_only=True)
class PredictRows(Ask):
    """A method's answers for each row of a source.

    Parameters
    ----------
    method : Method
    presentation : Presentation
    truth : str, optional
        The target's column, where the queries are the support's own rows: for the diagnostics.
    """

    method: Method
    presentation: Presentation
    truth: str | None = None

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The target, for the residuals."""
        return (self.truth,) if self.truth else ()

    def columns(self) -> pa.Schema:
        """Predictions, status, and the extras asked for."""
        return self.presentation.schema()

    @property
    def work(self) -> Solve:
        """The method's model at each query."""
        features = self.index.features or self.index.key
        told = work(self.method, self.index.layout.width, features.width, self.presentation.want)
        return replace(told, p=max(1, len(self.presentation.outputs)))

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Answers of one block."""
        layer, shown = self.method.operation, self.presentation
        counted = self.truth is not None and is_counted(self.method.layer)
        want = shown.want | {LEVERAGE} if counted else shown.want
        own = block.rows if counted or (self.own and layer.leave_one_out) else None
        answers = layer(
            self.index, block.queries, block.features, own, block.bad, want, block.device, block.offsets
        )
        table = shown.table(answers, self.index)
        if self.truth is None:
            return table, {}
        return table, residuals(block, answers, self.truth, self.method.layer.model)


def predict(
    method: Method | str | Mapping[str, Any],
    index: Generation | str | Path,
    queries: Any,
    out: str | Path | None = None,
    *,
    keep: str | Sequence[str] | None = None,
    extras: Sequence[str] = (),
    explain: int = 0,
    recall: float | None = None,
    limit: int | None = None,
    max_bad: float | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Report | pa.Table:
    """Predict every query with a local model.

    One output row for each query, in the order of the queries. A query that cannot be answered has null and a
    `status` that says why. Running the same call again continues a stopped job, computes nothing twice and
    gives the same bytes, whatever the executor.

    Parameters
    ----------
    method : Method, name, spec or file
        `ld.local_linear(k=64)`, "local-mean", {"name": "knn", "k": 5}, "chosen.json" as `select` writes it.
    index : Generation or path
        The support, from `build_index`.
    queries : path, pattern, list, table, arrays or Dataset
        Rows with the columns of the key (and features); found by name.
    out : path or URI, optional
        The output folder, apart from the inputs. Without it the answers are returned as a table.
    keep : str or list of str, optional
        Columns of the queries that go to the output, "*" for all of them. By default the user's id column;
        where the queries have none, each row's file and number in it.
    extras : list of {"spread", "interval", "effective", "neglected", "coefficients", "parameters"}
        More columns: standard error of the prediction, effective number of neighbors, an upper bound of the
        share of the kernel's mass beyond the k neighbors (of kernels with a bandwidth of their own; from a
        sample of the rows, and wrong once in a million queries), local coefficients in the user's units (the
        value at the query first) as one list, or each as a column "parameter_NAME".
        With a method from `tune` also "interval", columns "lower" and "upper" that hold nine in ten new
        targets, or "interval=0.8", "lower_0.8" and "upper_0.8".
    explain : int
        Neighbors listed for each query, at most k, with distance, weight and contribution.
    recall : float, optional
        Share of the true neighbors that the search has to find; the index's own target by default. Measured
        on a sample and reported.
    limit : int, optional
        Only the first so many queries.
    max_bad : float or int, optional
        Bad queries allowed: a share below 1, or a number.
    executor : Executor, optional
        `ld.Local()` by default; `ld.Ray()`, `ld.Dask()`.
    resources : Resources, optional
        What each task needs: `ld.Resources(cpus=2, gpus=0.5)`. One core by default, and the memory that is
        predicted. With `gpus` models are solved on the device that the task is given.
    overwrite : bool
        Replace what the output folder holds.
    listener : callable, optional
        Receives events; `locdist.execute.progress.progress()` shows them.
    command : str
        The command line that continues this run, for `locdist status`.

    Returns
    -------
    Report or pa.Table
        A table when `out` is None. A vote has a column "probability_NAME" for each class; of more than 20
        classes one column "probability" of lists, whose order the metadata of its field tells as JSON:
        `json.loads(schema.field("probability").metadata[b"classes"])`.

    Raises
    ------
    UsageError, DataError, MachineError, TooManyBadRows
    """
    request, question = asked(method, index, queries, keep, extras, explain, recall)
    running = Running(executor, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        return ask_here(request, question, running)
    return ask(request, lambda folder, source: replace(question, source=source), out, running)


def asked(
    method: Method | str | Mapping[str, Any],
    index: Generation | str | Path,
    queries: Any,
    keep: str | Sequence[str] | None = None,
    extras: Sequence[str] = (),
    explain: int = 0,
    recall: float | None = None,
) -> tuple[Request, PredictRows]:
    """What `predict` runs and `plan` describes: the request that is pinned, and the question of its tasks."""
    chosen = read_method(method)
    index = index if isinstance(index, Generation) else open_index(index)
    source = queries_of(queries)
    check(chosen, index)
    question = PredictRows(
        source=source, index=index, keep=kept(keep, source, index.layout.roles.id), method=chosen,
        presentation=presentation(chosen, index, extras, explain),
    )  # fmt: skip
    choices = {
        "method": chosen.spec,
        "index": index.fingerprint,
        "keep": question.keep,
        "extras": extras,
        "explain": explain,
    }
    target = index.layout.recall if recall is None else recall
    return Request("predict", source, chosen.layer.neighbors, choices, target, (index.folder,)), question


def work(method: Method, width: int, features: int, want: frozenset[str]) -> Solve:
    """What a method solves for each query."""
    k = method.layer.neighbors
    return Solve(k, width, method.layer.model.columns(k, features), want=want)


def check(method: Method, index: Generation, own: bool = False) -> None:
    """UsageError when a method cannot work on an index, before any work."""
    layout = index.layout
    check_method(method, layout.rows, layout.roles, index.vocabulary is not None, index.numeric, own)


def check_method(
    method: Method, rows: int, roles: Roles, votes: bool, numeric: bool, own: bool = False
) -> None:
    """UsageError when a method cannot work on so many rows, or on their targets: classes that can be voted
    for, numbers.
    """
    layer = method.layer
    check_most(layer.neighbors, rows - (own and layer.leave_one_out))
    layer.check(roles.metric)
    if method.map and (roles.map is None or roles.map.fingerprint != method.map):
        given = "a key without a map" if roles.map is None else "another map"
        remedy = "Index with map=tuned.map (--map and the file of the method)."
        raise UsageError(f"the map of the key that this {method.name} was learned with", given, remedy)
    if roles.offset is not None and not layer.model.offsets:
        remedy = "Leave the offset out, or choose local-poisson, local-gamma or gwr with a family."
        raise UsageError("a method with a linear predictor for an offset", method.name, remedy)
    if "features" in layer.needs and roles.metric == "haversine" and not roles.features:
        given = f"{method.name}, and only a key"
        raise UsageError("features of a place besides where it is", given, "Name the features.")
    _check_shape(layer.shape([name for name, _ in roles.key], roles.target), roles.shape, method.name)
    if "codes" in layer.needs and not votes:
        raise UsageError(
            f"a single target of classes for {method.name}",
            f"targets {list(roles.target)}",
            "Build the index with one target of strings, integers or booleans.",
        )
    if "targets" in layer.needs and not numeric:
        raise UsageError(
            f"a target of numbers for {method.name}",
            f"targets {list(roles.target) or 'none'}",
            "Name a numeric target, or predict classes with local-vote or local-logistic.",
        )


def _check_shape(wanted: tuple[str, ...], given: tuple[str, ...], name: str) -> None:
    """UsageError where rows have other numbers of their own than kernel and model read, which only know the
    order.
    """
    if wanted and wanted != given:
        told = ", ".join(wanted)
        remedy = f"Index with shape={list(wanted)} (--shape {','.join(wanted)}), or choose another {name}."
        raise UsageError(f"rules of shape {told}", ", ".join(given) or "none", remedy)


def check_most(k: int, most: int) -> None:
    """UsageError when there are not so many rows."""
    if k > most:
        wanted = f"k of at most {most}, the rows that a query can have as neighbors"
        raise UsageError(wanted, str(k), "Choose a smaller k.")


def check_support(
    method: Method,
    support: Dataset,
    keep: tuple[str, ...],
    extras: Sequence[str],
    explain: int,
    own: bool = False,
) -> None:
    """What is checked on an index, as far as it is known before there is one."""
    roles, schema = support.roles, support.source.schema
    kinds = [schema.field(name).type for name in roles.target]
    votes = len(kinds) == 1 and is_class(kinds[0])
    check_method(method, support.rows, roles, votes, bool(kinds) and all(map(numeric, kinds)), own)
    classes = pa.array([], pa.string()) if "codes" in method.layer.needs else None
    names = [name for name, _ in roles.features or roles.key]
    told = names, names, classes, extras, explain, pa.int64(), method.intervals
    check_kept(keep, _presented(method, roles, *told).schema())


def presentation(method: Method, index: Generation, extras: Sequence[str], explain: int) -> Presentation:
    """The output columns of a method on an index."""
    classes = index.vocabulary if "codes" in method.layer.needs else None
    matrix = index.features or index.key
    points = matrix.names if matrix.map is None else [f"map[{axis}]" for axis in range(matrix.width)]
    told = matrix.names, points, classes, extras, explain, index.id_type, method.intervals
    return _presented(method, index.layout.roles, *told)


def _presented(method: Method, roles: Roles, *told: Any) -> Presentation:
    """The output columns; UsageError for some that the neighbors of a method cannot tell."""
    layer, shown = method.layer, Presentation.of(method.layer.model, roles.target, *told)
    if shown.explain and layer.k is None:
        given = f"explain={shown.explain} with k=None, where every row is a neighbor"
        raise UsageError("k neighbors to explain by", given, "Leave explain out, or choose k.")
    if NEGLECTED in shown.want and layer.k is not None:
        check_neglected(layer.kernel, roles.weight is not None)
    return shown
