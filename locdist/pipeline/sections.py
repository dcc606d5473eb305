"""The sections of a pipeline file: what each may say, in the words that editors show.

What is wrong with a single section is found here; what does not fit together, in `meaning`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from locdist.data.dataset import Roles
from locdist.data.filesystems import refuse_credentials
from locdist.errors import UsageError
from locdist.jobs.chosen import read_map
from locdist.pipeline.choices import TAG, Choice
from locdist.pipeline.section import Columns, MaxBad, Memory, Place, Places, Section, Texts

VERBS = ("predict", "neighbors", "transform", "evaluate")
_PATH_OR_STEP = ConfigDict(json_schema_extra={"oneOf": [{"required": ["path"]}, {"required": ["step"]}]})


def _one_verb(schema: dict[str, Any]) -> None:
    """In the schema: one of them, and not null."""
    schema.update(minProperties=1, maxProperties=1)
    for verb in schema["properties"].values():
        del verb["default"]
        verb.update(verb.pop("anyOf")[0])


def _address(given: str) -> str:
    refuse_credentials(given)
    return given


Name = Annotated[
    str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", description="What later steps and --set call this step.")
]
Out = Annotated[Place, Field(description="The folder to write, apart from inputs and other outputs.")]
Keep = Annotated[
    Texts | None,
    Field(
        description="Input columns that go to the output, '*' for all. By default the id, or where there is "
        "none each row's file and its number in it."
    ),
]
Extra = (
    Literal["spread", "interval", "effective", "coefficients", "parameters", "listwise"]
    | Annotated[str, Field(pattern=r"^interval=0?\.\d+$")]
)
Extras = Annotated[
    tuple[Extra, ...],
    Field(
        strict=False,
        description="More columns: standard error of the prediction, effective number of neighbors, local "
        "coefficients in the units of the data (the value at the query first) as a list, or a column each.",
    ),
]
Explain = Annotated[
    int, Field(ge=0, description="Neighbors to list with each prediction, and what each counted; at most k.")
]
Limit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Field(description="Only the first so many rows: a trial, into another folder."),
]
Share = Annotated[float, Field(gt=0, le=1)]
Recall = Annotated[
    Share | None,
    Field(description="Share of the true neighbors to find; the target of the index by default."),
]
Codes = Annotated[
    Literal["exact", "fp16", "flat"] | None,
    Field(description="How the keys are kept for the search; chosen from their number and width by default."),
]
Bad = Annotated[
    Literal["raise", "drop"],
    Field(description="Support rows that cannot be used: an error that names them, or left out and counted."),
]
ScalingWord = Literal["standard", "none"]


class ScalingOf(Section):
    """Scaling of the key and of the features, each on its own."""

    key: ScalingWord | None = None
    """Of the key."""
    features: ScalingWord | None = None
    """Of the features."""


Scaling = Annotated[
    Annotated[ScalingWord, Tag(f"{TAG}both")] | Annotated[ScalingOf, Tag(f"{TAG}each")],
    Discriminator(lambda given: f"{TAG}each" if isinstance(given, dict | ScalingOf) else f"{TAG}both"),
]


class Rows(Section):
    """Where rows are: files, or what an earlier step wrote."""

    model_config = _PATH_OR_STEP

    path: Places | None = None
    """A folder, a file, a pattern (data/2026-*/*.parquet), or a list of these. Relative to the working
    directory.
    """
    step: str | None = None
    """Instead: the name of an earlier step, whose output is read."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        _path_or_step(self.path, self.step)
        return self


class Support(Section):
    """The rows that may be neighbors, and what their columns are for."""

    model_config = _PATH_OR_STEP

    path: Places | None = None
    """A folder, a file, a pattern (data/2026-*/*.parquet), or a list of these. Relative to the working
    directory.
    """
    step: str | None = None
    """Instead, in a transform step: the name of an earlier step, whose output is read."""
    key: Columns
    """What says how far two rows are apart: a column, a list of columns, or columns with multipliers
    ({longitude: 1, latitude: 1, rooms: 0.5}). Numbers, categories or vectors.
    """
    features: Columns | None = None
    """What the local model is fitted on, written like the key; the key by default."""
    target: Texts = ()
    """What is predicted: a column or a list of columns."""
    weight: str | None = None
    """The column that says how much a row counts, 0 or more."""
    offset: str | None = None
    """The column that is added to the linear predictor of generalized linear models; queries have it too."""
    id: str | None = None
    """The column that names a row."""
    scaling: Scaling | None = None
    """standard or none, or of each role: {key: none, features: standard}. By default columns of numbers are
    standardized, columns of vectors are not.
    """
    metric: Literal["l2", "cosine", "haversine", "ip"] = "l2"
    """How keys are compared."""
    map: Place | None = None
    """A file that `locdist tune` wrote: what the key is mapped by."""
    bad_files: Literal["raise", "skip"] = "raise"
    """What happens to a damaged file."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _path_or_step(self.path, self.step)
        _ = self.roles
        return self

    @property
    def roles(self) -> Roles:
        """The roles of the columns; UsageError when they do not fit together."""
        each = self.scaling.model_dump(exclude_none=True) if isinstance(self.scaling, ScalingOf) else {}
        scaling = tuple(sorted(each.items())) if isinstance(self.scaling, ScalingOf) else self.scaling
        key, features = tuple(self.key.items()), tuple((self.features or {}).items())
        mapped = read_map(self.map) if self.map is not None else None
        return Roles(
            key, features, self.target, self.weight, self.id, self.metric, scaling, mapped, self.offset
        )


