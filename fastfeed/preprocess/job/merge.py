"""Merges complete jobs into a new one, whose shards are links to theirs, or copies."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.engines.named import engine_for
from fastfeed.preprocess.inputs.source_spec import job_source
from fastfeed.preprocess.job.job import JobRun, make_report
from fastfeed.preprocess.model.bad_filter import BadFilter
from fastfeed.preprocess.model.plan import JobPlan, Shard, saved
from fastfeed.preprocess.model.record import ShardFile, ShardRecord, labeled
from fastfeed.preprocess.model.report import OnProgress, Progress, Report, Reporter
from fastfeed.preprocess.planning.check_source import samples_file
from fastfeed.preprocess.planning.edited import REMOVED_LIST
from fastfeed.preprocess.planning.merged_plan import (
    merged_plan,
    merged_removals,
    merged_samples,
    removed_elsewhere,
    renumbered,
    repeated,
    with_numbers,
)
from fastfeed.preprocess.planning.planning import existing_plan
from fastfeed.preprocess.shard.stored import DamagedShard, stored_shard
from fastfeed.preprocess.targets.job_state import Job, finalize, open_job, write_plan
from fastfeed.preprocess.targets.lock import check_lock, job_lock
from fastfeed.preprocess.targets.overlap import check_overlap
from fastfeed.preprocess.targets.ranges import reader
from fastfeed.preprocess.targets.target import Target, open_target
from fastfeed.preprocess.writers import File, new_writer

_THREADS = 8
_PIECE = 8 << 20  # bytes copied at once

Place = str | os.PathLike[str]


def merge(
    jobs: Sequence[Place],
    dst: Place,
    *,
    duplicates: str = "error",
    target_storage: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Merge complete jobs of one recipe into a new job, without decoding an image.

    Files are hard links where the file system allows, copies made by the object store, or copies.
    Classes are united by name, and shards with labels that get other numbers are written again.
    If a call is interrupted, the same call resumes it.

    Args:
        jobs (Sequence[str | os.PathLike[str]]): Two or more targets of jobs, in the order in which
            their shards are numbered. They are only read.
        dst (str | os.PathLike[str]): An empty folder or URL, or one that holds the same merge.
        duplicates (str): "error" refuses images that two of the jobs have, by name and content,
            and those that were removed from another of them, by content; "keep" keeps them all.
            Default: "error".
        target_storage (dict[str, Any] | None): fsspec options for those that are URLs. Default:
            None.
        on_progress (Callable[[Progress], None] | None): Called with a Progress for each shard.
            Default: None.

    Returns:
        The state of the new job.

    Raises:
        ConfigError: The jobs do not fit together, `dst` holds something else, or another process
            changes one of them.
        SourceError: There is no job in one of them, or a shard of it is damaged.
        TargetError: `dst` cannot be written to; finished shards are kept.

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, merge, run
        >>> first = run("photos/cat", "first", Recipe(Scaling(16)))
        >>> second = run("photos/dog", "second", Recipe(Scaling(16)))
        >>> merge(["first", "second"], "both").shards
        2
    """
    if duplicates not in ("error", "keep"):
        raise ConfigError.of("duplicates", '"error" or "keep"', duplicates)
    if isinstance(jobs, (str, os.PathLike)) or len(jobs) < 2:
        raise ConfigError.of("jobs", "two or more targets of jobs", jobs)
    for place in jobs:
        check_overlap(place, dst)

    def opened(place: Place, writes: bool) -> Target:
        options = target_storage if "://" in os.fspath(place) else None
        return open_target(place, options, writes=writes)

    parts = [opened(place, writes=False) for place in jobs]
    for part in parts:
        check_lock(part)
    target = opened(dst, writes=True)
    with job_lock(target):
        merge = _Merge([open_job(part) for part in parts], target, Reporter(on_progress))
        return merge.run(duplicates)


