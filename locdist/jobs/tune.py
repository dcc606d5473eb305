"""`tune`: a metric, a method's parameters and its intervals, learned from the support alone.

Every candidate learns a map of the key by gradients (`local.learn`), then answers a sample of the support's
rows, each from the others, with the method that `predict` will use. The candidate with the smallest
leave-one-out error is chosen.

Leave-one-out errors calibrate its spread and its intervals. A map has made the errors of its own rows small,
which shows where rows are few: there each fold of them is answered under a map that the others taught.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from locdist.data.dataset import Dataset, checked
from locdist.data.keymap import KeyMap
from locdist.errors import UsageError, did_you_mean
from locdist.execute.events import Listener, Tried
from locdist.jobs.asking.spread import pool
from locdist.jobs.drawn import Drawn, drawn
from locdist.jobs.request import is_whole
from locdist.jobs.telling.tuned import Trial, Tuned
from locdist.local.answers import Answers
from locdist.local.calibration import Calibration, calibrated, conformal
from locdist.local.gp import GaussianProcess
from locdist.local.learn import STEPS, learn
from locdist.local.objectives import Kriging
from locdist.methods.learned import LEARNABLE, Learnable, Options, Standard
from locdist.methods.method import Method
from locdist.methods.named import method as named
from locdist.search.exact import Exact

SAMPLE = 50_000  # rows that a map is learned from
ASKED = 3_000  # rows whose leave-one-out errors are computed
MANY, RANK = 5_000, 4  # from so many rows on, directions are tried besides scales
FOLDS = 10  # of fewer rows: each is answered under a map that it did not teach
_SILENCE = 1e-15  # no probability is nearer to 0 in a logarithm


def tune(
    support: Dataset,
    out: str | Path | None = None,
    *,
    method: str = "local-gp",
    k: int | None = None,
    covariance: str | Sequence[str] | None = None,
    rank: int | Sequence[int] | None = None,
    steps: int | Sequence[int] = STEPS,
    sample: int = SAMPLE,
    seed: int = 0,
    bad: str = "raise",
    listener: Listener | None = None,
) -> Tuned:
    """Learn a metric and the parameters of a method, and choose among options, by leave-one-out.

    Parameters
    ----------
    support : Dataset
        From `ld.dataset`, with one target, and features that are its key.
    out : path or URI, optional
        A file that ends in .json, for `--map` of an index and `--method` of a prediction.
    method : {"local-gp", "local-linear", "local-mean", "local-vote"}
        What is learned: the likelihood of a Gaussian process whose covariance is a Matérn kernel (or a mix of
        two) with a constant, slopes and a nugget; the error of a local linear fit with a ridge, or of a local
        mean; the log-loss of a vote. The last three have a Gaussian kernel.
    k : int, optional
        Neighbors of the method: by default 128 for "local-gp", 64 for the others, at most all rows but one.
    covariance : str or list of str, optional
        Of "local-gp"; "matern32" and "mix" are tried.
    rank : int or list of int, optional
        Directions of the map besides a scale for each column. By default 0, and from 5,000 rows on 0 and 4
        are tried.
    steps : int or list of int
        Of the gradient.
    sample : int
        Rows to learn from, held in memory: a seeded sample where there are more.
    seed : int
        Of the sample and of the batches.
    bad : {"raise", "drop"}
        As in `build_index`.
    listener : callable, optional
        Receives an event for each candidate.

    Returns
    -------
    Tuned
        `method`, `map`, and the table of what was tried.

    Raises
    ------
    UsageError
        For a support with weights, a map, features of its own or another metric than "l2"; for options that
        the method does not have.
    DataError
        For bad rows (unless dropped).
    """
    support, kind, candidates = requested(support, method, k, covariance, rank, steps, sample, seed)
    bench = Bench(kind, drawn(support, sample, seed, bad, kind.classes), k or kind.k, seed)
    found: list[Found] = []
    with pool() as threads:
        for one in threads.map(bench.tried, candidates):
            found.append(one)
            if listener is not None:
                trial = one.trial
                listener(Tried(trial.told, trial.error, len(found), len(candidates), trial.seconds))
        best = min(found, key=lambda one: _order(one.trial.error))
        missed = list(threads.map(lambda taught: bench.missed(best, taught), bench.taught()))
    tuned = bench.tuned(found, best, missed)
    if out is not None:
        tuned.write(out)
    return tuned


def requested(
    support: Dataset,
    method: str,
    k: int | None,
    covariance: str | Sequence[str] | None,
    rank: int | Sequence[int] | None,
    steps: int | Sequence[int],
    sample: int,
    seed: int,
) -> tuple[Dataset, Learnable, list[Options]]:
    """The rows, what is learned, and the candidates, checked."""
    support, kind = checked(support), _kind(method)
    _check(support, k, sample, seed)
    return support, kind, _candidates(kind, covariance, rank, steps, support.rows)


@dataclass(frozen=True)
class Found:
    """A candidate after it was learned."""

    trial: Trial
    method: Method
    map: KeyMap


@dataclass(frozen=True)
class Missed:
    """Errors of answers to rows, and their variances: as the method says, and by the targets around [s]."""

    errors: Tensor
    said: Tensor
    local: Tensor

    @staticmethod
    def concatenate(parts: Sequence["Missed"]) -> "Missed":
        """The rows of all parts."""
        return Missed(*(torch.cat([getattr(part, each.name) for part in parts]) for each in fields(Missed)))


@dataclass(frozen=True)
class Bench:
    """What candidates of one kind are learned from and judged by."""

    kind: Learnable
    rows: Drawn
    wanted: int
    seed: int

    @property
    def k(self) -> int:
        """Neighbors of the method: nobody has more than the others."""
        return min(self.wanted, len(self.rows.keys) - 1)

    @cached_property
    def scale(self) -> Tensor:
        """Standard deviation of each column of the keys [d]; 1 where it is constant."""
        scale = self.rows.keys.std(0, correction=0)
        return scale.where(scale > 0, 1.0)

    @cached_property
    def standard(self) -> Standard:
        """Of the targets."""
        if self.kind.classes:
            return Standard()
        targets = self.rows.targets
        return Standard(targets.mean().item(), targets.std(correction=0).item() or 1.0)

    @cached_property
    def asked(self) -> Tensor:
        """Numbers of the rows whose errors are computed [s]."""
        order = torch.randperm(len(self.rows.keys), generator=torch.Generator().manual_seed(self.seed))
        return order[:ASKED].sort().values

    def taught(self) -> list[Tensor | None]:
        """Numbers of the rows that teach a map while the others are asked; None for all, of many rows.
        Classes need no calibration.
        """
        n = len(self.rows.keys)
        if self.kind.classes or n >= MANY:
            return [] if self.kind.classes else [None]
        order = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed + 1))
        folds = order.tensor_split(min(FOLDS, n))
        return [torch.cat([*folds[:one], *folds[one + 1 :]]) for one in range(len(folds))]

    def tried(self, options: Options) -> Found:
        """A candidate: learned, and asked."""
        started = time.monotonic()
        method, map = self.learned(options)
        error = self.error(self.answers(method, map, self.asked))
        return Found(Trial(options, error, time.monotonic() - started), method, map)

    def learned(self, options: Options, taught: Tensor | None = None) -> tuple[Method, KeyMap]:
        """What the standardized rows teach, by default all of them."""
        keys, targets = (self.rows.keys - self.rows.keys.mean(0)) / self.scale, self.rows.targets
        if not self.kind.classes:
            targets = (targets - self.standard.mean) / self.standard.deviation
        if taught is not None:
            keys, targets = keys[taught], targets[taught]
        objective, rank, steps = self.kind.objective(options), options["rank"], options["steps"]
        found = learn(keys, targets, objective, rank=rank, steps=steps, seed=self.seed)
        rows = (torch.tensor(found.rows, dtype=torch.float64) / self.scale).tolist()
        method = self.kind.made(self.k, options, found, self.standard)
        return method, KeyMap(tuple(tuple(row) for row in rows), self.rows.names)

    def answers(self, method: Method, map: KeyMap, asked: Tensor) -> Answers:
        """Answers to some rows, each from all others."""
        points = torch.from_numpy(map.points(self.rows.keys.numpy()))
        index = Exact(points, self.rows.targets.numpy())
        return method(index, points[asked], own=asked, want={"spread"})

    def error(self, answers: Answers) -> float:
        """Root mean squared error of the rows that are asked, or log-loss; a row without an answer counts as
        one that was told nothing.
        """
        truth = self.rows.targets[self.asked, 0]
        if not self.kind.classes:
            return (answers.values[:, 0].nan_to_num(self.standard.mean) - truth).square().mean().sqrt().item()
        known = torch.unique(self.rows.targets)
        chances = answers.values[torch.arange(len(truth)), torch.searchsorted(known, truth)]
        return -chances.nan_to_num(1 / len(known)).clamp(min=_SILENCE).log().mean().item()

    def missed(self, best: Found, taught: Tensor | None) -> Missed:
        """What the best candidate misses of the rows that are asked; under a map that some rows taught, of
        the others.
        """
        method, map, asked = best.method, best.map, self.asked
        if taught is not None:
            method, map = self.learned(best.trial.options, taught)
            asked = asked[~torch.isin(asked, taught)]
        answers = self.answers(method, map, asked)
        said = answers.spread
        assert said is not None
        errors = self.rows.targets[asked, 0] - answers.values[:, 0]
        local = self.answers(_adapting(method), map, asked).spread if _kriges(method) else said
        assert local is not None
        return Missed(errors, said[:, 0].square(), local[:, 0].square())

    def tuned(self, found: Sequence[Found], best: Found, missed: Sequence[Missed]) -> Tuned:
        """The best candidate, its spread and its intervals calibrated."""
        method, calibration = replace(best.method, map=best.map.fingerprint), None
        if missed:
            method, calibration = _calibrated(method, Missed.concatenate(missed))
        criterion = "LOO log-loss" if self.kind.classes else "LOO RMSE"
        counts = self.rows.rows, len(self.rows.keys), len(self.asked)
        return Tuned(method, best.map, tuple(one.trial for one in found), criterion, calibration, *counts)


def _calibrated(method: Method, missed: Missed) -> tuple[Method, Calibration | None]:
    """The method with the spread and the intervals that its errors ask for."""
    calibration, spread = None, missed.said.sqrt()
    if _kriges(method):
        calibration = calibrated(missed.errors, missed.said, missed.local)
        one, other = calibration.multiples
        spread = (one * missed.said + other * missed.local).sqrt()
        method = _rescaled(method, one, other)
    reaches = conformal(missed.errors, spread)
    intervals = tuple((level, reach) for level, reach in reaches.items() if math.isfinite(reach))
    return replace(method, intervals=intervals), calibration


def _kriges(method: Method) -> bool:
    return isinstance(method.layer.model, GaussianProcess)


def _adapting(method: Method) -> Method:
    """The same Gaussian process, its variance that of the targets in each neighborhood."""
    return named({**method.spec, "variance": None, "adaptive": None})


def _rescaled(method: Method, given: float, adaptive: float) -> Method:
    """The same Gaussian process with a multiple of its variance, and of that in each neighborhood."""
    variance = dict(method.parameters)["variance"]
    return named({**method.spec, "variance": given * variance, "adaptive": adaptive})


def _order(error: float) -> float:
    return error if math.isfinite(error) else math.inf


def _kind(method: str) -> Learnable:
    if method not in LEARNABLE:
        raise UsageError("a method that can be learned", repr(method), did_you_mean(method, LEARNABLE))
    return LEARNABLE[method]


def _candidates(
    kind: Learnable,
    covariance: str | Sequence[str] | None,
    rank: int | Sequence[int] | None,
    steps: int | Sequence[int],
    rows: int,
) -> list[Options]:
    """All combinations of what is given, or of what is usual for so many rows."""
    if covariance is not None and not kind.covariances:
        raise UsageError("a covariance with method 'local-gp'", repr(covariance), "Leave it out.")
    names = (covariance,) if isinstance(covariance, str) else tuple(covariance or kind.covariances)
    for name in names:
        Kriging(name)
    ranks = ((0, RANK) if rows >= MANY else (0,)) if rank is None else _numbers("rank", rank, 0)
    counts = _numbers("steps", steps, 1)
    told = [{"covariance": name} for name in names] or [{}]
    return [
        {**one, "rank": each, "steps": count} for one, each, count in itertools.product(told, ranks, counts)
    ]


def _numbers(name: str, given: int | Sequence[int], least: int) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, Sequence) else (given,)
    if not numbers or not all(is_whole(number) and number >= least for number in numbers):
        raise UsageError(f"{name}, whole numbers of at least {least}", repr(given), "Give one, or a list.")
    return tuple(map(int, numbers))


def _check(support: Dataset, k: int | None, sample: int, seed: int) -> None:
    """UsageError for what cannot be learned from."""
    roles = support.roles
    for given, wanted in (
        (roles.weight, "a support whose rows weigh the same"),
        (roles.offset, "a support without an offset"),
        (roles.features, "a support whose features are its key"),
        (roles.map, "a key that is not mapped yet"),
        (roles.metric != "l2" and roles.metric, "metric 'l2'"),
    ):
        if given:
            raise UsageError(f"{wanted}, to tune", str(given)[:80], "Leave it out of the dataset.")
    for name, number, least in (("k", k, 1), ("sample", sample, 3), ("seed", seed, 0)):
        if number is not None and not (is_whole(number) and number >= least):
            raise UsageError(f"{name}, a whole number of at least {least}", repr(number), "Correct it.")
