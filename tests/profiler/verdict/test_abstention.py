"""When a verdict is refused, for which reason; and what only makes it less certain."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from helpers.profiler.even_steps import even_steps
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import Verdict
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace

MS = 1_000_000
STEP = 100 * MS


def steps(numbers: range | list[int] = range(24), busy: int = 90 * MS) -> TraceBuilder:
    """Steps of 100 ms in which the host launches late, and then one kernel runs."""
    builder = TraceBuilder()
    for place, number in enumerate(numbers):
        at, start = place * STEP, place * STEP + STEP - busy
        builder.range(at, at + STEP, f"ProfilerStep#{number}", RangeKind.STEP)
        builder.range(at, start + 1, "aten::convolution", RangeKind.OP)
        builder.op(start, at + STEP, (start, start))
    return builder


def verdict(trace: Trace) -> Verdict:
    return analyze([trace]).verdict


def damaged(trace: Trace, reason: str = "the file ends early") -> Trace:
    return replace(trace, origin=replace(trace.origin, incomplete=reason))


def test_launches_that_are_missing_but_cannot_be_input_get_a_verdict():
    """Most of 3 % idle time ends in operations without a launch: too little to starve it."""
    builder = TraceBuilder()
    for n in range(24):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.op(at + 3 * MS, at + 50 * MS)
        builder.op(at + 50 * MS, at + STEP, (at, at + MS))
    judged = verdict(builder.trace())
    assert (judged.word, judged.reasons) == ("not_starved", ())
    assert any("whose launch was not recorded" in sentence for sentence in judged.counter_evidence)


def test_one_long_healthy_kernel_is_no_damage():
    builder = TraceBuilder()
    builder.op(0, 60 * MS, (-10, -5))
    for n in range(4):
        builder.op(60 * MS + n * 10 * MS, 70 * MS + n * 10 * MS, (0, 5))
    judged = verdict(builder.trace())
    assert (judged.word, judged.bound) == ("not_starved", "gpu")
    assert any(
        "One device operation covers 60 % of the recording" in sentence
        for sentence in judged.counter_evidence
    )


def test_an_operation_that_others_of_its_stream_run_inside_of_is_damaged():
    builder = TraceBuilder()
    builder.op(0, 95 * MS, (-10, -5))
    for n in range(10):
        builder.op(n * 10 * MS, n * 10 * MS + 4 * MS, (n * 10 * MS, n * 10 * MS))
    (reason,) = verdict(builder.trace()).reasons
    assert "its record is damaged" in reason


@pytest.mark.parametrize("length", [1_470, 300 * MS])
def test_a_single_operation_says_nothing_and_has_no_interval(length: int):
    builder = TraceBuilder()
    builder.op(0, length, (-10, -5))
    judged = verdict(builder.trace())
    assert judged.word == "abstained"
    assert "One device operation of" in judged.reasons[0]
    assert "damaged" not in judged.headline
    assert judged.share.low is None and judged.share.high is None


def test_parts_of_a_window_that_are_all_alike_are_no_interval():
    builder = TraceBuilder()
    for n in range(4):
        builder.op(n * 300, n * 300 + 200, (n * 300 - 50, n * 300 - 40))
    assert verdict(builder.trace()).share.low is None


def _starved(late: int = 30 * MS) -> Trace:
    builder = TraceBuilder()
    for n in range(24):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.range(at, at + late, "DataLoader.__next__", RangeKind.NVTX)
        builder.op(at + late, at + STEP, (at + late, at + late))
    return builder.trace()


def test_correlation_ids_that_are_all_equal_are_damage():
    """The first call launches every operation, long before: no gap is late, no wait costs."""
    trace = _starved()
    assert verdict(trace).word == "severe"
    ones = (np.ones_like(table.corr) for table in (trace.ops, trace.calls))
    ops, calls = (
        replace(table, corr=corr)
        for table, corr in zip((trace.ops, trace.calls), ones, strict=True)
    )
    judged = verdict(replace(trace, ops=ops, calls=calls))
    assert judged.word == "abstained"
    assert "share their launch" in judged.reasons[0]


def test_graphs_launch_many_operations_at_once():
    builder = steps()
    for n in range(24):
        at = n * STEP
        corr = builder.call(at + 9 * MS, at + 10 * MS, "cudaGraphLaunch")
        for part in range(8):
            builder.op(at + 11 * MS + part, at + 12 * MS, name="in a graph", stream=9)
            builder.rows[type(builder.trace().ops)][-1]["corr"] = corr
    assert verdict(builder.trace()).word == "not_starved"


def test_idle_time_that_is_launched_and_waited_for_contradicts_itself():
    """Shifted call ids: each operation seems to have been launched a step earlier."""
    trace = _starved(275_000 * 40)
    calls = replace(trace.calls, corr=trace.calls.corr + 1)
    judged = verdict(replace(trace, calls=calls))
    assert judged.word == "abstained"
    assert any("contradicts itself" in reason for reason in judged.reasons)


def test_a_file_that_is_not_whole_costs_a_level_of_confidence():
    trace = steps().trace()
    assert verdict(trace).confidence == "confirmed"
    judged = verdict(damaged(trace))
    assert (judged.word, judged.confidence) == ("not_starved", "likely")
    assert any(
        "The file is incomplete (the file ends early)" in sentence
        for sentence in judged.counter_evidence
    )


def test_steps_that_are_missing_by_their_numbers():
    trace = steps([number for number in range(200) if number % 2 or number > 186]).trace()
    judged = verdict(trace)
    assert judged.confidence == "likely"
    assert any(
        "Only 106 of 199 steps are in the recording" in sentence
        for sentence in judged.counter_evidence
    )
    judged = verdict(damaged(trace))
    assert judged.word == "abstained"
    assert judged.reasons[0] == "Only 106 of 199 steps are left in a damaged file."


def test_steps_that_count_by_fours_are_whole():
    assert verdict(steps(range(0, 96, 4)).trace()).confidence == "confirmed"


@pytest.mark.parametrize(
    ("waits", "word"), [((0, 10, 20, 29), "not_starved"), ((27, 28, 29), "abstained")]
)
def test_waits_for_input_in_a_corner_say_nothing_about_the_rest(waits: tuple[int, ...], word: str):
    """The host was recorded near the end only: what it did before then is not known."""
    builder = TraceBuilder()
    for n in range(30):
        at = n * STEP
        if n in waits:
            builder.range(at, at + MS, "IteratorGetNext", RangeKind.OP)
        builder.op(at + 40 * MS, at + STEP, (at + 40 * MS - 10, at + 40 * MS))
    judged = verdict(builder.trace())
    assert judged.word == word
    assert word != "abstained" or "could be input" in judged.reasons[0]


def test_steps_without_any_input_have_no_interval():
    judged = verdict(steps().trace())
    assert (judged.word, judged.confidence, judged.share.value) == ("not_starved", "confirmed", 0)
    assert judged.share.low is None and judged.share.high is None
    assert judged.share.p95 == 0


@pytest.mark.parametrize(("busy", "word"), [(98 * MS, "not_starved"), (80 * MS, "abstained")])
def test_without_host_calls_a_busy_device_is_not_starved(busy: int, word: str):
    """Whatever the host did in 2 % of the time, it could not starve the GPU; in 20 % it could."""
    builder = TraceBuilder()
    for n in range(24):
        builder.op(n * STEP, n * STEP + busy)
    trace = builder.trace()
    judged = verdict(replace(trace, origin=replace(trace.origin, host_calls=False)))
    assert judged.word == word
    if word == "abstained":
        assert judged.reasons[0].startswith("The host's API calls were not recorded")
    else:
        assert judged.confidence == "weak"
        assert any(
            "The host's API calls were not recorded: " in sentence
            for sentence in judged.counter_evidence
        )


def test_a_copy_is_an_operation_too():
    builder = TraceBuilder()
    builder.op(0, 300, (-10, -5), kind=Kind.H2D)
    assert verdict(builder.trace()).word == "abstained"


@pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
def test_a_single_unmarked_step_behind_a_wait_has_no_verdict(share: float):
    """The GPU's part of the recording begins where the wait ends: it looks busy."""
    judged = verdict(even_steps(1, share, mark=""))
    assert judged.word == "abstained"
    assert f"begins after {share * 100:.1f} ms of waiting for input" in judged.reasons[0]
    assert f"input costs {share:.1%}".replace("%", " %") in judged.reasons[0]


