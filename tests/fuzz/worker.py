"""The process in which cases happen: it may die of one.

python -m tests.fuzz.worker ROOT SEED, with the numbers of cases on its standard input; it answers each with a
line of JSON.
"""

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from locdist.data.artefacts import packed
from locdist.errors import LocdistError
from tests.fuzz import mutations
from tests.fuzz.world import DEEDS, PINNED, Deed, World, forget, in_pieces, plain, trapped

RUNS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class", "marshal.loads"}
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate", "os.link"}


class Watch:
    """What Python opens for writing, changes or runs outside of the world while a case goes on."""

    def __init__(self, world: Path) -> None:
        self.allowed = (str(world), f"{tempfile.gettempdir()}/locdist-", "/dev/null", "/proc/")
        self.on, self.seen = False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in RUNS:
            self.seen.append(f"{event} {args!r}"[:200])
        elif (event in CHANGES or (event == "open" and _writes(*args))) and not isinstance(args[0], int):
            place = _place(event, *args)
            if not place.startswith(self.allowed):
                self.seen.append(f"{event} {place}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.on, self.seen = True, []
        try:
            yield
        finally:
            self.on = False


def _place(event: str, path: Any, *rest: Any) -> str:
    """The path that something happens to, which may be relative to an open folder."""
    folder = rest[0] if event in ("os.remove", "os.rmdir") and rest and rest[0] >= 0 else None
    base = os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}")
    return os.path.normpath(os.path.join(base, os.fsdecode(path)))


def _writes(path: Any, mode: str | None, flags: int) -> bool:
    changing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    return bool(set(mode or "") & set("wax+")) or bool(flags & changing)


class Cases:
    """Cases by number: which deed, which file, which mutation, and whether the answer is right."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.seed = root, seed
        in_pieces()
        World(root / "world").build()
        shutil.copytree(root / "world", root / "pristine", symlinks=True)
        trapped(root / "world")
        self._elsewhere()
        self.right = {deed.name: self._answer(deed) for deed in DEEDS}
        self.watch = Watch(root / "world")

    def _restore(self) -> World:
        world = self.root / "world"
        shutil.rmtree(world)
        shutil.copytree(self.root / "pristine", world, symlinks=True)
        trapped(world)
        forget()
        return World(world)

    def _answer(self, deed: Deed) -> str:
        return plain(deed.do(self._restore()))

    def play(self, number: int) -> dict[str, Any]:
        """What became of a case."""
        rng = random.Random(f"{self.seed} {number}")
        deed = rng.choice(DEEDS)
        world = self._restore()
        before = self._outside()
        found = [
            each for pattern in deed.files for each in sorted(world.root.glob(pattern)) if each.is_file()
        ]
        file = rng.choice(found)
        how, exact = self._mutate(file, rng, world.root)
        told = {"number": number, "deed": deed.name, "file": str(file.relative_to(world.root)), "how": how}
        with self.watch.watching():
            outcome, wrong = _outcome(
                lambda: plain(deed.do(world)), self.right[deed.name] if exact and PINNED[deed.name] else None
            )
        wrong = wrong or "; ".join(self.watch.seen)
        if not wrong and self._outside() != before:
            wrong = f"something changed outside: {sorted(set(self._outside()) ^ set(before))[:3]}"
        return {**told, "outcome": outcome, "wrong": wrong}

    def _mutate(self, file: Path, rng: random.Random, root: Path) -> tuple[str, bool]:
        """Change the file; says how, and whether nobody who means it did: then the answer must be right."""
        content, kind = file.read_bytes(), file.suffix
        mean, what = rng.random() < 0.5, rng.random()
        if what < 0.08:
            return mutations.replaced(file, rng, root), True
        if kind == ".yaml" and mean:
            file.write_bytes(mutations.scribbled(content, rng))
            return "scribbled", False
        if (kind in (".json", ".jsonl") or file.name == "lock") and rng.random() < 0.75:
            file.write_bytes(mutations.rewritten(content, rng, mean, root))
            return "rewritten and sealed" if mean else "rewritten", not mean
        if kind == ".arrow" and mean:
            change = mutations.misshapen if rng.random() < 0.6 else rng.choice(mutations.BYTES)
            file.write_bytes(change(content, rng))
            return f"{change.__name__} and sealed", not _sealed(file)
        change = rng.choice(mutations.BYTES)
        file.write_bytes(change(content, rng))
        return change.__name__, True

    def _elsewhere(self) -> None:
        """Files outside, with the names and the contents of those inside, which links lead to."""
        (self.root / "elsewhere").mkdir()
        for file in sorted((self.root / "pristine").rglob("*")):
            if file.is_file() and not file.is_fifo():
                (self.root / "elsewhere" / file.name).write_bytes(file.read_bytes())

    def _outside(self) -> list[str]:
        """What lies beside the world, with sizes and times."""
        beside = [each for each in self.root.iterdir() if each.name != "world"]
        beside += [*self.root.parent.iterdir(), *(self.root / "elsewhere").iterdir()]
        return sorted(
            f"{each} {each.lstat().st_size} {each.lstat().st_mtime_ns}"
            for each in beside
            if each != self.root
        )


def _sealed(file: Path) -> bool:
    """Write the checksum of a file of an index into its manifest, as its owner could; False where there is
    none.
    """
    from locdist.search.layout import digest

    folder = file.parent.parent if file.parent.name == "shards" else file.parent
    manifest = folder / "manifest.json"
    if not manifest.exists():
        return False
    told, content = json.loads(manifest.read_text()), file.read_bytes()
    told.pop("checksum")
    for each in (*told["shards"], told["lists"]):
        if each["name"].endswith(file.name):
            each.update(bytes=len(content), checksum=digest(content))
    manifest.write_bytes(packed(told))
    return True


def _outcome(do: Callable[[], str], right: str | None) -> tuple[str, str]:
    """What a deed ended with, and what is wrong with that."""
    try:
        answer = do()
    except LocdistError as error:
        parts = (error.expected, error.given, error.remedy)
        complete = all(isinstance(part, str) and part.strip() for part in parts) and len(str(error)) < 4000
        return type(
            error
        ).__name__, "" if complete else f"an error without all parts, or too long: {error!r}"[:500]
    except BaseException:  # noqa: BLE001 - whatever it is, it is wrong
        return "escaped", "".join(traceback.format_exc()[-3000:])
    if right is not None and answer != right:
        return "another answer", f"{right[:200]} ... became ... {answer[:200]}"
    return "answered", ""


def main() -> None:
    root, seed = Path(sys.argv[1]), int(sys.argv[2])
    cases = Cases(root, seed)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(cases.play(int(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
