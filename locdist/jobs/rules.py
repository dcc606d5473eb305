"""`learn_rules`: fuzzy rules from rows of data. `rule_base`: a table of rules as a support."""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

from locdist.data.columns import numbers
from locdist.data.dataset import Columns, Dataset, checked, dataset
from locdist.data.source import source
from locdist.errors import DataError, UsageError
from locdist.execute.events import Listener, Tried
from locdist.jobs.asking.spread import pool
from locdist.jobs.chosen import located
from locdist.jobs.drawn import Drawn, drawn
from locdist.jobs.request import is_number, is_whole
from locdist.jobs.telling.rules import LearnedRules, check_place
from locdist.jobs.telling.tuned import Trial, smallest
from locdist.local import fuzzy
from locdist.local import rules as learning
from locdist.methods.fuzzy import fuzzy_inference
from locdist.methods.method import Method
from locdist.search.exact import Exact

SAMPLE = 20_000  # rows that rules are learned from
HELD = 5  # of so many rows one judges


def rule_base(
    data: Any,
    *,
    key: Columns,
    target: str | Sequence[str],
    membership: str | Sequence[str] = "gaussian",
    order: int = 0,
    consequent: str | None = None,
    weight: str | None = None,
    id: str | None = None,
) -> Dataset:
    """A table of rules, a row each, as a support for `build_index`.

    Of rules with inputs "speed" and "slope" and triangular memberships the columns are

        speed, slope, brake                                          centres, and what the rule says
        speed_left, speed_right, slope_left, slope_right             from the centres to the feet
        brake_by_speed, brake_by_slope                               order 1: the slopes of what it says

    Parameters
    ----------
    data : path, pattern, list of both, or data in memory
        As in `dataset`; also a .csv file.
    key : str or list of str
        The inputs, by the names that queries have for them.
    target : str or list of str
        What rules say.
    membership, order
        As in `fuzzy_inference`.
    consequent : str, optional
        The family of consequents that are fuzzy sets, of a single target: "brake" is the centre, and
        "brake_left", "brake_right" are read. Rules then say the centroid of their set and weigh its area
        (times the weight).
    weight : str, optional
        How much a rule counts.
    id : str, optional

    Returns
    -------
    Dataset

    Raises
    ------
    UsageError
        For columns that are not there.
    DataError
        For sets without area.
    """
    method = fuzzy_inference(membership, order=order)
    rows = _csv(data) if isinstance(data, str | Path) and str(data).endswith(".csv") else data
    names = [target] if isinstance(target, str) else list(target)
    shape = method.layer.shape([key] if isinstance(key, str) else list(key), names)
    if consequent is not None:
        rows, weight = _with_sets(rows, names, consequent, weight)
    return dataset(rows, key=key, target=names, shape=shape, weight=weight, id=id)


def _csv(place: str | Path) -> pa.Table:
    folder, name = located(place)
    with folder.open(name) as stream:
        return pa.csv.read_csv(stream)


def _with_sets(rows: Any, names: list[str], consequent: str, weight: str | None) -> tuple[pa.Table, str]:
    """The rules with the centroids of their consequents as target, and the column of their areas."""
    if len(names) != 1:
        raise UsageError("a single target whose consequents are sets", str(names), "Index each on its own.")
    known = source(rows)
    parts = [f"{names[0]}_{part}" for part in fuzzy.form(consequent).parts]
    known.check([names[0], *parts])
    table = pa.concat_tables(known.read())
    center, *sizes = (_column(table, name) for name in (names[0], *parts))
    centroids, areas = fuzzy.sets(consequent, center, torch.stack(sizes, 1))
    area = f"{names[0]}_area"
    factor = 1.0 if weight is None else _column(table, weight)
    place = table.schema.get_field_index(names[0])
    table = table.set_column(place, names[0], pa.array(centroids.numpy()))
    return table.append_column(area, pa.array((areas * factor).numpy())), area


