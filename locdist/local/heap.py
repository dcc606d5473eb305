"""Memory of tiles, kept by the process from one to the next."""

import ctypes
import functools
import os
import sys

TRIM = "MALLOC_TRIM_THRESHOLD_"
_BLOCK = 30 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 64 << 20), (-3, _BLOCK)  # of glibc's malloc.h; of a thread, at most


@functools.cache
def keep_memory(by_name: bool = True) -> None:
    """Have this process keep the memory of freed blocks of a few MB, from the first call on.

    Tiles are that large, and glibc by default returns such blocks to the kernel when they are freed, to have
    it fill them with zeros for the next tile: ten times the cost of the arithmetic. Freeing one block of just
    under 32 MiB, never touched, raises the threshold for good; with another allocator it does nothing.

    Where the environment has set a threshold no other moves by itself, and Dask sets 64 KiB for its workers
    (`distributed.nanny.pre-spawn-environ`), with which local logistic fits take 2.5 times as long. There jobs
    raise both by name.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free(ctypes.c_void_p(library.malloc(ctypes.c_size_t(_BLOCK))))
    mallopt = getattr(library, "mallopt", None) if by_name and TRIM in os.environ else None
    if mallopt is not None:
        mallopt(*_MMAP_THRESHOLD)
        mallopt(*_TRIM_THRESHOLD)
