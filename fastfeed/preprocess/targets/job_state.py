"""The state of a job in its target, and the files written when it is complete."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.model.edits import REMOVED
from fastfeed.preprocess.model.layout import JOB, record_name
from fastfeed.preprocess.model.plan import PLAN, JobPlan, Shard
from fastfeed.preprocess.model.record import BadSample, Counts, ShardRecord
from fastfeed.preprocess.targets.target import Target

_READERS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A plan, and its completed shards."""

    target: Target
    plan: JobPlan
    shards: list[Shard]
    records: dict[int, ShardRecord]  # by shard index; completed shards only
    # shards whose record is invalid: files are missing or truncated
    stale: frozenset[int] = frozenset()
    outdated: dict[int, ShardRecord] = field(default_factory=dict)  # of shards with other edits

    @property
    def todo(self) -> list[int]:
        """Indexes of the shards that are not done."""
        return [shard.index for shard in self.shards if shard.index not in self.records]

    @property
    def bad(self) -> list[BadSample]:
        """Images that could not be put into a shard, in shard order."""
        return [sample for sample in self._out if not sample.is_dropped]

    @property
    def dropped(self) -> list[BadSample]:
        """Images that `Limits.where` or the user's function left out, in shard order."""
        return [sample for sample in self._out if sample.is_dropped]

    @property
    def _out(self) -> Iterator[BadSample]:
        return (bad for index in sorted(self.records) for bad in self.records[index].bad)


def load_plan(target: Target) -> JobPlan | None:
    """The plan in a target, if it has one."""
    return JobPlan.read(target.read, target.text)


def put_plan(
    target: Target, plan: JobPlan, before: JobPlan | None, more: Mapping[str, bytes] | None = None
) -> bool:
    """Write a plan in place of `before`, None for none, with its files and `more` ones, PLAN last.

    False if another process has written another plan since `before` was read.
    """
    head = target.read(PLAN)
    if head == plan.head:
        return True
    found = None if head is None else load_plan(target)
    hashes = [None if one is None else one.edited_hash for one in (found, before)]
    if hashes[0] != hashes[1]:
        return False
    files = {**(more or {}), **plan.files()}
    del files[PLAN]
    for name, content in files.items():
        target.write(name, content)
    return target.swap(PLAN, plan.head, head) or target.read(PLAN) == plan.head


def write_plan(
    target: Target, plan: JobPlan, before: JobPlan | None, more: Mapping[str, bytes] | None = None
) -> None:
    """Write a plan as `put_plan` does. ConfigError if another process has written another one."""
    if not put_plan(target, plan, before, more):
        raise ConfigError(
            f"another process has changed the plan in {target.text} since it was read; nothing was"
            " changed: run the same command again"
        )


def open_job(target: Target, plan: JobPlan | None = None, before: Job | None = None) -> Job:
    """The job in a target. SourceError if there is no plan.

    A shard is done if its record is of this plan and its files have the recorded sizes. before: the
    job earlier, if its done shards have the same records still, which are not read again.
    """
    if plan is None:
        plan = load_plan(target)
    if plan is None:
        raise SourceError(f"{target.text} holds no job of fastfeed preprocess: no {PLAN}")
    shards = plan.shards
    present = target.files()
    hashes = plan.shard_hashes
    by_name = {shard.name: shard for shard in shards}
    by_record = {record_name(shard.name): shard for shard in shards}
    names = [name for name in by_record if name in present]
    records: dict[int, ShardRecord] = {}
    outdated: dict[int, ShardRecord] = {}
    known = {record.name: record for record in before.records.values()} if before else {}
    for record in read_records(target, names, known):
        shard = by_name.get(record.shard)
        if shard is None or record.index != shard.index:
            continue
        hash = hashes[shard.index]
        if record.plan == hash:
            if all(present.get(file.name) == file.bytes for file in record.files):
                records[record.index] = record
        elif record.base == hash.partition(".")[0]:
            outdated[record.index] = record  # its files may be newer, after an interruption
    stale = {by_record[name].index for name in names} - records.keys() - outdated.keys()
    return Job(target, plan, shards, records, frozenset(stale), outdated)


