"""What every command has around it: errors as readable blocks with their exit code, results on stdout."""

import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol

import typer

from locdist.cli import options as opt
from locdist.errors import LocdistError

P = ParamSpec("P")
_SILENT = ("empty", "not_finite", "bad_query")  # rows without an answer
_DEFICIENT = "all predictions are minimum-norm: more features than distinct neighbors; raise k or --ridge"


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


@dataclass(frozen=True)
class Job:
    """How a job is run, whatever it computes: the options that all verbs share."""

    context: typer.Context
    executor: str
    address: str | None
    workers: int | None
    processes: bool
    resources: list[str] | None
    overwrite: bool
    json: bool
    quiet: bool

    def carry_out(
        self,
        verbs: tuple[Callable[..., Any], Callable[..., Any]],
        given: tuple[Any, ...],
        chosen: dict[str, Any],
        max_bad: str | None = None,
    ) -> None:
        """Do the first verb, or behind `locdist plan` the second, which tells what the first would do."""
        (do, tell), chosen, where = verbs, chosen | {"overwrite": self.overwrite}, self._where()
        bad = {} if max_bad is None else {"max_bad": opt.max_bad(max_bad)}
        if planning(self.context):
            return show(tell(*given, **chosen, **where), self.json)
        run = bad | {"listener": listening(self.quiet), "command": continuing(sys.argv)}
        done = do(*given, **chosen, **where, **run)
        show(done, self.json)
        if not self.json:
            note(done)

    def _where(self) -> dict[str, Any]:
        """The executor, and what each task asks of it."""
        from locdist.execute.choose import executor
        from locdist.plan.plan import Resources

        chosen = executor(self.executor, workers=self.workers, processes=self.processes, address=self.address)
        asked = Resources(**opt.amounts(self.resources)) if self.resources else None
        return {"executor": chosen, "resources": asked}


def _shared(
    executor: opt.ExecutorName = "local",
    address: opt.Address = None,
    workers: opt.Workers = None,
    processes: opt.Processes = False,
    resources: opt.ResourcesOf = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """The options of a `Job`, as the command line has them."""


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """A command that runs a job: behind its own options it has those of a `Job`, which it gets first."""
    shared = inspect.signature(_shared).parameters
    own = list(inspect.signature(function).parameters.values())[1:]

    @functools.wraps(function)
    def expanded(context: typer.Context, **given: Any) -> None:
        job = Job(context, **{name: given.pop(name) for name in shared})
        function(job, **given)

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    shown: Any = expanded
    shown.__signature__ = inspect.Signature([context, *own, *shared.values()])
    shown.__annotations__ = {each.name: each.annotation for each in shown.__signature__.parameters.values()}
    return command(expanded)


def planning(context: typer.Context) -> bool:
    """Whether `plan` stands in front of the command."""
    return context.parent is not None and context.parent.info_name == "plan"


def note(done: object) -> None:
    """What a user should know about a result and does not see in it."""
    if _minimum_norm(getattr(done, "status", {})):
        typer.echo(_DEFICIENT)


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
