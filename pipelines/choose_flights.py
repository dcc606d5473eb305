"""How the demo's settings were chosen: on November, with January to October as the support.

`python pipelines/choose_flights.py [folder]` shows on 5,000 flights of November what becomes of log-loss and
RMSE when a setting of `flights.py` is changed. The multipliers were found by such changes, each kept when it
helped and the next tried from there, and then rounded. This takes a quarter of an hour or more; the demo does
not need it.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flights import DELAY, KEY, LATE, NEAREST, Question, fit_predict, index_flights, leveled, matrix
from flights_data import prepare
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import locdist as ld

SAMPLE = 5_000
ALIKE = dict.fromkeys(KEY, 1.0)


def changed_keys() -> Iterator[tuple[str, dict[str, float]]]:
    """The key of the demo and others, each with what differs."""
    yield "key: the demo's", KEY
    yield "key: all columns alike", ALIKE
    yield "key: all alike but dep_delay 5", ALIKE | {"dep_delay": 5.0}
    for name, multiplier in KEY.items():
        for factor in (0.5, 2.0):
            yield (
                f"key: {name} {factor * multiplier:g} instead of {multiplier:g}",
                KEY | {name: factor * multiplier},
            )


def changed_methods() -> Iterator[tuple[str, Any, Any]]:
    """Methods for both questions, each with what differs."""
    for k in (125, 250, 500, 750):
        yield (
            f"k={k}",
            ld.local_vote(k=k, kernel="tricube"),
            ld.local_linear(k=k, kernel="tricube", ridge=2.0),
        )
    for kernel in ("uniform", "epanechnikov", "biweight"):
        yield f"kernel={kernel}", ld.local_vote(k=500, kernel=kernel), ld.local_linear(500, kernel, ridge=2.0)
    for ridge in (0.2, 1.0, 5.0, 20.0):
        yield f"ridge={ridge:g}", LATE.method, ld.local_linear(k=500, kernel="tricube", ridge=ridge)


def measured(question: Question, index: Any, asked: pa.Table) -> float:
    """The first measure (log-loss or RMSE) of the answers to the flights in `asked`."""
    table = ld.predict(question.method, index, asked)
    return first(question, asked, np.asarray(table[question.answer]))


def first(question: Question, asked: pa.Table, predicted: Any) -> float:
    return next(iter(question.measures(np.asarray(asked[question.target]), predicted).values()))


def show(what: str, log_loss: float, rmse: float) -> None:
    print(f"{what:<50}{log_loss:10.4f}{rmse:10.3f}", flush=True)


def try_keys(folder: Path, asked: pa.Table) -> None:
    for what, key in changed_keys():
        questions = replace(LATE, key=key), replace(DELAY, key=key)
        show(what, *(measured(question, index_flights(question, folder), asked) for question in questions))


def try_methods(folder: Path, asked: pa.Table) -> None:
    indices = index_flights(LATE, folder), index_flights(DELAY, folder)
    for what, vote, linear in changed_methods():
        late, delay = replace(LATE, method=vote), replace(DELAY, method=linear)
        show(what, measured(late, indices[0], asked), measured(delay, indices[1], asked))


def try_neighbors(known: pa.Table, asked: pa.Table) -> None:
    """The k of scikit-learn's KNeighbors*, on standardised columns."""
    rows = matrix(pa.concat_tables([known, asked]))
    for k in (10, 25, 50, 100, 200):
        models = leveled(KNeighborsClassifier(k, **NEAREST)), leveled(KNeighborsRegressor(k, **NEAREST))
        scores = []
        for question, model in zip((LATE, DELAY), models, strict=True):
            truth = np.asarray(known[question.target])
            predicted = fit_predict(model, rows[: len(known)], truth, rows[len(known) :])
            scores.append(first(question, asked, predicted))
        show(f"KNeighbors, k={k}", *scores)


def main(folder: Path) -> None:
    """Try other keys, other methods, and the peers' k."""
    flights = prepare(folder, month=11).drop_null()
    november = pc.equal(flights["month"], 11)
    asked, known = flights.filter(november), flights.filter(pc.invert(november))
    asked = asked.take(np.sort(np.random.default_rng(0).choice(len(asked), SAMPLE, replace=False)))
    print(f"{f'{SAMPLE:,} of November':<50}{'log-loss':>10}{'RMSE':>10}")
    try_methods(folder, asked)
    try_neighbors(known, asked)
    try_keys(folder, asked)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output/november"))
