"""The application: its commands, and those that only look."""

import inspect
import os
import sys
import threading
from typing import Annotated

import typer

import locdist
from locdist.cli import (
    choosing,
    clustering,
    commands,
    coupling,
    images,
    moving,
    networks,
    pipelines,
    series,
    sites,
    tuning,
)
from locdist.cli import options as opt
from locdist.cli.frame import command, show

_WIDE = 22  # columns for the name of a method
_CODES = (
    "Exit codes: 0 done, 1 a fault of locdist, 2 wrong use, 3 data, 4 machine (try again), "
    "5 too many bad rows, 130 or 143 stopped."
)

app = typer.Typer(
    name="locdist",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # an internal error is reported with Python's own traceback
    epilog=_CODES,
)
plan = typer.Typer(
    name="plan",
    no_args_is_help=True,
    help="What a command would run and why: put `plan` in front of it. Nothing is computed or written.",
)


def main() -> None:
    """What `locdist` runs.

    A run that is stopped at once leaves tasks behind in threads that nobody can end; the interpreter would
    abort when it closes below them.
    """
    try:
        app()
    except SystemExit as end:
        if not any(thread.name.startswith("locdist-") for thread in threading.enumerate()):
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"locdist {locdist.__version__}")
        raise typer.Exit


@app.callback()
def locdist_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version, and no more.")
    ] = False,
) -> None:
    """Predict from neighbors, for data too large for one process.

    \b
    locdist index data/train/ --key lon,lat --target price --out index/
    locdist predict index/ data/new/ --method local-linear --out pred/
    locdist evaluate pred/
    locdist explain pred/ --row 17
    locdist run nightly.yaml          all of it from a file
    """


def evaluate(
    folder: opt.Folder,
    target: Annotated[
        str | None,
        typer.Option("--target", help="The column of the truth; the target of the index by default."),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            "--truth", help="Where it is, if not in the output or the queries: rows in the same order."
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Score a finished prediction: RMSE, MAE, R²; or log-loss, Brier score and accuracy.

    \b
    locdist evaluate predictions/ --target price
    locdist evaluate predictions/ --target price --truth data/known/
    """
    from locdist.jobs.evaluate import evaluate

    show(evaluate(folder, target, truth), json)


def explain(
    folder: opt.Folder,
    row: Annotated[
        int | None, typer.Option("--row", help="The number of the query in the whole input, from 0.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Instead: its id, if the output kept it.")] = None,
    json: opt.Json = False,
) -> None:
    """Show what is behind one prediction: neighbors, weights, coefficients.

    \b
    locdist explain predictions/ --row 17
    locdist explain predictions/ --id flight-4711 --json
    """
    from locdist.jobs.explain import explain

    show(explain(folder, row, id), json)


def status(folder: opt.Folder, verify: opt.Verify = False, json: opt.Json = False) -> None:
    """Say how a folder stands: finished, missing, failed and why, and the command that continues.

    Exits with what the last run ended with; with 4 when it died or its outputs are damaged, with 0 while it
    runs.

    \b
    locdist status predictions/
    locdist status index/ --verify
    """
    from locdist.jobs.status import status

    told = status(folder, verify)
    show(told, json)
    raise typer.Exit(told.code)


def methods() -> None:
    """List the methods and the kernels."""
    from locdist.jobs.restoring.chosen import RESTORE_METHODS
    from locdist.local.kernels import KERNELS
    from locdist.methods.coupled import COUPLED_METHODS
    from locdist.methods.embedded import EMBED_METHODS
    from locdist.methods.labels import LABEL_METHODS
    from locdist.methods.layered import LAYERED_METHODS
    from locdist.methods.multiscale import BACKFIT_METHODS
    from locdist.methods.named import METHODS
    from locdist.methods.series import SERIES_METHODS

    tables = {
        "move": LAYERED_METHODS,
        "label": LABEL_METHODS,
        "embed": EMBED_METHODS,
        "couple": COUPLED_METHODS,
        "backfit": BACKFIT_METHODS,
        "forecast": SERIES_METHODS,
        "restore": RESTORE_METHODS,
    }
    for verb, table in [("", METHODS), *tables.items()]:
        typer.echo(f"methods of `{verb}`" if verb else "methods (parameters after the name)")
        for name, make in table.items():
            typer.echo(f"  {name:<{_WIDE}}{_summary(make)}")
            typer.echo(f"  {'':<{_WIDE}}{' '.join(inspect.signature(make).parameters)}")
    typer.echo("kernels (u: distance / bandwidth)")
    for name, kernel in KERNELS.items():
        typer.echo(f"  {name:<{_WIDE}}{_summary(kernel)}")


def doctor(json: opt.Json = False) -> None:
    """Say what this machine has to compute with, and what of it does not go together; exits with 4 then.

    \b
    locdist doctor
    """
    from locdist.execute.doctor import examined

    found = examined()
    show(found, json)
    raise typer.Exit(4 if found.problems else 0)


def _summary(documented: object) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


for _verb in (
    commands.index,
    commands.predict,
    commands.neighbors,
    commands.transform,
    networks.graph,
    networks.label,
    networks.embed,
    networks.place,
    coupling.couple,
    coupling.apply,
    clustering.cluster,
    clustering.assign,
    moving.move,
    sites.backfit,
    series.forecast,
    images.restore,
    pipelines.run,
):
    app.command()(_verb)
    plan.command()(_verb)
app.command()(clustering.bandwidth)
app.command()(choosing.select)
app.command()(series.backtest)
app.command()(tuning.tune)
app.command()(tuning.rules)
for _look in (evaluate, explain, status, methods, doctor, pipelines.schema):
    app.command()(command(_look))
app.add_typer(plan)
