"""Charts of a logifold: classifiers that vote where they are certain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local import charts
from locdist.local.answers import Answers, Status
from locdist.local.losses import Array, double, is_number


@dataclass(frozen=True)
class Logifold:
    """Charts that vote where they are certain; made by `logifold`.

    Attributes
    ----------
    models : tuple
        With `predict_proba`, all of the same classes.
    domains : tuple of callable or None
        The share [q] of rows [q, d] that belong to a chart, from 0 to 1; None for all.
    thresholds : tuple of float
    """

    models: tuple[Any, ...]
    domains: tuple[Callable[[Any], Any] | None, ...]
    thresholds: tuple[float, ...]

    def __call__(self, features: Array) -> Answers:
        """The shares of classes [q, k] of rows [q, d]: LOW_SUPPORT where no chart is certain and all vote,
        EMPTY in no chart's domain.
        """
        x = double(features)
        finite = x.isfinite().all(1)
        votes, domains = self._votes(x.nan_to_num(0.0, 0.0, 0.0))
        found = charts.gated(votes, domains, torch.tensor(self.thresholds, dtype=torch.float64))
        return found.refuse(~finite, Status.BAD_QUERY)

    def calibrated(self, features: Array, labels: Array, accuracy: float = 0.95) -> "Logifold":
        """The same charts with the smallest thresholds above which each is right as often as is asked.

        Parameters
        ----------
        features : array [v, d]
            Rows that no chart was fitted on.
        labels : array [v] of int
            The places of their classes.
        accuracy : float
            A share, over 0 and at most 1. A chart that never reaches it never votes alone.
        """
        check_accuracy(accuracy)
        votes, domains = self._votes(double(features))
        known, count = double(labels), votes.shape[2]
        if known.shape != votes.shape[1:2] or not torch.isin(known, torch.arange(count).double()).all():
            given = f"shape {list(known.shape)}, or others"
            raise UsageError(
                f"labels [{votes.shape[1]}], whole numbers from 0 to {count - 1}",
                given,
                "Number the classes.",
            )
        found = charts.thresholds_for(votes, domains, known.long(), accuracy)
        return replace(self, thresholds=tuple(found.tolist()))

    def _votes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities [c, q, k], and domains [c, q]."""
        rows = x.numpy()
        votes = torch.stack([torch.as_tensor(each.predict_proba(rows)).double() for each in self.models])
        told = [torch.ones(len(x)) if each is None else each(rows) for each in self.domains]
        shares = [torch.as_tensor(share).double() for share in told]
        for number, share in enumerate(shares):
            if share.shape != (len(x),) or not ((share >= 0) & (share <= 1)).all():
                given = f"others, or shape {list(share.shape)}, of domain {number}"
                raise UsageError(f"shares [{len(x)}] from 0 to 1", given, "Scale what the domain returns.")
        return votes, torch.stack(shares)


def logifold(
    models: Sequence[Any],
    domains: Sequence[Callable[[Any], Any] | None] | None = None,
    thresholds: float | Sequence[float] = 0.0,
) -> Logifold:
    """Logifold charts: classifiers with fuzzy domains, whose votes count where they are certain, the largest
    probability at least the threshold. `calibrated` estimates thresholds on validation data.

    With thresholds of 0 and no domains it is the average of all classifiers.

    Parameters
    ----------
    models : list of estimators
        Fitted, with `predict_proba` and the same classes.
    domains : list of callable or None, optional
        Rows [q, d] to shares [q] from 0 to 1: how far each row belongs to the chart.
    thresholds : float, or one for each
        From 0 to 1; infinite for a chart that never votes alone.

    Returns
    -------
    Logifold

    References
    ----------
    Jung, Lau, *Logifold: A Geometrical Foundation of Ensemble Machine Learning*, arXiv 2407.16177.
    """
    each = (thresholds,) * len(models) if isinstance(thresholds, int | float) else tuple(thresholds)
    parts = (None,) * len(models) if domains is None else tuple(domains)
    names = {tuple(getattr(model, "classes_", ())) for model in models}
    if not models or not len(models) == len(parts) == len(each) or len(names) != 1:
        given = f"{len(models)} models of {len(names)} sets of classes, {len(parts)}, {len(each)}"
        raise UsageError("models of the same classes, a domain and a threshold each", given, "Align them.")
    if not all(0 <= threshold <= 1 or threshold == float("inf") for threshold in each):
        given = ", ".join(map(repr, each))
        raise UsageError(
            "thresholds from 0 to 1", given, "A certainty is a probability; 0 lets a chart vote."
        )
    return Logifold(tuple(models), parts, tuple(map(float, each)))


def check_labels(labels: Tensor) -> None:
    """UsageError for what numbers no classes."""
    wrong = ~((labels >= 0) & (labels == labels.floor()))
    if wrong.any():
        given = f"{float(labels[wrong][0]):g}"
        raise UsageError("labels, whole numbers from 0", given, "Number the classes.")


def check_accuracy(accuracy: float) -> None:
    """UsageError for what no chart can reach, or every chart does."""
    if not is_number(accuracy) or not 0 < accuracy <= 1:
        raise UsageError("an accuracy over 0 and at most 1", repr(accuracy), "0.95 is usual.")
