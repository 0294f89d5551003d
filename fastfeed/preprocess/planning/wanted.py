"""The condition in `Limits.where` when the plan is made: its names, and what it drops already."""

from __future__ import annotations

import ast
from collections.abc import Collection
from contextlib import suppress

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.preprocess.engines import Engine, collect_summaries
from fastfeed.preprocess.inputs.inputs import Input, sampled_notes
from fastfeed.preprocess.inputs.plan_ids import is_multi, read_labels
from fastfeed.preprocess.model.condition import known_values, parse_condition, unknown_name
from fastfeed.preprocess.model.plan import JobPlan, relative_uri
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.task import SampleFault
from fastfeed.preprocess.planning.survey import BAD, Survey, format_name
from fastfeed.preprocess.shard.build import ShardTask
from fastfeed.preprocess.shard.probe import ColumnsTask
from fastfeed.preprocess.shard.versions import versions
from fastfeed.preprocess.targets.target import Target

_OF_FILE = ("height", "width", "bytes", "format")  # in a row of the survey
_AT_ONCE = 4096  # samples whose columns are read together


def check_where(target: Target, input: Input, recipe: Recipe, engine: Engine) -> None:
    """ConfigError if the condition names a column that no checked sample has.

    A few samples are passed to the function in `Metadata.extras` if only it may return one.
    """
    if not recipe.limits.where:
        return
    condition = parse_condition(recipe.limits.where)
    named = {node.id for node in ast.walk(condition.tree) if isinstance(node, ast.Name)}
    if is_multi(input.source) and (of_one := sorted(named & {"label", "class_name"})):
        raise ConfigError(
            f"where: {of_one[0]} is of one class, and the images of {input.text} have several;"
            " leave it out, or use columns (--columns)",
            field="where",
        )
    names = {f"exif_{name}" for name in recipe.metadata.exif} | {*input.columns}
    for note in sampled_notes(input, earlier=True):
        names |= ((note.get("earlier") or {}).get("columns") or {}).keys()
    error = unknown_name(condition, names)
    if error and recipe.metadata.extras:
        returned = _returned(target, input, recipe, engine)
        error = unknown_name(condition, names.union(*returned)) if returned else None
    if error:
        raise error


def _returned(
    target: Target, input: Input, recipe: Recipe, engine: Engine
) -> list[Collection[str]]:
    """Columns of each of a few samples that the function in `Metadata.extras` does not drop."""
    length = len(input.source)
    order = np.arange(length)
    plan = JobPlan(
        recipe,
        input.text,
        input.fingerprint,
        length,
        tuple(input.source.classes),
        order,
        (("", length),),
        made_with=versions(recipe),
        first_uri=input.source.uri(0) if length else "",
        columns=input.types,
        multi=is_multi(input.source),
    )
    count = min(length, recipe.metadata.extras_batch)
    ids = np.unique(np.linspace(0, max(length - 1, 0), count).astype(np.int64)).tolist()
    task = ColumnsTask(ShardTask(input, target, plan), ids)
    return [
        columns
        for summary in collect_summaries(engine, task, [0])
        for columns in summary.get("columns", ())
    ]


def unwanted(input: Input, recipe: Recipe, survey: Survey) -> np.ndarray:
    """Images that the condition drops for what is known of them now: bool, shape (length,)."""
    source = input.source
    condition = parse_condition(recipe.limits.where)
    dropped = np.zeros(len(source), bool)
    root = getattr(source, "root", None)
    is_absolute = recipe.metadata.absolute_uri
    for first in range(0, len(dropped), _AT_ONCE):
        ids = np.arange(first, min(first + _AT_ONCE, len(dropped)))
        labels = read_labels(source, ids)
        notes = input.notes(ids, earlier=True)
        for i, label, note in zip(ids.tolist(), labels, notes, strict=True):
            row = survey.rows[i]
            if isinstance(note, Failure) or row["state"] == BAD:
                continue
            uri = source.uri(i)
            uri = uri if is_absolute else relative_uri(uri, input.text, root) or uri
            known = known_values(uri, label, source.classes, note, bool(input.caption))
            height, width, bytes, format = (int(row[name]) for name in _OF_FILE)
            known = known.with_file(height, width, bytes, format_name(format))
            with suppress(SampleFault):  # reported by its shard
                dropped[i] = condition.failure(known) is not None
    return dropped