def _column(table: pa.Table, name: str) -> Tensor:
    values, bad = numbers(table.column(name))
    if bad.any():
        given = f"none in rule {int(np.argmax(bad))}"
        raise DataError(f"a finite number in column {name!r} of each rule", given, "Repair the rules.")
    return torch.from_numpy(values)


def learn_rules(
    support: Dataset,
    out: str | Path | None = None,
    *,
    rules: int | Sequence[int] = 16,
    membership: str | Sequence[str] = "gaussian",
    tnorm: str = "product",
    order: int = 1,
    steps: int | Sequence[int] = 100,
    ridge: float | Sequence[float] = 1e-8,
    sample: int = SAMPLE,
    seed: int = 0,
    bad: str = "raise",
    listener: Listener | None = None,
) -> LearnedRules:
    """Learn fuzzy rules: clusters, consequents by least squares, memberships by the gradient (ANFIS).

    Every combination of `rules`, `steps` and `ridge` learns from four fifths of the rows; the one with the
    smallest error on the others then learns from all. The same for the same seed.

    Parameters
    ----------
    support : Dataset
        Rows, from `ld.dataset`, with a key of numbers and one target.
    out : path or URI, optional
        A file that ends in .parquet or .csv, a row for each rule.
    rules : int or list of int
        How many.
    membership : str or list of str
        As in `fuzzy_inference`.
    tnorm : {"product", "min"}
    order : int
        Of the consequents, 0 or 1.
    steps : int or list of int
        Of L-BFGS on the memberships; 0 leaves them to the clusters.
    ridge : float or list of float
        Positive; a penalty of the consequents, of standardized columns.
    sample : int
        Rows to learn from, held in memory: a seeded sample where there are more.
    seed : int
        Of the sample, of the first centres and of the rows that judge.
    bad : {"raise", "drop"}
        As in `build_index`.
    listener : callable, optional
        Receives an event for each candidate.

    Returns
    -------
    LearnedRules

    Raises
    ------
    UsageError
        For a support with another metric than "l2", with weights, features, a map or an offset; for options
        out of range.
    DataError
        For bad rows (unless dropped), or too few.

    References
    ----------
    Jang, *ANFIS: Adaptive-Network-Based Fuzzy Inference System*, IEEE Transactions on Systems, Man, and
    Cybernetics 23, 1993.
    """
    if out is not None:
        check_place(out)
    support, candidates = requested(support, rules, membership, tnorm, order, steps, ridge, sample, seed)
    rows = drawn(support, sample, seed, bad, classes=False)
    if list(rows.names) != [name for name, _ in support.roles.key]:
        raise UsageError(
            "a key of numbers, to learn rules from", ", ".join(rows.names), "Choose such columns."
        )
    bench = Bench(fuzzy_inference(membership, tnorm, order), rows, seed)
    trials = list[Trial]()
    with pool() as threads:
        for last in threads.map(bench.tried, candidates):
            trials.append(last)
            if listener is not None:
                listener(Tried(last.told, last.error, len(trials), len(candidates), last.seconds))
        found = threads.submit(bench.found, trials, support.roles.target[0]).result()
    if out is not None:
        found.write(out)
    return found


def requested(
    support: Dataset,
    rules: int | Sequence[int],
    membership: str | Sequence[str],
    tnorm: str,
    order: int,
    steps: int | Sequence[int],
    ridge: float | Sequence[float],
    sample: int,
    seed: int,
) -> tuple[Dataset, list[dict[str, Any]]]:
    """The rows as rules see them and the candidates, checked."""
    fuzzy_inference(membership, tnorm, order)
    return _raw(checked(support), sample, seed), _candidates(rules, steps, ridge)


