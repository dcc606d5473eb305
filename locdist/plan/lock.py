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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locdist.data.filesystems import reported
from locdist.data.store import Store
from locdist.errors import MachineError, UsageError

LOCK = "_locdist/lock"
BEAT = 20.0
STALE = 120.0
WORKER = "locdist-worker"  # the name of the processes that compute
UNGUARDED = 90  # the exit code of one that would drive a run of its own


@contextmanager
def hold(folder: Store) -> Iterator[None]:
    """Hold the folder's lock while the body runs; MachineError naming host, process and time when another
    driver has it, or when we may not write there.
    """
    leave_if_imported()
    with _flock(Path(folder.local)) if folder.local is not None else _lease(folder):
        yield


def leave_if_imported() -> None:
    """End this process when it is a worker that imports, and with that runs, the script of its driver: a
    script without a guard. The driver sees the exit code and explains; what we could raise would mislead.
    """
    me = multiprocessing.current_process()
    if me.name == WORKER and getattr(me, "_inheriting", False):
        raise SystemExit(UNGUARDED)


def held(folder: Store) -> bool:
    """Whether a driver has the lock of a folder now; reads only."""
    if folder.local is None:
        return bool(time.time() - _leased(folder).get("beat", 0.0) < STALE)
    import fcntl  # noqa: PLC0415 - not on Windows

    if not folder.exists(LOCK):
        return False
    with reported(folder.path(LOCK)), open(folder.local / LOCK, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _flock(folder: Path) -> Iterator[None]:
    path = folder / LOCK
    with reported(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file stays when the lock is released: whoever opened it before would lock a file nobody sees.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            raise _held(str(folder), os.read(descriptor, 4096)) from None
        except OSError as error:
            raise UsageError(
                "a file system with locks", f"{folder}: {error}", "Write to another file system."
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
        if _leased(folder).get("token") == token:
            folder.delete(LOCK)


def _take(folder: Store, token: str) -> None:
    if not folder.create(LOCK, _holder(token)):
        if time.time() - _leased(folder).get("beat", 0.0) < STALE:
            raise _held(folder.uri, folder.read(LOCK))
        folder.write(LOCK, _holder(token))
    if _leased(folder).get("token") != token:
        raise _held(folder.uri, folder.read(LOCK))


def _beat(folder: Store, token: str, stop: threading.Event) -> None:
    since = time.time()
    while not stop.wait(BEAT):
        with suppress(
            MachineError
        ):  # the next beat tries again, and there are several before the lease is stale
            if _leased(folder).get("token") != token:
                return  # somebody took over while we were suspended
            folder.write(LOCK, _holder(token, since))


def _leased(folder: Store) -> dict[str, Any]:
    return _read(folder.read(LOCK)) if folder.exists(LOCK) else {}


def _holder(token: str = "", since: float | None = None) -> bytes:
    now = time.time()
    mine = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": since or now,
        "beat": now,
        "token": token,
    }
    return json.dumps(mine).encode()


def _read(content: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(content))
    except (ValueError, TypeError):
        return {}  # its holder is just writing it


def _held(where: str, content: bytes) -> MachineError:
    holder = _read(content)
    since = (
        datetime.fromtimestamp(holder["since"], UTC).isoformat(timespec="seconds") if holder else "just now"
    )
    return MachineError(
        f"{where} to be free",
        f"a lock held by process {holder.get('pid', '?')} on host {holder.get('host', '?')} since {since}",
        "Wait for that run, or stop it; the lock is released when it ends.",
    )
