"""Files that one stage of a job leaves for the next, and that nobody needs when the job is finished.

They lie in one folder, which goes when the job ends. Their records stay, without outputs: the stage is
finished. Where something that was made of them is lost later, such records are forgotten, and their stages
run again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from locdist.data.store import Store
from locdist.plan.records import COMMITS, Record, compact

PASSING = "passing"
Records = Mapping[str, Mapping[str, Record]]


def passed(stage: str, name: str) -> str:
    """The file that a task of a stage leaves."""
    return f"{PASSING}/{stage}/{name}.arrow"


def is_bare(records: Records, stage: str) -> bool:
    """Whether what a stage left is removed."""
    return any(not record.bytes for record in records.get(stage, {}).values())


def strip(folder: Store, stage: str, records: Records) -> None:
    """Keep the records of a stage without what it left; the files may go then."""
    done = records.get(stage, {})
    if done and not is_bare(records, stage):
        left = {name: replace(record, bytes={}, checksums={}) for name, record in done.items()}
        compact(folder, stage, left)


def sweep(folder: Store, stages: Iterable[str], records: Records) -> None:
    """Remove everything that was passed on, when the job is finished."""
    for stage in stages:
        strip(folder, stage, records)
    folder.child(PASSING).remove_all()


def forget_bare(folder: Store, records: Records) -> None:
    """Forget all stages whose files were removed."""
    for stage in records:
        if is_bare(records, stage):
            folder.delete(f"{COMMITS}/{stage}.jsonl")
