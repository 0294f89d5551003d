"""Steps: whose word counts, where one ends, which of them are steady."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.attribution.launches import launch_calls
from fastfeed.profiler.model.result import Steps
from fastfeed.profiler.model.trace import (
    Calls,
    Kind,
    Ops,
    Origin,
    Process,
    RangeKind,
    Ranges,
    Thread,
    Trace,
    table,
)
from fastfeed.profiler.steps.steps import find_steps

Row = tuple[int, int, int, str, RangeKind]  # start, end, thread, name, kind


def found_steps(
    *rows: Row,
    ops: tuple[tuple[int, int], ...] = ((0, 10_000),),
    calls: tuple[int, ...] = (),
    waits: np.ndarray | None = None,
) -> Steps:
    """The steps of process 0, of threads 0 and 1; each op was launched by the call at its index."""
    names = tuple(dict.fromkeys(row[3] for row in rows)) or ("k",)
    start, end, thread, name, kind = zip(*rows, strict=True) if rows else ((),) * 5
    began, ended = np.array(ops, np.int64).T
    trace = Trace(
        Origin("made", "chrome"),
        names,
        (Process(1), Process(2)),
        (Thread(0, 1), Thread(0, 2), Thread(1, 3)),
        ops=table(Ops, start=began, end=ended, device=0, process=0, kind=Kind.COMPUTE, name=-1),
        calls=table(Calls, start=list(calls), end=[at + 1 for at in calls], thread=0),
        ranges=table(
            Ranges,
            start=start,
            end=end,
            thread=thread,
            name=[names.index(n) for n in name],
            kind=kind,
        ),
    )
    launch = np.arange(len(ops)) if calls else np.full(len(ops), -1)
    return find_steps(trace, 0, 0, np.array([began.min(), ended.max()]), launch, waits)


def marks(
    *edges: tuple[int, int],
    name: str = "Step#{}",
    thread: int = 0,
    kind: RangeKind = RangeKind.STEP,
) -> list[Row]:
    return [(start, end, thread, name.format(n), kind) for n, (start, end) in enumerate(edges)]


def even(count: int, length: int = 100, first: int = 0, used: int = 100) -> list[tuple[int, int]]:
    return [(first + n * length, first + n * length + used) for n in range(count)]


def test_a_step_that_covers_only_the_computation_lasts_until_the_next():
    """Else waiting for the batch, between two annotations, would be in no step at all."""
    steps = found_steps(*marks(*even(6, used=60)))
    assert steps.spans.tolist() == [[n * 100, n * 100 + 100] for n in range(5)], (
        "where the sixth ends is not known"
    )
    assert steps.labels == tuple(f"Step#{n}" for n in range(5))


def test_hours_between_two_recordings_are_of_no_step():
    steps = found_steps(*marks(*even(4), *even(4, first=50_000)), ops=((0, 60_000),))
    assert steps.spans[3].tolist() == [300, 400]
    assert steps.spans[4].tolist() == [50_000, 50_100]


@pytest.mark.parametrize("recorded", (True, False))
def test_batches_that_come_in_bursts_are_no_breaks(recorded: bool):
    """Two batches at once, and then a wait far longer than the annotations around it."""
    bursts = [(at + n * 10, at + n * 10 + 9) for at in range(0, 10_000, 1_000) for n in range(2)]
    bursts.insert(1, (4, 9))
    waits = np.array([(at + 19, at + 1_000) for at in range(0, 9_000, 1_000)]) if recorded else None
    rows = marks(*bursts, name="[pl][profile]run_training_batch", kind=RangeKind.NVTX)
    steps = found_steps(*rows, ops=((0, 9_019),), waits=waits)
    assert (steps.spans[1:, 0] == steps.spans[:-1, 1]).all()


def test_a_single_wait_for_hours_is_part_of_its_step():
    rows = marks(*even(4), *even(4, first=50_000))
    steps = found_steps(*rows, ops=((0, 60_000),), waits=np.array([(400, 50_000)]))
    assert steps.spans[3].tolist() == [300, 50_000]


@pytest.mark.parametrize("over", (1, 7, 60))
def test_steps_that_overlap_by_rounding_are_all_there(over: int):
    steps = found_steps(*marks(*even(8, used=100 + over)))
    assert len(steps.labels) == 8
    assert (steps.spans[1:, 0] == steps.spans[:-1, 1]).all()


def test_nested_and_repeated_steps_count_once():
    outer = marks(*even(5))
    inner = [(start + 10, end - 10, 0, name, kind) for start, end, _, name, kind in outer]
    assert found_steps(*outer, *inner, *outer).spans.tolist() == found_steps(*outer).spans.tolist()


def test_of_several_threads_the_one_with_most_steps():
    steps = found_steps(*marks(*even(3)), *marks(*even(5, length=60, used=60), thread=1))
    assert len(steps.labels) == 5


def test_other_processes_have_steps_of_their_own():
    assert found_steps(*marks(*even(5), thread=2)).found_by == ""


@pytest.mark.parametrize(
    "name",
    (
        "step {}",
        "train_step_{}",
        "Iteration: {}",
        "iter_{}",
        "ProfilerStep#{}",
        "epoch 1 batch {}/500",
        "[step {} of 90]",
    ),
)
def test_numbered_annotations(name: str):
    assert found_steps(*marks(*even(5), name=name, kind=RangeKind.NVTX)).found_by.startswith(
        "numbered annotations"
    )


@pytest.mark.parametrize(
    "name", ("train_step", "Training Step", "iteration", "[pl][profile]run_training_batch")
)
def test_annotations_without_a_number(name: str):
    assert (
        found_steps(*marks(*even(5), name=name, kind=RangeKind.NVTX)).found_by
        == f"annotations ({name})"
    )


@pytest.mark.parametrize("name", ("stepper {}", "layer_{}", "forward", "batch_norm_{}", "x1"))
def test_names_that_are_no_steps(name: str):
    assert found_steps(*marks(*even(5), name=name, kind=RangeKind.NVTX)).labels == ()


def test_one_numbered_annotation_does_not_outweigh_many_named_ones():
    rows = [
        (0, 900, 0, "batch 1", RangeKind.NVTX),
        *marks(*even(9), name="train_step", kind=RangeKind.NVTX),
    ]
    assert len(found_steps(*rows).labels) == 9


def test_marks_outweigh_annotations():
    rows = marks(*even(4, length=200, used=200)) + marks(
        *even(8), name="step {}", kind=RangeKind.NVTX
    )
    assert found_steps(*rows).found_by == "steps that the trace marks (Step#N)"


def test_from_one_wait_for_a_batch_to_the_next():
    waits = [(start, start + 5, 0, "fastfeed:wait", RangeKind.FEED) for start in range(0, 600, 100)]
    steps = found_steps(*waits)
    assert steps.spans.tolist() == [[n * 100, n * 100 + 100] for n in range(5)]
    assert steps.labels[0] == "batch 0"


@pytest.mark.parametrize("count", (0, 1, 2))
def test_too_few_kernels_make_no_rhythm(count: int):
    assert found_steps(ops=tuple((n * 10, n * 10 + 5) for n in range(count + 1))).found_by == ""


def test_without_marks_from_one_wait_for_input_to_the_next():
    waits = np.array([(at, at + 30) for at in range(100, 9_000, 1_000)])
    ops = tuple((at + 40, at + 900) for at in range(100, 9_000, 1_000))
    steps = found_steps(waits=waits, ops=ops)
    assert steps.found_by == "waits for batches"
    assert steps.spans[0].tolist() == [100, 1_100]
    assert found_steps(waits=waits[:3], ops=ops).found_by == "", (
        "most of the work does not lie between them"
    )
    assert found_steps(waits=waits[:3], ops=ops[:3]).spans.tolist() == [
        [100, 1_100],
        [1_100, 2_100],
    ]
    assert found_steps(waits=waits[:2], ops=ops[:2]).found_by == "", "two are no rhythm"
    assert found_steps(waits=waits // 100, ops=ops).found_by == "", "a burst of them is not the run"
    apart = np.sort(np.concatenate([waits, waits + 35]), axis=0)
    assert found_steps(waits=apart, ops=ops).spans.tolist() == steps.spans.tolist(), (
        "two loaders, one step"
    )


def test_copies_without_kernels_between_them_are_no_steps():
    """Nine arrays of one size, sent ahead of a program that then computes once."""
    start = np.arange(0, 9_000, 1_000)
    for kinds, count in (
        ([Kind.H2D] * 9 + [Kind.COMPUTE], 0),
        ([Kind.H2D] * 9 + [Kind.COMPUTE] * 9, 8),
    ):
        began = np.concatenate([start, start[-1] + 500 if count == 0 else start + 500], axis=None)
        ops = table(
            Ops, start=began, end=began + 100, device=0, process=0, kind=kinds, name=0, bytes=4_096
        )
        trace = Trace(Origin("made", "chrome"), ("k",), (Process(1),), (Thread(0, 1),), ops=ops)
        steps = find_steps(trace, 0, 0, np.array([0, 9_000]), np.full(len(began), -1))
        assert len(steps.labels) == count


def test_the_first_steps_are_cold():
    rows = marks((0, 500), (500, 800), *even(6, first=800))
    assert found_steps(*rows, ops=((0, 1_400),)).steady.tolist() == [False, False, *[True] * 6]


def test_incomplete_steps_are_not_steady():
    """The device worked from 260 to 640 only: steps that reach far outside of that were cut off."""
    steps = found_steps(*marks(*even(10)), ops=((260, 640),))
    assert steps.spans[steps.steady].tolist() == [[300, 400], [400, 500], [500, 600]]


def test_an_irregular_run_keeps_its_steps():
    """Three alike at the end of many that differ are chance: what came before is no cold start."""
    length = [100, 300, 60, 210, 90, 400, 100, 250, 70, 150, 150, 150]
    edges = np.concatenate([[0], np.cumsum(length)])
    steps = found_steps(
        *marks(*zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)),
        ops=((0, int(edges[-1])),),
    )
    assert steps.steady.all()


def test_steps_of_a_host_that_is_far_ahead_are_the_devices():
    """Launched in the first 500 ns, worked off until 6,000."""
    ops = tuple((1_000 + n * 1_000, 1_900 + n * 1_000) for n in range(5))
    steps = found_steps(*marks(*even(5)), ops=ops, calls=(10, 110, 210, 310, 410))
    assert steps.spans.tolist() == [[1_000 + n * 1_000, 2_000 + n * 1_000] for n in range(4)] + [
        [5_000, 5_900]
    ]


def test_a_recording_that_ends_inside_a_step_does_not_count_it():
    """Readers end a range that is still open with the last event of the recording."""
    rows = [*marks(*even(5)), (500, 560, 0, "Step#5", RangeKind.STEP)]
    assert found_steps(*rows, ops=((0, 560),)).steady.tolist() == [True] * 5 + [False]
    assert found_steps(*rows, ops=((0, 700),)).steady.tolist() == [True] * 6, (
        "a short step that was recorded whole"
    )


def test_a_last_step_is_compared_with_usual_ones():
    """The first ones are short, with batches loaded before; the last is longer, and still open."""
    rows = marks((0, 30), (30, 60), *even(8, first=60), (860, 920))
    assert found_steps(*rows, ops=((0, 920),)).steady.tolist() == [False] * 2 + [True] * 8 + [False]


def test_what_recurs_inside_one_marked_range_is_no_step():
    """Layers of a forward pass; an epoch, which holds many steps, is another matter."""
    layers = [
        (at + 10 * part, at + 10 * part + 9) for at in range(0, 10_000, 400) for part in range(11)
    ]
    for name, kind, guessed in (
        ("execute_context_1(8)_generation_0(0)", RangeKind.NVTX, False),
        ("ProfilerStep#3", RangeKind.STEP, False),
        ("epoch 1", RangeKind.NVTX, True),
    ):
        steps = recurring(layers, [(0, 10_000, name, kind)])
        assert steps.guessed is guessed, name
        assert bool(steps.found_by.startswith("the recurring kernel")) is guessed, name
    passes = [(at, at + 2_000, "forward", RangeKind.NVTX) for at in range(0, 10_000, 2_000)]
    assert not recurring(layers, passes).guessed, "five layers in each of five forward passes"


@pytest.mark.parametrize(
    "name", ("FSDP::pre_forward (blocks.{}._wrapped)", "nn.Module: DecoderLayer_{}", "h.{}.attn")
)
def test_rounds_that_each_run_another_layer_are_no_steps(name: str):
    """Nothing marks the forward pass around them; whole steps begin after the same layer."""
    layers = [
        (at + 10 * part, at + 10 * part + 9) for at in range(0, 10_000, 400) for part in range(11)
    ]
    each = [
        (at - 5, at + 390, name.format(number), RangeKind.NVTX)
        for number, at in enumerate(range(0, 10_000, 400))
    ]
    assert not recurring(layers, each).guessed
    all_of_them = [
        (at + 40 * n, at + 40 * n + 30, name.format(n), RangeKind.NVTX)
        for _, at, *_ in each
        for n in range(9)
    ]
    steps = recurring(layers, [(at - 5, end, text, kind) for at, end, text, kind in all_of_them])
    assert steps.guessed and len(steps.labels) >= 23


def recurring(ops: list[tuple[int, int]], ranges: list[tuple[int, int, str, RangeKind]]) -> Steps:
    """Steps of ops of which each eleventh has a name of its own."""
    builder = TraceBuilder()
    for number, (start, end) in enumerate(ops):
        builder.op(
            start,
            end,
            (start, start),
            name=("attention" if number % 11 == 0 else f"kernel_{number % 11}"),
        )
    for start, end, name, kind in ranges:
        builder.range(start, end, name, kind)
    trace = builder.trace()
    return find_steps(trace, 0, 0, np.array([ops[0][0], ops[-1][1]]), launch_calls(trace))


@pytest.mark.parametrize("kind", (RangeKind.NVTX, RangeKind.OP))
@pytest.mark.parametrize(
    "name", ("Optimizer.step#SGD.step", "optimizer.step", "[pl][module]MyNet.optimizer_step")
)
def test_from_the_end_of_one_optimizer_step_to_that_of_the_next(name: str, kind: RangeKind):
    steps = found_steps(*marks(*even(5, used=90), name=name, kind=kind))
    assert steps.spans.tolist() == [[90 + n * 100, 190 + n * 100] for n in range(4)]
    assert steps.found_by == f"optimizer steps ({name})"
    assert not steps.guessed


def test_two_optimizers_of_one_batch_end_one_step():
    """As generator and discriminator have."""
    both = marks(
        *even(6, used=50),
        *[(at + 60, at + 90) for at in range(0, 600, 100)],
        name="Optimizer.step#Adam.step",
    )
    kind = [(start, end, thread, name, RangeKind.NVTX) for start, end, thread, name, _ in both]
    waits = np.array([(at, at + 5) for at in range(0, 600, 100)])
    assert found_steps(*kind, waits=waits).spans.tolist() == [
        [90 + n * 100, 190 + n * 100] for n in range(5)
    ]
