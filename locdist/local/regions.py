"""Regions of an image: pixels that are joined by neighbors of their kind."""

from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.local.graph import joined, roots


@dataclass(frozen=True)
class Regions:
    """A partition of an image.

    Parameters
    ----------
    labels : Tensor [h, w] int64
        From 0 on.
    colors : Tensor [m, c]
        Of each region.
    sizes : Tensor [m] int64
        Pixels of each.
    """

    labels: Tensor
    colors: Tensor
    sizes: Tensor

    @staticmethod
    def of(labels: Tensor, pixels: Tensor) -> "Regions":
        """Those of labels [h, w], with the mean colors of their pixels [h w, c]; the largest first, of equal
        ones that which begins first.
        """
        _, flat = torch.unique(labels.flatten(), return_inverse=True)
        sizes = flat.bincount()
        first = torch.full_like(sizes, flat.numel()).scatter_reduce_(
            0, flat, torch.arange(flat.numel()), "amin"
        )
        order = first.argsort()
        order = order[sizes[order].argsort(descending=True, stable=True)]
        flat, sizes = order.argsort()[flat], sizes[order]
        colors = pixels.new_zeros(len(sizes), pixels.shape[1]).index_add_(0, flat, pixels)
        return Regions(flat.reshape(labels.shape), colors / sizes[:, None], sizes)

    def connected(self, pixels: Tensor, reach: float) -> "Regions":
        """Regions that hang together: pixels of one label, or of two that touch and whose colors are no
        farther apart than `reach`, and so on from each to the next.
        """
        heads, tails = borders(self.labels.shape[0], self.labels.shape[1])
        one, other = self.labels.flatten()[heads], self.labels.flatten()[tails]
        near = (self.colors[one] - self.colors[other]).square().sum(1) <= reach * reach
        alike = near | (one == other)
        parents = joined(torch.arange(self.labels.numel()), heads[alike], tails[alike])
        return Regions.of(roots(parents, parents).reshape(self.labels.shape), pixels)

    def absorbed(self, pixels: Tensor, least: int) -> "Regions":
        """Without regions of fewer than `least` pixels: each goes to the one among those it touches that is
        nearest in color, as long as there are some.
        """
        found = self
        while len(found.sizes) > 1 and found.sizes[-1] < least:
            small, into = found._nearest(least)
            parents = joined(torch.arange(len(found.sizes)), small, into)
            found = Regions.of(roots(parents, parents)[found.labels], pixels)
        return found

    def _nearest(self, least: int) -> tuple[Tensor, Tensor]:
        """Small regions, and for each the one that it touches which is nearest in color, of equally near ones
        the largest.
        """
        heads, tails = borders(self.labels.shape[0], self.labels.shape[1])
        pairs = torch.stack([self.labels.flatten()[heads], self.labels.flatten()[tails]], 1)
        pairs = torch.cat([pairs, pairs.flip(1)])
        pairs = torch.unique(pairs[(pairs[:, 0] != pairs[:, 1]) & (self.sizes[pairs[:, 0]] < least)], dim=0)
        apart = (self.colors[pairs[:, 0]] - self.colors[pairs[:, 1]]).square().sum(1)
        order = apart.argsort(stable=True)
        order = order[pairs[order, 0].argsort(stable=True)]
        small, into = pairs[order].T
        begins = torch.cat([torch.ones(1, dtype=torch.bool), small[1:] != small[:-1]])
        return small[begins], into[begins]


def borders(high: int, wide: int) -> tuple[Tensor, Tensor]:
    """Pairs of pixels of an image that share a side, as positions in it."""
    at = torch.arange(high * wide).reshape(high, wide)
    across, down = (at[:, :-1], at[:, 1:]), (at[:-1], at[1:])
    return torch.cat([across[0].flatten(), down[0].flatten()]), torch.cat(
        [across[1].flatten(), down[1].flatten()]
    )
