"""What every command has around it: errors as readable blocks with their exit code, results on stdout."""

import functools
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol

import typer

from locdist.errors import LocdistError

P = ParamSpec("P")
_SILENT = ("empty", "not_finite", "bad_query")  # rows without an answer
_DEFICIENT = "all predictions are minimum-norm: more features than neighbors allow; use a larger k or --ridge"


class Result(Protocol):
    """What a job returns: text for people, JSON for programs."""

    def to_json(self) -> bytes:
        """The result as JSON."""


def command(function: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors on purpose become a block on stderr and an exit code, without a traceback.

    Anything else that escapes is a fault of locdist: Python prints the traceback and exits with 1.
    """

    @functools.wraps(function)
    def framed(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except LocdistError as error:
            typer.echo(block(error), err=True)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            typer.echo(f"{str(error) or 'interrupted'}\n  {continuing(sys.argv)}", err=True)
            raise typer.Exit(getattr(error, "exit_code", 130)) from error

    return framed


def block(error: LocdistError) -> str:
    """An error in three lines."""
    return f"error\n  expected  {error.expected}\n  got       {error.given}\n  do        {error.remedy}"


def show(result: Result, json: bool) -> None:
    """A result on stdout."""
    typer.echo(result.to_json().decode() if json else str(result))


def carry_out(
    context: typer.Context,
    json: bool,
    verbs: tuple[Callable[..., Any], Callable[..., Any]],
    given: tuple[Any, ...],
    chosen: dict[str, Any],
    run: dict[str, Any],
) -> None:
    """Do the first verb, or behind `locdist plan` the second, which tells what the first would do."""
    do, tell = verbs
    if planning(context):
        show(tell(*given, **chosen, executor=run["executor"], resources=run["resources"]), json)
    else:
        done = do(*given, **chosen, **run)
        show(done, json)
        if not json:
            note(done)


def planning(context: typer.Context) -> bool:
    """Whether `plan` stands in front of the command."""
    return context.parent is not None and context.parent.info_name == "plan"


def note(done: object) -> None:
    """What a user should know about a result and does not see in it."""
    if _minimum_norm(getattr(done, "status", {})):
        typer.echo(_DEFICIENT)


def running(
    executor: str,
    address: str | None,
    workers: int | None,
    processes: bool,
    resources: list[str] | None,
    quiet: bool,
) -> dict[str, Any]:
    """Executor, resources, listener and continuing command of a run."""
    from locdist.cli.options import amounts
    from locdist.execute.choose import executor as chosen
    from locdist.plan.plan import Resources

    return {
        "executor": chosen(executor, workers=workers, processes=processes, address=address),
        "resources": Resources(**amounts(resources)) if resources else None,
        "listener": listening(quiet),
        "command": continuing(sys.argv),
    }


def listening(quiet: bool) -> Any:
    """What shows the progress."""
    from locdist.execute.progress import progress

    return None if quiet else progress(sys.stderr)


def continuing(words: list[str]) -> str:
    """The command line that continues a run: the same, but it must not begin by deleting what is finished."""
    kept: list[str] = []
    left = iter(words[1:])
    for word in left:
        if word == "--overwrite" and kept[:1] == ["run"]:
            next(left, None)  # the step that is overwritten
        elif word.partition("=")[0] != "--overwrite":
            kept.append(word)
    return shlex.join(["locdist", *kept])


def _minimum_norm(status: Mapping[str, int]) -> bool:
    """Whether no answered row has slopes that are identified."""
    answered = {name for name, rows in status.items() if rows and name not in _SILENT}
    return answered == {"rank_deficient"}
