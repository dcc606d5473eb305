"""Versions of what computes: recorded with what was computed, compared between a driver and its workers."""

import functools
import importlib.metadata
import platform
import socket
from collections.abc import Mapping

from locdist.errors import UsageError

_LIBRARIES = ("locdist", "torch", "faiss-cpu", "numpy", "pyarrow")


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of Python, of locdist and of the libraries that compute."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: _version(name) for name in _LIBRARIES}}


def check_same(driver: Mapping[str, str]) -> None:
    """UsageError in a worker whose versions are not those of its driver: it might not understand what it is
    sent, and its answers would differ in the last bits. Builds of one version (cpu, cuda) are the same.
    """
    here = versions()
    other = {
        name: version
        for name, version in driver.items()
        if _public(version) != _public(here.get(name, "unknown"))
    }
    if other:
        wanted = ", ".join(f"{name} {version}" for name, version in other.items())
        given = ", ".join(f"{name} {here.get(name, 'unknown')}" for name in other)
        raise UsageError(
            f"workers with what the driver has: {wanted}",
            f"{given} on {socket.gethostname()}",
            "Install the same versions on all machines of the run.",
        )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _public(version: str) -> str:
    return version.partition("+")[0]
