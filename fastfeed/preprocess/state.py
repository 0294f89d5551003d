"""The state of a job, read from its target: the plan and the records of completed shards."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fastfeed.errors import SourceError
from fastfeed.preprocess.plan import ORDER, PLAN, JobPlan, Shard
from fastfeed.preprocess.record import BadSample, Record
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
    stale: frozenset[int] = frozenset()  # shards whose record is invalid: files are missing or truncated

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
    head, order = target.read(PLAN), target.read(ORDER)
    return None if head is None or order is None else JobPlan.load(head, order, target.text)


def open_job(target: Target, plan: JobPlan | None = None) -> Job:
    """The job in a target. A shard is done if its record is of this plan and its files have the recorded sizes.

    SourceError if there is no plan.
    """
    if plan is None:
        plan = load_plan(target)
    if plan is None:
        raise SourceError(f"{target.text} holds no job of fastfeed preprocess: no {PLAN}")
    shards, present, digest = plan.shards, target.files(), plan.hash
    names = [shard.name + ".json" for shard in shards if shard.name + ".json" in present]
    by_name = {shard.name: shard for shard in shards}
    records: dict[int, Record] = {}
    for record in _records(target, names):
        shard = by_name.get(record.shard)
        if shard is None or record.plan != digest or record.index != shard.index:
            continue
        if all(present.get(file.name) == file.bytes for file in record.files):
            records[record.index] = record
    stale = {by_name[name.removesuffix(".json")].index for name in names} - records.keys()
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
