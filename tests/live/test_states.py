"""From two readings to a word: pure functions, no clock."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers.live_pages import queue, reading

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.live.cpu import CpuUse
from fastfeed.live.nvml import GpuUse
from fastfeed.live.page import IDLE, TRAINING, WAITING, read_page
from fastfeed.live.rates import PageReading, Rates, rates
from fastfeed.live.remedies import remedy
from fastfeed.live.states import Hysteresis, Judgment, State, judge


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("p", "c"), [(10, 30), (30, 30), (30, 10), (31, 30), (100, 1), (1, 100), (40, 30)]
)
def test_waiting_is_what_queues_say(p, c, prefetch):
    readings = queue(p, c, prefetch, 200)
    window = rates(readings[50], readings[150])
    assert window.wait is not None and window.need is not None
    # without prefetch a batch is begun when the last one is taken, as it is with it: one is always
    # being made
    assert window.wait == pytest.approx(max(0, p - c) / max(p, c), abs=0.02)
    assert window.need == pytest.approx(8 / c * 1e3, rel=0.02)
    assert window.delivered == pytest.approx(8 / max(p, c) * 1e3, rel=0.02)
    assert window.stage_ms["decode"] == pytest.approx(p / 8)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "c"), [(0.05, 0.15), (0.2, 0.1), (0.15, 0.05)])
def test_a_real_feed_with_known_sleeps(p, c):
    """The page and a clock around `next` agree; sleeps take longer than asked for, so they count as
    timed, and a core that has slept takes milliseconds for a step that has nothing to wait for.
    """
    made = []
    used = []
    waits = []

    def timed(call, times):
        began = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - began)
        return result

    class Slow(ff.Arrays):
        def read(self, ids):
            timed(lambda: time.sleep(p * len(ids)), made)
            return super().read(ids)

    with ff.Feed(Slow(np.zeros((60, 4, 4, 3), np.uint8)), [], batch=1, threads=1) as feed:
        batches = iter(feed)
        for _ in range(6):
            next(batches)
        begun = PageReading(read_page(FeedSession.of(feed).live.path), time.monotonic_ns())
        made.clear()
        for _ in range(30):
            timed(lambda: time.sleep(c), used)
            timed(lambda: next(batches), waits)
        window = rates(
            begun, PageReading(read_page(FeedSession.of(feed).live.path), time.monotonic_ns())
        )
    assert window.wait == pytest.approx(sum(waits) / sum(waits + used), abs=0.02)
    due = max(0.0, np.mean(made) - np.mean(used)) / max(np.mean(made), np.mean(used))
    assert window.wait > due - 0.03


def test_a_wait_that_has_not_ended_counts():
    before = reading(10, batches=5, images=40, wait_ns=1, consumer_ns=2, phase=WAITING, since_ns=10)
    after = reading(14, batches=5, images=40, wait_ns=1, consumer_ns=2, phase=WAITING, since_ns=10)
    window = rates(before, after)
    assert window.wait == 1
    assert window.need is None


def test_a_feed_that_is_not_iterated_is_neither():
    window = rates(reading(10, phase=IDLE), reading(20, phase=IDLE))
    assert (window.wait, window.need, window.make, window.ready, window.stage_ms) == (
        None,
        None,
        None,
        None,
        {},
    )


def test_framework_steps():
    before, after = reading(0), reading(1, framework_steps=10, framework_ns=0.5)
    assert rates(before, after).framework_step_ms == pytest.approx(50)


def window(wait: float, ready: float = 2.0, **more) -> Rates:
    values = {
        "seconds": 10.0,
        "batches": 100,
        "images": 800,
        "wait": wait,
        "need": 1000.0,
        "delivered": 1000 * (1 - wait),
    }
    values |= {
        "capacity": 1000.0,
        "ready": ready,
        "framework_step_ms": None,
        "stage_ms": {"read": 0.5, "decode": 3.5},
    }
    return Rates(**(values | more))


RUNNING = reading(100, batches=1000, wait_ns=1, consumer_ns=99, since_ns=99.9)


@pytest.mark.parametrize(
    ("wait", "more", "state"),
    [
        (0.0, {}, State.FED),
        (0.0099, {}, State.FED),
        (0.005, {"ready": 0.5}, State.TIGHT),
        (0.01, {}, State.TIGHT),
        (0.049, {}, State.TIGHT),
        (0.05, {}, State.STARVED),
        (0.199, {}, State.STARVED),
        (0.20, {}, State.SEVERE),
        (1.0, {}, State.SEVERE),
    ],
)
def test_states_by_share(wait, more, state):
    assert judge(RUNNING, window(wait, **more)).state is state


def test_an_idle_gpu_that_does_not_wait_for_input():
    assert judge(RUNNING, window(0.0), sm=0.3).state is State.GPU_IDLE
    assert judge(RUNNING, window(0.0), sm=0.6).state is State.FED
    assert (
        judge(RUNNING, window(0.3), sm=0.3).state is State.SEVERE
    )  # never a verdict by NVML alone


@pytest.mark.parametrize(
    ("counts", "options", "state", "reason"),
    [
        ({"phase": WAITING, "since_ns": 60}, {}, State.STALLED, "no batch for 40 s"),
        ({"phase": WAITING, "since_ns": 75}, {}, State.SEVERE, ""),
        (
            {"phase": WAITING, "since_ns": 60, "wait_ns": 3000},
            {},
            State.SEVERE,
            "",
        ),  # 20 steps take longer than that
        ({"phase": WAITING, "since_ns": 80, "batches": 0}, {}, State.UNKNOWN, "first batch"),
        ({"phase": TRAINING, "since_ns": 80}, {}, State.UNKNOWN, "kept its batch for 20 s"),
        ({"phase": IDLE, "since_ns": 95}, {}, State.UNKNOWN, "between epochs"),
        ({"phase": IDLE, "since_ns": 99}, {}, State.SEVERE, ""),  # the next epoch begins at once
        ({"phase": IDLE, "since_ns": 99, "failed": 1}, {}, State.UNKNOWN, "an error"),
        ({"phase": IDLE, "since_ns": 95, "failed": 1}, {}, State.UNKNOWN, "an error"),
        (
            {"updated_ns": 95},
            {"alive": False},
            State.STALLED,
            "as after a kill: its last sign was 5 s ago",
        ),
        (
            {"since_ns": 95},
            {"stopped": True},
            State.STALLED,
            "kill -CONT 4711 continues it; no batch for 5 s",
        ),
        (
            {"phase": TRAINING, "since_ns": 60},
            {"cores": 0.0},
            State.STALLED,
            "does nothing, on the CPU or a GPU",
        ),
        (
            {"phase": TRAINING, "since_ns": 60},
            {"cores": 0.0, "sm": 0.5},
            State.UNKNOWN,
            "kept its batch",
        ),
        ({"phase": TRAINING, "since_ns": 60}, {"cores": 0.9}, State.UNKNOWN, "kept its batch"),
        # one step that compiled for an hour does not hide a stall
        (
            {"phase": WAITING, "since_ns": 60, "wait_ns": 3600, "step_median_ns": 0.1},
            {},
            State.STALLED,
            "for 40 s",
        ),
        ({"since_ns": 95}, {"window": None}, State.UNKNOWN, "no batch was taken"),
    ],
)
def test_states_that_no_share_tells(counts, options, state, reason):
    options = {"window": window(0.5)} | options
    look = reading(100, **({"batches": 1000, "wait_ns": 1, "consumer_ns": 99} | counts))
    judgment = judge(look, options.pop("window"), **options)
    assert judgment.state is state
    assert reason in judgment.reason


def stalled(doing, **counts):
    look = reading(
        100,
        **(
            {"batches": 1000, "wait_ns": 1, "consumer_ns": 99, "phase": WAITING, "since_ns": 60}
            | counts
        ),
    )
    page = replace(look.page, doing=doing)
    return judge(
        PageReading(page, look.at_ns),
        window(1.0, retries=7),
        wall_s=time.mktime((2026, 11, 23, 14, 0, 40, 0, 0, -1)),
    )


def test_a_stall_says_since_when_and_at_which_stage_and_endpoint():
    judgment = stalled(("read", "s3://photos"), doing_since_ns=62)
    assert judgment.state is State.STALLED
    assert (
        judgment.reason
        == "no batch for 40 s, since 14:00:00; it is being read from s3://photos, for 38 s, 7 reads"
        " were repeated"
    )
    assert stalled(("", ""), helper_pid=12).reason.endswith(
        "since 14:00:00; the helper process 12 makes it"
    )
    assert stalled(("", "")).reason.endswith("since 14:00:00")
    assert "\x1b" not in stalled(("read", "/\x1b[2J")).reason


def test_a_state_changes_after_three_windows():
    fed, severe = Judgment(State.FED, ""), Judgment(State.SEVERE, "")
    shown = Hysteresis()
    assert [
        shown(j).state.value for j in [fed, severe, severe, fed, severe, severe, severe, fed]
    ] == [*["FED"] * 6, "SEVERE", "SEVERE"]


def test_what_is_certain_shows_at_once():
    fed, unknown = Judgment(State.FED, ""), Judgment(State.UNKNOWN, "killed")
    shown = Hysteresis()
    assert [shown(j) for j in [fed, unknown, fed]] == [fed, unknown, fed]


CPU = CpuUse(cores=1.0, others=0.1, usable=4, machine=8, quota=None, throttled=None)


@pytest.mark.parametrize(
    ("state", "rates_", "cpu", "gpu", "text"),
    [
        (State.FED, window(0.0, capacity=1430.0), None, None, "could make 43% more than is needed"),
        (
            State.FED,
            window(0.0, capacity=3500.0),
            None,
            None,
            "could make 3.5 times what is needed",
        ),
        (
            State.FED,
            window(0.0, capacity=7e6),
            None,
            None,
            "could make over 10 times what is needed",
        ),
        (
            State.SEVERE,
            window(0.2),
            None,
            None,
            "decode takes 88% of the threads' time: threads=5 instead of 4",
        ),
        (
            State.SEVERE,
            window(0.2),
            CpuUse(1, 0, 2, 2),
            None,
            "threads=5 instead of 4, on 5 cores instead of 2, or",
        ),
        (
            State.SEVERE,
            window(0.2, stage_ms={"read": 8.0}),
            CPU,
            None,
            "reading takes 8.0 ms per image",
        ),
        (
            State.SEVERE,
            window(0.2),
            CpuUse(3.9, 0, 4, 8, None, None),
            None,
            "all 4 cores are busy: 1 more",
        ),
        (
            State.SEVERE,
            window(0.2),
            CpuUse(1.9, 1.9, 4, 4, None, None),
            None,
            "other processes use 1.9 of",
        ),
        (
            State.SEVERE,
            window(0.2),
            CpuUse(2, 0, 2, 8, 2.0, 0.37),
            None,
            "back 37% of the time; raise it to 3",
        ),
        (
            State.SEVERE,
            window(0.2),
            CPU,
            GpuUse(0, "H100", "GPM", nvjpg=0.97),
            "JPEG engines are busy 97%",
        ),
        (
            State.SEVERE,
            window(0.2),
            CPU,
            GpuUse(0, "H100", "GPM", pcie_rx=60e9, pcie_limit=63e9),
            "60.0 of 63.0 GB/s",
        ),
        (State.STARVED, window(0.1, stage_ms={"decode": 1.0}), CPU, None, "could keep up"),
    ],
)
def test_remedies_have_a_number(state, rates_, cpu, gpu, text):
    assert text in (remedy(state, rates_, 4, cpu, gpu) or "")


@pytest.mark.parametrize("state", [State.STALLED, State.UNKNOWN, State.GPU_IDLE])
def test_no_remedy_where_nothing_is_known(state):
    assert remedy(state, window(0.2), 4) is None
    assert remedy(State.SEVERE, None, 4) is None
    assert remedy(State.SEVERE, window(0.2, stage_ms={}), 0) is None


def test_states_are_words_in_json():
    assert json.dumps(State.GPU_IDLE) == '"GPU IDLE BUT NOT INPUT"'
