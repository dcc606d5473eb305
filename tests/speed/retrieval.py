"""Retrieval of k patterns from a million, beside the softmax over all: the error, and the bound that is told.

python -m tests.speed.retrieval [--rows 1000000]
"""

import argparse

import numpy as np
import torch

import locdist as ld

WIDTH, K, QUERIES = 64, 1000, 100
SHARES = (0.5, 0.9, 0.99)  # of the mass, that the k patterns hold in the median


def main() -> None:
    """Print a line for each share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((rows, WIDTH)).astype(np.float32)
    patterns /= np.linalg.norm(patterns, axis=1, keepdims=True)
    queries = patterns[:QUERIES] + 0.05 * rng.standard_normal((QUERIES, WIDTH)).astype(np.float32)
    scores = torch.from_numpy(queries.astype(np.float64) @ patterns.T.astype(np.float64)).sort(1).values
    index = ld.Exact(patterns, metric="ip")
    print(f"{rows:,} patterns x {WIDTH}, k={K:,}, {QUERIES} queries; medians, and the extremes of the ratio")
    for share in SHARES:
        beta = _beta(scores, share)
        found = ld.hopfield(beta, K, steps=1)(index, queries, want={"neglected"})
        whole = ld.hopfield(beta, steps=1)(index, queries)
        error = torch.linalg.vector_norm(found.values - whole.values, dim=1)
        assert found.neglected is not None
        reach = 1 + torch.linalg.vector_norm(found.values, dim=1)  # to any pattern from there
        bound = found.neglected * reach
        ratio = bound / error
        print(
            f"beta {beta:6.2f}: the k hold {_held(scores, beta).median():.3f}; error {error.median():.2e}, "
            f"bound {bound.median():.2e}, bound / error {ratio.min():.2f} to {ratio.max():.2f}",
            flush=True,
        )


def _held(scores: torch.Tensor, beta: float) -> torch.Tensor:
    """The share [q] of the k largest."""
    return torch.softmax(beta * scores, 1)[:, -K:].sum(1)


def _beta(scores: torch.Tensor, share: float) -> float:
    """Where the k largest hold the share in the median, by bisection."""
    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _held(scores, middle).median() < share else (low, middle)
    return high


if __name__ == "__main__":
    main()
