"""Every ready pipeline file, killed between and inside of its steps (`make chaos ARGS=--pipelines`: more)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.pipelines import FILES, HOUSES, Field, Killed, differences, field, played


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with field(tmp_path_factory.mktemp("killed")) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_pipeline_that_was_killed_goes_on_to_the_same_bytes(here: Field, file: Path):
    fared = played(here, file, kills=1, seed=0)
    assert fared.moments
    assert fared.differences == (), fared


def test_what_a_round_tells():
    told = str(Killed("labels.yaml", (0.5, 1.25), (1, 4), 2.0, ("spread/part-00000.parquet differs",)))
    assert "2 kills at 0.5 1.2 s (folders 1 4): spread/part-00000.parquet differs" in told


def test_a_byte_a_file_and_a_number_that_differ_are_told(here: Field):
    folder = here.place / HOUSES / "prices"
    (folder / "_locdist").mkdir(parents=True)
    (folder / "part-00000.parquet").write_bytes(b"PAR1")
    (folder / "_locdist/report.json").write_text('{"rows": 3, "seconds": 1.5}')
    (folder / "_locdist/status.json").write_text('{"pid": 1}')
    calm = here.contents()
    assert len(calm) == 2
    (folder / "_locdist/report.json").write_text('{"rows": 3, "seconds": 2.5}')
    (folder / "_locdist/status.json").write_text('{"pid": 2}')
    assert list(differences(calm, here.contents())) == []
    (folder / "part-00000.parquet").write_bytes(b"PAR2")
    (folder / "_locdist/report.json").write_text('{"rows": 4, "seconds": 2.5}')
    (folder / "part-00001.parquet.tmp").touch()
    assert list(differences(calm, here.contents())) == [
        "prices/_locdist/report.json differs",
        "prices/part-00000.parquet differs",
        "prices/part-00001.parquet.tmp is left over",
    ]
    here.cleared()
    assert next(differences(calm, here.contents())) == "prices/_locdist/report.json is missing"
