"""`mix_kernels`: how much each of several kernels should count in a local mean."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.dataset import Dataset
from locdist.errors import UsageError
from locdist.jobs.chosen import write_method
from locdist.jobs.sample import Sample
from locdist.jobs.select import opened
from locdist.jobs.telling.text import aligned
from locdist.local.kernels import Kernel, Mixture, bandwidth_spec, kernel, kernel_spec, weigh
from locdist.local.models import known_targets, weighted_sums
from locdist.local.simplex import minimum
from locdist.local.tiles import TILE
from locdist.methods.method import Method
from locdist.methods.named import local_mean
from locdist.search.exact import Exact
from locdist.search.generation import Generation


@dataclass(frozen=True)
class Mixed:
    """Kernels, their weights in the mean, and leave-one-out errors.

    Attributes
    ----------
    method : Method
        The local mean with the mixture.
    kernels : tuple of dict
        Each with its weight, kernel, bandwidth and its own mean squared leave-one-out error.
    error : float
        The mean squared leave-one-out error of the mixture.
    sample, rows : int
        Rows that were asked, and rows of the support.
    """

    method: Method
    kernels: tuple[dict[str, Any], ...]
    error: float
    sample: int
    rows: int

    @property
    def table(self) -> pa.Table:
        """A row for each kernel; kernels and bandwidths are text, JSON where they are no words."""
        return pa.Table.from_pylist([each | _words(each) for each in self.kernels])

    def write(self, place: str | Path) -> None:
        """Write the method to a file that can stand for the name of a method."""
        write_method(self.method, place, {"error": self.error, "sample": self.sample, "rows": self.rows})

    def to_json(self) -> bytes:
        """All of it as JSON."""
        told = {"method": self.method.spec, "error": self.error, "kernels": list(self.kernels)}
        return json.dumps(told | {"sample": self.sample, "rows": self.rows}, indent=1).encode()

    def __str__(self) -> str:
        rows = [
            (f"{each['weight']:.4f}", *_words(each).values(), f"{each['error']:.6g}") for each in self.kernels
        ]
        head = f"mean squared leave-one-out error {self.error:.6g} on {self.sample:,} of {self.rows:,} rows"
        return "\n".join([head, *aligned(rows)])


def mix_kernels(
    kernels: Sequence[str | Mapping[str, Any]],
    support: Dataset | Generation | Exact | str | Path,
    *,
    k: int = 128,
    sample: int = 2000,
    seed: int = 0,
    bad: str = "raise",
) -> Mixed:
    """Weights of several kernels, at least 0 and of the sum one, with the smallest leave-one-out error.

    Each kernel is hollow (a row is not among its own neighbors) and normalized; with r_l the residuals of its
    local means and A = (⟨r_l, r_m⟩) the weights minimise w'Aw on the simplex, with the exact projection. So
    the mixture is at least as good on the sample as the best of its kernels.

    Parameters
    ----------
    kernels : list of str or mapping
        "tricube", {"kernel": "gaussian", "bandwidth": 0.5}, {"product": [...]}, or {"kernel": "uniform",
        "bandwidth": {"nearest": 1.0, "rank": 8}}.
    support : Dataset, or an index
        As in `select`.
    k : int
        Neighbors of all kernels.
    sample : int
        Rows that are asked; at most all of them.
    seed : int
        Of the sample.
    bad : {"raise", "drop"}
        As in `build_index`.

    Returns
    -------
    Mixed
        `method` is the local mean with the mixture.
    """
    if isinstance(kernels, str | Mapping) or not kernels:
        raise UsageError("a list of kernels", repr(kernels), "Name two or more.")
    parts = [_kernel(each) for each in kernels]
    with opened(support, bad) as index:
        asked = Sample.of(index, k, sample, seed)
        residuals = _residuals(asked, parts, k)
    gram = residuals.mT @ residuals / len(residuals)
    shares = minimum(gram)
    mixture = Mixture(parts=tuple(zip(shares.tolist(), parts, strict=True)))
    told = tuple(
        {"weight": share, "kernel": kernel_spec(part), "bandwidth": bandwidth_spec(part), "error": error}
        for share, part, error in zip(shares.tolist(), parts, gram.diagonal().tolist(), strict=True)
    )
    method = local_mean(k, kernel_spec(mixture))
    return Mixed(method, told, float(shares @ gram @ shares), len(residuals), asked.total)


def _residuals(asked: Sample, kernels: Sequence[Kernel], k: int) -> Tensor:
    """Of the local mean of each kernel [s, l], each row left out; where nobody counts those of the mean."""
    needs = frozenset({"targets"}).union(*(each.needs for each in kernels))
    middle, found = asked.truth(codes=False).mean(), []
    for start in range(0, len(asked.own), TILE):
        rows = asked.rows(slice(start, start + TILE)).asked(needs, hollow=True)
        hood = rows.hood.first(k)
        weights = [weigh(each, hood).weights for each in kernels]
        means = [weighted_sums(each, known_targets(hood, each))[:, 0] for each in weights]
        silent = torch.stack([each.sum(1) == 0 for each in weights], 1)
        found.append(torch.stack(means, 1).masked_fill(silent, float(middle)) - rows.truth[:, None])
    return torch.cat(found)


def _kernel(choice: str | Mapping[str, Any]) -> Kernel:
    if isinstance(choice, Mapping) and "kernel" in choice:
        return kernel(choice["kernel"], choice.get("bandwidth"))
    return kernel(choice)


def _words(told: Mapping[str, Any]) -> dict[str, str]:
    """Kernel and bandwidth as text."""
    parts = {name: told[name] for name in ("kernel", "bandwidth")}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in parts.items()}
