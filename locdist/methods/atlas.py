"""Charts of a logifold that are fitted on parts of the rows, and judged by others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.charts import Judged
from locdist.local.estimated import Estimated
from locdist.local.losses import Array, Rows, double, is_number
from locdist.local.parametric import Named
from locdist.local.relaxed import Relaxed, draws
from locdist.methods.charts import Logifold, check_accuracy, check_labels
from locdist.methods.estimators import check_estimator, estimator_of

CHARTS = 8


@dataclass(frozen=True)
class Atlas:
    """Classifiers that are each fitted on a part of the rows; made by `atlas`."""

    model: Estimated
    charts: int | None
    accuracy: float
    holdout: float | str
    seed: int

    @property
    def spec(self) -> dict[str, Any]:
        """What was chosen, in words; `coupled_method(spec)` makes it again."""
        kind = self.model.kind.path if isinstance(self.model.kind, Named) else self.model.kind
        told = {"name": "logifold", "estimator": kind, "parameters": dict(self.model.choices)}
        more = {"charts": self.charts, "accuracy": self.accuracy, "holdout": self.holdout, "seed": self.seed}
        return told | more

    @property
    def count(self) -> int:
        """Charts, where no column names them."""
        return self.charts or CHARTS

    @property
    def refit(self) -> Relaxed:
        """The fit of one chart, which nobody draws."""
        return Relaxed(self.model, 0.0)

    def drawn(self, rows: Rows) -> Tensor:
        """Numbers [r, 3] from 0 to 1 that follow from the content of rows and the seed: of who is held out,
        of charts, and of the order in which a chart is fitted.
        """
        return draws(rows, 3, self.seed)

    def held(self, drawn: Tensor) -> Tensor:
        """Whether rows are held out [r], if no column says so."""
        assert not isinstance(self.holdout, str)
        return drawn[:, 0] < self.holdout

    def parts(self, drawn: Tensor) -> Tensor:
        """The chart of each row [r], if no column names it."""
        return (drawn[:, 1] * self.count).long().clamp(max=self.count - 1)

    def ordered(self, rows: Rows) -> Rows:
        """Rows in an order that follows from their content."""
        return rows.some(self.drawn(rows)[:, 2].argsort(stable=True))

    def fit(self, rows: Rows) -> tuple[Any, str]:
        """The classifier of rows, whatever order they are in; None of no rows, and where the fit raises an
        error; and what that says.
        """
        rows = self.ordered(rows)
        return self.refit.attempt(rows, rows.features[:0], rows.features[:0, :1], 0.0)

    def judge(self, fitted: Any, held: Rows, classes: int) -> Judged:
        """What a chart is worth on rows that none was fitted on."""
        votes = self.refit.ask(fitted, held.features, classes)[None]
        return Judged.of(votes, held.weights[None], held.targets.long())

    def threshold(self, judged: Judged) -> Tensor:
        """Of each chart [c]; 0 where none was held out."""
        return judged.lowest(self.accuracy) if self.holdout else torch.zeros(len(judged.sure)).double()

    def __call__(
        self,
        features: Array,
        labels: Array,
        charts: Array | None = None,
        held: Array | None = None,
        weights: Array | None = None,
    ) -> Logifold:
        """The charts, in memory.

        Parameters
        ----------
        features : array [r, d]
        labels : array [r] of int
            Classes, from 0.
        charts : array [r] of int, optional
            The chart of each row; drawn by default.
        held : array [r] of bool, optional
            Which rows none is fitted on; drawn by default.
        weights : array [r], optional
        """
        known = double(labels)
        there = torch.ones_like(known) > 0 if weights is None else double(weights) > 0
        rows = Rows.of(1, torch.zeros_like(known), features, known, weights)
        check_labels(rows.targets)
        drawn = self.drawn(rows)
        part = self.parts(drawn) if charts is None else double(charts).long()[there]
        out = self.held(drawn) if held is None else double(held)[there] > 0
        classes = int(rows.targets.max()) + 1
        fitted = [self.fit(rows.some((part == each) & ~out))[0] for each in torch.unique(part)]
        judged = [self.threshold(self.judge(each, rows.some(out), classes)) for each in fitted]
        models = tuple(Chart(self.refit, each, classes) for each in fitted)
        return Logifold(models, (None,) * len(models), tuple(torch.cat(judged).tolist()))


@dataclass(frozen=True, eq=False)
class Chart:
    """A classifier with probabilities of all classes, whichever of them it has seen; nan without one."""

    refit: Relaxed
    fitted: Any
    classes: int

    def predict_proba(self, features: Array) -> Tensor:
        """Probabilities [q, k] of rows [q, d]."""
        return self.refit.ask(self.fitted, double(features), self.classes)


def atlas(
    estimator: Any,
    charts: int | None = None,
    accuracy: float = 0.95,
    holdout: float | str = 0.2,
    seed: int = 0,
) -> Atlas:
    """The charts of a logifold, fitted: any classifier on each part of the rows, Σ_c [max p_c ≥ t_c] p_c /
    Σ_c [max p_c ≥ t_c] with the smallest thresholds t_c above which a chart is right as often as is asked, on
    rows that none was fitted on.

    Parameters
    ----------
    estimator : object
        With scikit-learn's `fit(X, y, sample_weight)` and `predict_proba(X)`.
    charts : int, optional
        How many parts rows are drawn into: 8, where no column names the chart of each.
    accuracy : float
        A share, over 0 and at most 1. A chart that never reaches it never votes alone.
    holdout : float or str
        The share of rows that are held out for the thresholds, drawn; or the column of 0 and 1 that says
        which. With 0 thresholds are 0, and all charts vote everywhere.
    seed : int
        Rows are drawn by what they say and by the seed, whatever file they are in; equal ones together.

    Returns
    -------
    Atlas

    References
    ----------
    Jung, Lau, *Logifold: A Geometrical Foundation of Ensemble Machine Learning*, arXiv 2407.16177.
    """
    model = Estimated.of(estimator)
    check_estimator(estimator)
    if not model.classifies:
        given = type(estimator).__name__
        raise UsageError("a classifier with predict_proba", given, "Choose one, as LogisticRegression.")
    check_accuracy(accuracy)
    _check_whole(1 if charts is None else charts, 1, "at least one chart")
    _check_whole(seed, 0, "a seed of 0 or more")
    if not isinstance(holdout, str) and not (is_number(holdout) and 0 <= holdout < 1):
        wanted = "a share to hold out from 0, below 1, or the name of a column"
        raise UsageError(wanted, repr(holdout), "0.2 is the default.")
    return Atlas(model, charts, accuracy, holdout, seed)


def _check_whole(given: object, least: int, wanted: str) -> None:
    """UsageError for what users passed as a whole number and is none."""
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise UsageError(wanted, repr(given), "It is a whole number.")


def atlas_by_name(
    estimator: str | None = None,
    charts: int | None = None,
    accuracy: float = 0.95,
    holdout: float | str = 0.2,
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
) -> Atlas:
    """Charts of a logifold: any classifier on each part of the rows, which votes where it is certain.

    Parameters
    ----------
    estimator : str
        The path of its class: "sklearn.linear_model.LogisticRegression".
    charts, accuracy, holdout, seed
        As in `atlas`.
    parameters : mapping, optional
        Of the estimator.
    """
    own = ("charts", "accuracy", "holdout", "seed")
    return atlas(estimator_of(estimator, parameters, own), charts, accuracy, holdout, seed)
