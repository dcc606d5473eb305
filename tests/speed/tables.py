"""`make tables`: one configuration of `tune` over public tables with fixed splits.

    python -m tests.speed.tables [--sets NAME,...] [--splits N] [--json FILE]

For each split: `ld.tune` on the training rows alone, an index with its map, predictions of the test rows with
intervals. Nothing is chosen by a test row. Takes a minute for a small set and hours for all. The file of
--json is written after each split, and what it has is not measured again.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import locdist as ld
from tests.speed.bench import conditions
from tests.speed.sets import TABLES, Split, missing

LEVEL = 0.9
HEAD = (
    "set", "splits", "rows", "RMSE", "+-", "reach", "", "cheap", "known", "RMSE new", "held",
    "by thirds of spread", "tune s", "predict s", "chosen",
)  # fmt: skip
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """What one split told.

    Parameters
    ----------
    rows : int
        Learned from.
    rmse : float
        Of the learned Gaussian process.
    cheap : float
        Of the learned local linear fit.
    known : float
        Share of the predicted rows whose key occurs among those learned from.
    new : float
        RMSE of the others; nan where there are none.
    held : float
        Share of the predicted targets inside of their intervals.
    thirds : sequence of float
        The same for the rows of small, middle and large spread.
    tuned, predicted : float
        Seconds.
    chosen : str
        The options of the best candidate.
    """

    rows: int
    rmse: float
    cheap: float
    known: float
    new: float
    held: float
    thirds: Sequence[float]
    tuned: float
    predicted: float
    chosen: str


def scored(split: Split) -> Score:
    """One split, from its training rows to the scores of its test rows."""
    tuned, answers, seconds = _answered(split, "local-gp")
    _, cheap, _ = _answered(split, "local-linear")
    truth = split.new_targets
    errors, misses = (told["prediction"].to_numpy() - truth for told in (answers, cheap))
    held = (answers["lower"].to_numpy() <= truth) & (truth <= answers["upper"].to_numpy())
    order = np.argsort(answers["spread"].to_numpy(), kind="stable")
    low, middle, high = (float(held[part].mean()) for part in np.array_split(order, 3))
    new = ~split.repeated
    return Score(
        rows=len(split.keys), rmse=_rmse(errors), cheap=_rmse(misses), known=1 - float(new.mean()),
        new=_rmse(errors[new]), held=float(held.mean()), thirds=[low, middle, high],
        tuned=seconds[0], predicted=seconds[1], chosen=tuned.best.told,
    )  # fmt: skip


def _answered(split: Split, method: str) -> tuple[Any, pa.Table, tuple[float, float]]:
    """What was tuned, its answers, and the seconds of both."""
    names = [f"x{column}" for column in range(split.keys.shape[1])]
    roles: dict[str, Any] = {"key": names, "target": "y"}
    started = time.perf_counter()
    support = _table(names, split.keys, split.targets)
    tuned = ld.tune(ld.dataset(support, **roles), method=method, seed=split.seed)
    between = time.perf_counter()
    extras = ["spread", "interval"] if method == "local-gp" else []
    with tempfile.TemporaryDirectory(prefix="locdist-tables-") as folder:
        index = ld.build_index(ld.dataset(support, map=tuned.map, **roles), f"{folder}/index")
        queries = _table(names, split.new_keys, split.new_targets)
        answers = ld.predict(tuned.method, index, queries, extras=extras)
    return tuned, answers, (between - started, time.perf_counter() - between)


def _table(names: Sequence[str], keys: Numbers, targets: Numbers) -> pa.Table:
    return pa.table({**dict(zip(names, keys.T, strict=True)), "y": targets})


def _rmse(errors: Numbers) -> float:
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else float("nan")


def row(name: str, scores: Sequence[Score]) -> tuple[str, ...]:
    """The cells of one set."""
    rmse, reach = [score.rmse for score in scores], TABLES[name].reach
    error = np.std(rmse, ddof=1) / len(rmse) ** 0.5 if len(rmse) > 1 else float("nan")

    def mean(part: str) -> float:
        return float(np.mean([getattr(score, part) for score in scores]))

    thirds = np.mean([score.thirds for score in scores], axis=0)
    options = [score.chosen for score in scores]
    most = max(options, key=options.count)
    chosen = f"{most} ({options.count(most)} of {len(options)})"
    return (
        name, str(len(scores)), f"{mean('rows'):,.0f}", f"{mean('rmse'):.4g}", f"{error:.2g}", f"{reach:g}",
        "yes" if mean("rmse") <= reach else "NO", f"{mean('cheap'):.4g}", f"{mean('known'):.1%}",
        f"{mean('new'):.4g}", f"{mean('held'):.3f}", " ".join(f"{part:.2f}" for part in thirds),
        f"{mean('tuned'):.0f}", f"{mean('predicted'):.1f}", chosen,
    )  # fmt: skip


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """The rows in columns."""
    cells = [HEAD, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each split and a table at the end; returns the exit code."""
    given = _parser().parse_args(arguments)
    print("\n".join(f"{name}: {value}" for name, value in conditions().items()), flush=True)
    found = _kept(given.json)
    for name in given.sets.split(","):
        if why := missing(name):
            print(f"{name}: left out, as {why}", flush=True)
            continue
        scores = found.setdefault(name, [])
        for split in itertools.islice(TABLES[name].splits(TABLES[name].place), len(scores), given.splits):
            scores.append(scored(split))
            print(f"{name} {split.name}: {_told(scores[-1])}", flush=True)
            _keep(found, given.json)
    print(table([row(name, scores) for name, scores in found.items() if scores]))
    return 0


def _kept(place: Path | None) -> dict[str, list[Score]]:
    """What was measured before, the first splits of each set."""
    if place is None or not place.exists():
        return {}
    sets = json.loads(place.read_text())["sets"]
    return {name: [Score(**score) for score in scores] for name, scores in sets.items()}


def _keep(found: dict[str, list[Score]], place: Path | None) -> None:
    if place is not None:
        told = {name: [asdict(score) for score in scores] for name, scores in found.items()}
        place.write_text(json.dumps({"conditions": conditions(), "sets": told}, indent=1) + "\n")


def _told(score: Score) -> str:
    seconds = f"{score.tuned:.1f} + {score.predicted:.1f} s"
    return f"{score.rmse:.4g} (cheap {score.cheap:.4g}), held {score.held:.3f}, {seconds}, {score.chosen}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make tables", description="Public tables with fixed splits.")
    parser.add_argument("--sets", default=",".join(TABLES), metavar="NAME,...", help=", ".join(TABLES))
    parser.add_argument("--splits", type=int, metavar="N", help="the first N splits of each; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all scores there, and go on from it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
