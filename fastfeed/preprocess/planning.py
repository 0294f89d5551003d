"""Before the first shard: the plan, made once or found, and checked against what is asked for now."""

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

OnSurvey = Callable[[int, int, int, int], None]  # of a survey: pieces done, pieces, photographs done, photographs

_PIECE = 2000  # photographs of one piece of the survey
_GLANCE = (4, 10.0)  # of a sample at once, seconds: a look at the room is not to keep a job from beginning


def check_plan(target: Target, plan: JobPlan, recipe: Recipe) -> None:
    """That what is asked for now is what the target holds. ConfigError with the differences."""
    asked = replace(plan, recipe=recipe, made_with=versions(recipe))
    if lines := plan.refuse(asked):
        raise ConfigError(
            f"{target.text} holds a job that was planned otherwise:\n{lines}\n"
            "ask for the same again, or choose another, empty target"
        )


def check_source(target: Target, plan: JobPlan, input: Input) -> None:
    """That it is the source of the plan. ConfigError."""
    if input.fingerprint != plan.fingerprint:
        raise ConfigError(
            f"{target.text} holds a job of {plan.source} with {plan.length} images; {input.text} has "
            f"{len(input.source)} now, or other ones: name the same source, as it was, or choose another, empty target"
        )


def check_free_space(
    input: Input,
    recipe: Recipe,
    engine: Engine,
    target: Target,
    told: Callable[[int, int], None] | None = None,
) -> None:
    """Before a job begins: TargetError where the target surely has too little room. Where it has plenty this costs
    nothing, else the time of a sample, of which `told` is told: done, of how many."""
    free = target.free_bytes()
    if free is None or surely_fits(len(input.source), recipe, free):
        return
    if told is not None:
        told(0, min(len(input.source), SAMPLE_SIZE))
    at_once, longest_s = _GLANCE
    found = estimate(input, recipe, engine, free=free, on_sample=told, longest_s=longest_s, at_once=at_once)
    check_space(found, target.text)


def create_plan(
    target: Target,
    input: Input,
    recipe: Recipe,
    engine: Engine,
    told: OnSurvey,
    told_of_room: Callable[[int, int], None] | None = None,
) -> JobPlan:
    """Make the plan and write it; first looking at every photograph where the recipe asks for that. TargetError where
    there is no room for what the job would write."""
    if missing := input.missing():
        raise ConfigError(
            f"no sample of {input.text} that was looked at has {', '.join(missing)}; "
            "name captions and columns as they are called there"
        )
    check_free_space(input, recipe, engine, target, told_of_room)
    source = input.source
    length, ids = len(source), np.arange(len(source))
    survey = None
    if recipe.looks:
        bounds = np.append(np.arange(0, length, _PIECE), length).astype(np.int64)
        _survey(target, input, recipe, engine, bounds, told)
        survey = load_survey(target, range(len(bounds) - 1))
    chosen = select(recipe, length, source.label(ids), survey, source.uri)
    if chosen.pairs:
        from fastfeed.preprocess.survey.duplicates_page import write_duplicates  # draws pictures

        write_duplicates(target, source, chosen.pairs)
    plan = make_plan(
        recipe,
        source=input.text,
        fingerprint=input.fingerprint,
        length=length,
        classes=tuple(source.classes),
        groups=chosen.groups,
        left_out=chosen.left_out,
        made_with=versions(recipe),
        first_uri=source.uri(0) if length else "",
    )
    if (there := load_plan(target)) is not None:  # another part of the job, or another user, was quicker
        check_plan(target, there, recipe)
        check_source(target, there, input)
        return there
    for name, content in plan.files().items():
        target.write(name, content)
    return plan


def _survey(target: Target, input: Input, recipe: Recipe, engine: Engine, bounds: np.ndarray, told: OnSurvey) -> None:
    pixels, most = needs_pixels(recipe), recipe.limits.max_pixels
    fingerprint, pieces, length = input.fingerprint, len(bounds) - 1, int(bounds[-1])
    done = completed_pieces(target, bounds, fingerprint, pixels, most)
    left = [piece for piece in range(pieces) if piece not in done]
    if not left:
        return
    count, images = len(done), sum(int(bounds[piece + 1] - bounds[piece]) for piece in done)
    under_way: dict[int, int] = {}
    with run_pieces(engine, SurveyTask(input.source, target, bounds, pixels, most, fingerprint), left) as outcomes:
        for outcome in outcomes:
            if outcome.error:
                raise outcome.error
            under_way[outcome.piece] = outcome.samples
            if outcome.summary:
                count, images = count + 1, images + outcome.summary["samples"]
                del under_way[outcome.piece]
            told(count, pieces, images + sum(under_way.values()), length)


def existing_plan(target: Target) -> JobPlan | None:
    """The plan there; None where there is nothing. ConfigError where there is something of others."""
    plan = load_plan(target)
    others = [] if plan else sorted(name for name in target.files() if not name.startswith("_job/"))
    if others and (plan := load_plan(target)) is None:  # else another part of the job has begun between these lines
        raise ConfigError(
            f"{target.text} is not empty, it holds {others[0]}"
            + (f" and {len(others) - 1} more files" if len(others) > 1 else "")
            + f" and no plan ({PLAN}); choose an empty folder"
        )
    return plan
