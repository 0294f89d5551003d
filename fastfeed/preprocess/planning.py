"""Makes the plan of a job, or loads an existing one and checks that it matches the current request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Engine, run_pieces
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.plan import PLAN, JobPlan, make_plan
from fastfeed.preprocess.recipe import Recipe
from fastfeed.preprocess.reports.estimate import SAMPLE_SIZE, check_space, estimate, surely_fits
from fastfeed.preprocess.state import load_plan
from fastfeed.preprocess.survey.select import needs_pixels, select
from fastfeed.preprocess.survey.survey import SurveyTask, completed_pieces, load_survey
from fastfeed.preprocess.targets.target import Target
from fastfeed.preprocess.versions import versions

__all__ = ["check_free_space", "check_plan", "check_source", "create_plan", "existing_plan"]

OnSurvey = Callable[[int, int, int, int], None]  # pieces done, pieces, photographs done, photographs

_SURVEY_PIECE = 2000  # photographs per piece of the survey
_QUICK_SAMPLE = (4, 10.0)  # photographs per piece, seconds: the check must not delay the start of a job


def check_plan(target: Target, plan: JobPlan, recipe: Recipe) -> None:
    """ConfigError, with the differences, if the target's plan is not the one requested now."""
    requested = replace(plan, recipe=recipe, made_with=versions(recipe))
    if lines := plan.differences(requested):
        raise ConfigError(
            f"{target.text} holds a job with another plan:\n{lines}\n"
            "run it with the same settings, or choose another, empty target"
        )


def check_source(target: Target, plan: JobPlan, input: Input) -> None:
    """ConfigError if the input is not the source of the plan."""
    if input.fingerprint != plan.fingerprint:
        raise ConfigError(
            f"{target.text} holds a job of {plan.source} with {plan.length} images; {input.text} has "
            f"{len(input.source)} now, or other ones: use the same, unchanged source, or choose another, empty target"
        )


def check_free_space(
    input: Input,
    recipe: Recipe,
    engine: Engine,
    target: Target,
    on_sample: Callable[[int, int], None] | None = None,
) -> None:
    """TargetError if the target certainly has too little free space for the job.

    Costs nothing where there is plenty. Else a sample is processed, and `on_sample` is called with (done, total).
    """
    free = target.free_bytes()
    if free is None or surely_fits(len(input.source), recipe, free):
        return
    if on_sample is not None:
        on_sample(0, min(len(input.source), SAMPLE_SIZE))
    at_once, longest_s = _QUICK_SAMPLE
    estimated = estimate(input, recipe, engine, free=free, on_sample=on_sample, longest_s=longest_s, at_once=at_once)
    check_space(estimated, target.text)


def create_plan(
    target: Target,
    input: Input,
    recipe: Recipe,
    engine: Engine,
    on_survey: OnSurvey,
    on_sample: Callable[[int, int], None] | None = None,
) -> JobPlan:
    """Make the plan and write it, after a survey of all photographs if the recipe needs one.

    TargetError if there is too little free space for the job's output.
    """
    if missing := input.missing():
        raise ConfigError(
            f"no checked sample of {input.text} has {', '.join(missing)}; "
            "use the names of captions and columns as they are in the source"
        )
    check_free_space(input, recipe, engine, target, on_sample)
    source = input.source
    length, ids = len(source), np.arange(len(source))
    survey = None
    if recipe.looks:
        bounds = np.append(np.arange(0, length, _SURVEY_PIECE), length).astype(np.int64)
        _run_survey(target, input, recipe, engine, bounds, on_survey)
        survey = load_survey(target, range(len(bounds) - 1))
    selection = select(recipe, length, source.label(ids), survey, source.uri)
    if selection.pairs:
        from fastfeed.preprocess.survey.duplicates_page import write_duplicates  # draws pictures

        write_duplicates(target, source, selection.pairs)
    plan = make_plan(
        recipe,
        source=input.text,
        fingerprint=input.fingerprint,
        length=length,
        classes=tuple(source.classes),
        groups=selection.groups,
        left_out=selection.left_out,
        made_with=versions(recipe),
        first_uri=source.uri(0) if length else "",
    )
    if (existing := load_plan(target)) is not None:  # another part of the job, or another user, was faster
        check_plan(target, existing, recipe)
        check_source(target, existing, input)
        return existing
    for name, content in plan.files().items():
        target.write(name, content)
    return plan


def _run_survey(
    target: Target, input: Input, recipe: Recipe, engine: Engine, bounds: np.ndarray, on_survey: OnSurvey
) -> None:
    pixels, max_pixels = needs_pixels(recipe), recipe.limits.max_pixels
    fingerprint, pieces, length = input.fingerprint, len(bounds) - 1, int(bounds[-1])
    done = completed_pieces(target, bounds, fingerprint, pixels, max_pixels)
    remaining = [piece for piece in range(pieces) if piece not in done]
    if not remaining:
        return
    pieces_done, images_done = len(done), sum(int(bounds[piece + 1] - bounds[piece]) for piece in done)
    in_progress: dict[int, int] = {}
    with run_pieces(
        engine, SurveyTask(input.source, target, bounds, pixels, max_pixels, fingerprint), remaining
    ) as outcomes:
        for outcome in outcomes:
            if outcome.error:
                raise outcome.error
            in_progress[outcome.piece] = outcome.samples
            if outcome.summary:
                pieces_done, images_done = pieces_done + 1, images_done + outcome.summary["samples"]
                del in_progress[outcome.piece]
            on_survey(pieces_done, pieces, images_done + sum(in_progress.values()), length)


def existing_plan(target: Target) -> JobPlan | None:
    """The plan in the target; None if the target is empty. ConfigError if it holds other files."""
    plan = load_plan(target)
    others = [] if plan else sorted(name for name in target.files() if not name.startswith("_job/"))
    if others and (plan := load_plan(target)) is None:  # else another part of the job has just started
        raise ConfigError(
            f"{target.text} is not empty: it holds {others[0]}"
            + (f" and {len(others) - 1} more files" if len(others) > 1 else "")
            + f" and no plan ({PLAN}); choose an empty folder"
        )
    return plan
