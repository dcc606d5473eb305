"""Kills at random moments, and whether anybody can tell afterwards:

python -m tests.chaos [--kills N] [--seed S] [--executors local,ray,dask]
python -m tests.chaos --pipelines [--kills N] [--seed S]     each file of pipelines/, with up to N kills

Exits with 1 when a single byte differs.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.arena import Arena, Calm, prepare
from tests.chaos.pipelines import FILES, Killed, field, played
from tests.chaos.rounds import Outcome, planned, table
from tests.system.clusters import CLUSTERS


@contextmanager
def arena(executor: str, place: Path) -> Iterator[Arena]:
    """A cluster that runs while the body does."""
    cluster = CLUSTERS[executor]()
    cluster.start()
    try:
        opened = Arena(cluster, place, place / executor)
        try:
            yield opened
        finally:
            opened.close()
    finally:
        cluster.stop()


def rounds(executor: str, kills: int, seed: int, place: Path, reference: list[Calm]) -> Iterator[Outcome]:
    """Play the rounds of one executor; the undisturbed run of the first is the reference of all."""
    with arena(executor, place) as opened:
        calm = opened.calm()
        reference.append(calm)
        assert calm.contents == reference[0].contents, f"{executor} gives other bytes without any kill"
        assert calm.records == reference[0].records, f"{executor} gives other records without any kill"
        victims = ("driver", *opened.cluster.victims)
        for round in planned(executor, victims, kills, seed):
            yield opened.play(round, calm, random.Random(f"{seed} {round}"))


def pipelines(kills: int, seed: int) -> int:
    """Play every ready file."""
    fared, start = list[Killed](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="locdist-chaos-") as folder, field(Path(folder)) as here:
        for file in FILES:
            fared.append(played(here, file, kills, seed))
            print(fared[-1], flush=True)
    total = sum(len(each.moments) for each in fared)
    print(f"{total} kills in {len(fared)} files, {time.monotonic() - start:,.0f} s in all")
    return int(any(each.differences for each in fared))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executors", default="local,ray,dask")
    parser.add_argument("--pipelines", action="store_true")
    given = parser.parse_args(arguments)
    if given.pipelines:
        return pipelines(given.kills, given.seed)
    names, start, outcomes = given.executors.split(","), time.monotonic(), list[Outcome]()
    print(f"{given.kills} kills, seed {given.seed}, executors {given.executors}", flush=True)
    with tempfile.TemporaryDirectory(prefix="locdist-chaos-") as folder:
        prepare(Path(folder))
        reference: list[Calm] = []
        for number, name in enumerate(names):
            kills = given.kills // len(names) + (number < given.kills % len(names))
            for outcome in rounds(name, kills, given.seed, Path(folder), reference):
                outcomes.append(outcome)
                print(f"{len(outcomes):3} {outcome}", flush=True)
    print("", *table(outcomes), f"{time.monotonic() - start:,.0f} s in all", sep="\n")
    return int(any(outcome.differences for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
