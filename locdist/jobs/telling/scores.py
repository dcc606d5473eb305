"""Sums behind the metrics of predictions: of one block at a time, added up over blocks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locdist.data.moments import Moments

CLIP = 1e-15  # no probability is nearer to 0 or 1 than this in a logarithm
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ClassSums:
    """Sums over predicted classes.

    Parameters
    ----------
    confusion : int [c + 1, c]
        Rows by true class (the last row: classes that the support did not have) and predicted class.
    log_loss, brier : float
        Σ −ln p(truth) with p clipped to [CLIP, 1 − CLIP], and Σ over rows and classes (p − 1[truth])².
    outside : int
        Probabilities that lay outside [0, 1].
    """

    confusion: Codes
    log_loss: float
    brier: float
    outside: int = 0

    @staticmethod
    def of(chances: Floats, truth: Codes, label: Codes, outside: int = 0) -> "ClassSums":
        """Sums of one block: probabilities [n, c], true classes [n] (−1: none of them), predicted [n]."""
        n, classes = chances.shape
        confusion = np.zeros((classes + 1, classes), np.int64)
        np.add.at(confusion, (truth, label), 1)  # −1 is the last row
        own = np.where(truth >= 0, chances[np.arange(n), truth], 0.0)
        logs = -np.log(np.clip(own, CLIP, 1 - CLIP)).sum()
        brier = np.square(chances).sum() + (1 - 2 * own).sum()
        return ClassSums(confusion, float(logs), float(brier), outside)

    def add(self, other: "ClassSums") -> "ClassSums":
        """The sums of both."""
        sums = (self.log_loss + other.log_loss, self.brier + other.brier, self.outside + other.outside)
        return ClassSums(self.confusion + other.confusion, *sums)

    @property
    def votes(self) -> "ClassSums":
        """What is known about classes: all of it."""
        return self

    @property
    def metrics(self) -> dict[str, float]:
        """Log-loss, Brier score (for two classes the mean squared error of one of them) and accuracy."""
        n, classes = int(self.confusion.sum()), self.confusion.shape[1]
        if not n:
            return {}
        return {
            "log_loss": self.log_loss / n,
            "brier": self.brier / n / (2 if classes == 2 else 1),
            "accuracy": float(np.trace(self.confusion) / n),
        }


@dataclass(frozen=True)
class NumberSums:
    """Sums over predicted numbers.

    Parameters
    ----------
    errors, sizes, truths : Moments
        Of prediction − truth, of its size, and of the truth: one column each.
    chances : ClassSums or None
        Of the predictions as probabilities of 1; None when some truth is neither 0 nor 1.
    """

    errors: Moments
    sizes: Moments
    truths: Moments
    chances: ClassSums | None

    @staticmethod
    def of(predicted: Floats, truth: Floats) -> "NumberSums":
        """Sums of one block, both [n]."""
        error = predicted - truth
        errors, sizes, truths = (Moments.of(values[:, None]) for values in (error, np.abs(error), truth))
        return NumberSums(errors, sizes, truths, _chances(predicted, truth))

    def add(self, other: "NumberSums") -> "NumberSums":
        """The sums of both."""
        chances = self.chances.add(other.chances) if self.chances and other.chances else None
        errors, sizes = self.errors.merge(other.errors), self.sizes.merge(other.sizes)
        return NumberSums(errors, sizes, self.truths.merge(other.truths), chances)

    @property
    def votes(self) -> ClassSums | None:
        """What is known about 0 and 1; None unless the truth holds both and nothing else."""
        if self.chances is None or not self.chances.confusion[:2].sum(axis=1).all():
            return None
        return self.chances

    @property
    def metrics(self) -> dict[str, float]:
        """RMSE, MAE, bias (mean of prediction − truth), R² = 1 − Σ e² / Σ (y − ȳ)², and those of `votes`."""
        n = self.errors.count
        if not n:
            return {}
        squares = self.errors.m2[0] + n * self.errors.mean[0] ** 2
        total = self.truths.m2[0]
        numbers = {
            "rmse": float(np.sqrt(squares / n)),
            "mae": float(self.sizes.mean[0]),
            "bias": float(self.errors.mean[0]),
            "r2": float(1 - squares / total) if total > 0 else float("nan"),
        }
        return numbers | (self.votes.metrics if self.votes else {})


def _chances(predicted: Floats, truth: Floats) -> ClassSums | None:
    if not np.isin(truth, (0.0, 1.0)).all():
        return None
    clipped = np.clip(predicted, 0.0, 1.0)
    both = np.stack([1 - clipped, clipped], axis=1)
    label = (clipped >= 0.5).astype(np.int64)
    return ClassSums.of(both, truth.astype(np.int64), label, int((predicted != clipped).sum()))
