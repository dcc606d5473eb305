"""`run` and `schema`: pipelines from files."""

import sys
from typing import Annotated

import typer

from locdist.cli import options as opt
from locdist.cli.frame import command, continuing, listening, note, planning, show

PipelinePath = Annotated[str, typer.Argument(help="A YAML file.", metavar="PIPELINE.yaml")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Another value for a key of the file, as YAML; steps go by number or name. Repeat it.",
        metavar="PATH=VALUE",
    ),
]
Overwritten = Annotated[
    list[str] | None,
    typer.Option(
        "--overwrite",
        help="Replace what the folder of this step holds; index is the index. Repeat it.",
        metavar="STEP",
    ),
]


@command
def run(
    context: typer.Context,
    pipeline: PipelinePath,
    changes: Changes = None,
    overwrite: Overwritten = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Run the steps of a pipeline file.

    Given again, the same command continues a stopped run, and computes nothing twice.

    Paths in the file are relative to the working directory.

    \b
    locdist run nightly.yaml
    locdist run nightly.yaml --set run.executor=ray --set run.workers=8
    locdist run nightly.yaml --set steps.predict.method.k=32
        --set steps.predict.out=trial/ --set steps.predict.limit=1000
    locdist plan run nightly.yaml
    locdist run predictions/_locdist/pipeline.yaml      what ran there
    """
    from locdist.pipeline.pipeline import Pipeline
    from locdist.pipeline.report import PipelineReport

    steps, chosen = Pipeline.read(pipeline, changes or ()), overwrite or ()
    if planning(context):
        return show(steps.plan(overwrite=chosen), json)
    reports = []
    for report in steps.each(
        overwrite=chosen,
        listener=listening(quiet),
        command=continuing(sys.argv),
        announce=lambda text: None if quiet else typer.echo(text, err=True),
    ):
        reports.append(report)
        if not json:
            typer.echo(str(report))
            note(report.result)
    if json:
        show(PipelineReport(steps.file.name or "", tuple(reports)), json)


def schema() -> None:
    """Print the JSON Schema of pipeline files, with which editors check and explain them.

    \b
    locdist schema > locdist.schema.json
    and as the first line of a pipeline file:
    # yaml-language-server: $schema=locdist.schema.json
    """
    from json import dumps

    from locdist.pipeline.sections import schema

    typer.echo(dumps(schema(), indent=2, ensure_ascii=False))