@pytest.mark.parametrize(("share", "word"), [(0.1, "starved"), (0.3, "severe"), (0.8, "severe")])
def test_a_single_marked_step_is_judged_with_its_wait(share: float, word: str):
    """As PyTorch's profiler records it with schedule(active=1)."""
    judged = verdict(even_steps(1, share))
    assert (judged.word, judged.confidence) == (word, "weak")
    assert judged.share.value == pytest.approx(share, abs=1e-4)
    assert judged.share.low is None, "one step says nothing about the spread over steps"


@pytest.mark.parametrize(("lacks", "word"), [(0.6, "abstained"), (0.3, "starved_of_copies")])
def test_a_marked_step_of_which_the_gpu_lacks_most_has_no_verdict(lacks: float, word: str):
    """The work before it was launched earlier, and the GPU looks busy in the rest of the step."""
    builder = TraceBuilder()
    builder.range(0, 100 * MS, "ProfilerStep#6", RangeKind.STEP)
    builder.op(int(lacks * 100 * MS), 80 * MS, kind=Kind.H2D)
    builder.op(80 * MS, 100 * MS, (1 * MS, 1 * MS + 5))
    judged = verdict(builder.trace())
    assert judged.word == word
    if word == "abstained":
        assert judged.reasons[0].startswith(
            "No whole step was recorded, and only 40 % of the time of the marked steps"
        )
        assert judged.record


