"""`make bench`: one table of speed and memory, ours and the peer side by side, measured in one run.

    python -m tests.speed.bench [--json FILE] [--only ROW ...]

Ratios are what counts: contenders run in turns, three times, and medians are compared. Wants two quiet cores,
4 GB of memory and 2 GB of disk, and takes some minutes. The exit code is 0 whether the reach is met or not: a
busy machine is no failure.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import locdist
from locdist.execute.machine import cpus, memory
from tests.speed.inputs import Sizes, write
from tests.speed.moving import LACKING
from tests.speed.rows import ROWS, Bench, Row, measured

CORES = 2  # the table is stated for two
LIBRARIES = ("torch", "faiss-cpu", "numpy", "pyarrow", "scikit-learn", "muygpys")
HEAD = ("work", "ours", "against", "theirs", "ratio", "reach")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the figures where asked; returns the exit code."""
    given = _parser().parse_args(arguments)
    _take_cores(CORES)
    said = conditions()
    print("\n".join(f"{name}: {value}" for name, value in said.items()), flush=True)
    names = given.only or list(ROWS)
    for name in LACKING.keys() & names:
        print(f"{name}: not measured, {LACKING[name]}", flush=True)
    with tempfile.TemporaryDirectory(prefix="locdist-bench-") as folder:
        bench, rows = run(Sizes(), Path(folder), [name for name in names if name not in LACKING])
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps(figures(said, bench, rows), indent=1) + "\n")
    return 0


def run(sizes: Sizes, folder: Path, names: Sequence[str]) -> tuple[Bench, list[Row]]:
    """Everything from the data to the rows."""
    bench = Bench(write(sizes, folder))
    return bench, measured(bench, names)


def table(rows: Sequence[Row]) -> str:
    """The rows in columns; the last one says what was to be reached and whether it was."""
    cells = [HEAD, *((*_cells(row)[:-1], f"{row.reach}: {'yes' if row.met else 'NO'}") for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(["", lines[0], "-" * len(lines[0]), *lines[1:], ""])


def figures(said: dict[str, str], bench: Bench, rows: Sequence[Row]) -> dict[str, Any]:
    """All numbers, for programs."""
    return {"conditions": said, "rows": [asdict(row) for row in rows], "others": bench.figures}


def conditions() -> dict[str, str]:
    """Versions and machine."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{_processor()}, {cpus()} cores used, {memory() / 2**30:.0f} GiB, load {load}"
    return {
        "versions": f"Python {platform.python_version()}, locdist {locdist.__version__}, {versions}",
        "machine": machine,
    }


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(getattr(row, name) for name in HEAD)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="One table of speed and memory.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--only", action="append", choices=list(ROWS), help="a row; may be given again")
    return parser


def _take_cores(count: int) -> None:
    """Use the first `count` cores that we may use, for everybody in the table."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def _processor() -> str:
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine()
    )


if __name__ == "__main__":
    sys.exit(main())
