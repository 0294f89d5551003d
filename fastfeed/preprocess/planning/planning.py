"""Plans of jobs: made, appended to, or loaded and compared with the current request."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Engine, collect_summaries
from fastfeed.preprocess.inputs.inputs import Input, check_images
from fastfeed.preprocess.inputs.kept_listing import keep_listing
from fastfeed.preprocess.inputs.plan_ids import PlanIds, coded, is_multi, label_codes, read_labels
from fastfeed.preprocess.model.columns import check_names
from fastfeed.preprocess.model.edits import REPAIRED, UNCHANGED, Edits
from fastfeed.preprocess.model.layout import is_job_file
from fastfeed.preprocess.model.plan import PLAN, Earlier, JobPlan, ordered, saved
from fastfeed.preprocess.model.recipe import Recipe, digest
from fastfeed.preprocess.model.report import Reporter
from fastfeed.preprocess.planning.check_source import (
    NO_IDS,
    Changes,
    describe,
    load_samples,
    samples_file,
)
from fastfeed.preprocess.planning.edited import removed_again
from fastfeed.preprocess.planning.estimate import (
    SAMPLE_SIZE,
    ExpectedSizes,
    check_space,
    estimate,
    expected_sizes,
    source_bytes,
    surely_fits,
)
from fastfeed.preprocess.planning.select import PlannedGroups, select
from fastfeed.preprocess.planning.semantic import read_vectors
from fastfeed.preprocess.planning.shares import counted, counts_by_class, split_positions
from fastfeed.preprocess.planning.split import read_groups
from fastfeed.preprocess.planning.survey import Survey, SurveyTask, completed_pieces, load_survey
from fastfeed.preprocess.planning.wanted import check_where, unwanted
from fastfeed.preprocess.shard.versions import versions
from fastfeed.preprocess.targets.job_state import load_plan, put_plan, write_plan
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.base import Source
from fastfeed.sources.class_names import class_numbers, nfc

_SURVEY_PIECE = 2000  # images per piece of the survey
# images per piece, seconds: the check must not delay the start of a job
_QUICK = {"at_once": 4, "longest_s": 10.0}


def check_plan(target: Target, plan: JobPlan, recipe: Recipe, decodes: bool = True) -> None:
    """ConfigError, with the differences, if the target's plan is not the one requested now.

    Without `decodes` any libraries may copy what is stored.
    """
    made_with = versions(recipe) if decodes else plan.made_with
    requested = replace(plan, recipe=recipe, made_with=made_with)
    if lines := plan.differences(requested):
        raise ConfigError(
            f"{target.text} holds a job with another plan:\n{lines}\n"
            "run it with the same settings, or choose another, empty target"
        )


def unmixed(labels: np.ndarray, recipe: Recipe, counts: Sequence[int]) -> tuple[str, ...]:
    """A hint if most shards would hold one class only; `counts`: images of each shard."""
    count = len(counts)
    shard = np.repeat(np.arange(count), counts)
    if recipe.choice.shuffle is not None or count < 2 or len(np.unique(labels[labels >= 0])) < 2:
        return ()
    changes = np.flatnonzero((labels[1:] != labels[:-1]) & (shard[1:] == shard[:-1]))
    pure = count - len(np.unique(shard[changes]))
    if 2 * pure < count:
        return ()
    one_class = f"{pure:,} of {count:,} shards hold one class only, as the source is in this order"
    return (f"{one_class}; shuffle=0 (--shuffle 0) mixes them",)


def check_free_space(
    input: Input, recipe: Recipe, engine: Engine, target: Target, reporter: Reporter
) -> None:
    """Raise TargetError if the target has too little space, estimated from a sample if unclear."""
    free = target.free_bytes()
    count = len(input.source) * max(len(input.images), 1)
    if free is None or surely_fits(count, recipe, free):
        return
    reporter.sample(0, min(len(input.source), SAMPLE_SIZE))
    estimated = estimate(input, recipe, engine, free=free, on_sample=reporter.sample, **_QUICK)
    check_space(estimated, target.text)


def create_plan(
    target: Target,
    input: Input,
    recipe: Recipe,
    engine: Engine,
    reporter: Reporter,
    part: tuple[int, int] = (0, 1),
    request: dict[str, Any] | None = None,
) -> JobPlan:
    """Make the plan and write it, after a survey if the recipe needs one. TargetError."""
    check_names(input.types, recipe.packing.format)
    check_images(input, recipe)
    if missing := input.missing():
        raise ConfigError(
            f"no checked sample of {input.text} has {', '.join(missing)}; "
            "use the names of captions and columns as they are in the source"
        )
    check_where(target, input, recipe, engine)
    check_free_space(input, recipe, engine, target, reporter)
    source = input.source
    length = len(source)
    ids = np.arange(len(source))
    survey = None
    if recipe.looks:
        survey = _run_survey(target, input, recipe, engine, _bounds([length]), reporter, part=part)
    facts = _facts(input, recipe, survey)
    labels, sets = label_codes(source, ids)
    selection = select(recipe, length, labels, survey, source.uri, label_sets=sets, **facts)
    _write_pairs(target, source, selection)
    order, groups = ordered(
        selection.groups, f"{length} images in {input.text}, left out: {selection.left_out}"
    )
    sizes = expected_sizes(input, recipe, engine)
    plan = JobPlan(
        recipe=recipe,
        source=input.text,
        fingerprint=input.fingerprint,
        length=length,
        classes=tuple(source.classes),
        order=order,
        groups=groups,
        left_out=selection.left_out,
        made_with=versions(recipe),
        first_uri=source.uri(0) if length else "",
        failed=survey.failed if survey else {},
        shares=selection.shares,
        request=request or {},
        cuts=sizes.cuts(order, groups) if sizes else (),
        rates=sizes.rates if sizes else (),
        columns=input.types,
        multi=is_multi(source),
        images=input.images,
    )
    existing = load_plan(target)
    more = {samples_file(plan): saved(describe(input))}
    if existing is None and put_plan(target, plan, None, more):
        return plan
    # another part of the job, or another user, was faster
    existing = existing or load_plan(target)
    assert existing is not None, "a plan stays"
    check_plan(target, existing, recipe)
    return existing


def planned_input(plan: JobPlan, input: Input, ids: np.ndarray | None) -> Input:
    """The input with the ids and labels of the plan; `ids` as from `planned_ids`."""
    input = replace(input, types=plan.columns)
    if ids is None:
        return input
    return replace(input, source=PlanIds(input.source, ids, plan.classes))


def append_plan(
    target: Target,
    plan: JobPlan,
    changes: Changes,
    listing: str | None,
    engine: Engine,
    reporter: Reporter,
    repaired: np.ndarray = NO_IDS,
    written: JobPlan | None = None,
) -> tuple[JobPlan, Input]:
    """Add new images of the source to the plan, in new shards; also returns the input.

    repaired: ids of bad images that are good now, which get new ids. written: the plan in the
    target, None if it is `plan`.
    """
    recipe = plan.recipe
    now = replace(changes.now, types=plan.columns)
    ids = np.concatenate([changes.new_positions, changes.new_positions[repaired], changes.added])
    first = plan.length if plan.merged else 0  # earlier images are of several sources
    known = class_numbers(plan.classes)
    classes = (*plan.classes, *(name for name in now.source.classes if nfc(name) not in known))
    hashes = plan.shard_hashes
    earlier = (*plan.earlier, Earlier(plan.hash, len(hashes), plan.length, plan.fingerprint))
    grown = replace(
        plan,
        fingerprint=now.fingerprint,
        length=len(ids),
        classes=classes,
        earlier=earlier,
        source_ids=ids,
        edits=with_repaired(plan, repaired),
    )
    if plan.merged:
        grown = replace(grown, **_grown_part(plan, now, ids))
    input = planned_input(grown, now, ids)
    looked = planned_input(grown, now, ids[first:])
    survey = None
    if recipe.looks:
        known = () if plan.merged else earlier
        bounds = _bounds([*(part.length for part in known), len(ids) - first])
        of = digest(ids[first:].tolist()) if plan.merged else ""
        survey = _run_survey(target, looked, recipe, engine, bounds, reporter, known, of=of)
    all_ids = np.arange(first, len(ids))
    if plan.multi:
        labels, sets = coded(grown.labels(all_ids, read_labels(input.source, all_ids)))
    else:
        labels = grown.edits.labels(all_ids, input.source.label(all_ids))
        sets = ()
    facts: dict[str, Any] = _facts(looked, recipe, survey)
    gone = grown.edits.gone
    sides = None
    if not plan.merged:
        sides = split_positions(plan, list(recipe.choice.shares))
        sides[gone[gone < plan.length]] = -1
    unwanted = facts.setdefault("unwanted", np.zeros(len(all_ids), bool))
    unwanted[gone[gone >= first] - first] = True
    selection = select(
        recipe,
        len(all_ids),
        labels,
        survey,
        looked.source.uri,
        sides=sides,
        label_sets=sets,
        **facts,
    ).shifted(first)
    rows = describe(now)[ids]
    before = load_samples(target, plan)
    is_old = ids[: len(before)] < 0
    is_old[plan.edits.gone] = True
    rows[: len(before)][is_old] = before[is_old]
    barred = removed_again(target, plan, input, rows, changes.gone)
    _write_pairs(target, input.source, selection, barred)
    left_out = Counter(plan.left_out)
    left_out.update(selection.left_out)
    planned = np.concatenate([group for _, group in selection.groups] or [NO_IDS])
    if count := int(np.isin(barred, planned).sum()):
        left_out["removed"] += count
    groups = [(folder, group[~np.isin(group, barred)]) for folder, group in selection.groups]
    groups = [(folder, group) for folder, group in groups if len(group)]
    failed = {i: detail for i, detail in plan.failed.items() if i < first}
    failed |= {first + i: detail for i, detail in survey.failed.items()} if survey else {}
    cuts = plan.cuts
    if recipe.packing.shard_bytes:
        sizes = ExpectedSizes(recipe, plan.rates, source_bytes(now.source)[ids])
        for _, group in groups:
            cuts += sizes.cuts(group, [("", len(group))])
    grown = replace(
        grown,
        cuts=cuts,
        order=np.concatenate([plan.order, *(group for _, group in groups)]).astype(np.int64),
        groups=(*plan.groups, *((folder, len(group)) for folder, group in groups)),
        left_out=dict(left_out),
        failed=failed,
        shares={} if plan.merged else selection.shares,
    )
    by_class = None
    if plan.multi and not plan.merged:  # of which the classes of all images are not known
        stay = grown.order[~np.isin(grown.order, gone)]
        of_all = [*sets, ()]  # the last: of -1
        by_class = counts_by_class(grown, stay, [of_all[k] for k in labels[stay].tolist()])
    grown = replace(grown, shares=counted(grown, rows, by_class))
    if not plan.merged:
        keep_listing(listing, target, grown.hash)
    write_plan(target, grown, written or plan, {samples_file(grown): saved(rows)})
    return grown, input


def _grown_part(plan: JobPlan, now: Input, ids: np.ndarray) -> dict[str, Any]:
    """Fields of a merged job that gets a further part, of images of one of its sources."""
    assert plan.source_ids is not None, "a merged plan has them"
    own = plan.image_ids(now.text)
    source_ids = np.concatenate([plan.source_ids, ids[plan.length :]])
    source_ids[own] = ids[own]
    _, first = plan.source_parts(now.text)[0]
    about = {"target": "", "fingerprint": now.fingerprint, "first_uri": ""}
    part = replace(first, **about, length=len(ids) - plan.length)
    return {
        "fingerprint": f"merged {digest([plan.fingerprint, now.fingerprint])}",
        "source_ids": source_ids,
        "merged": (*plan.merged, part),
    }


def with_repaired(plan: JobPlan, repaired: np.ndarray) -> Edits:
    """The plan's edits when these bad images get the ids after its last."""
    labels = plan.edits.at(repaired)
    edits = plan.edits.merged(repaired, np.full(len(repaired), REPAIRED, np.int64))
    is_labeled = labels != UNCHANGED
    return edits.merged(plan.length + np.flatnonzero(is_labeled), labels[is_labeled])


