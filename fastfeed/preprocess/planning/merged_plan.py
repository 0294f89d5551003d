"""The plan of jobs that are merged: their shards one after the other, their classes united."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.edits import Edits, hash_classes
from fastfeed.preprocess.model.plan import Earlier, JobPlan, MergedJob, version_differences
from fastfeed.preprocess.model.recipe import digest
from fastfeed.preprocess.model.record import part_of_sum
from fastfeed.preprocess.planning.check_source import load_samples, name_keys
from fastfeed.preprocess.planning.edited import removed_list, stored_sums
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.printable import printable
from fastfeed.sources.class_names import class_numbers, nfc
from fastfeed.sources.tables.column_types import words


def merged_plan(jobs: Sequence[Job]) -> JobPlan:
    """The plan of all jobs together. ConfigError if they do not fit together."""
    _check_mergeable(jobs)
    plans = [job.plan for job in jobs]
    classes = united_classes(jobs)
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
        merged += [replace(part, target=job.target.text) for _, part in plan.parts]
        ids += plan.length
        shards += len(job.shards)
    starts = [0, *(int(n) for n in np.cumsum([plan.length for plan in plans]))]
    left_out = Counter[str]()
    for plan in plans:
        left_out.update(plan.left_out)
    return replace(
        first,
        source=", ".join(dict.fromkeys(job.source for job in merged)),
        fingerprint=f"merged {digest([plan.fingerprint for plan in plans])}",
        length=ids,
        classes=classes,
        order=np.concatenate([plan.order + n for plan, n in zip(plans, starts, strict=False)]),
        groups=tuple(group for plan in plans for group in plan.groups),
        left_out=dict(left_out),
        earlier=tuple(steps),
        source_ids=np.concatenate(
            [
                np.arange(plan.length) if plan.source_ids is None else plan.source_ids
                for plan in plans
            ]
        ),
        failed=failed,
        shares={},
        request={},
        merged=tuple(merged),
        cuts=tuple(count for plan in plans for count in plan.cuts),
        columns=first.columns,
        edits=_edits(jobs, classes),
        edit_classes=(),
        edit_sets={hash_classes(own): own for own in _edit_sets(jobs, classes)},
    )


def _edits(jobs: Sequence[Job], classes: Sequence[str]) -> Edits:
    """Edits of all jobs, with the ids and class numbers of the merged one."""
    ids: list[int] = []
    values: list[int] = []
    for number, job in enumerate(jobs):
        edits = job.plan.edits
        changed = renumbered(job.plan.classes, classes)
        if job.plan.multi:
            new = map(hash_classes, _edit_sets([job], classes))
            changed = dict(zip(job.plan.edit_sets, new, strict=True))
        ids += (edits.ids + _start(jobs, number)).tolist()
        values += [changed.get(int(value), int(value)) for value in edits.values]
    return Edits(np.array(ids, np.int64), np.array(values, np.int64))


def _edit_sets(jobs: Sequence[Job], classes: Sequence[str]) -> list[tuple[int, ...]]:
    """Lists of classes that edits of all jobs give, with the numbers of the merged one."""
    return [
        with_numbers(own, numbers)
        for job in jobs
        for numbers in [renumbered(job.plan.classes, classes)]
        for own in job.plan.edit_sets.values()
    ]


def with_numbers(label: Any, numbers: Mapping[int, int]) -> Any:
    """A label with other numbers of classes."""
    if isinstance(label, tuple):
        return tuple(sorted(numbers.get(k, k) for k in label))
    return numbers.get(label, label)


def merged_samples(jobs: Sequence[Job]) -> np.ndarray:
    """Descriptions of all images, as `describe`."""
    return np.concatenate([load_samples(job.target, job.plan) for job in jobs])


def repeated(jobs: Sequence[Job], samples: np.ndarray) -> list[tuple[int, int, int]]:
    """Images with the name and content of one in a job before: (job, shard, id) of each."""
    found: list[tuple[int, int, int]] = []
    known = np.empty(0, np.uint64)
    for number, (ids, sums, shards) in enumerate(map(_contents, jobs)):
        own = samples[_start(jobs, number) :]
        keys = name_keys(own["name"][ids], sums)
        found += _places(number, ids, shards, np.isin(keys, known))
        known = np.concatenate([known, keys])
    return found


def removed_elsewhere(jobs: Sequence[Job], samples: np.ndarray) -> list[tuple[int, int, int]]:
    """Images with the content of one that another job has removed, as `repeated`."""
    removed = [
        {
            (line["sha256"], int(samples["size"][_start(jobs, number) + line["id"]]))
            for line in removed_list(job.target, job.plan)
            if line["sha256"]
        }
        for number, job in enumerate(jobs)
    ]
    found: list[tuple[int, int, int]] = []
    for number, job in enumerate(jobs):
        others = set().union(*(part for k, part in enumerate(removed) if k != number))
        if not others:
            continue
        parts = [int(part_of_sum(sha256), 16) for sha256, _ in others]
        ids, sums, shards = _contents(job)
        is_like = np.isin(sums, np.array(parts, np.uint64))
        known = stored_sums(job, set(ids[is_like].tolist()))
        sizes = samples["size"][_start(jobs, number) :]
        whole = {sha256 for sha256, _ in others}
        again = [
            known[i] in whole or (part_of_sum(known[i]), int(sizes[i]) or -1) in others
            for i in ids[is_like].tolist()
        ]
        is_like[is_like] = again
        found += _places(number, ids, shards, is_like)
    return found


def merged_removals(jobs: Sequence[Job]) -> bytes:
    """The lists of removed images of all jobs, with the ids that they have in the merged one."""
    lines = [
        line | {"id": _start(jobs, number) + line["id"]}
        for number, job in enumerate(jobs)
        for line in removed_list(job.target, job.plan)
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def _start(jobs: Sequence[Job], number: int) -> int:
    """The first id of a job in the merged one."""
    return sum(job.plan.length for job in jobs[:number])


def _places(
    number: int, ids: np.ndarray, shards: np.ndarray, chosen: np.ndarray
) -> list[tuple[int, int, int]]:
    return [(number, int(shards[k]), int(ids[k])) for k in np.flatnonzero(chosen)]


def _contents(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Id, part of the content's hash (uint64) and shard of each sample."""
    records = [job.records[index] for index in sorted(job.records)]
    parts = [record.parts_of_sums for record in records]
    counts = list(map(len, parts))
    ids = [i for record, n in zip(records, counts, strict=True) for i in record.ids[:n]]
    sums = [int(part, 16) for own in parts for part in own]
    shards = np.repeat(np.array([record.index for record in records], np.int64), counts)
    return np.array(ids, np.int64), np.array(sums, np.uint64), shards


