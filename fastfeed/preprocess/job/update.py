"""Changes of a complete job: images removed, labeled otherwise, repaired and added."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Engine, collect_summaries
from fastfeed.preprocess.engines.named import engine_for
from fastfeed.preprocess.inputs.source_spec import InputLike, job_source
from fastfeed.preprocess.job.job import JobRun, make_report
from fastfeed.preprocess.model.bad_filter import BadFilter
from fastfeed.preprocess.model.edits import REMOVED
from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.record import EXCLUDED
from fastfeed.preprocess.model.report import OnProgress, Report, Reporter, format_size
from fastfeed.preprocess.planning.check_source import (
    NO_IDS,
    Changes,
    added_since,
    check_content,
    compare,
    restored_samples,
)
from fastfeed.preprocess.planning.edited import (
    edited,
    read_labels,
    read_names,
    shares_after,
    withdraw,
)
from fastfeed.preprocess.planning.planning import (
    append_plan,
    check_plan,
    planned_input,
    with_repaired,
)
from fastfeed.preprocess.shard.build import ShardTask
from fastfeed.preprocess.shard.probe import ProbeTask
from fastfeed.preprocess.shard.stored import stored_shard
from fastfeed.preprocess.targets.job_state import Job, load_plan, open_job, write_plan
from fastfeed.preprocess.targets.lock import job_lock
from fastfeed.preprocess.targets.target import open_target
from fastfeed.printable import plural

_PROBED = 64  # bad images that a process reads at a time


def update(
    source: InputLike,
    dst: str | os.PathLike[str],
    *,
    remove: Sequence[str] | str | os.PathLike[str] = (),
    relabel: Mapping[str, str | Sequence[str]] | str | os.PathLike[str] | None = None,
    repair: bool = False,
    add: bool = False,
    drop_missing: bool = False,
    ignore_unknown: bool = False,
    dry_run: bool = False,
    engine: Engine | Executor | str = "local",
    workers: int | None = None,
    memory: int | str | None = None,
    max_bad: float | None = None,
    timeout_s: float = 120.0,
    gpus_per_worker: float = 0.0,
    storage: dict[str, Any] | None = None,
    target_storage: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Change the samples of a job. Only shards that hold changed samples are written again.

    Their images are copied, not decoded. If interrupted, the same call resumes it.

    Args:
        source (str | os.PathLike[str] | Source | Input | Callable): As of `run`. It is read for
            `repair`, `add` and `drop_missing`, and for damaged shards. Of a merged job: the source
            of one of the jobs that were merged, whose images alone these change.
        dst (str | os.PathLike[str]): Folder or URL of the job. If it is not complete, it is
            completed first.
        remove (Sequence[str] | str | os.PathLike[str]): Names of images, as in the `uri` of their
            metadata or in full, or a text file with one per line. They stay out of the job: by
            name and, when images are added, by content. Default: ().
        relabel (Mapping[str, str | Sequence[str]] | str | os.PathLike[str] | None): New labels by
            name, "" for none, or a CSV file with the columns uri and label. Where images have
            several classes, lists, in a CSV as JSON or separated by semicolons or commas. New
            classes get the numbers after the existing ones. Default: None.
        repair (bool): Put bad images that can be read now into new shards. Default: False.
        add (bool): Put images that are new in the source into new shards. Default: False.
        drop_missing (bool): Remove images that are gone from the source. With `add`, those that
            have another name now are added under it. Default: False.
        ignore_unknown (bool): Skip names that the job does not have, and labels of removed images.
            Default: False.
        dry_run (bool): Write nothing; the report says what would be done. Default: False.
        engine (Engine | Executor | str): As of `run`. Default: "local".
        workers (int | None): As of `run`. Default: None, one per core.
        memory (int | str | None): As of `run`. Default: None, three fifths of the machine's
            memory.
        max_bad (float | None): As of `run`. Default: None, no limit.
        timeout_s (float): Seconds that one image may take. Default: 120.0.
        gpus_per_worker (float): As of `run`. Default: 0.0.
        storage (dict[str, Any] | None): fsspec options for the source. Default: None.
        target_storage (dict[str, Any] | None): fsspec options for `dst`. Default: None.
        on_progress (Callable[[Progress], None] | None): As of `run`. Default: None.

    Returns:
        What was done, and the state of the job; `selection` begins with the changes.

    Raises:
        ConfigError: There is no job, a name is not in it, or another process updates it. Nothing
            was changed.
        TargetError: `dst` cannot be written to; the same call resumes the update.

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, run, update
        >>> report = run("photos", "updated", Recipe(Scaling(16)))
        >>> report = update("photos", "updated", remove=["cat/0000.jpg"])
        >>> report.tally.samples, report.selection[0]
        (5, '1 image removed: 1 of 1 shards is written again')
    """
    names = read_names(remove) if isinstance(remove, (str, os.PathLike)) else list(remove)
    labels = (
        read_labels(relabel) if isinstance(relabel, (str, os.PathLike)) else dict(relabel or {})
    )
    target = open_target(dst, target_storage, writes=False)
    plan = load_plan(target)
    if plan is None:
        raise ConfigError(f"{target.text} holds no job of fastfeed preprocess; start one with run")
    if not dry_run:
        target = open_target(dst, target_storage)
    choice = plan.recipe.choice
    job_run = JobRun(
        target,
        job_source(source, storage, choice.group, choice.embedding),
        plan.recipe,
        engine_for(engine, workers, memory, timeout_s, gpus_per_worker),
        Reporter(on_progress),
        max_bad,
    )
    request = _Update(names, labels, repair, add, drop_missing, ignore_unknown, dry_run)
    with nullcontext() if dry_run else job_lock(target):
        return request.run(job_run)


