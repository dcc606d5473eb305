"""An object store on this machine, really started: moto's S3 server in a process of its own."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address host:port of a running object store with a bucket named "bucket"."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _create_bucket(f"http://127.0.0.1:{port}/bucket")
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def _create_bucket(url: str) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


@pytest.fixture
def bucket(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh folder of the object store, as a URI to which `{}` adds a name, and the credentials for it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return f"s3://bucket/{tmp_path.name}{{}}?endpoint_override={s3}&scheme=http&region=us-east-1"