def _write_pairs(
    target: Target, source: Source, selection: PlannedGroups, barred: np.ndarray = NO_IDS
) -> None:
    """Write the list and the page of duplicates, without those of images that are `barred`."""
    hidden = set(barred.tolist())
    pairs = [pair for pair in selection.pairs if hidden.isdisjoint((pair.kept, pair.dropped))]
    if pairs:
        from fastfeed.preprocess.planning.duplicates_page import write_duplicates  # draws pictures

        write_duplicates(target, source, pairs)


def _facts(input: Input, recipe: Recipe, survey: Survey | None) -> dict[str, Any]:
    """Arguments of `select` beyond the survey, as the recipe needs them."""
    facts: dict[str, Any] = {}
    choice = recipe.choice
    if choice.group:
        facts["column"] = read_groups(input, choice.group)
    if choice.keep == "newest":
        facts["times"] = _times_of_change(input)
    if choice.embedding:
        facts["vectors"] = read_vectors(input, choice.embedding)
    if recipe.limits.where and survey is not None:
        facts["unwanted"] = unwanted(input, recipe, survey)
    return facts


def _times_of_change(input: Input) -> np.ndarray:
    """Times of the files: int64 (length,), nanoseconds; 0 of those that are missing. ConfigError."""
    times = np.zeros(len(input.source), np.int64)
    for i in range(len(times)):
        with suppress(OSError, ValueError):
            times[i] = os.stat(input.source.uri(i).removeprefix("file://")).st_mtime_ns
    if not times.any():
        raise ConfigError(
            f'keep="newest" needs times of change, which files on local disks have, got'
            f' {input.text}; pass keep="largest" or keep="first"',
            field="keep",
        )
    return times