@dataclass(frozen=True, slots=True)
class _Merge:
    """Arguments of a merge, opened."""

    jobs: Sequence[Job]
    target: Target
    reporter: Reporter

    def run(self, duplicates: str) -> Report:
        plan = merged_plan(self.jobs)
        target = self.target
        samples = merged_samples(self.jobs)
        existing = existing_plan(target)
        if existing is not None and not _is_same_merge(existing, plan):
            raise ConfigError(
                f"{target.text} holds another job, of {existing.source}; choose an empty folder"
            )
        twice = repeated(self.jobs, samples)
        removed = removed_elsewhere(self.jobs, samples)
        if (twice or removed) and duplicates == "error":
            raise self._twice(twice) if twice else self._removed(removed)
        if existing is None:
            contents = {samples_file(plan): saved(samples)}
            if lines := merged_removals(self.jobs):
                contents[REMOVED_LIST] = lines
            write_plan(target, plan, None, contents)
        target.sweep()
        current = existing or plan
        before = open_job(target, current)
        self._take_shards(before, plan)
        after = open_job(target, current)
        if after.todo:  # shards that lack what was removed and labeled since the first merge
            engine = engine_for("local", None, None, 120.0)
            source = job_source(current.source)
            edits = JobRun(target, source, current.recipe, engine, self.reporter)
            edits.build(BadFilter(), append=False, compare=False)
            after = open_job(target, current)
        finalize(after)
        notes = (_twice_in(twice),) if twice else ()
        return make_report(after, len(before.todo), self.reporter.seconds, {}, notes)

    def _twice(self, twice: Sequence[tuple[int, int, int]]) -> ConfigError:
        number, index, i = twice[0]
        job = self.jobs[number]
        record = job.records[index]
        return ConfigError(
            f"{_twice_in(twice)}, such as {i:09d} of {record.shard} in {job.target.text};"
            " duplicates='keep' (--duplicates keep) keeps both",
            field="duplicates",
        )

    def _removed(self, removed: Sequence[tuple[int, int, int]]) -> ConfigError:
        number, index, i = removed[0]
        job = self.jobs[number]
        images = "1 image has" if len(removed) == 1 else f"{len(removed):,} images have"
        return ConfigError(
            f"{images} the content of one that was removed from another of the"
            f" jobs, such as {i:09d} of {job.records[index].shard} in {job.target.text}; remove"
            " them there too (fastfeed preprocess update), or pass duplicates='keep' (--duplicates"
            " keep)",
            field="duplicates",
        )

    def _take_shards(self, merged: Job, plan: JobPlan) -> None:
        """Take over the shards that are missing, several at a time, as `plan` has them."""
        present = merged.records.keys() | merged.outdated.keys()
        tasks = [task for task in self._tasks(merged, plan) if task[2].index not in present]
        images = merged.plan.order.size
        classes = merged.plan.classes
        remaining = sum(len(record.ids) + len(record.bad) for _, record, _ in tasks)
        before = images - remaining
        done = images - remaining
        shards = len(merged.shards)
        with ThreadPoolExecutor(_THREADS, "fastfeed-merge") as pool:
            futures = [pool.submit(self._take, *task, classes) for task in tasks]
            try:
                for number, (future, (_, record, _)) in enumerate(zip(futures, tasks, strict=True)):
                    future.result()
                    done += len(record.ids) + len(record.bad)
                    started = shards - len(tasks)
                    self.reporter.tell(
                        Progress(
                            "shards",
                            started + number + 1,
                            shards,
                            started,
                            done,
                            images,
                            before,
                            seconds=self.reporter.seconds,
                        )
                    )
            except BaseException:  # Ctrl-C, too
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _tasks(self, merged: Job, plan: JobPlan) -> Iterator[tuple[Job, ShardRecord, ShardRecord]]:
        """A job, the record of one of its shards, and the one that it gets here."""
        hashes = plan.shard_hashes
        shards = iter(merged.shards)
        start = 0
        for job in self.jobs:
            for own in job.shards:
                shard = next(shards)
                record = job.records[own.index]
                yield job, record, _moved(record, shard, hashes[shard.index], start)
            start += job.plan.length

    def _take(
        self, job: Job, record: ShardRecord, moved: ShardRecord, classes: tuple[str, ...]
    ) -> None:
        """Link or copy the files of a shard, and write its record, unless labels get new numbers."""
        numbers = renumbered(job.plan.classes, classes)
        if numbers and self._rewrite(job, record, moved, numbers, classes):
            return
        attempt = self.target.attempt()
        try:
            for file, new in zip(record.files, moved.files, strict=True):
                if not attempt.link(job.target, file, new.name):
                    _copy(job.target, file, attempt.create(new.name))

            def checked(written: Sequence[ShardFile]) -> tuple[str, bytes]:
                for file, new, found in zip(record.files, moved.files, written, strict=True):
                    if found != new:
                        raise _damaged(job, file.name)
                return moved.name, moved.dump()

            attempt.commit(checked)
        finally:
            attempt.abandon()

    def _rewrite(
        self,
        job: Job,
        record: ShardRecord,
        moved: ShardRecord,
        numbers: Mapping[int, int],
        classes: tuple[str, ...],
    ) -> bool:
        """Write a shard with other labels, without decoding; False if it has none that change."""
        attempt = self.target.attempt()
        is_changed = False
        stored = stored_shard(job.target, job.plan, record)
        try:
            writer = new_writer(attempt.create, moved.shard, job.plan)
            for entry in stored.entries():
                label = with_numbers(entry.label, numbers)
                is_changed = is_changed or label != entry.label
                writer.add(entry if label == entry.label else labeled(entry, label, classes))
            if not is_changed:
                return False
            offsets = tuple(writer.close())

            def written(files: Sequence[ShardFile]) -> tuple[str, bytes]:
                stored.check()
                return moved.name, replace(moved, files=tuple(files), offsets=offsets).dump()

            attempt.commit(written)
        except DamagedShard as error:
            raise _damaged(job, record.shard) from error
        finally:
            attempt.abandon()
        return True


