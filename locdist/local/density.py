"""How many rows of the support there are around a query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers, Status
from locdist.local.models import LocalModel, answered, valued
from locdist.local.neighborhood import Neighborhood


@dataclass(frozen=True)
class Density(LocalModel):
    """The kernel density estimate sum_j v_j K_h(x - x_j) / sum_i v_i in the space of the key.

    K_h is the localization kernel over its integral, v are the weights of rows, and the second sum is over
    all the support, so rows beyond the k nearest count as far away: exact where the kernel's reach ends
    before the k-th neighbor, or k is all rows. With an adaptive bandwidth it is the balloon estimate, whose
    integral is not one (Terrell and Scott, Variable Kernel Density Estimation, Annals of Statistics 20,
    1992).

    Parameters
    ----------
    log : bool
        Whether the value is the logarithm: in many dimensions densities underflow. A density of 0, nobody in
        reach, then is EMPTY.
    """

    log: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"density"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})

    def outputs(self, targets: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
        return ("log_density" if self.log else "density",)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.mass is not None
        assert hood.support is not None
        values = hood.mass - hood.support.log()
        values = (values if self.log else values.exp())[:, None]
        certain = torch.zeros(len(weights), dtype=torch.int8, device=weights.device)
        answers = answered(values, weights, certain, hood, weights, want)
        if not self.log:  # nobody is an answer here
            status = answers.status.masked_fill(answers.status == int(Status.EMPTY), int(Status.OK))
            answers = replace(answers, status=status)
        return valued(answers)
