"""The plan of jobs that are merged: their shards one after the other, their classes united."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.edits import Edits
from fastfeed.preprocess.model.plan import Earlier, JobPlan, MergedJob, version_differences
from fastfeed.preprocess.model.recipe import digest
from fastfeed.preprocess.model.record import Record
from fastfeed.preprocess.planning.check_source import load_samples, name_keys, samples_file
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.sources.class_names import class_numbers, nfc


def merged_plan(jobs: Sequence[Job]) -> JobPlan:
    """The plan of all jobs together. ConfigError if they do not fit together."""
    _check_mergeable(jobs)
    plans = [job.plan for job in jobs]
    classes = _united(jobs)
    first = plans[0]
    failed: dict[int, str] = {}
    steps: list[Earlier] = []
    merged: list[MergedJob] = []
    ids = shards = 0
    for job in jobs:
        plan = job.plan
        failed |= {ids + i: detail for i, detail in plan.failed.items()}
        last = Earlier(plan.hash, len(job.shards), plan.length, plan.fingerprint)
        steps += [
            replace(step, shards=shards + step.shards, length=ids + step.length)
            for step in (*plan.earlier, last)
        ]
        own = MergedJob(job.target.text, plan.source, plan.fingerprint, plan.first_uri, plan.length)
        merged += plan.merged or (own,)
        ids += plan.length
        shards += len(job.shards)
    starts = [0, *(int(n) for n in np.cumsum([plan.length for plan in plans]))]
    left_out = Counter[str]()
    for plan in plans:
        left_out.update(plan.left_out)
    return replace(
        first,
        source=", ".join(job.source for job in merged),
        fingerprint=f"merged {digest([plan.fingerprint for plan in plans])}",
        length=ids,
        classes=classes,
        order=np.concatenate([plan.order + n for plan, n in zip(plans, starts, strict=False)]),
        groups=tuple(group for plan in plans for group in plan.groups),
        left_out=dict(left_out),
        earlier=tuple(steps),
        source_ids=np.concatenate([_source_ids(plan) for plan in plans]),
        failed=failed,
        shares={},
        request={},
        merged=tuple(merged),
        cuts=tuple(count for plan in plans for count in plan.cuts),
        edits=_edits(plans, starts),
        edit_classes=(),
    )


def _edits(plans: Sequence[JobPlan], starts: Sequence[int]) -> Edits:
    pairs = zip(plans, starts, strict=False)
    return Edits(
        np.concatenate([plan.edits.ids + n for plan, n in pairs]),
        np.concatenate([plan.edits.values for plan in plans]),
    )


def merged_samples(jobs: Sequence[Job]) -> np.ndarray | None:
    """Descriptions of all images, as `describe`; None if a job of an earlier version has none."""
    rows = [load_samples(job.target.read(samples_file(job.plan))) for job in jobs]
    known = [part for part in rows if part is not None]
    return np.concatenate(known) if len(known) == len(rows) else None


def repeated(jobs: Sequence[Job], samples: np.ndarray) -> list[tuple[int, int, int]]:
    """Images with the name and content of one in a job before: (job, shard, id) of each."""
    found: list[tuple[int, int, int]] = []
    known = np.empty(0, np.uint64)
    start = 0
    for number, job in enumerate(jobs):
        records = [job.records[index] for index in sorted(job.records)]
        ids = np.array([i for record in records for i, _ in _summed(record)], np.int64)
        sums = np.array([part for record in records for _, part in _summed(record)], np.uint64)
        shards = np.repeat(
            [record.index for record in records], [len(record.parts_of_sums) for record in records]
        )
        keys = name_keys(samples["name"][start + ids], sums)
        for at in np.flatnonzero(np.isin(keys, known)).tolist():
            found.append((number, int(shards[at]), int(ids[at])))
        known = np.concatenate([known, keys])
        start += job.plan.length
    return found


def _summed(record: Record) -> Iterator[tuple[int, int]]:
    """Id and part of the content's hash of each sample."""
    parts = (int(part, 16) for part in record.parts_of_sums)
    return zip(record.ids, parts, strict=False)


def _resume(job: Job) -> str:
    return shlex.join(["fastfeed", "preprocess", "resume", job.plan.source, job.target.text])


def _source_ids(plan: JobPlan) -> np.ndarray:
    return np.arange(plan.length) if plan.source_ids is None else plan.source_ids


def _check_mergeable(jobs: Sequence[Job]) -> None:
    first = jobs[0]
    by_hash: dict[str, str] = {}
    for job in jobs:
        plan, text = job.plan, job.target.text
        if job.todo:
            raise ConfigError(
                f"{text} is not complete: {len(job.todo):,} of {len(job.shards):,} shards are"
                f" missing or damaged; finish it first:  {_resume(job)}"
            )
        hashes = {hash.partition(".")[0] for hash in plan.shard_hashes}  # without edits
        if other := next(filter(None, map(by_hash.get, hashes)), ""):
            raise ConfigError(f"{other} and {text} hold shards of the same job; name one of them")
        by_hash |= dict.fromkeys(hashes, text)
        lines = first.plan.recipe.difference(plan.recipe)
        lines += version_differences(first.plan.made_with, plan.made_with)
        if lines:
            raise ConfigError(
                f"{first.target.text} and {text} were made in different ways:\n"
                + "".join(f"  {line}\n" for line in lines)
                + "jobs that are merged must have one recipe; run one of them again, with the"
                " settings of the other, in an empty folder"
            )


def _united(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Class names of all jobs. ConfigError if a job has other numbers for them."""
    first = jobs[0]
    classes = list(first.plan.classes)
    for job in jobs[1:]:
        names, texts = job.plan.classes, f"{first.target.text} and {job.target.text}"
        if bool(names) != bool(first.plan.classes):
            raise ConfigError(
                f"{texts} do not have the same kind of labels: only one has names of classes"
            )
        known = class_numbers(classes)
        classes += [name for name in names if nfc(name) not in known]
        known = class_numbers(classes)
        moved = [name for k, name in enumerate(names) if known[nfc(name)] != k]
        if moved:
            raise ConfigError(
                f"{texts} have other numbers for {len(moved):,} of their classes, such as"
                f" {moved[0]!r}: run one of them again with a source that has the classes of both"
            )
    return tuple(classes)
