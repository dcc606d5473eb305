"""The options that commands share, and how their words become values."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from locdist.errors import UsageError, did_you_mean

_METHOD = "Method"
_SUPPORT = "Support"
_OUTPUT = "Output"
_RUN = "Run"


def _option(*names: str, panel: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)


# Arguments
SupportPath = Annotated[
    str, typer.Argument(help="Folder, file or quoted pattern of the support: the rows that may be neighbors.")
]
IndexPath = Annotated[str, typer.Argument(help="The folder that `locdist index` wrote.")]
QueriesPath = Annotated[
    str, typer.Argument(help="Folder, file or quoted pattern of the queries: the rows to answer.")
]
Folder = Annotated[str, typer.Argument(help="The folder that a job wrote.")]
Out = Annotated[
    str, _option("--out", "-o", panel=_OUTPUT, help="Folder to write, apart from the inputs.", metavar="DIR")
]

# The support
_KEY = (
    "What says how far two rows are apart: a column, or NAME:MULTIPLIER to make it count more. "
    "Repeat it, or use commas."
)
Key = Annotated[list[str], _option("--key", panel=_SUPPORT, help=_KEY, metavar="NAME[:X]")]
Features = Annotated[
    list[str] | None,
    _option(
        "--features",
        panel=_SUPPORT,
        help="What a local model is fitted on; the key by default.",
        metavar="NAME[:X]",
    ),
]
Target = Annotated[
    list[str] | None, _option("--target", panel=_SUPPORT, help="What is predicted.", metavar="NAME")
]
Id = Annotated[
    str | None, _option("--id", panel=_SUPPORT, help="The column that names a row.", metavar="NAME")
]
Weight = Annotated[
    str | None, _option("--weight", panel=_SUPPORT, help="How much a row counts, 0 or more.", metavar="NAME")
]
Offset = Annotated[
    str | None,
    _option("--offset", panel=_SUPPORT, help="Added to the linear predictor of counts.", metavar="NAME"),
]
Shape = Annotated[
    list[str] | None,
    _option("--shape", panel=_SUPPORT, help="Of rules: sizes of memberships, slopes.", metavar="NAME,..."),
]
Scaling = Annotated[
    str | None,
    _option(
        "--scaling",
        panel=_SUPPORT,
        help="standard (default for numbers) or none (default for vectors); key=none,features=standard.",
    ),
]
Metric = Annotated[
    str, _option("--metric", panel=_SUPPORT, help="l2, cosine, haversine (longitude, latitude) or ip.")
]
Map = Annotated[
    str | None,
    _option(
        "--map", panel=_SUPPORT, help="What `locdist tune` wrote: the key is mapped by it.", metavar="FILE"
    ),
]
Codes = Annotated[
    str | None,
    _option("--codes", panel=_SUPPORT, help="exact, fp16 or flat; chosen from rows and width by default."),
]
Nlist = Annotated[
    int | None, _option("--nlist", panel=_SUPPORT, help="Number of lists; about 2 √n by default.")
]
Bad = Annotated[
    str, _option("--bad", panel=_SUPPORT, help="raise or drop: what happens to support rows with gaps.")
]
Seed = Annotated[int, _option("--seed", panel=_SUPPORT, help="Of the sample and of the k-means.")]

# The method
MethodName = Annotated[
    str, _option("--method", "-m", panel=_METHOD, help="`locdist methods` lists them.", metavar="NAME")
]
Neighbors = Annotated[int | None, _option("-k", panel=_METHOD, help="Neighbors of each query.", metavar="N")]
_OR_ALL = (
    "Neighbors of each query, by default as `locdist methods` tells; `all` sums over all the support, with a "
    "--bandwidth."
)
NeighborsOrAll = Annotated[str | None, _option("-k", panel=_METHOD, help=_OR_ALL, metavar="N|all")]
NeighborsToFind = Annotated[int, _option("-k", panel=_METHOD, help="Neighbors of each query.", metavar="N")]
KernelName = Annotated[
    str | None,
    _option(
        "--kernel", panel=_METHOD, help="How distance becomes weight: tricube, gaussian, ...", metavar="NAME"
    ),
]
Bandwidth = Annotated[
    str | None,
    _option(
        "--bandwidth",
        panel=_METHOD,
        help="A distance, nearest, nearest:1.5 (times the k-th distance), or sample-point:8.",
        metavar="H",
    ),
]
Ridge = Annotated[float | None, _option("--ridge", panel=_METHOD, help="Penalty of local slopes.")]
Param = Annotated[
    list[str] | None,
    _option("--param", panel=_METHOD, help="Any other parameter of the method.", metavar="NAME=VALUE"),
]
Recall = Annotated[
    float,
    _option("--recall", panel=_METHOD, help="Share of the true neighbors that searches are tuned to find."),
]
RecallOfRun = Annotated[
    float | None,
    _option(
        "--recall", panel=_METHOD, help="Share of the true neighbors to find; the index's own by default."
    ),
]

# The output
Keep = Annotated[
    list[str] | None,
    _option(
        "--keep",
        panel=_OUTPUT,
        help="Input columns to keep, '*' for all; the id by default.",
        metavar="NAME",
    ),
]
Extras = Annotated[
    list[str] | None,
    _option(
        "--extras",
        panel=_OUTPUT,
        help="spread, interval, effective, neglected, coefficients, parameters: more columns.",
        metavar="NAME",
    ),
]
Explain = Annotated[
    int,
    _option(
        "--explain", panel=_OUTPUT, help="Neighbors to list with each prediction, at most k.", metavar="N"
    ),
]
Overwrite = Annotated[bool, _option("--overwrite", panel=_OUTPUT, help="Replace what the folder holds.")]

# The run
Limit = Annotated[
    int | None, _option("--limit", panel=_RUN, help="Only the first N rows: a trial.", metavar="N")
]
MaxBad = Annotated[
    str | None,
    _option(
        "--max-bad",
        panel=_RUN,
        help="Bad queries allowed, 0.1% or 100; more end in exit code 5.",
        metavar="SHARE",
    ),
]
ExecutorName = Annotated[
    str,
    _option("--executor", panel=_RUN, help="Where tasks run: local, ray or dask.", metavar="NAME"),
]
Address = Annotated[
    str | None,
    _option(
        "--address",
        panel=_RUN,
        help="A running cluster of Ray or Dask; without it one is started here and stopped after.",
    ),
]
Workers = Annotated[
    int | None, _option("--workers", panel=_RUN, help="Cores to use; all that there are by default.")
]
Processes = Annotated[
    bool, _option("--processes", panel=_RUN, help="Local only: spawned processes instead of threads.")
]
ResourcesOf = Annotated[
    list[str] | None,
    _option(
        "--resources",
        panel=_RUN,
        help="What each task asks of a worker: cpus=2,memory=6GiB,gpus=1, or a name that the cluster gave.",
        metavar="NAME=AMOUNT",
    ),
]
Verify = Annotated[
    bool, _option("--verify", panel=_RUN, help="Read every file that was written and compare its checksum.")
]
Json = Annotated[
    bool, _option("--json", panel=_RUN, help="The result as JSON on stdout, and nothing else there.")
]
Quiet = Annotated[bool, _option("--quiet", "-q", panel=_RUN, help="No progress.")]


def names(given: Sequence[str] | None) -> list[str]:
    """Names of an option that may be repeated and hold commas."""
    return [name.strip() for each in given or () for name in each.split(",") if name.strip()]


def columns(given: Sequence[str] | None) -> dict[str, float]:
    """Columns with their multipliers, 1 where none is given."""
    return dict(_weighted(each) for each in names(given))


def keep(given: Sequence[str] | None) -> list[str] | str | None:
    """Columns to keep, or "*" for all."""
    if given is None:
        return None
    told = names(given)
    return "*" if "*" in told else told


def neighbors(given: str) -> int | None:
    """A number, or None for "all"."""
    if given == "all":
        return None
    if not given.isdecimal():
        raise UsageError("how many neighbors count, or all", repr(given), "Write -k 32, or -k all.")
    return int(given)


def bandwidth(given: str) -> float | str | dict[str, float]:
    """A number, "nearest", "nearest:1.5", "sample-point:8", or JSON."""
    word, colon, scale = given.partition(":")
    adaptive = word in ("nearest", "sample-point")
    value = value_of(scale if adaptive else given)
    if given == "nearest" or isinstance(value, dict):
        return given if isinstance(value, str) else value
    if isinstance(value, str):
        expected = "a bandwidth like 0.5, nearest, nearest:1.5 or sample-point:8"
        raise UsageError(expected, repr(given), "Correct --bandwidth.")
    return {word: value} if colon and adaptive else float(value)


def parameters(given: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON where they can be, else words."""
    return dict(_parameter(each) for each in given or ())


