"""The one error of a stage in which tasks failed."""

import pytest

from locdist.data.store import Store
from locdist.errors import DataError, MachineError
from locdist.execute.events import Failure
from locdist.execute.loop import _failed
from locdist.testing.tasks import small_job
from tests.system.small_job import Write


@pytest.mark.parametrize("kinds, raised, first, others", [
    (["data"], DataError, 0, ""),
    (["machine", "data"], DataError, 1, " (1 other failed too: part-00000)"),
    (["machine"] * 3, MachineError, 0, " (2 other tasks failed too: part-00001, part-00002)"),
    (["data"] * 6, DataError, 0, "part-00001, part-00002, part-00003, part-00004, part-00005)"),
    (["data"] * 7, DataError, 0, "(6 other tasks failed too: part-00001, part-00002, part-00003, part-00004, "
     "part-00005, ...)"),
])  # fmt: skip
def test_the_first_that_repeating_does_not_help_is_named_and_the_others_listed(
    tmp_path, kinds, raised, first, others
):
    stage = small_job(Store.at(tmp_path), Write(str(tmp_path))).stages[0]
    failures = {f"part-{at:05}": Failure(kind, "a cause") for at, kind in enumerate(kinds)}
    error = _failed(stage, failures)
    assert type(error) is raised
    assert f"'part-{first:05}'" in error.expected
    assert error.given == f"a cause [inputs [{first}]]" or (others and error.given.endswith(others))
    assert f"part-{first:05}" not in error.given
