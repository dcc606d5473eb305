"""The demo: will a flight of December arrive late, and by how much? Asked of the flights before it.

`python pipelines/flights.py [folder] [--executor local|ray|dask]` writes the flights that left New York in
2013 as Parquet partitions (`flights_data.py`), predicts with local models what is not known at push-back,
compares with scikit-learn on the same rows, and shows one prediction with the flights it was made from. The
answers are the same on every executor.

Rows with gaps are counted in the output, and treated like this:

- Support rows without an arrival delay (cancelled, diverted), without weather, or to the four airports that
  the list of airports lacks (BQN, PSE, SJU, STT) are dropped.
- Queries with a gap in what is known at push-back are answered with null and a status. The others are
  predicted, and scored where the truth is known. scikit-learn gets the same rows.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from flights_data import LATE_MINUTES, prepare
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    root_mean_squared_error,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import locdist as ld
from locdist.execute.choose import EXECUTORS, executor

Floats = NDArray[np.float64]

# How much a difference in each column counts, per standard deviation. These multipliers, k, kernel and ridge
# were chosen on November with January to October as the support, and rounded (choose_flights.py shows what
# changing them does there). They were fixed before any prediction of December was scored.
KEY = {
    "dep_delay": 5.0,
    "clock": 0.3,
    "month": 0.15,
    "weekday": 0.3,
    "distance": 1.0,
    "latitude": 1.0,
    "longitude": 1.0,
    "temperature": 0.15,
    "humidity": 0.5,
    "wind_speed": 0.5,
    "precipitation": 0.3,
    "visibility": 0.5,
    "carrier": 0.6,
    "origin": 0.8,
}
NAMES = ["carrier", "origin"]
NUMBERS = [name for name in KEY if name not in NAMES]

# The plane of the delay is fitted in these. One ridge serves all slopes, so a multiplier says how freely a
# slope moves: that of the departure delay nearly freely, the others as far as a few hundred flights allow.
FEATURES = {name: 10.0 if name == "dep_delay" else 1.0 for name in NUMBERS}

CLIP = 1e-3  # in the log-loss, no probability of any model is nearer to 0 or 1 than this


# ------------------------------------------------------------------------------------------ the two questions


@dataclass(frozen=True)
class Question:
    """What is asked of every flight, and of whom.

    The columns of its target and of locdist's answer; locdist's method, the key, and the features of its
    local model (the key when None); scikit-learn's models, boosting last; and how answers are measured.
    """

    title: str
    target: str
    answer: str
    method: Any
    key: dict[str, float]
    features: dict[str, float] | None
    peers: dict[str, BaseEstimator]
    measures: Callable[[NDArray[Any], Floats], dict[str, float]]


def measure_late(arrival: NDArray[Any], probability: Floats) -> dict[str, float]:
    """Log-loss, accuracy and Brier score of the probabilities of being late."""
    late = arrival == "late"
    return {
        "log-loss": float(log_loss(late, probability.clip(CLIP, 1 - CLIP))),
        "accuracy": float(accuracy_score(late, probability > 0.5)),
        "Brier": float(brier_score_loss(late, probability)),
    }


def measure_delay(delay: NDArray[Any], predicted: Floats) -> dict[str, float]:
    """Root mean squared and mean absolute error, in minutes."""
    return {
        "RMSE": float(root_mean_squared_error(delay, predicted)),
        "MAE": float(mean_absolute_error(delay, predicted)),
    }


def leveled(model: BaseEstimator) -> Pipeline:
    """A scikit-learn model on standardised numbers and one-hot names."""
    numbers = (StandardScaler(), slice(0, len(NUMBERS)))
    names = (OneHotEncoder(sparse_output=False), slice(len(NUMBERS), None))
    return make_pipeline(make_column_transformer(numbers, names), model)


# Their k are about the best on November too. Brute force takes half the time of a tree at this width.
NEAREST = {"weights": "distance", "algorithm": "brute", "n_jobs": 2}
BOOSTING = {"categorical_features": [len(NUMBERS), len(NUMBERS) + 1], "random_state": 0}

LATE = Question(
    title=f"More than {LATE_MINUTES} minutes late?",
    target="arrival",
    answer="probability_late",
    method=ld.local_vote(k=500, kernel="tricube"),
    key=KEY,
    features=None,
    peers={
        "KNeighborsClassifier, k=100": leveled(KNeighborsClassifier(100, **NEAREST)),
        "LogisticRegression": leveled(LogisticRegression(max_iter=1000)),
        "HistGradientBoostingClassifier": HistGradientBoostingClassifier(**BOOSTING),
    },
    measures=measure_late,
)
DELAY = Question(
    title="How many minutes late?",
    target="arr_delay",
    answer="prediction",
    method=ld.local_linear(k=500, kernel="tricube", ridge=2.0),
    key=KEY,
    features=FEATURES,
    peers={
        "KNeighborsRegressor, k=25": leveled(KNeighborsRegressor(25, **NEAREST)),
        "LinearRegression": leveled(LinearRegression()),
        "HistGradientBoostingRegressor": HistGradientBoostingRegressor(**BOOSTING),
    },
    measures=measure_delay,
)


# ------------------------------------------------------------------------------------------------ the answers


@dataclass(frozen=True)
class Score:
    """A line of a table: who answered, how well, and the seconds it took, indexing or fitting included."""

    name: str
    measures: dict[str, float]
    seconds: float


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and the seconds it took."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def index_flights(question: Question, folder: Path, where: Any = None) -> Any:
    """The index of the support, in which only complete rows are kept."""
    rows, out = folder / "support", folder / f"index-{question.target}"
    support = ld.dataset(
        rows, key=question.key, features=question.features, target=question.target, id="flight"
    )
    return ld.build_index(support, out, bad="drop", executor=where, overwrite=True)


def predict_flights(question: Question, index: Any, folder: Path, where: Any) -> Any:
    """The answers to all queries, files to files."""
    out, keep = folder / f"predicted-{question.target}", ["flight", question.target]
    return ld.predict(
        question.method, index, folder / "queries", out, keep=keep, executor=where, overwrite=True
    )


def account(index: Any, report: Any) -> str:
    """What became of the rows of the support and of the queries, and how many true neighbors were found."""
    source = index.layout.source
    gaps = ", ".join(f"{gap.column} {gap.rows:,}" for gap in source.dropped)
    statuses = ", ".join(f"{rows:,} {name}" for name, rows in report.status.items())
    return (
        f"  support  {index.layout.rows:,} of {source.rows:,} flights\n"
        f"  gaps     {gaps}\n"
        f"  queries  {report.rows:,} flights: {statuses}\n"
        f"  recall   {report.recall or 'exact search'}"
    )


def answers(question: Question, folder: Path, asked: pa.Table) -> Floats:
    """Finished predictions of the flights in `asked`; both are in the order of the queries."""
    table = pq.read_table(folder / f"predicted-{question.target}")
    table = table.filter(pc.is_in(table["flight"], asked["flight"].combine_chunks()))
    if table["flight"].to_pylist() != asked["flight"].to_pylist():
        raise ValueError("the predictions are not those of the queries, in their order")
    return np.asarray(table[question.answer])


def answer(question: Question, folder: Path, asked: pa.Table, where: Any) -> Score:
    """The score of the local model, with its times."""
    index, indexing = timed(lambda: index_flights(question, folder, where))
    report, predicting = timed(lambda: predict_flights(question, index, folder, where))
    print(f"{question.title}\n{account(index, report)}")
    print(f"  seconds  {indexing:.1f} to index, {predicting:.1f} to predict", flush=True)
    predicted = answers(question, folder, asked)
    name = f"locdist {question.method.name}, k={question.method.layer.k}"
    return Score(
        name, question.measures(np.asarray(asked[question.target]), predicted), indexing + predicting
    )


# -------------------------------------------------------------------------------------------------- the peers


def matrix(flights: pa.Table) -> Floats:
    """Rows for scikit-learn: the numbers as they are, then the names as codes."""
    codes = [flights[name].combine_chunks().dictionary_encode().indices for name in NAMES]
    return np.column_stack([*(flights[name] for name in NUMBERS), *codes]).astype(np.float64)


def fit_predict(model: Any, known: Floats, truth: NDArray[Any], asked: Floats) -> Floats:
    """The delay of the rows in `asked`, or their probability of being late (the first of the classes)."""
    model.fit(known, truth)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(asked)[:, 0])
    return np.asarray(model.predict(asked))


def peers(question: Question, flights: pa.Table) -> list[Score]:
    """The scores of scikit-learn's models on the same complete rows."""
    rows, truth = matrix(flights), np.asarray(flights[question.target])
    new = np.asarray(flights["month"]) == 12
    scores = []
    for name, model in question.peers.items():
        predicted, seconds = timed(partial(fit_predict, model, rows[~new], truth[~new], rows[new]))
        scores.append(Score(name, question.measures(truth[new], predicted), seconds))
    return scores