@dataclass(frozen=True, slots=True)
class _Update:
    """Arguments of `update`, and the steps that carry it out."""

    names: list[str]
    labels: Mapping[str, str | Sequence[str]]
    repair: bool
    add: bool
    drop_missing: bool
    ignore_unknown: bool
    dry_run: bool

    def run(self, job_run: JobRun) -> Report:
        """Plan the changes, write the plan at once, and build what it changes."""
        target = job_run.target
        reporter = job_run.reporter
        job = open_job(target)
        if job.todo and not self.dry_run:
            job_run.build(BadFilter(), append=False, compare=False)
            job = open_job(target)
        plan = job.plan
        place = job_run.source.text or plan.source
        reporter.stage("resume")
        rows = restored_samples(target, plan, job_run.source, not self.dry_run)
        now, names = edited(job, rows, place, self.names, self.labels, self.ignore_unknown)
        if not (self.repair or self.add or self.drop_missing):
            return self._build(job_run, job, now, names)
        reporter.stage("source")
        with job_run.source.now(target) as (input, listing):
            bad = np.array([bad.id for bad in job.bad if bad.reason not in EXCLUDED], np.int64)
            retried = bad if self.repair else NO_IDS
            gone = NO_IDS
            if self.drop_missing:
                gone = compare(rows, now, input, retried).gone
                dropped = now.edits.merged(gone, np.full(len(gone), REMOVED, np.int64))
                names |= stored_uris(job, gone)
                fewer = replace(now, edits=dropped)
                now = replace(fewer, shares=shares_after(job, now, fewer, rows))
            changes = added_since(target, now, input, retried)
            kept = plan.places_in(input.text) if changes is None else changes.new_positions
            check_content(target, plan, input, job.records, kept, listing)
            changes = replace(changes or compare(rows, now, input, retried), gone=gone)
            if not self.add:
                changes = replace(changes, added=NO_IDS)
            repaired = _repaired(job_run, now, changes, retried)
            new = {"repaired": len(repaired), "added": len(changes.added)}
            if not any(new.values()):
                return self._build(job_run, job, now, names)
            check_plan(target, plan, job_run.recipe)
            if self.dry_run:
                now = replace(now, edits=with_repaired(now, repaired))
                return self._build(job_run, job, now, names, new)
            withdraw(job, now, names, _today())
            how = listing, job_run.engine, reporter, repaired, plan
            grown, _ = append_plan(target, now, changes, *how)
        placed = grown.order[len(plan.order) :] - plan.length
        new["left out"] = sum(new.values()) - len(placed)
        new["repaired"] = int(np.count_nonzero(placed < len(repaired)))
        new["added"] = len(placed) - new["repaired"]
        return self._build(job_run, job, grown, names, new)

    def _build(
        self,
        job_run: JobRun,
        job: Job,
        plan: JobPlan,
        names: Mapping[int, str],
        new: Mapping[str, int] | None = None,
    ) -> Report:
        """Write the plan unless it is there, and the shards that it changes."""
        sentence = _sentence(job, plan, new or {}, self.dry_run)
        if self.dry_run:
            report = make_report(job, 0, job_run.reporter.seconds, {}, ())
            return replace(report, selection=(sentence, *report.selection))
        target = job_run.target
        if plan.head != job.plan.head and not new:
            withdraw(job, plan, names, _today())
            write_plan(target, plan, job.plan)
        report = job_run.build(BadFilter(), append=False, compare=False, before=job)
        return replace(report, selection=(sentence, *report.selection))


