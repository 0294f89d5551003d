"""The state of a job, read from its target: the plan and the records of completed shards."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fastfeed.errors import SourceError
from fastfeed.preprocess.model.layout import record_name
from fastfeed.preprocess.model.plan import PLAN, JobPlan, Shard, plan_files
from fastfeed.preprocess.model.record import BadSample, Record
from fastfeed.preprocess.targets.target import Target

__all__ = ["Job", "open_job"]

_READERS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A plan, and its completed shards."""

    target: Target
    plan: JobPlan
    shards: list[Shard]
    records: dict[int, Record]  # by shard index; completed shards only
    # shards whose record is invalid: files are missing or truncated
    stale: frozenset[int] = frozenset()

    @property
    def todo(self) -> list[int]:
        """Indexes of the shards that are not done."""
        return [shard.index for shard in self.shards if shard.index not in self.records]

    @property
    def bad(self) -> list[BadSample]:
        """Photographs that could not be put into a shard, in shard order."""
        return [bad for index in sorted(self.records) for bad in self.records[index].bad]


def load_plan(target: Target) -> JobPlan | None:
    """The plan in a target; None if there is none."""
    head = target.read(PLAN)
    files = [] if head is None else [target.read(name) for name in plan_files(head)]
    if head is None or not files or files[0] is None:
        return None
    return JobPlan.load(head, files[0], target.text, files[1] if len(files) > 1 else None)


def open_job(target: Target, plan: JobPlan | None = None) -> Job:
    """The job in a target.

    A shard is done if its record is of this plan and its files have the recorded sizes.

    SourceError if there is no plan.
    """
    if plan is None:
        plan = load_plan(target)
    if plan is None:
        raise SourceError(f"{target.text} holds no job of fastfeed preprocess: no {PLAN}")
    shards, present, hashes = plan.shards, target.files(), plan.shard_hashes
    by_name = {shard.name: shard for shard in shards}
    by_record = {record_name(shard.name): shard for shard in shards}
    names = [name for name in by_record if name in present]
    records: dict[int, Record] = {}
    for record in _records(target, names):
        shard = by_name.get(record.shard)
        if shard is None or record.index != shard.index or record.plan != hashes[shard.index]:
            continue
        if all(present.get(file.name) == file.bytes for file in record.files):
            records[record.index] = record
    stale = {by_record[name].index for name in names} - records.keys()
    return Job(target, plan, shards, records, frozenset(stale))


def _records(target: Target, names: Iterable[str]) -> Iterable[Record]:
    def load(name: str) -> Record | None:
        content = target.read(name)
        try:
            return None if content is None else Record.load(content, name)
        except SourceError:  # damaged: the shard is rebuilt
            return None

    with ThreadPoolExecutor(_READERS) as pool:
        return [record for record in pool.map(load, names) if record is not None]