def table(scores: list[Score]) -> str:
    """The scores in aligned columns."""
    width = max(len(score.name) for score in scores)
    lines = [f"  {'':{width}}" + "".join(f"{head:>10}" for head in (*scores[0].measures, "seconds"))]
    for score in scores:
        cells = [f"{value:10.4f}" if value < 1 else f"{value:10.2f}" for value in score.measures.values()]
        lines.append(f"  {score.name:{width}}" + "".join(cells) + f"{score.seconds:10.1f}")
    return "\n".join(lines)


def verdict(scores: list[Score]) -> str:
    """Who is best by each measure, and where boosting (the last) is ahead of locdist (the first)."""
    best, ahead = [], []
    for measure in scores[0].measures:
        sign = -1 if measure == "accuracy" else 1  # of all measures only accuracy is better when larger
        errors = [sign * score.measures[measure] for score in scores]
        best.append(f"  best {measure}: {scores[errors.index(min(errors))].name}")
        if errors[-1] < errors[0]:
            ahead.append(measure)
    return "\n".join([*best, f"  boosting is ahead of locdist in: {', '.join(ahead) or 'none of these'}"])


# --------------------------------------------------------------------------------------------------- the demo


def explained(folder: Path) -> str:
    """The flight of December that was hardest to tell, and the flights that decided it."""
    out = folder / f"predicted-{LATE.target}"
    table = pq.read_table(out).drop_null()
    doubt = np.abs(np.asarray(table[LATE.answer]) - 0.5)
    flight = table.slice(int(doubt.argmin()), 1).to_pylist()[0]
    told = ld.explain(out, id=flight["flight"])
    lines = [
        f"Hardest to tell: {flight['flight']}, late with probability {flight[LATE.answer]:.3f}.",
        f"It was {flight['arrival']}. {len(told.neighbors)} flights voted, effectively {told.effective:.0f}.",
        f"  {'the nearest':28}{'distance':>10}{'weight':>10}",
    ]
    for neighbor in told.neighbors[:5]:
        lines.append(f"  {neighbor.id:28}{neighbor.distance:10.3f}{neighbor.weight:10.4f}  {neighbor.target}")
    return "\n".join(lines)


def main(folder: Path, where: Any) -> None:
    """Prepare the data, answer both questions, and explain one answer."""
    flights, seconds = timed(lambda: prepare(folder))
    usable = flights.drop_null()
    print(f"{len(flights):,} flights of 2013, {len(usable):,} without gaps, as Parquet ({seconds:.1f} s).")
    print("Support: January to November. Queries: December. Scored: December, without gaps.\n")
    for question in (LATE, DELAY):
        asked = usable.filter(pc.equal(usable["month"], 12))
        scores = [answer(question, folder, asked, where), *peers(question, usable)]
        print(f"\n{table(scores)}\n{verdict(scores)}\n", flush=True)
    print(explained(folder))


if __name__ == "__main__":
    words = argparse.ArgumentParser(description="Will a flight of December arrive late, and by how much?")
    words.add_argument("folder", nargs="?", default="demo-output", type=Path)
    words.add_argument("--executor", choices=EXECUTORS, default="local")
    given = words.parse_args()
    with executor(given.executor).kept() as kept:  # a cluster that is started here stays for all four jobs
        main(given.folder, kept)