def test_a_single_step_without_a_wait_is_judged():
    assert verdict(even_steps(1, 0.001)).word == "starved_of_copies", "a tenth of the step"


def test_three_unmarked_steps_of_which_the_first_lacks_its_wait():
    """Two waits, three computations: 3.8 % of the time, and 5.6 % with the wait before them."""
    judged = verdict(even_steps(3, 0.056, mark="", waits="DataLoader.__next__"))
    assert judged.word in ("borderline", "starved") or "begins after 5.6" in judged.reasons[0]


def with_ops(trace: Trace, count: int) -> Trace:
    """Only the first so many operations."""
    names = (field.name for field in fields(trace.ops))
    return replace(
        trace, ops=replace(trace.ops, **{name: getattr(trace.ops, name)[:count] for name in names})
    )


def test_steps_whose_work_a_damaged_file_lacks():
    """All 24 are marked, and the device is recorded in six, which may be the fast ones."""
    whole = _starved()
    few = with_ops(whole, 6)
    assert verdict(few).word != "abstained"
    assert "Only 6 of 24 steps are left in a damaged file." in verdict(damaged(few)).reasons


def test_no_device_in_a_damaged_file_is_no_matter_of_the_program():
    whole = _starved()
    none = with_ops(whole, 0)
    assert verdict(none).reasons[0].startswith("Only the host's side was recorded: 24 launches")
    judged = verdict(damaged(none))
    assert judged.reasons[0].endswith(
        "in the part of the file that could be read (the file ends early)."
    )
    assert judged.change.startswith("Copy the file again")


def _shared_gpu() -> TraceBuilder:
    """Steps of eight kernels launched at once; another process has the GPU a third of the time."""
    builder = TraceBuilder()
    for n in range(24):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        for kernel in range(10):
            begin = at + kernel * 10 * MS
            builder.op(
                begin + 3 * MS, begin + 10 * MS, (at + kernel * 1_000, at + kernel * 1_000 + 500)
            )
    return builder


def test_a_gpu_that_is_shared_is_not_available():
    judged = verdict(_shared_gpu().trace())
    assert (judged.word, judged.bound) == ("not_starved", "shared")
    assert "shared with another process" in judged.headline
    assert "nvidia-smi" in judged.change


def test_where_operations_are_missing_nothing_is_known_of_a_shared_gpu():
    builder = _shared_gpu()
    builder.op(12 * STEP + 2_000, 12 * STEP + 3_000)  # its launch is not recorded
    judged = verdict(builder.trace())
    assert judged.word == "abstained"
    assert "operations are missing" in judged.reasons[0]


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("nsys", "--python-backtrace"),
        ("chrome", "with_stack=True"),
        ("xplane", "python_tracer_level"),
        ("nvprof", "30"),
    ],
)
def test_frames_that_are_missing_are_what_to_record(dialect: str, words: str):
    """Nothing is known of the host between its launches."""
    builder = TraceBuilder()
    for n in range(24):
        builder.range(n * STEP, (n + 1) * STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.op(n * STEP + 50 * MS, (n + 1) * STEP, (n * STEP + 50 * MS, n * STEP + 50 * MS))
    trace = builder.trace()
    judged = verdict(replace(trace, origin=replace(trace.origin, dialect=dialect)))
    assert judged.word == "abstained"
    assert words in judged.record
