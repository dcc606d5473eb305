"""The lock that keeps two drivers apart on one folder.

On local folders (and on network file systems that support it) it is `flock`, which the kernel releases when
the driver dies, however it dies. Object stores have no such thing: there it is a lease, a small object that
its holder rewrites every `BEAT` seconds and that others may take over when it has not been rewritten for
`STALE` seconds. A lease has limits: clocks must agree to within a minute, a driver that was suspended for
longer than `STALE` may wake up beside its successor, and where the store cannot put-if-absent two drivers
that start in the same second are only kept apart by reading back. None of this harms the outputs, which are
named by what they hold and committed put-if-absent; work may be done twice.
"""

import json
import multiprocessing
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from locdist.data.artefacts import typed
from locdist.data.filesystems import reported
from locdist.data.store import Store
from locdist.errors import DataError, MachineError, UsageError

LOCK = "_locdist/lock"
BEAT = 20.0
STALE = 120.0
WORKER = "locdist-worker"  # the name of the processes that compute
_LAST = 1e11  # seconds since 1970: later than anybody will read this
UNGUARDED = 90  # the exit code of one that would drive a run of its own


@dataclass(frozen=True)
class Holder:
    """Who has a lock: `since` in seconds since 1970."""

    host: str
    pid: int
    since: float

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on host {self.host} since {moment}"


@contextmanager
def hold(folder: Store) -> Iterator[None]:
    """Hold the folder's lock while the body runs; MachineError naming host, process and time when another
    driver has it, or when we may not write there.
    """
    leave_if_imported()
    with _flock(Path(folder.target(LOCK))) if folder.local is not None else _lease(folder):
        yield


def leave_if_imported() -> None:
    """End this process when it is a spawned worker, ours or Dask's, that imports, and with that runs, the
    script of its driver: a script without a guard. The driver sees the exit code and explains; what we could
    raise would mislead.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def held(folder: Store) -> bool:
    """Whether a driver has the lock of a folder now; reads only."""
    if folder.local is None:
        return _fresh(_leased(folder))
    import fcntl  # noqa: PLC0415 - not on Windows

    if not folder.exists(LOCK):
        return False
    with reported(folder.path(LOCK)), open(folder.local / LOCK, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def holder(folder: Store) -> Holder | None:
    """Who has the lock of a folder now, None when nobody has; reads only."""
    if not held(folder):
        return None
    told = _leased(folder)  # nothing while its holder is just writing it
    return told.holder if told else Holder("?", 0, time.time())


@contextmanager
def _flock(path: Path) -> Iterator[None]:
    with reported(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file stays when the lock is released: whoever opened it before would lock a file nobody sees.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            raise _held(str(path.parent.parent), os.read(descriptor, 4096)) from None
        except OSError as error:
            raise UsageError(
                "a file system with locks", f"{path}: {error}", "Write to another file system."
            ) from error
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, _holder(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    import fcntl  # noqa: PLC0415 - not on Windows, where this module can still be imported

    for _ in range(3):  # `held` has it for an instant when somebody asks for the status
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _lease(folder: Store) -> Iterator[None]:
    token = secrets.token_hex(8)
    _take(folder, token)
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(folder, token, stop), daemon=True, name="locdist-lease")
    beating.start()
    try:
        yield
    finally:
        stop.set()
        beating.join()
        if _token(folder) == token:
            folder.delete(LOCK)


def _take(folder: Store, token: str) -> None:
    if not folder.create(LOCK, _holder(token)):
        if _fresh(_leased(folder)):
            raise _held(folder.uri, folder.read(LOCK))
        folder.write(LOCK, _holder(token))
    if _token(folder) != token:
        raise _held(folder.uri, folder.read(LOCK))


def _beat(folder: Store, token: str, stop: threading.Event) -> None:
    since = time.time()
    while not stop.wait(BEAT):
        with suppress(
            MachineError
        ):  # the next beat tries again, and there are several before the lease is stale
            if _token(folder) != token:
                return  # somebody took over while we were suspended
            folder.write(LOCK, _holder(token, since))


@dataclass(frozen=True)
class _Lease:
    """What stands in a lock: its holder, when he last said that he is there, and what only he knows."""

    host: str
    pid: int
    since: float
    beat: float
    token: str

    def __post_init__(self) -> None:
        if not 0 <= self.since < _LAST:
            raise ValueError("no moment")

    @property
    def holder(self) -> Holder:
        return Holder(self.host, self.pid, self.since)


def _leased(folder: Store) -> _Lease | None:
    return _read(folder.read(LOCK)) if folder.exists(LOCK) else None


def _fresh(lease: _Lease | None) -> bool:
    return lease is not None and time.time() - lease.beat < STALE


def _token(folder: Store) -> str | None:
    lease = _leased(folder)
    return lease.token if lease else None


def _holder(token: str = "", since: float | None = None) -> bytes:
    now = time.time()
    mine = _Lease(socket.gethostname(), os.getpid(), since or now, now, token)
    return json.dumps(asdict(mine)).encode()


def _read(content: bytes) -> _Lease | None:
    """What a lock says; nothing where its holder is just writing it."""
    with suppress(DataError):
        return typed(_Lease, content, "a lock", LOCK, "Delete it when no run is going on.")
    return None


def _held(where: str, content: bytes) -> MachineError:
    lease = _read(content)
    who = lease.holder if lease else "a driver that just began"
    return MachineError(
        f"{where} to be free",
        f"a lock held by {who}",
        "Wait for that run, or stop it; the lock is released when it ends.",
    )
