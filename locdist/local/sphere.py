"""Places on the earth: points of a sphere in space, whose chords give great-circle distances.

A chord is a monotone function of the arc above it, so nearest neighbors are found by any search of points.
"""

import torch
from torch import Tensor

RADIUS = 6371.0  # kilometres, as GWR software has it


def arcs(squares: Tensor) -> Tensor:
    """Squared great-circle distances of squared chords, in square kilometres; inf stays."""
    sines = (squares.sqrt() / (2 * RADIUS)).clamp(max=1.0)
    return (2 * RADIUS * torch.asin(sines)).square().masked_fill(squares.isinf(), float("inf"))


def points(degrees: Tensor) -> Tensor:
    """Longitudes and latitudes [n, 2] in degrees as points [n, 3] of the sphere, in kilometres."""
    longitude, latitude = torch.deg2rad(degrees.double()).unbind(1)
    across = latitude.cos()
    return RADIUS * torch.stack([across * longitude.cos(), across * longitude.sin(), latitude.sin()], 1)
