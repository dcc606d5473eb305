"""Distances between all pairs of queries and rows, where rows are not retrieved."""

import torch
from torch import Tensor

from locdist.local.sphere import arcs


def distances(queries: Tensor, keys: Tensor, metric: str) -> Tensor:
    """Distances [q, n] as an index tells them: squared ("haversine": squared arcs), or minus the scores."""
    if metric == "ip":
        return -(queries.double() @ keys.double().mT)
    if metric == "cosine":
        queries = queries / torch.linalg.vector_norm(queries, dim=1, keepdim=True)
    # differences, not products: a product loses half the digits of small distances
    exact = "donot_use_mm_for_euclid_dist"
    squares = torch.cdist(queries.double(), keys.double(), compute_mode=exact).square_()
    return arcs(squares) if metric == "haversine" else squares