def _today() -> Any:
    return datetime.now(timezone.utc).date()


def _repaired(job_run: JobRun, plan: JobPlan, changes: Changes, retried: np.ndarray) -> np.ndarray:
    """Ids of bad images that are good now: int64."""
    ids = retried[(changes.new_positions[retried] >= 0) & ~np.isin(retried, plan.edits.gone)]
    parts = [ids[first : first + _PROBED].tolist() for first in range(0, len(ids), _PROBED)]
    if not parts:
        return NO_IDS
    input = planned_input(plan, changes.now, changes.new_positions)
    task = ProbeTask(ShardTask(input, job_run.target, plan), parts)
    found = collect_summaries(job_run.engine, task, range(len(parts)))
    return np.array(sorted(i for summary in found for i in summary["good"]), np.int64)


def stored_uris(job: Job, ids: np.ndarray) -> dict[int, str]:
    """The `uri` of images by id, from the metadata in their shards, or from the list of bad ones."""
    wanted = frozenset(ids.tolist())
    uris = {bad.id: bad.uri for bad in job.bad if bad.id in wanted}
    for record in job.records.values():
        if wanted.isdisjoint(record.ids):
            continue
        metas = stored_shard(job.target, job.plan, record).metas(wanted.intersection(record.ids))
        uris |= {i: meta["uri"] for i, meta in metas.items()}
    return uris


def _sentence(job: Job, plan: JobPlan, new: Mapping[str, int], dry_run: bool) -> str:
    """The changes, with the numbers of images that are `new` in the plan: `2 images removed, 1 relabeled: 2 of 40 shards are written again`."""
    before = job.plan.edits
    now = plan.edits
    removed = len(now.with_value(REMOVED)) - len(before.with_value(REMOVED))
    labeled = now.ids[(now.values > REMOVED) & (now.ids < job.plan.length)]
    relabeled = int(np.count_nonzero(before.at(labeled) != now.at(labeled)))
    counts = {"removed": removed, "relabeled": relabeled, **new}
    parts = [(verb, count) for verb, count in counts.items() if count]
    if not parts:
        return "nothing to change"
    texts = [f"{count:,} {verb}" for verb, count in parts]
    texts[0] = f"{plural(parts[0][1], 'image')} {parts[0][0]}"
    if dry_run:  # of new images, copies and those that the recipe drops are left out
        up_to = {"added", "repaired"}
        texts = [
            "up to " * (verb in up_to) + text for text, (verb, _) in zip(texts, parts, strict=True)
        ]
    pairs = list(zip(job.plan.shard_hashes, plan.shard_hashes, strict=False))
    again = [k for k, (was, is_now) in enumerate(pairs) if was != is_now]
    size = sum(job.records[k].bytes for k in again if k in job.records)
    verb = "would be" if dry_run else "is" if len(again) == 1 else "are"
    shards = f"{len(again):,} of {len(pairs):,} shards {verb} written again"
    if dry_run:
        shards += f", {format_size(size)}"
    return f"{', '.join(texts)}: {shards}"