def _is_same_merge(existing: JobPlan, plan: JobPlan) -> bool:
    """True if a plan is this one of merged jobs, maybe with later edits."""
    values = existing.edits.at(plan.edits.ids)
    is_kept = (values == plan.edits.values) | np.isin(plan.edits.ids, existing.edits.gone)
    classes = plan.classes == existing.classes[: len(plan.classes)]
    hashes = {existing.hash, *(step.hash for step in existing.earlier)}  # before it was extended
    return plan.hash in hashes and classes and bool(is_kept.all())


def _damaged(job: Job, name: str) -> SourceError:
    return SourceError(
        f"{name} in {job.target.text} is damaged: its content differs from what was written"
        f" (sha256); run  fastfeed preprocess verify {shlex.quote(job.target.text)} --fix"
    )


def _twice_in(twice: Sequence[tuple[int, int, int]]) -> str:
    images = "1 image is" if len(twice) == 1 else f"{len(twice):,} images are"
    return f"{images} in two of the jobs, by name and content"


def _moved(record: ShardRecord, shard: Shard, plan: str, start: int) -> ShardRecord:
    """The record of a shard under its new name; its ids begin at `start`."""
    return replace(
        record,
        shard=shard.name,
        index=shard.index,
        plan=plan,
        files=tuple(
            replace(file, name=shard.name + file.name.removeprefix(record.shard))
            for file in record.files
        ),
        ids=tuple(start + i for i in record.ids),
        start=start + record.start,
        bad=tuple(replace(bad, id=start + bad.id) for bad in record.bad),
    )


def _copy(source: Target, file: ShardFile, copy: File) -> None:
    read = reader(source, file.name)
    for start in range(0, file.bytes, _PIECE):
        copy.write(read(start, min(_PIECE, file.bytes - start)))
    copy.close()
