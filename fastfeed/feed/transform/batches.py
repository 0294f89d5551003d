"""The batch of one call of a transform."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fastfeed.decode.base import FunctionFailed
from fastfeed.errors import ConfigError
from fastfeed.faults import FaultPolicy
from fastfeed.feed.batch.annotations import Annotator, annotator, check_transforms
from fastfeed.feed.batch.maps import MapRunner, Uniform
from fastfeed.feed.batch.rows import targets
from fastfeed.feed.producer import detached
from fastfeed.feed.transform.config import TransformConfig
from fastfeed.feed.transform.fields import ItemFields, unlabeled
from fastfeed.feed.transform.items import common_kind, grouped
from fastfeed.feed.transform.pipeline import Pipeline, TransformCall, item_uri
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate
from fastfeed.sampling.rng import check_epoch, check_seed, drawn
from fastfeed.sources.base import Optionals

_MAP_HINT = "or let it raise SampleError(..., rows=[...]) for such items"


def make_batch(
    config: TransformConfig,
    pipeline: Pipeline,
    items: list[Any],
    fields: Mapping[str, Any] | None,
    ids: Any,
    epoch: int,
    seed: int | None,
    rng: np.random.Generator | None,
    allocate: Allocate | None,
) -> Batch:
    """Make the batch of a call, as `Transform` describes it; `allocate`: memory of its images."""
    program = config.program
    own_ids = np.arange(len(items)) if ids is None else _checked_ids(ids, len(items))
    _check_random(config.random, ids, epoch, seed, rng)
    epoch = int(epoch)
    numbers: Uniform = partial(drawn, config.seed if seed is None else int(seed), epoch, own_ids)
    if rng is not None:
        numbers = lambda slot, k: rng.random((len(items), k))  # noqa: E731
    draws = config.no_draws
    if config.random:
        draws = [part.draw(numbers) for part in (program, *program.others)]
    common = common_kind(items)
    uri = partial(item_uri, items)
    values = None if fields is None else ItemFields(fields, len(items), uri, config.objects)
    if common is not None and config.is_plain and (values is None or not values.has_annotations):
        made = pipeline.files(items, common, own_ids, draws[0], allocate)
        if made is not None:
            images, bad = made
            weights = np.ones(len(items), np.float32)
            weights[list(bad)] = 0
            rows = slice(None)
            labels = unlabeled(len(items)) if values is None else values.label(rows)
            columns = {} if values is None else values.columns(rows)
            labels = targets(program, labels, weights)
            return Batch(images, labels, weights, own_ids, epoch, 0, columns, bad=bad)
    values = values or ItemFields({}, len(items), uri)
    check_transforms(program, fields or {}, "fields=")
    annotates = Annotator(Optionals(values), program, 0, False, 1)
    needs = program.functions or program.transforms or program.needs_boxes is not None
    if values.has_annotations or needs:
        annotates = annotator(values, program)
    call = TransformCall(
        items,
        own_ids,
        values,
        annotates,
        draws,
        pipeline.stop,
        allocate if pipeline.xp is np else None,
    )
    pipeline.render(call, grouped(items))
    batch = _finished(config, pipeline, call, epoch, numbers)
    return batch if pipeline.xp is np else detached(batch)


def _check_random(draws: bool, ids: Any, epoch: Any, seed: Any, rng: Any) -> None:
    """ConfigError unless random ops have exactly one source of numbers."""
    if seed is not None:
        check_seed(seed)
    check_epoch(epoch)
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise ConfigError.of("rng", "a Generator of np.random.default_rng(seed)", rng)
    if rng is not None and ids is not None:
        raise ConfigError(
            "random numbers come from ids or from rng, got both; leave one out", field="rng"
        )
    if draws and ids is None and rng is None:
        raise ConfigError(
            "these ops draw random numbers: pass ids=, which give those of a feed, or rng=, or"
            " call transform.evaluation",
            field="ids",
        )


def _finished(
    config: TransformConfig,
    pipeline: Pipeline,
    call: TransformCall,
    epoch: int,
    uniform: Uniform,
) -> Batch:
    """The batch after all Maps.

    Items that a Map names as bad become black, and have the values of another one there.
    """
    program = config.program
    fields = call.fields
    rows = np.arange(len(call.items))
    failed: set[int] = set()  # in a Map
    while True:
        weights = np.ones(len(rows), np.float32)
        weights[list(call.bad)] = 0
        batch = Batch(
            call.out.images[0],
            targets(program, fields.label(rows), weights),
            weights,
            call.ids,
            epoch,
            0,
            fields.columns(rows),
            tuple(call.out.images) if program.views else (),
            call.out.annotations.objects,
            call.out.annotations.masks,
            dict(call.out.annotations.transforms),
            bad=dict(sorted(call.bad.items())),
        )
        if len(failed) == len(rows) or not program.maps:
            return batch
        maps = MapRunner(program, FaultPolicy(), pipeline.timeline, _MAP_HINT)
        finished, named = maps(batch, uniform, call.number, failed, call.uri)
        if not named:
            return finished
        for row, detail in named.items():
            call.bad.setdefault(row, call.failure(row, FunctionFailed("op_failed", detail)))
        pipeline.clear(call, list(named))
        failed |= named.keys()
        good = next((row for row in range(len(rows)) if row not in failed), 0)
        rows[list(failed)] = good


def _checked_ids(ids: Any, n: int) -> np.ndarray:
    """Ids of n items: int64 (n,)."""
    try:
        # NumPy takes a range number by number
        is_range = isinstance(ids, range)
        array = np.arange(ids.start, ids.stop, ids.step) if is_range else np.asarray(ids)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0, object)
    if (array.dtype.kind not in "iu" and array.size) or array.ndim != 1:
        raise ConfigError.of("ids", "integers in [0, 2**63), one per item", ids)
    if len(array) != n:
        raise ConfigError(
            f"ids must be one per item, got {len(array)} for {n} items; leave them out for 0 to"
            f" {n - 1}",
            field="ids",
        )
    checked = array.astype(np.int64)
    if min(checked.tolist(), default=0) < 0:  # larger unsigned ones, too
        raise ConfigError.of("ids", "in [0, 2**63)", int(array[checked < 0][0]))
    return checked
