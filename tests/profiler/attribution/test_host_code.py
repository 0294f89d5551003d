"""Code of a thread that launches nothing: nested frames, and the kind of each stretch."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.attribution.host_code.frames import nest, self_time
from fastfeed.profiler.attribution.host_code.names import parse
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import empty
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.model.trace import Kind, RangeKind
from fastfeed.profiler.reports.document import as_dict

MS = 1_000_000
STEP = 20 * MS
LOCK = "<built-in method acquire of _thread.lock object at 0x7f04c93a23c0>"
STEPS = 8

Frames = list[tuple[str, float, float]]  # name, start and end in ms after the step's


def run(
    frames: Frames,
    *,
    kind: RangeKind = RangeKind.PYTHON,
    marked: bool = True,
    copies: bool = False,
    at: float = 0.0,
    every: int = 1,
    tail: float = 0.0,
    threads: int = 2,
) -> Result:
    """Steps of 20 ms that launch for 10 ms, from 10 ms on or around the frames.

    Frames are `at` ms into the step. `copies`: a batch is copied before the first kernel. `tail` ms
    at the end of a step are outside of its mark.
    """
    builder = TraceBuilder()
    builder.range(0, STEPS * STEP, "zork.py(7): loop")
    for n in range(STEPS):
        begin = n * STEP
        if marked:
            builder.range(
                begin, begin + STEP - round(tail * MS), f"ProfilerStep#{n}", RangeKind.STEP
            )
        for name, start, end in frames if n % every == 0 else []:
            builder.range(
                begin + round((at + start) * MS), begin + round((at + end) * MS), name, kind
            )
        ready = begin + 10 * MS
        if copies:
            builder.op(
                ready - 5,
                ready,
                (ready - 10, ready - 5),
                kind=Kind.H2D,
                bytes=50 * MS,
                name="Memcpy HtoD",
            )
        for kernel in range(10):
            start = ready + kernel * MS
            if at and at - 1 <= start / MS % 20 < at + 9:  # the device has nothing to do meanwhile
                continue
            builder.op(start, start + MS, (start, start + 5))
        if at:
            builder.op(begin, begin + 2 * MS, (begin, begin + 5))
    return analyze([builder.trace(threads=threads)])


def largest(result: Result) -> Cause:
    (device,) = result.devices
    return max(device.judged.causes, key=lambda cause: device.judged.causes[cause])


def only(result: Result) -> DeviceResult:
    (device,) = result.devices
    return device


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ([("a.py(1): zork", 0, 9), ("queue.py(154): get", 0.1, 9), (LOCK, 0.2, 9)], Cause.INPUT),
        ([("queue.py(154): get", 0, 9), (LOCK, 0.2, 9)], Cause.INPUT),
        (
            [("a.py(1): zork", 0, 9), ("multiprocessing/connection.py(379): _recv", 0.1, 9)],
            Cause.INPUT,
        ),
        ([("concurrent/futures/_base.py(428): result", 0, 9)], Cause.INPUT),
        ([("a.py(1): zork", 0, 9), ("<unknown> acquire", 0.1, 9)], Cause.INPUT),
        ([("a.py(1): zork", 0, 9), ("connection.py(379): _recv", 0.1, 9)], Cause.INPUT),
        ([("a.py(1): zork", 0, 9), ("time sleep", 0.1, 9)], Cause.INPUT),
        ([("a/b.py(3): __next__", 0, 9), ("a/c.py(4): zork", 0.1, 9)], Cause.INPUT_IN_THREAD),
        ([("a.py(1): zork", 0, 9), ("PIL/Image.py(2332): resize", 0.1, 8)], Cause.INPUT_IN_THREAD),
        ([("a.py(1): collate", 0, 9)], Cause.INPUT_IN_THREAD),
        ([("a.py(1): zork", 0, 9)], Cause.INPUT_IN_THREAD),
        ([], Cause.INPUT_IN_THREAD),
        ([("a.py(1): log_metrics", 0, 9)], Cause.CHECKPOINT),
        ([("a.py(1): zork", 0, 9), ("wandb/sdk/run.py(3): log", 0.1, 9)], Cause.CHECKPOINT),
        ([("a.py(1): rollout", 0, 9), ("gymnasium/core.py(9): step", 0.1, 9)], Cause.ENVIRONMENT),
        ([("my/envs/maze.py(1): step", 0, 9)], Cause.ENVIRONMENT),
        ([("train.py(7): step", 0, 9)], Cause.ENVIRONMENT),
        ([("zork.py(3): quux", 0, 9), ("zork.py(9): step", 0.1, 9)], Cause.ENVIRONMENT),
        ([("<built-in function collect>", 0, 9)], Cause.GC),
    ],
)
def test_code_before_the_first_launch_of_each_step(frames: Frames, cause: Cause):
    result = run(frames)
    assert largest(result) is cause
    assert only(result).judged.causes[cause] == pytest.approx(
        0.45 * only(result).judged.budget.window, rel=0.15
    )


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ([("a.py(1): zork", 0, 6)], Cause.HOST_CODE),
        ([("a.py(1): crop", 0, 6)], Cause.HOST_CODE),
        ([(LOCK, 0, 6)], Cause.HOST_CODE),
        (
            [("a.py(1): zork", 0, 6), ("<built-in method write of _io.FileIO object>", 0, 6)],
            Cause.IO,
        ),
        ([("a.py(1): __next__", 0, 6)], Cause.INPUT_IN_THREAD),
        ([("cv2/a.py(1): zork", 0, 6)], Cause.INPUT_IN_THREAD),
    ],
)
def test_code_between_the_launches_of_one_step(frames: Frames, cause: Cause):
    assert largest(run(frames, at=3)) is cause


def test_where_batches_are_copied_code_without_a_copy_is_no_batch():
    causes = only(run([("a.py(1): zork", 11, 17)], copies=True, at=0.1)).judged.causes
    assert Cause.HOST_CODE not in causes


@pytest.mark.parametrize("marked", [True, False])
def test_a_copy_of_the_batch_right_afterwards_is_evidence(marked: bool):
    result = run([("a.py(1): zork", 0, 9.9)], marked=marked, copies=True)
    assert largest(result) is Cause.INPUT_IN_THREAD
    # where no mark says that it is of the same step, it may be the end of the step before
    assert (
        any("concluded from its place" in sentence for sentence in result.verdict.counter_evidence)
        != marked
    )
    assert result.verdict.confidence == ("likely" if marked else "weak")


def test_without_any_evidence_there_is_no_verdict_and_the_function_is_named():
    result = run([("a.py(17): zork", 0, 9.9)], marked=False)
    assert result.verdict.word == "abstained"
    assert "mostly in zork (a.py:17)" in result.verdict.reasons[0]
    assert "--input-range" in result.verdict.reasons[0]
    assert result.verdict.record.startswith("Nothing is missing"), (
        "another recording would say no more"
    )


def test_what_is_done_in_a_few_steps_only_is_not_taken_for_the_batch():
    assert Cause.HOST_CODE in only(run([("a.py(1): zork", 0, 9.9)], every=4)).whole.causes


PUT = "queue.py(122): put"


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        (["a.py(1): zork"], Cause.HOST_CODE),
        (["a.py(1): zork", LOCK], Cause.HOST_CODE),
        (["a.py(1): zork", "time sleep"], Cause.HOST_CODE),
        (["a.py(1): zork", PUT, LOCK], Cause.HOST_CODE),
        (["a.py(1): zork", "concurrent/futures/_base.py(428): result", LOCK], Cause.HOST_CODE),
        (["a.py(1): zork", "queue.py(154): get", LOCK], Cause.INPUT),
        (["a.py(1): prefetch", LOCK], Cause.INPUT),
        (["a.py(1): zork", "b.py(1): __next__", LOCK], Cause.INPUT),
    ],
)
def test_code_after_the_last_launch_of_a_marked_step(frames: list[str], cause: Cause):
    builder = TraceBuilder()
    for n in range(STEPS):
        begin = n * STEP
        builder.range(begin, begin + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.op(begin, begin + 10 * MS, (begin, begin + 5))
        for depth, name in enumerate(frames):
            builder.range(begin + 10 * MS + depth, begin + STEP - 100 - depth, name)
    assert largest(analyze([builder.trace()])) is cause


@pytest.mark.parametrize(
    ("inner", "confidence"), [("queue.py(154): get", "likely"), ("time sleep", "weak")]
)
def test_without_marks_a_wait_may_be_for_something_else_than_a_batch(inner: str, confidence: str):
    result = run([("a.py(1): zork", 0, 9.9), (inner, 0.1, 9.8), (LOCK, 0.2, 9.7)], marked=False)
    assert result.verdict.word == "severe"
    assert result.verdict.confidence == confidence


def test_what_puts_into_a_full_queue_waits_for_no_batch():
    assert (
        largest(run([("a.py(1): zork", 0, 9.9), (PUT, 0.1, 9.8), (LOCK, 0.2, 9.7)]))
        is Cause.HOST_CODE
    )


def test_a_thread_that_copies_batches_waits_for_what_the_training_thread_waits_for():
    builder = TraceBuilder()
    for n in range(STEPS):
        begin = n * STEP
        ready = begin + 9 * MS
        builder.range(begin, begin + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.range(begin, ready, "queue.py(154): get")
        builder.range(begin, ready - 20_000, "zork.py(3): quux", thread=1)
        builder.op(
            ready,
            ready + 10,
            (ready - 10, ready - 5),
            thread=1,
            kind=Kind.H2D,
            bytes=50 * MS,
            stream=9,
        )
        builder.op(ready + 10, begin + STEP, (ready, ready + 5))
    causes = only(analyze([builder.trace()])).judged.causes
    assert causes[Cause.INPUT] == pytest.approx(9 * MS * STEPS, rel=0.01)


def test_the_profilers_own_steps_are_not_the_programs():
    assert largest(run([("torch/profiler/profiler.py(1150): step", 0, 9)])) is Cause.PROFILER


@pytest.mark.parametrize(
    ("inner", "cause"),
    [
        ([LOCK], Cause.INPUT),
        (["PIL/Image.py(2332): resize"], Cause.INPUT_IN_THREAD),
        ([], Cause.INPUT_IN_THREAD),
    ],
)
def test_a_function_that_delivers_batches_does_so_wherever_a_step_calls_it(
    inner: list[str], cause: Cause
):
    builder = TraceBuilder()
    for at in range(0, STEPS * STEP, STEP // 2):  # two batches per step
        for name in ("a.py(1): zork", *inner):
            builder.range(at, at + 6 * MS, name)
        builder.op(at + 6 * MS, at + STEP // 2, (at + 6 * MS, at + 6 * MS + 5))
    for begin in range(0, STEPS * STEP, STEP):
        builder.range(begin, begin + STEP, f"ProfilerStep#{begin // STEP}", RangeKind.STEP)
    result = analyze([builder.trace()])
    causes = only(result).whole.causes
    assert Cause.HOST_CODE not in causes
    assert causes[cause] == pytest.approx(2 * STEPS * 6 * MS, rel=0.01)
    assert result.verdict.confidence == ("likely" if inner else "weak")


@pytest.mark.parametrize("other", ["<built-in method write of _io.FileIO object>", "a.py(9): zork"])
def test_a_function_is_of_the_kind_that_most_of_its_time_is(other: str):
    builder = TraceBuilder()
    for n in range(STEPS):
        begin = n * STEP
        builder.range(begin, begin + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.op(begin, begin + 10 * MS, (begin, begin + 5))
        builder.range(begin + 10 * MS, begin + STEP - 100, "a.py(1): after")
        builder.range(
            begin + 10 * MS,
            begin + STEP - 200,
            other if n % 3 == 0 else "json/encoder.py(183): encode",
        )
    causes = only(analyze([builder.trace()])).judged.causes
    assert Cause.HOST_CODE not in causes
    assert Cause.IO not in causes
    assert causes[Cause.CHECKPOINT] > 0.4 * STEPS * STEP


def test_a_place_in_the_step_alone_makes_a_verdict_less_certain():
    by_place = run([("a.py(1): zork", 0, 9.9)]).verdict
    by_name = run([("a.py(1): collate", 0, 9.9)]).verdict
    assert (by_place.word, by_place.confidence) == ("severe", "weak")
    assert (by_name.word, by_name.confidence) == ("severe", "likely")
    assert any(
        "zork (a.py:1) prepares batches is concluded from its place" in line
        for line in by_place.counter_evidence
    )


def test_what_blocks_inside_work_on_a_batch_is_a_wait():
    causes = only(run([("a.py(1): collate", 0, 9), (LOCK, 1, 4)])).judged.causes
    assert causes[Cause.INPUT] / causes[Cause.INPUT_IN_THREAD] == pytest.approx(3 / 7, rel=0.1)


def test_the_second_batch_of_a_step_is_waited_for_where_the_first_is():
    builder = TraceBuilder()
    for n in range(STEPS):
        begin = n * STEP
        builder.range(begin, begin + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        for at, line in ((0, 5), (10, 9)):
            ready = begin + (at + 6) * MS
            builder.range(begin + at * MS, ready, f"a.py({line}): zork")
            builder.range(begin + at * MS, ready, LOCK)
            builder.op(ready, ready + 4 * MS, (ready, ready + 5))
    causes = only(analyze([builder.trace()])).judged.causes
    assert causes[Cause.INPUT] == pytest.approx(12 * MS * STEPS, rel=0.01)


def test_memory_that_is_pinned_for_a_batch_is_no_device_allocation():
    builder = TraceBuilder()
    for n in range(STEPS):
        begin = n * STEP
        builder.range(begin, begin + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.range(begin, begin + 9 * MS, "aten::pin_memory", RangeKind.OP)
        builder.call(begin, begin + 4 * MS, "cudaHostAlloc")
        builder.op(begin + 9 * MS, begin + STEP, (begin + 9 * MS, begin + 9 * MS + 5))
    causes = only(analyze([builder.trace()])).judged.causes
    assert Cause.ALLOC not in causes
    assert causes[Cause.INPUT_IN_THREAD] == pytest.approx(9 * MS * (STEPS - 1), rel=0.2)


def test_functions_are_the_outermost_of_the_users_and_the_innermost_of_all():
    frames = [
        ("torch/utils/outer.py(1): run", 0, 9.9),
        ("train.py(40): preprocess", 0.1, 9.8),
        ("PIL/Image.py(2332): resize", 0.2, 9.7),
        ("<built-in method resize of ImagingCore object at 0x7f123f126d30>", 0.3, 9.6),
    ]
    result = run(frames)
    time = only(result).functions[0]
    assert (time.function, time.file, time.line) == ("preprocess", "train.py", 40)
    assert time.inside == "ImagingCore.resize"
    assert time.cause is Cause.INPUT_IN_THREAD
    assert "mostly in preprocess (train.py:40), " in result.verdict.headline
    assert result.verdict.change.startswith(
        "Move preprocess (train.py:40) out of the training thread"
    )
    document = as_dict(result)["devices"][0]["functions"][0]
    assert document == {
        "function": "preprocess",
        "file": "train.py",
        "line": 40,
        "inside": "ImagingCore.resize",
        "cause": "input_in_thread",
        "ns": time.ns,
        "ns_per_step": time.ns // STEPS,
        "gaps": STEPS,
    }


@pytest.mark.parametrize(
    ("inner", "named"),
    [
        ("train.py(9): batches", "batches (train.py:9)"),  # a script
        ("/home/me/data.py(9): batches", "batches (data.py:9)"),
        ("mine/data.py(9): batches", "batches (data.py:9)"),  # a package whose code also launches
        ("other/data.py(9): batches", "__iter__ (std.py:1187)"),
    ],
)
def test_what_only_passes_batches_on_is_not_named(inner: str, named: str):
    frames = [
        ("tqdm/std.py(1187): __iter__", 0, 9.9),
        (inner, 0.1, 9.8),
        ("mine/model.py(3): forward", 9.95, 19),
    ]
    assert str(only(run(frames)).functions[0]).startswith(named)


@pytest.mark.parametrize(
    ("name", "text", "is_users"),
    [
        ("graft.py(64): k_threadqueue", "k_threadqueue (graft.py:64)", True),
        ("/home/me/run/train.py(3): main", "main (train.py:3)", True),
        ("/code/test/main.py(3): main", "main (main.py:3)", True),  # folders named as modules are
        ("queue.py(154): get", "get (queue.py:154)", False),
        ("torch/nn/modules/module.py(1779): _call_impl", "_call_impl (module.py:1779)", False),
        ("/venv/lib/python3.12/site-packages/zork/a.py(2): f", "f (a.py:2)", False),
        (
            "<frozen importlib._bootstrap>(1002): _find",
            "_find (<frozen importlib._bootstrap>:1002)",
            False,
        ),
        (LOCK, "_thread.lock.acquire", False),
        ("<built-in function sleep>", "sleep", False),
        ("aten::pin_memory", "aten::pin_memory", False),
    ],
)
def test_names_of_functions(name: str, text: str, is_users: bool):
    function = parse(name)
    assert str(function) == text
    assert function.is_users == is_users


def _tree(chance: Random, depth: int = 0) -> int | list:
    """The length of a leaf, or the frames in a frame."""
    if depth > 4 or chance.random() < 0.4:
        return chance.randint(20_000, 90_000)
    return [_tree(chance, depth + 1) for _ in range(chance.randint(1, 4))]


def _flatten(tree: int | list, start: int, around: int, rows: list[tuple[int, int, int]]) -> int:
    """Appends (start, end, index of the frame around it); returns the end."""
    at = len(rows)
    rows.append((start, 0, around))
    end = start + 1_000
    for child in tree if isinstance(tree, list) else ():
        end = _flatten(child, end, at, rows) + 500
    end += 20_000 if isinstance(tree, list) else tree
    rows[at] = (start, end, around)
    return end


@pytest.mark.parametrize("seed", range(20))
def test_frames_nest_as_they_were_called(seed: int):
    chance = Random(seed)
    rows: list[tuple[int, int, int]] = []
    at = 0
    for _ in range(3):
        at = _flatten(_tree(chance), at, -1, rows) + 100
    order = list(range(len(rows)))
    chance.shuffle(order)
    start, end, _ = np.array(rows)[order].T
    none = np.empty(0, np.int64)
    frames = nest(start, end, np.array(order, np.int32), none, none, empty())
    assert frames.name.tolist() == list(range(len(rows)))
    assert frames.parent.tolist() == [around for _, _, around in rows]
    assert (frames.parent[frames.outer] == -1).all()
    inside, owner = self_time(frames)
    assert (inside[1:, 0] >= inside[:-1, 1]).all()
    own = np.bincount(owner, (inside[:, 1] - inside[:, 0]).astype(float), len(rows))
    children = np.zeros(len(rows))
    for first, last, around in rows:
        if around >= 0:
            children[around] += last - first
    assert own.tolist() == [
        last - first - taken for (first, last, _), taken in zip(rows, children, strict=True)
    ]
