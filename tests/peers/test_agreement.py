"""The README's table of methods is true, and complete."""

import pytest

from locdist.methods.coupled import COUPLED_METHODS
from locdist.methods.embedded import EMBED_METHODS
from locdist.methods.labels import LABEL_METHODS
from locdist.methods.layered import LAYERED_METHODS
from locdist.methods.named import METHODS
from tests.peers.agreement import _FLOOR, ROWS, SLACK, Row, allowed, measured, table, written

SAID = allowed()


@pytest.mark.parametrize("row, said", list(zip(ROWS, SAID, strict=False)))
def test_no_method_differs_from_its_reference_by_more_than_the_readme_says(row: Row, said: float):
    assert measured(row) <= max(SLACK * said, _FLOOR)
    assert said < 1e-6


def test_the_table_is_the_one_that_make_methods_writes():
    assert written() == table(row.line(said) for row, said in zip(ROWS, SAID, strict=True))


def test_every_method_has_its_row():
    known = {*METHODS, *LABEL_METHODS, *EMBED_METHODS, *LAYERED_METHODS, *COUPLED_METHODS}
    assert known <= {row.name.replace("_", "-") for row in ROWS}
