"""Linear systems over the nodes of a network, and what models minimise while flows on edges are held."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.local.network import Network

HALVINGS = 30
ROUNDS = 200  # of conjugate gradients in a step
LITTLE = 1e-3  # of the mean curvature, added while a step is far from the minimum


@dataclass(frozen=True, eq=False)
class Stretched:
    """What models minimise given flows [e, m]: smooth, and quadratic where no flow is cut.

    Attributes
    ----------
    network : Network
    flows : Tensor [e, m]
    scale : float
        By how much a difference of models stretches a flow.
    """

    network: Network
    flows: Tensor
    scale: float

    @property
    def reach(self) -> Tensor:
        """The length [e] of a flow at most."""
        return self.network.strength * self.network.links.weights

    def stretched(self, models: Tensor) -> Tensor:
        """Flows [e, m] before they are cut."""
        return self.flows + self.scale * self.network.links.differences(models)

    def flow(self, models: Tensor) -> Tensor:
        """Flows [e, m]."""
        return _cut(self.stretched(models), self.reach)

    def value(self, models: Tensor) -> float:
        """What is minimised."""
        length, reach = self.stretched(models).norm(dim=1), self.reach
        inside = length.clamp(max=reach)
        return float(self.network.losses.values(models).sum()) + float(
            (inside * (length - inside / 2)).sum() / self.scale
        )

    def slope(self, models: Tensor) -> Tensor:
        """Its gradient [n, m]."""
        return self.network.losses.slopes(models) + self.network.links.gathered(self.flow(models))

    def step(self, models: Tensor, slope: Tensor, most: int) -> tuple[Tensor, int]:
        """Newton's step [n, m], and the rounds of conjugate gradients that it took."""
        losses, links = self.network.losses, self.network.links
        flows, reach = self.stretched(models), self.reach
        length = flows.norm(dim=1)
        part = torch.where(length > reach, reach / length, 1.0)[:, None]
        cut = (length > reach)[:, None]
        along = flows / length.where(length > 0, 1.0)[:, None]
        size, whole = float(slope.norm()), float(losses.pull.norm()) or 1.0
        mean = float(losses.curve.diagonal(dim1=1, dim2=2).mean())
        little = LITTLE * mean * min(1.0, size / whole)  # where an edge that is cut leaves a node loose

        def bent(step: Tensor) -> Tensor:
            apart = links.differences(step)
            turned = part * (apart - cut * along * (along * apart).sum(1, keepdim=True))
            return losses.bent(step) + little * step + self.scale * links.gathered(turned)

        width = slope.shape[1]
        share = (part * (1 - cut / width))[:, 0]
        drawn = self.scale * links.ends.times(share[:, None])[:, 0] + little
        enough = min(0.1, (size / whole) ** 0.5) * size
        return System(self.network, bent, drawn).solve(-slope, enough, min(ROUNDS, most))

    def downhill(self, models: Tensor, step: Tensor, slope: Tensor) -> Tensor:
        """The models after a step, halved until it goes downhill."""
        here, fall = self.value(models), float((slope * step).sum())
        share = 1.0
        for _ in range(HALVINGS):
            if self.value(models + share * step) <= here + 1e-4 * share * fall + 1e-14 * abs(here):
                break
            share /= 2
        return models + share * step


@dataclass(frozen=True, eq=False)
class System:
    """A linear system over all nodes, and what it is preconditioned by: the block update of each node, whose
    edges draw it with `drawn` [n], and one shared model for each component.
    """

    network: Network
    product: Callable[[Tensor], Tensor]
    drawn: Tensor

    def near(self, left: Tensor) -> Tensor:
        """Roughly the solution for a right side."""
        return self.network.losses.solve(left, self.drawn) + self.network.shared(left)

    def solve(self, right: Tensor, enough: float, most: int) -> tuple[Tensor, int]:
        """The solution up to a residual of length `enough`, from 0, and the rounds that it took."""
        found, left, rounds = torch.zeros_like(right), right, 0
        along, before = torch.zeros_like(right), 1.0
        while rounds < most and float(left.norm()) > enough:
            step = self.near(left)
            now = float((left * step).sum())
            along = step + (now / before if rounds else 0.0) * along
            bent = self.product(along)
            curve = float((along * bent).sum())
            if not (curve > 0 and now > 0):  # rounding is all that is left
                break
            found, left = found + now / curve * along, left - now / curve * bent
            before, rounds = now, rounds + 1
        return found, rounds


def _cut(flows: Tensor, reach: Tensor) -> Tensor:
    """Flows [e, m] no longer than reach [e]."""
    length = flows.norm(dim=1)
    return flows * torch.where(length > reach, reach / length, 1.0)[:, None]
