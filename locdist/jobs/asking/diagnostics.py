"""How well a smoother fits its own support, from sums that tasks add up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from locdist.data.columns import numbers
from locdist.data.moments import Moments
from locdist.jobs.asking.block import Block
from locdist.local.answers import Answers, Status
from locdist.local.glm import GeneralizedLinear
from locdist.local.layer import Layer
from locdist.local.models import FREE, LocalModel


@dataclass(frozen=True)
class Diagnostics:
    """How well a smoother fits its own support.

    Parameters
    ----------
    n : int
        Rows with a prediction and a target.
    rss : float
        Residual sum of squares; of leave-one-out residuals when rows are left out of their own neighbors.
    r2 : float
        1 − RSS / TSS.
    sigma2 : float
        RSS / n.
    enp : float or None
        Effective number of parameters, the trace of the hat matrix; None for leave-one-out.
    aicc : float or None
        n ln(RSS/n) + n ln(2π) + n (n + ENP) / (n − 2 − ENP) [Hurvich, Simonoff, Tsai 1998]; of families with
        a deviance D + 2 ENP + 2 ENP (ENP + 1) / (n − ENP − 1) [Nakaya and others 2005].
    deviance : float or None
        Of a generalized linear model.
    gcv : float or None
        n RSS / (n − ENP)² [Craven, Wahba 1978].
    loo : float or None
        Root mean square of the leave-one-out residuals in closed form, (y − ŷ) / (1 − h), h the weight of a
        row in its own answer: what a fit without the row would miss, where no bandwidth depends on it.
    """

    n: int
    rss: float
    r2: float
    sigma2: float
    enp: float | None = None
    aicc: float | None = None
    deviance: float | None = None
    gcv: float | None = None
    loo: float | None = None

    def __str__(self) -> str:
        told = f"R² {self.r2:.6f}, RMSE {math.sqrt(self.sigma2):.6g}"
        told += "" if self.enp is not None else " (each row left out of its own neighbors)"
        told += f", ENP {self.enp:.4f}" if self.enp is not None else ""
        told += f", deviance {self.deviance:.4f}" if self.deviance is not None else ""
        told += f", AICc {self.aicc:.4f}" if self.aicc is not None else ""
        told += f", GCV {self.gcv:.6g}" if self.gcv is not None else ""
        return told + (f", leave-one-out RMSE {self.loo:.6g}" if self.loo is not None else "")

    @staticmethod
    def of(sums: Mapping[str, Moments]) -> "Diagnostics | None":
        """From the moments of all tasks; None without a numeric target."""
        if "target" not in sums or not sums["target"].count:
            return None
        n, total, rss = sums["target"].count, sums["target"].m2[0], _sum(sums["square"])
        told = Diagnostics(n, rss, 1 - rss / total if total > 0 else math.nan, rss / n)
        deviance = _sum(sums["deviance"]) if "deviance" in sums else None
        told = replace(told, deviance=deviance)
        if "leverage" not in sums:
            return told
        enp = _sum(sums["leverage"])
        if deviance is not None:
            charged = 2 * enp * (1 + (enp + 1) / (n - enp - 1)) if n - enp > 1 else math.nan
            return replace(told, enp=enp, aicc=deviance + charged if math.isfinite(charged) else None)
        freedom = n - 2 - enp
        defined = rss > 0 and freedom > 0
        aicc = n * (math.log(rss / n) + math.log(2 * math.pi) + (n + enp) / freedom) if defined else None
        gcv = n * rss / (n - enp) ** 2 if n > enp else None
        missed = sums["missed"]
        loo = math.sqrt(_sum(missed) / missed.count) if missed.count else None
        return replace(told, enp=enp, aicc=aicc, gcv=gcv, loo=loo)


def is_counted(layer: Layer) -> bool:
    """Whether rows have a weight in their own answers, and what their weights add up to means something."""
    return layer.model.traced and not layer.leave_one_out


def residuals(block: Block, answers: Answers, target: str, model: LocalModel) -> dict[str, Moments]:
    """What `Diagnostics.of` needs of the answered rows of one block.

    Moments of the target, of the squared residual, of the deviance where the model has one, and where rows
    count themselves of the leverage, whose sum is the trace of the hat matrix, and of the squared
    leave-one-out residual (not of rows that decide their own value).
    """
    truth, bad = (torch.from_numpy(part) for part in numbers(block.table.column(target)))
    good = (answers.status < int(Status.EMPTY)) & ~bad
    square = (truth - answers.values[:, 0]).square()
    parts = {"target": truth[good], "square": square[good]}
    if isinstance(model, GeneralizedLinear):
        parts["deviance"] = model.family.deviance(answers.values[:, 0], truth)[good]
    if (own := answers.leverage) is not None:
        free = good & (1 - own > FREE)
        parts |= {"leverage": own[good], "missed": (square / (1 - own).square())[free]}
    return {name: Moments.of(part[:, None].numpy()) for name, part in parts.items()}


def _sum(moments: Moments) -> float:
    return moments.count * moments.mean[0]
