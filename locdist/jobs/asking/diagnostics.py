"""How well a smoother fits its own support, from sums that tasks add up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from locdist.data.columns import numbers
from locdist.data.moments import Moments
from locdist.jobs.asking.block import Block
from locdist.local.answers import Answers, Status
from locdist.search.generation import Generation


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
        n ln(RSS/n) + n ln(2π) + n (n + ENP) / (n − 2 − ENP) [Hurvich, Simonoff, Tsai 1998].
    """

    n: int
    rss: float
    r2: float
    sigma2: float
    enp: float | None = None
    aicc: float | None = None

    def __str__(self) -> str:
        told = f"R² {self.r2:.6f}, RMSE {math.sqrt(self.sigma2):.6g}"
        told += "" if self.enp is not None else " (each row left out of its own neighbors)"
        told += f", ENP {self.enp:.4f}" if self.enp is not None else ""
        return told + (f", AICc {self.aicc:.4f}" if self.aicc is not None else "")

    @staticmethod
    def of(sums: Mapping[str, Moments]) -> "Diagnostics | None":
        """From the moments of all tasks; None without a numeric target."""
        if "target" not in sums or not sums["target"].count:
            return None
        n, total, rss = sums["target"].count, sums["target"].m2[0], _sum(sums["square"])
        told = Diagnostics(n, rss, 1 - rss / total if total > 0 else math.nan, rss / n)
        if "leverage" not in sums:
            return told
        enp = _sum(sums["leverage"])
        freedom = n - 2 - enp
        defined = rss > 0 and freedom > 0
        aicc = n * (math.log(rss / n) + math.log(2 * math.pi) + (n + enp) / freedom) if defined else None
        return replace(told, enp=enp, aicc=aicc)


def residuals(block: Block, answers: Answers, target: str, index: Generation) -> dict[str, Moments]:
    """What `Diagnostics.of` needs of the answered rows of one block.

    Moments of the target, of the squared residual, and where the answers tell their neighbors of the
    leverage: the weight of each row in its own answer, whose sum is the trace of the hat matrix.
    """
    truth, bad = (torch.from_numpy(part) for part in numbers(block.table.column(target)))
    good = (answers.status < int(Status.EMPTY)) & ~bad
    parts = {"target": truth, "square": (truth - answers.values[:, 0]).square()}
    if answers.ids is not None and answers.smoother is not None:
        mine = index.sources(answers.ids) == block.rows[:, None]
        parts["leverage"] = answers.smoother.where(mine, 0.0).sum(dim=1)
    return {name: Moments.of(part[good][:, None].numpy()) for name, part in parts.items()}


def _sum(moments: Moments) -> float:
    return moments.count * moments.mean[0]
