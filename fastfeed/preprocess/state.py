"""Where a job stands, read from its target: nothing else knows."""

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
    """A plan, and the shards of it that are done."""

    target: Target
    plan: JobPlan
    shards: list[Shard]
    records: dict[int, Record]  # by the shards' index; of those that are done
    stale: frozenset[int] = frozenset()  # shards with a record that does not count: files are missing or cut off

    @property
    def todo(self) -> list[int]:
        """Indexes of the shards that are not."""
        return [shard.index for shard in self.shards if shard.index not in self.records]

    @property
    def bad(self) -> list[BadSample]:
        """Photographs that are not in the shards, by shard."""
        return [bad for index in sorted(self.records) for bad in self.records[index].bad]


def load_plan(target: Target) -> JobPlan | None:
    """The plan there; None where there is none."""
    head, order = target.read(PLAN), target.read(ORDER)
    return None if head is None or order is None else JobPlan.load(head, order, target.text)


def open_job(target: Target, plan: JobPlan | None = None) -> Job:
    """What is done of a plan: shards with a record of this plan, whose files are there with the size that it says.

    SourceError where there is no plan.
    """
    if plan is None:
        plan = load_plan(target)
    if plan is None:
        raise SourceError(f"{target.text} holds no job of fastfeed preprocess: no {PLAN}")
    shards, there, digest = plan.shards, target.files(), plan.hash
    names = [shard.name + ".json" for shard in shards if shard.name + ".json" in there]
    by_name = {shard.name: shard for shard in shards}
    records: dict[int, Record] = {}
    for record in _records(target, names):
        shard = by_name.get(record.shard)
        if shard is None or record.plan != digest or record.index != shard.index:
            continue
        if all(there.get(part.name) == part.bytes for part in record.files):
            records[record.index] = record
    stale = {by_name[name.removesuffix(".json")].index for name in names} - records.keys()
    return Job(target, plan, shards, records, frozenset(stale))


def _records(target: Target, names: Iterable[str]) -> Iterable[Record]:
    def load(name: str) -> Record | None:
        content = target.read(name)
        try:
            return None if content is None else Record.load(content, name)
        except SourceError:  # damaged: the shard is made again
            return None

    with ThreadPoolExecutor(_READERS) as pool:
        return [record for record in pool.map(load, names) if record is not None]
