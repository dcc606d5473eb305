"""Public regression tables with fixed splits, read from beside this repository (or from $LOCDIST_DATA).

They are not part of it: their licences allow measuring, not shipping. Each folder has a SOURCE.txt.
"""

import functools
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
ROOT = Path(os.environ.get("LOCDIST_DATA", Path(__file__).parents[2].parent / "shared/data"))
SEEDS = 5  # of a set with a single split


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to predict: keys [n, d] and targets [n]; and the seed of what is random."""

    name: str
    keys: Numbers
    targets: Numbers
    new_keys: Numbers
    new_targets: Numbers
    seed: int = 0

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """Whether the key of a row to predict also occurs among those to learn from [q]."""
        known = {row.tobytes() for row in self.keys}
        return np.array([row.tobytes() in known for row in self.new_keys])


@dataclass(frozen=True)
class Table:
    """A set of splits.

    Parameters
    ----------
    folder : str
        Below the root.
    splits : callable (Path) -> iterator of Split
    reach : float
        The RMSE that is wanted.
    """

    folder: str
    splits: Callable[[Path], Iterator[Split]]
    reach: float

    @property
    def place(self) -> Path:
        """Where its files are."""
        return ROOT / self.folder


def _pbp(folder: Path) -> Iterator[Split]:
    """Hernández-Lobato's splits, in units of the target."""
    rows = np.loadtxt(io.BytesIO(lzma.decompress((folder / "data.txt.xz").read_bytes())))
    columns = np.loadtxt(folder / "index_features.txt").astype(int)
    target = int(np.loadtxt(folder / "index_target.txt"))
    keys, targets = rows[:, columns], rows[:, target]
    parts: dict[str, npt.NDArray[np.int64]] = {}
    with tarfile.open(folder / "splits.tar.xz") as archive:
        for member in archive:
            if (content := archive.extractfile(member)) is not None:
                parts[Path(member.name).name] = np.loadtxt(io.BytesIO(content.read())).astype(np.int64)
    for number in range(int((folder / "n_splits.txt").read_text())):
        here, there = (parts[f"index_{part}_{number}.txt"] for part in ("train", "test"))
        yield Split(str(number), keys[here], targets[here], keys[there], targets[there])


def _gp(folder: Path) -> Iterator[Split]:
    """The ten splits of uci_datasets, the target standardized by the rows that are learned from."""
    rows, masks = (
        np.loadtxt(io.BytesIO(gzip.decompress((folder / name).read_bytes())), delimiter=",")
        for name in ("data.csv.gz", "test_mask.csv.gz")
    )
    for number, mask in enumerate(masks.T > 0):
        mean, scale = rows[~mask, -1].mean(), rows[~mask, -1].std()
        targets = (rows[:, -1] - mean) / scale
        yield Split(str(number), rows[~mask, :-1], targets[~mask], rows[mask, :-1], targets[mask])


def _tabr(folder: Path) -> Iterator[Split]:
    """TabR's split, learned from its training rows alone, with several seeds."""
    parts = {
        f"{kind}_{part}": np.load(folder / f"{kind}_{part}.npy").astype(np.float64)
        for kind in ("X_num", "y")
        for part in ("train", "test")
    }
    for seed in range(SEEDS):
        yield Split(
            f"seed {seed}", parts["X_num_train"], parts["y_train"], parts["X_num_test"], parts["y_test"], seed
        )


_PBP: Mapping[str, tuple[str, float]] = {
    "yacht": ("yacht", 0.42),
    "boston": ("bostonHousing", 2.80),
    "energy": ("energy", 0.50),
    "concrete": ("concrete", 4.85),
    "wine": ("wine-quality-red", 0.59),
    "kin8nm": ("kin8nm", 0.070),
    "power": ("power-plant", 2.95),
    "naval": ("naval-propulsion-plant", 0.00005),
    "protein": ("protein-tertiary-structure", 3.15),
}
_GP: Mapping[str, float] = {"pol": 0.058, "bike": 0.010, "protein": 0.46}
TABLES: Mapping[str, Table] = {
    **{name: Table(f"uci_pbp/{folder}", _pbp, reach) for name, (folder, reach) in _PBP.items()},
    "california": Table("tabular_tabr/california", _tabr, 0.400),
    **{f"gp-{name}": Table(f"uci_gp/{name}", _gp, reach) for name, reach in _GP.items()},
}


@functools.cache
def missing(name: str) -> str:
    """Why a set cannot be read; empty when it can."""
    place = TABLES[name].place
    return "" if place.is_dir() else f"{TABLES[name].folder} is not below {ROOT.name} (set LOCDIST_DATA)"