@dataclass(frozen=True)
class Bench:
    """What candidates are learned from and judged by."""

    method: Method
    rows: Drawn
    seed: int

    def learned(self, options: dict[str, Any], taught: Tensor | slice = slice(None)) -> learning.Rules:
        """Rules from some rows."""
        keys, targets = self.rows.keys[taught], self.rows.targets[taught]
        kernel = self.method.layer.kernel
        assert isinstance(kernel, fuzzy.Membership)
        order = dict(self.method.parameters)["order"]
        return learning.learn_rules(keys, targets, kernel, order=order, seed=self.seed, **options)

    @property
    def halves(self) -> tuple[Tensor, Tensor]:
        """Numbers of the rows that teach, and of those that judge."""
        order = torch.randperm(len(self.rows.keys), generator=torch.Generator().manual_seed(self.seed + 1))
        held = max(1, len(order) // HELD)
        return order[held:].sort().values, order[:held].sort().values

    def tried(self, options: dict[str, Any]) -> Trial:
        """A candidate: learned, and judged by the rows that did not teach it; no answer is as bad as none."""
        started = time.monotonic()
        taught, held = self.halves
        rules = self.learned(options, taught)
        if not math.isfinite(rules.error):
            return Trial(options, math.inf, time.monotonic() - started)
        answers = self.method(Exact(rules.keys, rules.targets, shapes=rules.shapes), self.rows.keys[held])
        guess = answers.values.where(answers.values.isfinite(), self.rows.targets[taught].mean())
        error = (guess - self.rows.targets[held]).square().mean().sqrt().item()
        return Trial(options, error, time.monotonic() - started)

    def found(self, trials: Sequence[Trial], target: str) -> LearnedRules:
        """The best candidate, learned from all rows."""
        rules, key = self.learned(dict(smallest(trials).options)), self.rows.names
        if not math.isfinite(rules.error):
            remedy = "Are some numbers of the columns very large? Or take fewer rules, or a larger ridge."
            raise DataError("rows that rules can be learned from", f"an error of {rules.error}", remedy)
        shape = self.method.layer.shape(key, [target])
        columns = torch.cat([rules.keys, rules.targets, rules.shapes], 1).T.numpy()
        table = pa.table(dict(zip([*key, target, *shape], map(pa.array, columns), strict=True)))
        sizes = len(self.rows.keys), len(self.halves[1])
        return LearnedRules(
            self.method, table, key, target, shape, tuple(trials), rules.error, self.rows.rows, *sizes
        )


def _candidates(
    rules: int | Sequence[int], steps: int | Sequence[int], ridge: float | Sequence[float]
) -> list[dict[str, Any]]:
    """All combinations."""
    ranges = {"rules": (rules, 1), "steps": (steps, 0)}
    listed: dict[str, list[Any]] = {}
    for name, (given, least) in ranges.items():
        listed[name] = list(given) if isinstance(given, Sequence) else [given]
        if not listed[name] or not all(is_whole(each) and each >= least for each in listed[name]):
            raise UsageError(
                f"{name}, whole numbers of at least {least}", repr(given), "Give one, or a list."
            )
    listed["ridge"] = list(ridge) if isinstance(ridge, Sequence) else [ridge]
    if not listed["ridge"] or not all(is_number(each) and each > 0 for each in listed["ridge"]):
        raise UsageError("ridge, positive numbers", repr(ridge), "Give one, or a list.")
    return [dict(zip(listed, each, strict=True)) for each in itertools.product(*listed.values())]


def _raw(support: Dataset, sample: int, seed: int) -> Dataset:
    """The same rows, their key as it is; UsageError for what rules cannot be learned from."""
    roles = support.roles
    more = roles.weight, roles.offset, roles.features, roles.map, roles.metric != "l2" and roles.metric
    if any(more):
        given = ", ".join(str(each)[:40] for each in more if each)
        wanted = "a key of metric 'l2' and a target, to learn rules from"
        raise UsageError(wanted, given, "Leave the rest out of the dataset.")
    for name, number, least in (("sample", sample, 5), ("seed", seed, 0)):
        if not (is_whole(number) and number >= least):
            raise UsageError(f"{name}, a whole number of at least {least}", repr(number), "Correct it.")
    plain = tuple((name, 1.0) for name, _ in roles.key)
    return replace(support, roles=replace(roles, key=plain, scaling="none"))
