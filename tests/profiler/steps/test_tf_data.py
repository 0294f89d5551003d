"""The slowest stage of a tf.data pipeline, by its events; and what to change about it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.reports import document
from fastfeed.profiler.steps.device import slowest_stage
from fastfeed.profiler.verdict.input_advice import stage_advice

MS = 1_000_000
PATH = "Root::Prefetch::BatchV2::ParallelMapV2::ParallelInterleaveV4[0]::TFRecord"
DEPTH = {name: at for at, name in enumerate(PATH.split("::"))}


def pipeline(steps: int = 24, **own: int) -> TraceBuilder:
    """Steps of 100 ms that wait for a batch, with each stage's milliseconds of self time.

    The trainer calls Root and Prefetch, and another thread the stages before them.
    """
    builder = TraceBuilder()
    wait = sum(own.values()) * MS
    for step in range(steps):
        at = step * 100 * MS
        builder.range(at, at + 100 * MS, f"train {step}", RangeKind.STEP)
        builder.range(at, at + wait, "IteratorGetNext:IteratorGetNext", RangeKind.OP)
        begin = at
        names = PATH.split("::")
        for depth in range(len(names)):
            thread = 0 if depth < 2 else 1
            path = "Iterator::" + "::".join(names[: depth + 1])
            builder.range(begin, at + wait, path, RangeKind.OP, thread=thread)
            begin += own.get(names[depth].split("[")[0], 0) * MS
        builder.op(at + wait, at + 100 * MS, (at + wait - 9, at + wait - 5))
    return builder


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("BatchV2", "batch(..., num_parallel_calls=tf.data.AUTOTUNE)"),
        ("ParallelMapV2", "it runs in parallel already"),
        ("ParallelInterleaveV4", "raise cycle_length"),
        ("TFRecord", "interleave(..., num_parallel_calls=tf.data.AUTOTUNE)"),
    ],
)
def test_the_stage_that_takes_longest_itself(stage: str, change: str):
    result = analyze(
        [pipeline(**{"BatchV2": 5, "ParallelMapV2": 5, "TFRecord": 5, stage: 30}).trace()]
    )
    (device,) = result.devices
    assert device.stage is not None
    assert device.stage.name.split("[")[0] == stage
    assert device.stage.share == pytest.approx(
        30 / sum({"BatchV2": 5, "ParallelMapV2": 5, "TFRecord": 5, stage: 30}.values())
    )
    assert result.verdict.change.startswith(
        f"The slowest stage of tf.data is {device.stage.name}: {change}"
    )
    assert document.as_dict(result)["devices"][0]["stage"]["path"] == device.stage.path


def test_outside_of_waits_stages_work_ahead():
    trace = pipeline(ParallelMapV2=30).trace()
    assert slowest_stage(trace, np.array([[40 * MS, 90 * MS]])) is None


@pytest.mark.parametrize(("per_wait", "found"), [(40_000, False), (60_000, True)])
def test_a_stage_that_is_fast_is_no_bottleneck(per_wait: int, found: bool):
    builder = TraceBuilder()
    builder.range(0, per_wait, "Iterator::Root", RangeKind.OP)
    assert (slowest_stage(builder.trace(), np.array([[0, MS]])) is not None) is found


def test_other_loaders_have_no_stages():
    builder = TraceBuilder()
    builder.range(
        0, MS, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", RangeKind.OP
    )
    assert slowest_stage(builder.trace(), np.array([[0, MS]])) is None


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("Map", "map(..., num_parallel_calls"),
        ("MapAndBatch", "in parallel already"),
        ("FlatMap", "interleave(..., num_parallel_calls"),
        ("FlatMap[0]", "interleave(..., num_parallel_calls"),
        ("Generator", "it is Python"),
        ("ShuffleAndRepeat", "a smaller buffer"),
        ("Prefetch", "prefetch(tf.data.AUTOTUNE)"),
        ("Something", "make it cheaper"),
    ],
)
def test_each_kind_of_stage_has_its_change(stage: str, words: str):
    assert words in stage_advice(stage)