def value_of(text: str) -> Any:
    """A value as JSON where it can be, else a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def max_bad(given: str | None) -> float | None:
    """A share from "0.1%" or a number of rows from "100"."""
    from locdist.pipeline import amounts

    return None if given is None else amounts.max_bad(given)


def amounts(given: Sequence[str] | None) -> dict[str, Any]:
    """NAME=AMOUNT pairs as the fields of `Resources`."""
    from locdist.pipeline.amounts import memory

    told: dict[str, Any] = {}
    custom: dict[str, float] = {}
    for pair in names(given):
        name, _, text = pair.partition("=")
        number = memory(text) if name == "memory" else _number(text)
        if number is None or not name:
            raise UsageError("resources as NAME=AMOUNT", repr(pair), "Write --resources cpus=2,memory=6GiB.")
        if name in ("cpu", "gpu", "mem"):
            raise UsageError(
                "cpus, gpus, memory, or a name of the cluster",
                repr(name),
                did_you_mean(name, ("cpus", "gpus", "memory")),
            )
        (told if name in ("cpus", "gpus", "memory") else custom)[name] = number
    return {**told, "custom": custom}


def _weighted(given: str) -> tuple[str, float]:
    name, colon, factor = given.rpartition(":")
    if not colon:
        return given, 1.0
    number = _number(factor)
    if number is None or not name:
        raise UsageError(
            "a column, or NAME:MULTIPLIER with a number",
            f"{given!r}: bad multiplier {factor!r}" if name else f"{given!r}: no column",
            "Write lat:2. A colon that belongs to the name needs a multiplier behind it: time:utc:1.",
        )
    return name, number


def _parameter(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise UsageError("a parameter as NAME=VALUE", repr(given), "Write --param ridge=0.1.")
    return name, value_of(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
