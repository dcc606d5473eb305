"""Commit records: one small file for each finished task, the only truth about what is finished.

A task's outputs are in place before its record is written, so a record without its outputs means that
somebody removed them, and outputs without a record mean that a worker died in between; the first is dropped,
the second is done again under the same names. Records are put-if-absent: of twins of one task (a worker that
was given up for lost and came back) the first to commit wins. Only they write while a
task runs, hence records need no lock; who was abandoned before the folder was given to another request knows
it by `claim_of`.

When a stage is complete the driver joins its records in one file, so that opening the folder again costs one
listing and one read for each stage instead of one for each task. Every step leaves a state that `history`
reads the same.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError

COMMITS = "_locdist/commits"
CLAIM = "_locdist/claim"
ERRORS = "_locdist/errors"
CHUNK = 1 << 20  # a checksum reads this many bytes at a time
READERS = 8  # records read at a time: reading is waiting, on object stores above all
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")  # of a stage or a task
_TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{12}\.tmp", re.DOTALL)


Text = str | bytes  # named here: inside Record, `bytes` is a field


@dataclass(frozen=True)
class Record:
    """What a finished task says of itself.

    A task's function returns one with `rows`, `bad_rows` and `data`; `execute.worker.perform` fills the rest.

    Parameters
    ----------
    rows : int
        Rows written (or seen, by a task that writes none).
    bad_rows : int
        Rows among them whose key or target could not be used.
    data : mapping
        Whatever the job wants to find again; JSON-able, small.
    inputs : sequence
        The task's, as JSON: which rows it covers. A record of other inputs is not the task's.
    bytes, checksums : mapping of output name to int, str
        Size and blake2b-128 of each output.
    attempt : int
        1 for the first.
    seconds : float
        Wall time of the attempt that succeeded.
    peak_memory : int
        Bytes: the largest anonymous memory of the worker process while the task ran (mapped files excluded),
        all threads together.
    """

    rows: int = 0
    bad_rows: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    task: str = ""
    inputs: Sequence[Any] = ()
    bytes: Mapping[str, int] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    seconds: float = 0.0
    peak_memory: int = 0
    host: str = ""
    pid: int = 0

    def __post_init__(self) -> None:
        for name in (self.stage, self.task):
            if name and not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a stage or a task")

    def to_json(self) -> str:
        """One line of JSON."""
        return packed(asdict(self)).decode()

    @staticmethod
    def from_json(text: Text, place: str = "a record") -> "Record":
        """Read `to_json`; DataError when it is something else, or was changed."""
        remedy = "Delete that file to run its tasks again, or use --overwrite."
        return unpacked(Record, text, "a commit record of this version of locdist", place, remedy)


@dataclass(frozen=True)
class Dropped:
    """A record that no longer counts: `reason` says which output is missing or has another size."""

    stage: str
    task: str
    reason: str


@dataclass(frozen=True)
class History:
    """What a folder says is finished: `records[stage][task]`, what was `dropped`, whose tasks run again, and
    `leftovers` of a run that died: half-written temporary files and tracebacks. `unclaimed` are the other
    files outside `_locdist/` that no record names.
    """

    records: Mapping[str, Mapping[str, Record]]
    dropped: tuple[Dropped, ...] = ()
    leftovers: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """Size in bytes and blake2b-128 of a file."""

    size: int
    checksum: str


class Summing:
    """A stream that counts and hashes what passes to another one, as a file of Python."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._digest, self._size = stream, hashlib.blake2b(digest_size=16), 0
        self.closed = False

    def write(self, data: Any) -> None:
        """Pass a buffer on."""
        self._stream.write(data)
        self._digest.update(data)
        self._size += memoryview(data).nbytes

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Pass on what is held back."""
        self._stream.flush()

    def close(self) -> None:
        """Nothing: the stream belongs to who opened it."""
        self.closed = True

    @property
    def written(self) -> Written:
        """The sum of all that passed."""
        return Written(self._size, self._digest.hexdigest())


def covers(record: Record, inputs: Sequence[Any]) -> bool:
    """Whether a record is of a task with these inputs."""
    return json.dumps(record.inputs) == json.dumps(inputs)


def checksum(folder: Store, name: str) -> Written:
    """The sum of a file, read in chunks."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    with folder.open(name) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Written(size, digest.hexdigest())


def sealed(folder: Store, record: Record, outputs: Iterable[str], written: Mapping[str, Written]) -> Record:
    """The record with size and checksum of each output: as it was `written`, or read again where nobody
    summed it. LocdistError when one was not written.
    """
    found = {}
    for name in outputs:
        if name not in written and not folder.exists(name):
            raise LocdistError(
                f"task {record.task!r} of stage {record.stage!r} to write {name!r}",
                "no such file when it ended",
                "The function of the task must write every output that it declares.",
            )
        found[name] = written.get(name) or checksum(folder, name)
    sizes = {name: each.size for name, each in found.items()}
    return replace(record, bytes=sizes, checksums={name: each.checksum for name, each in found.items()})