def read_records(
    target: Target, names: Sequence[str], known: Mapping[str, ShardRecord] = MappingProxyType({})
) -> Iterator[ShardRecord]:
    """The records of these names that are not damaged, in this order; `known` ones are not read."""

    def load(name: str) -> ShardRecord | None:
        if (record := known.get(name)) is not None:
            return record
        content = target.read(name)
        try:
            return None if content is None else ShardRecord.load(content, name)
        except SourceError:  # damaged: the shard is rebuilt
            return None

    each = -(-len(names) // _READERS) or 1
    parts = [names[first : first + each] for first in range(0, len(names), each)]
    with ThreadPoolExecutor(_READERS) as pool:
        for part in pool.map(lambda part: list(map(load, part)), parts):
            yield from filter(None, part)


MANIFEST = f"{JOB}/manifest.json"
BAD = f"{JOB}/bad.jsonl"
TIMES = f"{JOB}/times.jsonl"


def finalize(job: Job) -> None:
    """Write the list of bad images, the format's indexes, and last the manifest."""
    records = [job.records[index] for index in sorted(job.records)]
    for name, content in indexes(job, records).items():
        _write(job.target, name, content)
    bad = [
        {"id": sample.id, "uri": sample.uri, "shard": record.shard}
        | {"reason": sample.reason, "detail": sample.detail}
        for record in records
        for sample in record.bad
    ]
    _write(job.target, BAD, "".join(json.dumps(row) + "\n" for row in bad).encode())
    manifest = json.dumps(_manifest(job, records), indent=1, sort_keys=True)
    _write(job.target, MANIFEST, f"{manifest}\n".encode())
    job.target.sweep(everything=True)


def _manifest(job: Job, records: list[ShardRecord]) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        shard = asdict(record.files[0]) | {"samples": len(record.ids)}
        groups.setdefault(record.shard.rpartition("/")[0], []).append(shard)
    counts = Counts.sum(record.tally for record in records)
    removed = len(job.plan.edits.with_value(REMOVED))
    return {
        "plan": job.plan.hash,
        "recipe": job.plan.recipe.document(),
        "made_with": job.plan.made_with,
        "classes": list(job.plan.classes),
        "shards": groups,
        "samples": counts.samples,
        "bytes": sum(record.bytes for record in records),
        "bad": dict(Counter(sample.reason for sample in job.bad)),
        **({"dropped": len(job.dropped)} if job.dropped else {}),
        "left_out": job.plan.left_out,
        **({"shares": job.plan.shares} if job.plan.shares else {}),
        **({"removed": removed} if removed else {}),
        **({"columns": job.plan.columns} if job.plan.columns else {}),
    }


def indexes(job: Job, records: list[ShardRecord]) -> dict[str, bytes]:
    """Content of the indexes of a complete job, by name: MDS has one in each folder."""
    if job.plan.recipe.packing.format != "mds":
        return {}
    from fastfeed.preprocess.writers.mds import index_json

    plan = job.plan
    about = plan.recipe.encoding.image, plan.columns, plan.multi, plan.images
    folders: dict[str, list[tuple[str, int, str, int, dict[str, Any]]]] = {}
    for record in records:
        folder, _, _ = record.shard.rpartition("/")
        main = record.files[0]
        name = main.name[len(folder) + bool(folder) :]
        file = name, main.bytes, main.sha256, len(record.ids), record.arrays
        folders.setdefault(folder, []).append(file)
    return {
        f"{folder}/index.json".lstrip("/"): index_json(files, *about)
        for folder, files in folders.items()
    }


def _write(target: Target, name: str, content: bytes) -> None:
    """Write a file unless it has this content already."""
    if target.read(name) != content:
        target.write(name, content)


def log_run(
    target: Target,
    seconds: float,
    images: int,
    stages: Mapping[str, float],
    shards: int,
    **more: Any,
) -> None:
    """Append one line to TIMES."""
    line = {"seconds": round(seconds, 3), "images": images, "shards": shards, **more}
    line["stages"] = {stage: round(took, 3) for stage, took in sorted(stages.items())}
    target.write(TIMES, (target.read(TIMES) or b"") + json.dumps(line).encode() + b"\n")
