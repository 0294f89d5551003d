"""Whether a list of ops, an order and a source fit each other: said when a feed is made."""

from __future__ import annotations

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.program.program import Program
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import PER_SLOT
from fastfeed.sources.base import Source

__all__ = ["check"]

_AT_ONCE = 1 << 20  # labels looked at in one call


def check(program: Program, plan: Plan, source: Source) -> None:
    """ConfigError for what would go wrong in the middle of a run, or train on nonsense."""
    for one in (program, *program.others):
        _check_draws(one)
    if program.mix is not None:
        _check_partners(type(program.mix.op).__name__, plan)
    if program.targets is not None:
        _check_labels(program, source)


def _check_draws(program: Program) -> None:
    """An op that draws more than its slot has would get the numbers of the op behind it."""
    for step in (*program.window, *(step for link in program.chain for step in link.steps)):
        if step.views * step.op.draws > PER_SLOT:
            each = f" for each of {step.views} views" if step.views > 1 else ""
            raise ConfigError(
                f"{type(step.op).__name__} may draw {PER_SLOT} random numbers per sample, got {step.op.draws}{each}; "
                "give the functions in it fewer draws: one number can seed a generator"
            )


def _check_partners(name: str, plan: Plan) -> None:
    if plan.global_batch < 2 * plan.world.size:
        raise ConfigError(
            f"{name} mixes neighbors of a batch and needs batch >= 2, "
            f"got {plan.global_batch / plan.world.size:g} per rank; raise batch, or leave it out"
        )
    if getattr(plan.shuffle, "together", False):
        raise ConfigError(f"{name} would mix samples with themselves under {plan.shuffle}; write together=False")


def _check_labels(program: Program, source: Source) -> None:
    """Soft labels need a class for every sample; one in a thousand may be without, not all."""
    assert program.targets is not None
    classes, most = program.targets.classes, -1
    for first in range(0, len(source), _AT_ONCE):
        labels = source.label(np.arange(first, min(first + _AT_ONCE, len(source))))
        most = max(most, int(labels.max(initial=-1)))
        if labels.min(initial=-1) < -1:
            i = int(labels.argmin())
            raise ConfigError(
                f"labels must be in [0, {classes}) to become soft, or -1 where there is none, got {labels[i]} for "
                f"{source.uri(first + i)}; number the classes from 0"
            )
        if most >= classes:
            i = first + int(labels.argmax())
            raise ConfigError(
                f"labels must be in [0, {classes}) to become soft, got {most} for {source.uri(i)}; "
                f"write OneHot({most + 1}), or the number of classes there are"
            )
    if most < 0 and len(source):
        raise ConfigError(
            f"{source!r} has no labels, and the list makes them soft; give the source labels, or leave such ops out"
        )