def claim_of(folder: Store) -> str:
    """Whose the folder is: another word for each request that it was given to, "" where nobody claimed it.

    An attempt that was abandoned may live on in a worker that nobody could stop. It knows by this word
    whether what it computed is still wanted.
    """
    return folder.read(CLAIM).decode() if folder.exists(CLAIM) else ""


def commit(folder: Store, record: Record) -> Record:
    """Write the record unless the task has one; returns the one that counts."""
    name = _name(record.stage, record.task)
    if folder.create(name, record.to_json().encode()):
        return record
    return _in_place(Record.from_json(folder.read(name), repr(name)), name)


def committed(folder: Store, stage: str, task: str) -> Record | None:
    """The task's own record, if it has one already (a twin was quicker)."""
    name = _name(stage, task)
    if not folder.exists(name):
        return None
    return _in_place(Record.from_json(folder.read(name), repr(name)), name)


def history(folder: Store) -> History:
    """All finished tasks of a folder (records whose outputs all exist with the recorded size), from one
    listing; reads only.
    """
    sizes = {file.path: file.size for file in folder.files()}
    records: dict[str, dict[str, Record]] = {}
    dropped = []
    for record in _read_all(folder, [name for name in sizes if name.startswith(COMMITS + "/")]):
        reason = _missing(record, sizes)
        if reason:
            dropped.append(Dropped(record.stage, record.task, reason))
        else:
            records.setdefault(record.stage, {})[record.task] = record
    named = {name for stage in records.values() for record in stage.values() for name in record.bytes}
    left = tuple(name for name in sizes if _left(name))
    unclaimed = sizes.keys() - named - set(left)
    outside = tuple(sorted(name for name in unclaimed if not name.startswith("_locdist/")))
    return History(records, tuple(dropped), left, outside)


def forget(folder: Store, dropped: Iterable[Dropped]) -> None:
    """Delete the records of tasks that have to run again, which else would win against the new ones."""
    for item in dropped:
        name = _name(item.stage, item.task)
        if folder.exists(name):
            folder.delete(name)


def compact(folder: Store, stage: str, records: Mapping[str, Record]) -> None:
    """Join the records of a complete stage in one file; the driver alone calls this.

    The joined file appears whole before the first single record goes, and `history` lets a single record win
    over a joined one of the same task (they are equal, or the single one is of a later run), so dying at any
    point loses nothing.
    """
    lines = [records[task].to_json() for task in sorted(records)]
    folder.write(_joined(stage), ("\n".join(lines) + "\n").encode())
    with suppress(MachineError):  # a late twin may be writing its record there: what stays is equal
        folder.child(f"{COMMITS}/{stage}").remove_all()


def named_outputs(folder: Store, names: Sequence[str]) -> set[str]:
    """Outputs that the commit records among `names` tell of; records that cannot be read tell of none."""
    outputs: set[str] = set()
    for _, line in _lines(folder, [name for name in names if name.startswith(COMMITS + "/")]):
        with suppress(DataError):
            outputs.update(Record.from_json(line).bytes)
    return outputs


def temporary(name: str) -> bool:
    """Whether a file is named like those that `Store.writer` fills before it gives them their names."""
    return _TEMPORARY.fullmatch(name) is not None


def _name(stage: str, task: str) -> str:
    return f"{COMMITS}/{stage}/{task}.json"


def _joined(stage: str) -> str:
    return f"{COMMITS}/{stage}.jsonl"


def _read_all(folder: Store, names: list[str]) -> list[Record]:
    """The records in these files, one for each task."""
    records = [_in_place(Record.from_json(line, repr(name)), name) for name, line in _lines(folder, names)]
    return list({(record.stage, record.task): record for record in records}.values())


def _lines(folder: Store, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """Each record as it lies in these files: single files after joined ones, so that they win."""
    joined = [name for name in names if name.endswith(".jsonl")]
    single = [name for name in names if name.endswith(".json")]
    with ThreadPoolExecutor(READERS) as pool:
        texts = list(pool.map(folder.read, joined + single))
    for name, text in zip(joined + single, texts, strict=True):
        yield from ((name, line) for line in text.splitlines())


def _in_place(record: Record, name: str) -> Record:
    """The record, when it is of the stage and the task that its file is named by."""
    if name in (_name(record.stage, record.task), _joined(record.stage)):
        return record
    raise DataError(
        f"a record of the task that {name!r} is named by",
        f"one of task {record.task!r} of stage {record.stage!r}",
        "Delete that file to run its tasks again, or use --overwrite.",
    )


def _left(name: str) -> bool:
    return name.startswith(ERRORS + "/") or temporary(name)


def _missing(record: Record, sizes: Mapping[str, int]) -> str:
    """Why the record does not count, or an empty string."""
    for name, size in record.bytes.items():
        if name not in sizes:
            return f"its output {name!r} is missing"
        if sizes[name] != size:
            return f"its output {name!r} has {sizes[name]} bytes, {size} were recorded"
    return ""