def _bounds(lengths: Sequence[int]) -> np.ndarray:
    """First ids of a survey's pieces, and its length; each of these lengths ends a piece."""
    starts = [np.arange(first, last, _SURVEY_PIECE) for first, last in pairwise([0, *lengths])]
    return np.append(np.concatenate(starts), lengths[-1]).astype(np.int64)


def _run_survey(
    target: Target,
    input: Input,
    recipe: Recipe,
    engine: Engine,
    bounds: np.ndarray,
    reporter: Reporter,
    earlier: Sequence[Earlier] = (),
    part: tuple[int, int] = (0, 1),
    of: str = "",
) -> Survey:
    """Survey the remaining pieces, and load all.

    Each part (i, n) of a job begins elsewhere, and skips what another has completed. of: a hash of
    the ids of `input` in its source, if these do not begin with those of earlier surveys.
    """
    pixels = recipe.choice.compares
    max_pixels = recipe.limits.max_pixels
    fingerprint, pieces, length = input.fingerprint + of, len(bounds) - 1, int(bounds[-1])
    known = [(part.length, part.fingerprint) for part in earlier]
    done = completed_pieces(target, bounds, fingerprint, pixels, max_pixels, known)
    remaining = [piece for piece in range(pieces) if piece not in done]
    start = len(remaining) * part[0] // part[1]
    remaining = [*remaining[start:], *remaining[:start]]
    before = sum(int(bounds[piece + 1] - bounds[piece]) for piece in done)
    task = SurveyTask(input.source, target, bounds, pixels, max_pixels, fingerprint)

    def listen(more: int, samples: int) -> None:
        reporter.survey(len(done) + more, pieces, before + samples, length)

    if remaining:
        listen(0, 0)
    collect_summaries(engine, task, remaining, listen)
    reporter.stage("compare")
    return load_survey(target, range(pieces))


def existing_plan(target: Target) -> JobPlan | None:
    """The plan in the target; None if the target is empty. ConfigError if it holds other files."""
    plan = load_plan(target)
    others = [] if plan else sorted(name for name in target.files() if not is_job_file(name))
    # else another part of the job has just started
    if others and (plan := load_plan(target)) is None:
        more = f" and {len(others) - 1} more files" if len(others) > 1 else ""
        raise ConfigError(
            f"{target.text} is not empty: it holds {others[0]}{more} and no plan ({PLAN}); choose"
            " an empty folder"
        )
    return plan
