"""How many queries are solved together."""

from collections.abc import Iterator

import torch

from locdist.local.neighborhood import Neighborhood

TILE = 256  # queries, and those of a tile are a multiple
_TILES, _NUMBERS = 8, 1 << 20  # at most so many of them together, and so many numbers of their systems


def together(numbers: int) -> int:
    """How many queries a tile has of which each needs so many numbers."""
    return TILE * min(max(_NUMBERS // (TILE * numbers), 1), _TILES)


def tiles(hood: Neighborhood, most: int) -> Iterator[tuple[Neighborhood, int]]:
    """Tiles of at most so many queries, a multiple of TILE, and how many of each are queries: the last one
    repeats its last row up to a multiple, as vector instructions treat the tail of an array differently.
    """
    total = len(hood.ids)
    for start in range(0, total, most):
        count = min(most, total - start)
        rows = torch.arange(start, start + -(-count // TILE) * TILE, device=hood.ids.device)
        yield hood.rows(slice(start, start + most) if count == most else rows.clamp_(max=total - 1)), count