def _check_mergeable(jobs: Sequence[Job]) -> None:
    first = jobs[0]
    choice = first.plan.recipe.choice
    if choice.group or choice.stratify:
        what = f"--group {choice.group}" if choice.group else "--stratify"
        whose = f"with one {choice.group}" if choice.group else "that belong together"
        raise ConfigError(
            f"{first.target.text} was split with {what}, which a job decides for its own images:"
            f" merged, images {whose} could be in two splits; append the images of the others to"
            f" it (--append), or run one job of all of them"
        )
    by_hash: dict[str, str] = {}
    for job in jobs:
        plan = job.plan
        text = job.target.text
        if plan.images:
            raise ConfigError(
                f"merge is for jobs of one image per sample, {text} has {', '.join(plan.images)};"
                " read the shards of all jobs as one source instead"
            )
        if job.todo:
            line = shlex.join(["fastfeed", "preprocess", "resume", plan.source, text])
            raise ConfigError(
                f"{text} is not complete: {len(job.todo):,} of {len(job.shards):,} shards are"
                f" missing or damaged; finish it first:  {line}"
            )
        hashes = {hash.partition(".")[0] for hash in plan.shard_hashes}  # without edits
        if other := next(filter(None, map(by_hash.get, hashes)), ""):
            raise ConfigError(f"{other} and {text} hold shards of the same job; name one of them")
        by_hash |= dict.fromkeys(hashes, text)
        lines = first.plan.recipe.difference(plan.recipe)
        lines += version_differences(first.plan.made_with, plan.made_with)
        types = [
            {f"column {printable(name)}": words(kind) for name, kind in own.columns.items()}
            for own in (first.plan, plan)
        ]
        lines += version_differences(*types)
        if plan.multi != first.plan.multi:
            lines.append("labels: lists of classes in one job alone")
        if lines:
            raise ConfigError(
                f"{first.target.text} and {text} were made in different ways:\n"
                + "".join(f"  {line}\n" for line in lines)
                + "jobs that are merged must have one recipe; run one of them again, with the"
                " settings of the other, in an empty folder"
            )


def united_classes(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Class names of all jobs: those of the first, then the new ones of each. ConfigError."""
    first = jobs[0]
    classes = list(first.plan.classes)
    for job in jobs[1:]:
        names = job.plan.classes
        if bool(names) != bool(first.plan.classes):
            raise ConfigError(
                f"{first.target.text} and {job.target.text} do not have the same kind of labels:"
                " only one has names of classes"
            )
        known = class_numbers(classes)
        classes += [name for name in names if nfc(name) not in known]
    return tuple(classes)


def renumbered(names: Sequence[str], classes: Sequence[str]) -> dict[int, int]:
    """Labels of a job that are other ones in the merged job: the new number by the old one."""
    known = class_numbers(classes)
    numbers = {k: known[nfc(name)] for k, name in enumerate(names)}
    return {k: number for k, number in numbers.items() if number != k}