class Index(Section):
    """The index of the support. Where the file has a support it is built, unless it is there; otherwise it is
    opened.
    """

    path: Place
    """The folder of the index, apart from the data. Relative to the working directory."""
    recall: Share = 0.99
    """Share of the true k nearest neighbors that searches are tuned to find."""
    codes: Codes = None
    nlist: Annotated[int, Field(ge=1)] | None = None
    """Number of lists; about 2 √n by default."""
    bad: Bad = "raise"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the sample and of the k-means."""


class Predict(Section):
    """A local model at every query."""

    name: Name = "predict"
    method: Choice
    """The method: its name, or its name and parameters ({name: local-linear, k: 64, kernel: tricube}).
    `locdist methods` lists them.
    """
    queries: Rows | None = None
    """The rows to predict; the queries of the file by default."""
    out: Out
    keep: Keep = None
    extras: Extras = ()
    explain: Explain = 0
    recall: Recall = None
    limit: Limit = None


class Neighbors(Section):
    """The k nearest rows of the support for every query: the kNN join itself."""

    name: Name = "neighbors"
    k: Annotated[int, Field(ge=1)]
    """Neighbors of each query."""
    queries: Rows | None = None
    """The rows to find neighbors of; the queries of the file by default."""
    out: Out
    keep: Keep = None
    recall: Recall = None
    limit: Limit = None


class Transform(Section):
    """A local model at every row of the support, from the other rows. It has an index of its own."""

    name: Name = "transform"
    method: Choice
    """The method, as in predict."""
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    keep: Keep = None
    extras: Extras = ()
    explain: Explain = 0
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find."""
    codes: Codes = None
    limit: Limit = None


class Evaluate(Section):
    """How good a prediction is: rmse, mae and r2, or log-loss, Brier score and accuracy."""

    name: Name = "evaluate"
    step: str | None = None
    """The step whose predictions are scored; the last predict or transform above by default."""
    target: str | None = None
    """The column of the truth; the target of the index by default."""
    truth: Places | None = None
    """Where it is, if neither in the output nor in the queries: as many rows, in the same order."""


class Step(Section):
    """One step: its verb, and what it is to do."""

    model_config = ConfigDict(json_schema_extra=_one_verb)

    predict: Predict | None = None
    """A local model at every query."""
    neighbors: Neighbors | None = None
    """The k nearest rows of the support for every query."""
    transform: Transform | None = None
    """A local model at every row of the support."""
    evaluate: Evaluate | None = None
    """Metrics of an earlier prediction."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [verb for verb in VERBS if getattr(self, verb) is not None]
        if len(given) != 1:
            wanted, told = f"one of {', '.join(VERBS)} in a step", " and ".join(given) or "none"
            raise UsageError(wanted, told, "Begin each step with a dash.")
        return self

    @property
    def verb(self) -> str:
        """What is done."""
        return next(verb for verb in VERBS if getattr(self, verb) is not None)

    @property
    def content(self) -> Predict | Neighbors | Transform | Evaluate:
        """How it is done."""
        content: Predict | Neighbors | Transform | Evaluate = getattr(self, self.verb)
        return content


class Amounts(Section):
    """What each task asks of a worker."""

    cpus: Annotated[float, Field(gt=0)] = 1.0
    """Cores; libraries get as many threads."""
    memory: Memory | None = None
    """Memory, 6GiB say; what the plan predicts by default."""
    gpus: Annotated[float, Field(ge=0)] = 0.0
    """Devices, or a share of one."""
    custom: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Anything else that workers were started with, by the names that the cluster gave it."""


class Run(Section):
    """Where and how it runs. Nothing here changes an answer."""

    executor: Literal["local", "ray", "dask"] = "local"
    """This machine, or a cluster of Ray or Dask."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """Cores to use; all that there are by default."""
    address: Annotated[str, AfterValidator(_address)] | None = None
    """A running cluster of Ray or Dask; without it one is started here, and stopped after."""
    processes: bool = False
    """Local only: spawned processes instead of threads."""
    resources: Amounts | None = None
    """What each task asks of a worker."""
    max_bad: MaxBad | None = None
    """Queries that may be bad, 0.1% or 100; more end in exit code 5, after all is written."""


class File(Section):
    """A pipeline of locdist: a support, an index, queries, and steps that read and write partitions."""

    version: Literal[1]
    """Of the form of this file."""
    name: str | None = None
    """What people call it."""
    support: Support | None = None
    """The rows that may be neighbors."""
    queries: Rows | None = None
    """The rows to answer."""
    index: Index | None = None
    """The index of the support."""
    steps: Annotated[tuple[Step, ...], Field(strict=False, min_length=1)]
    """What is done, in this order. Each step may read what an earlier one wrote."""
    run: Run = Run()
    """Where and how it runs."""


def _path_or_step(path: object, step: object) -> None:
    if (path is None) == (step is None):
        given = "both" if path is not None else "neither"
        raise UsageError("path or step", given, "Say where the rows are: path: data/new/")


def schema() -> dict[str, Any]:
    """The JSON Schema of a pipeline file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **File.model_json_schema()}
