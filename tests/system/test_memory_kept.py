"""Memory of freed tiles is kept by the process: the kernel need not fill it with zeros for the next one."""

import os
import subprocess
import sys

import pytest

from locdist.local.heap import TRIM

TILES = """
import resource, sys
import numpy as np
from locdist.local.heap import keep_memory
def tiles():
    return len([np.ones(1 << 18) for _ in range(8)])  # eight of 2 MiB, freed together
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
tiles()
before = faults()
tiles()
thrown = faults() - before
keep_memory()
tiles()
before = faults()
tiles()
print(thrown, faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about the allocator of Linux, glibc")
@pytest.mark.parametrize("own", [{}, {TRIM: "65536"}], ids=["as it is", "as Dask sets it"])
def test_tiles_are_not_asked_of_the_kernel_again(own: dict[str, str]):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    told = subprocess.run(
        [sys.executable, "-c", TILES], env=environment | own, capture_output=True, text=True, check=True
    )
    thrown, kept = map(int, told.stdout.split())
    if thrown < 1000:
        pytest.skip(f"this system threw away {thrown} pages of tiles without our doing")
    assert kept < thrown / 10
