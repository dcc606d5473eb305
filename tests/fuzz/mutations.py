"""What happens to a file: bits flip, ends are lost, pieces come twice, values become others, names lead
elsewhere. Everything is drawn from one generator, so a seed and a number name a case.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.artefacts import CHECKSUM, packed

TRAP = "trap"  # a pipe without an end: who opens what a path outside leads to hangs
DEEP = 3000
ESCAPES = (f"../{TRAP}", f"../../{TRAP}", f"shards/../../{TRAP}", f"{{root}}/{TRAP}", "..", "/", "", ".")
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 2**31, 2**63, -(2**63) - 1, 10**4000, 0.5, -0.0, 1e308, 1e400,
    float("nan"), "", "a", "\0", "é" * 5000, "None", [], {}, [[]], {"a": {}}, "exact", "int64",
)  # fmt: skip

Mutation = Callable[[bytes, random.Random], bytes]


def flipped(content: bytes, rng: random.Random) -> bytes:
    """A few bits, near each other or not."""
    changed, at = bytearray(content), rng.randrange(len(content) or 1)
    for _ in range(rng.choice((1, 1, 1, 3, 20))):
        if changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        at = at + rng.randrange(1, 9) if rng.random() < 0.5 else rng.randrange(len(content) or 1)
    return bytes(changed)


def flipped_at_the_end(content: bytes, rng: random.Random) -> bytes:
    """As `flipped`, in the last kilobyte, where footers are."""
    split = max(0, len(content) - 1024)
    return content[:split] + flipped(content[split:], rng)


def cut(content: bytes, rng: random.Random) -> bytes:
    """Without its end, or without its begin."""
    at = rng.choice((0, 1, len(content) - 1, rng.randrange(len(content) or 1)))
    return content[:at] if rng.random() < 0.8 else content[at:]


def doubled(content: bytes, rng: random.Random) -> bytes:
    """With a piece twice, all of it perhaps."""
    start, stop = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    piece = content if rng.random() < 0.2 else content[start:stop]
    return content[:stop] + piece + content[stop:]


def overwritten(content: bytes, rng: random.Random) -> bytes:
    """With a stretch of zeros, of ones or of noise."""
    start, length = rng.randrange(len(content) or 1), rng.randrange(1, 64)
    noise = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length)))
    return content[:start] + noise + content[start + length :]


BYTES: tuple[Mutation, ...] = (flipped, flipped, flipped_at_the_end, cut, doubled, overwritten)


def rewritten(content: bytes, rng: random.Random, sealed: bool, root: Path) -> bytes:
    """JSON (one object, or one on each line) with another value somewhere, and with a checksum that says so
    if `sealed`: what somebody does who knows the format.
    """
    lines = content.splitlines() if content.count(b"\n{") else [content]
    which = rng.randrange(len(lines))
    try:
        told = json.loads(lines[which])
    except ValueError:
        return flipped(content, rng)
    had = told.pop(CHECKSUM, None)
    for _ in range(rng.choice((1, 1, 2))):
        told = _changed(told, rng, root)
    try:
        if sealed and isinstance(told, dict):
            lines[which] = packed(told)
        else:
            lines[which] = json.dumps({**told, CHECKSUM: had} if isinstance(told, dict) else told).encode()
    except (ValueError, RecursionError):
        lines[which] = b'{"a":' * DEEP + b"1" + b"}" * DEEP
    return b"\n".join(lines)


def _changed(told: Any, rng: random.Random, root: Path) -> Any:
    """A value in which one place is another."""
    if isinstance(told, dict) and told and rng.random() < 0.85:
        key = rng.choice(list(told))
        what = rng.random()
        if what < 0.08:
            return {name: value for name, value in told.items() if name != key}
        if what < 0.14:
            return {**told, rng.choice(("mood", "", "__class__", "py/object")): _value(rng, root)}
        if what < 0.2:
            return {
                (rng.choice(ESCAPES).format(root=root) if name == key else name): value
                for name, value in told.items()
            }
        return {**told, key: _changed(told[key], rng, root)}
    if isinstance(told, list) and told and rng.random() < 0.85:
        at = rng.randrange(len(told))
        what = rng.random()
        if what < 0.1:
            return told[:at] + told[at + 1 :]
        if what < 0.2:
            return told[: at + 1] + told[at:]
        return [*told[:at], _changed(told[at], rng, root), *told[at + 1 :]]
    return _alike(told, rng, root) if rng.random() < 0.6 else _value(rng, root)


def _alike(told: Any, rng: random.Random, root: Path) -> Any:
    """Another value of the same type, which only its meaning can give away."""
    if isinstance(told, bool):
        return not told
    if isinstance(told, int):
        return rng.choice((told + 1, told - 1, -told, 0, 10**6, 2**40, 2**63))
    if isinstance(told, float):
        return rng.choice((-told, 0.0, 1.0, told * 1.001, told * 1e300, 1e-320, float("nan"), float("inf")))
    if isinstance(told, str):
        changed = told[:-1] + "x", told.upper(), told + "/../" + told
        return rng.choice((*ESCAPES, *changed)).format(root=root)
    return [] if isinstance(told, list) else {}


def _value(rng: random.Random, root: Path) -> Any:
    if rng.random() < 0.3:
        return rng.choice(ESCAPES).format(root=root)
    if rng.random() < 0.05:
        deep: Any = 1
        for _ in range(rng.choice((100, 500))):
            deep = [deep]
        return deep
    return rng.choice(VALUES)


HOSTILE = (
    f'x: !!python/object/apply:os.system ["touch {TRAP}-run"]',
    f"!!python/object/apply:subprocess.check_call [[touch, {TRAP}-run]]",
    "a: &a [x, x]\nb: [*a, *a]",
    "<<: {version: 1}",
    "[" * 20_000,
    "a: " * 5_000,
    "? [1]\n: 2",
    "%YAML 9.9\n---",
    "---\nversion: 1\n---\nversion: 1",
    "version: " + "9" * 5_000,
    "\t- x",
    "index: {path: ../../trap}",
    "steps: " + "- " * 3_000,
    "run: {executor: ray, workers: 1e308}",
    "queries: {path: [" + "a, " * 10_000 + "b]}",
    "key: \ud800",
    "'''" * 9_999,
)


def scribbled(content: bytes, rng: random.Random) -> bytes:
    """A text with lines that are gone, twice, elsewhere, indented otherwise or hostile."""
    lines = content.decode(errors="replace").splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, what = rng.randrange(len(lines) or 1), rng.randrange(6)
        if what == 0:
            del lines[at : at + 1]
        elif what == 1:
            lines[at:at] = lines[at : at + 1]
        elif what == 2 and lines:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        elif what == 3 and lines:
            lines[at] = " " * rng.randrange(9) + lines[at].lstrip()
        elif what == 4 and lines:
            name, colon, _ = lines[at].partition(":")
            lines[at] = f"{name}{colon} {rng.choice((*map(str, VALUES[:-3]), *ESCAPES))[:6000]}"
        else:
            lines.insert(at, rng.choice(HOSTILE))
    return "\n".join(lines).encode(errors="surrogatepass")


def misshapen(content: bytes, rng: random.Random) -> bytes:
    """An Arrow file with a column of another type, length, order or content: valid, and not what it should
    be.
    """
    try:
        table = pa.ipc.open_file(content).read_all()
    except (pa.ArrowException, OSError):
        return content
    at = rng.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    what = rng.randrange(7)
    if what == 0:
        table = table.drop_columns([name])
    elif what == 1:
        table = table.set_column(at, name, pa.array(["x"] * table.num_rows))
    elif what == 2:
        table = table.set_column(at, name, pa.nulls(table.num_rows, column.type))
    elif what == 3:
        table = table.slice(0, rng.randrange(table.num_rows + 1))
    elif what == 4:
        table = table.take(pa.array(rng.sample(range(table.num_rows), table.num_rows)))
    elif what == 5 and pa.types.is_signed_integer(column.type):
        values = [rng.choice((-1, 0, 2**31 - 1, value)) for value in column.to_pylist()]
        table = table.set_column(at, name, pa.array(values, column.type))
    else:
        table = pa.concat_tables([table, table])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, None, "zstd")))
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def replaced(file: Path, rng: random.Random, root: Path) -> str:
    """Something else in the place of a file: nothing, a folder, a link, the content of another one."""
    content = file.read_bytes()
    what = rng.choice(
        ("removed", "a folder", "a link to nothing", "a link to itself", "a link outside", "another")
    )
    file.unlink()
    if what == "a folder":
        file.mkdir()
    elif what == "a link to nothing":
        file.symlink_to(file.parent / "nothing")
    elif what == "a link to itself":
        file.symlink_to(file)
    elif what == "a link outside":
        elsewhere = root.parent / "elsewhere" / file.name
        file.symlink_to(elsewhere)
    elif what == "another":
        others = [
            each for each in sorted(root.rglob(f"*{file.suffix}")) if each.is_file() and not each.is_symlink()
        ]
        file.write_bytes(rng.choice(others).read_bytes() if others else content)
    return f"replaced by {what}"
