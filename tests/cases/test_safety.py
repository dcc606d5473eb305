"""What a run must not do to its owner: overwrite the data, or tell the secrets."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import locdist as ld
from locdist.data.filesystems import redacted
from locdist.errors import LocdistError, UsageError
from locdist.execute.events import Event
from locdist.testing import Faults, FaultyExecutor, Journal
from tests.cases.arrangement import Arrangement

TWO = pa.table({"id": [0, 1], "x": [0.0, 1.0]})
SPELLINGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "the same": (lambda data: data, "is"),
    "with a detour": (lambda data: f"{data}/../{data.name}/", "is"),
    "as an address": (lambda data: f"file://{data}", "is"),
    "above": (lambda data: data.parent, "contains"),
    "below": (lambda data: data / "pred", "lies in"),
    "a link": (lambda data: data.parent / "link", "is"),
    "below a link": (lambda data: data.parent / "link" / "pred", "lies in"),
}


@pytest.mark.parametrize("spell, how", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_no_output_goes_where_the_input_is(
    spell: Callable[[Path], Any], how: str, arrangement: Arrangement
) -> None:
    """C68: in all spellings and for every verb, before anything is written or deleted, with and without
    overwriting; so no later run reads predictions as rows.
    """
    data = arrangement.write(TWO)
    (data.parent / "link").symlink_to(data)
    out, before = spell(data), sorted(data.rglob("*"))
    support = ld.dataset(data, key="x", target="x", id="id")
    index = ld.build_index(ld.dataset(TWO, key="x", target="x", id="id"), arrangement.folder("index"))
    for overwrite in (False, True):
        for verb in (
            lambda over: ld.build_index(support, out, overwrite=over),
            lambda over: ld.predict(ld.knn(1), index, data, out, overwrite=over),
            lambda over: ld.transform(ld.knn(1), support, out, overwrite=over),
        ):
            with pytest.raises(
                UsageError, match=f"an output folder apart from the inputs; got .* {how} the input"
            ):
                verb(overwrite)
    assert sorted(data.rglob("*")) == before
    assert sorted(row for file in before for row in pq.read_table(file)["id"].to_pylist()) == [0, 1]


SECRET = "not-a-real-secret-123"


def test_a_secret_is_told_nowhere(
    arrangement: Arrangement, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """C77: with a secret in the environment, in addresses and in a command, runs that end well and runs that
    fail leave it in no file, event, error, standard stream or message to a worker. (Clusters that are started
    listen to this machine alone, with a token or TLS, and without a dashboard: `test_clusters`.)
    """
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    told: list[Any] = []
    for address in (
        f"s3://user:{SECRET}@bucket/x",
        f"s3://bucket/x?secret_key={SECRET}",
        f"s3://{SECRET}@bucket",
    ):
        for use in (
            lambda place: ld.dataset(place, key="x"),
            lambda place: ld.open_index(place),
            lambda place: ld.build_index(ld.dataset(TWO, key="x"), place),
        ):
            with pytest.raises(UsageError) as refused:
                use(address)
            told.append(refused.value)
    with pytest.raises(TypeError) as unknown:
        ld.dataset(TWO, key="x", token=SECRET)
    rows = {"x": np.arange(6.0), "y": np.arange(6.0)}
    index, queries = arrangement.build(rows, key="x", target="y"), arrangement.write(rows)
    log = arrangement.folder("log")
    log.mkdir()
    faults = Faults({"part-00000": ("bug before", "")})
    words = {"listener": told.append, "command": f"locdist predict s3://user:{SECRET}@bucket/x"}
    out, failing = arrangement.folder("out"), FaultyExecutor(arrangement.executor, faults, Journal(str(log)))
    with pytest.raises(LocdistError) as failed:
        ld.predict(ld.knn(1), index, queries, out, executor=failing, **words)
    report = ld.predict(ld.knn(1), index, queries, out, **words)
    told += [
        unknown.value,
        failed.value,
        report,
        capfd.readouterr(),
        pickle.dumps(ld.dataset(queries, key="x")),
    ]
    events = [each for each in told if isinstance(each, Event)]
    assert len(events) > 8
    assert not [each for each in told if SECRET in f"{each!s} {each!r}"]
    files = [path for path in arrangement.place.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert redacted(f"could not open s3://user:{SECRET}@bucket/x?secret_key={SECRET}").count("***") == 2
