"""Comparisons before and after, of made results and of a real pair: moves, noise, the sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from helpers.products import in_turn
from helpers.profiler import results_made as made
from rich.console import Console

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.compare.changes import Comparison, MetricChange
from fastfeed.profiler.compare.compare import compare
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import PeerWait, Result, Share
from fastfeed.profiler.readers import read
from fastfeed.profiler.reports.difference import SCHEMA, as_dict, render

MS = made.MS


def by_key(moves: tuple[MetricChange, ...]) -> dict[str, MetricChange]:
    return {move.key: move for move in moves}


def screen(comparison: Comparison, width: int = 80) -> str:
    out = StringIO()
    render(comparison, Console(file=out, width=width, force_terminal=False))
    return out.getvalue()


@pytest.fixture(scope="module")
def better() -> Comparison:
    """A loader that cost 30 ms a step and costs 1 now."""
    return compare(
        made.result(made.device(wait=30 * MS)), made.result(made.device(wait=MS, seed=1))
    )


def test_what_moved(better: Comparison) -> None:
    (change,) = better.devices
    assert better.outcome == "better"
    assert (change.step.direction, change.input.direction) == ("less", "less")
    assert change.speedup == pytest.approx(1.46, abs=0.05)
    assert change.input.change_ns is not None
    value, low, high = change.input.change_ns
    assert low < value < high < 0
    assert value == pytest.approx(-30 * MS, rel=0.2)
    assert change.causes[0].key == "cause:input"
    causes, parts = by_key(change.causes), by_key(change.parts)
    assert parts["idle"].direction == "less"
    assert {causes[f"cause:{key}"].direction for key in ("framework", "launch", "python")} == {
        "same"
    }
    assert parts["compute"].direction == "same"


def test_steps_say_what_the_periods_hold(better: Comparison) -> None:
    """Per step times steps is what the budget and the causes of the judged period have."""
    (change,) = better.devices
    for device, side in ((change.before, "before"), (change.after, "after")):
        steps = int(device.steps.steady.sum())
        for key, move in by_key(change.parts).items():
            assert getattr(move, f"{side}_ns") * steps == pytest.approx(
                getattr(device.judged.budget, key)
            )
        for move in change.causes:
            assert getattr(move, side) * device.judged.budget.window == pytest.approx(
                getattr(move, f"{side}_ns") * steps
            )


def test_the_sentence(better: Comparison) -> None:
    assert better.sentence.startswith("step 1.")
    assert "x shorter, " in better.sentence
    assert (
        "% of the window, significant; framework overhead is now the largest cause"
        in better.sentence
    )


def test_the_other_way_is_worse(better: Comparison) -> None:
    (change,) = better.devices
    back = compare(made.result(change.after), made.result(change.before))
    assert back.outcome == "worse"
    assert "x longer, " in back.sentence
    assert "input wait is now the largest cause" in back.sentence
    assert back.devices[0].input.direction == "more"


def test_the_same_again_is_the_same() -> None:
    """Other draws of the same run: nothing is called significant."""
    comparison = compare(made.result(made.device(seed=3)), made.result(made.device(seed=4)))
    assert comparison.outcome == "same"
    assert "step unchanged" in comparison.sentence
    assert "within noise" in comparison.sentence
    assert {
        move.direction for move in (comparison.devices[0].step, comparison.devices[0].input)
    } == {"same"}
    assert "is still the largest cause" in comparison.sentence


def test_next_to_nothing_is_the_same_however_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel more in each of 200 steps: 5 us of latency in 30 ms."""
    results = [
        made.result(made.device(wait=0, steps=200, kernels=kernels, seed=5)) for kernels in (20, 21)
    ]

    def latency() -> str:
        return by_key(compare(*results).devices[0].causes)["cause:launch_latency"].direction

    assert latency() == "same"
    monkeypatch.setattr("fastfeed.profiler.compare.compare.FLOOR", 0)
    assert latency() == "more"


def test_without_steps_shares_are_compared_and_nothing_is_significant() -> None:
    before, after = made.device(wait=30 * MS), made.device(wait=MS)
    comparison = compare(made.result(replace(before, steady=None)), made.result(after))
    assert comparison.outcome == "unknown"
    assert comparison.sentence.startswith(
        "no steady steps before, so shares of the recordings are compared"
    )
    change = comparison.devices[0]
    assert {
        move.direction for move in (*change.parts, *change.causes, change.step, change.input)
    } == {"unknown"}
    assert change.speedup is None
    assert change.input.before > 0.2 > change.input.after


def test_an_abstained_side_leaves_no_judgement() -> None:
    for a, b, when in (
        (made.one(), made.abstained(), "after"),
        (made.abstained(), made.one(), "before"),
    ):
        comparison = compare(a, b)
        assert comparison.outcome == "unknown"
        assert comparison.sentence.startswith(
            f"{when} has no verdict (Only 41 % of the kernels have a launch"
        )
        assert "from what was recorded: " in comparison.sentence


@pytest.mark.parametrize(
    ("a", "b", "when"),
    [
        (made.empty, made.one, "before"),
        (made.one, made.feed_only, "after"),
        (made.empty, made.empty, "before and after"),
    ],
)
def test_nothing_to_compare(a: Callable[[], Result], b: Callable[[], Result], when: str) -> None:
    comparison = compare(a(), b())
    assert comparison.outcome == "unknown"
    assert (
        comparison.sentence
        == f"nothing to compare: {when} has no device activity; record with CUDA activities on"
    )
    assert screen(comparison)


def test_ranks_are_paired_by_number() -> None:
    two = [made.device(f"rank {rank}, GPU 0", rank=rank, seed=rank) for rank in (1, 0)]
    other = [made.device(f"GPU {rank}", rank=rank, seed=9) for rank in (0, 1, 2)]
    comparison = compare(made.result(*two), made.result(*other))
    assert {(change.before.rank, change.after.rank) for change in comparison.devices} == {
        (0, 0),
        (1, 1),
    }
    assert comparison.only_after == ("GPU 2",)
    assert "2 devices before and 3 after" in comparison.notes[0]
    assert "after only: GPU 2; not compared" in comparison.notes[-1]


def test_of_many_ranks_the_one_in_most_need_is_told() -> None:
    comparison = compare(made.many(), made.many())
    assert comparison.outcome == "same"
    assert comparison.sentence.startswith("rank 3, GPU 3 (NVIDIA H100 80GB HBM3): step unchanged, ")
    lines = screen(comparison).splitlines()
    assert (
        sum("input " in line and " -> " in line and line.startswith("rank") for line in lines) == 6
    )
    assert any("1 more device" in line for line in lines)


def test_one_device_is_compared_with_one_whatever_they_are_called() -> None:
    comparison = compare(
        made.result(made.device("GPU 0 (V100)")), made.result(made.device("GPU 3 (H100)"))
    )
    assert len(comparison.devices) == 1
    assert "GPU 0 (V100) before, GPU 3 (H100) after" in comparison.notes


def test_devices_without_partners_are_told() -> None:
    a = made.result(made.device("left", rank=0), made.device("right", rank=1))
    b = made.result(
        made.device("up", rank=4), made.device("down", rank=5), made.device("in", rank=6)
    )
    comparison = compare(a, b)
    assert comparison.devices == ()
    assert comparison.sentence.startswith(
        "nothing to compare: no device before (left, right) matches one after (up, down, in)"
    )


def test_input_of_other_ranks_counts() -> None:
    """Waits by proxy have no steps of their own: the intervals of the shares decide."""
    charge = (PeerWait("rank 3", Cause.INPUT, 300 * MS),)
    before = replace(made.device(wait=0, charges=charge), share=Share(0.3, 0.25, 0.35))
    after = replace(made.device(wait=0), share=Share(0.01, 0.0, 0.02))
    assert compare(made.result(before), made.result(after)).devices[0].input.direction == "less"
    noisy = replace(before, share=Share(0.03, 0.01, 0.35))
    assert compare(made.result(noisy), made.result(after)).devices[0].input.direction == "same"
    unsure = replace(before, share=Share(0.3))
    assert compare(made.result(unsure), made.result(after)).devices[0].input.direction == "unknown"


def test_other_work_and_other_profilers_are_told() -> None:
    a, b = made.one(), made.one()
    b = replace(b, origins=(replace(b.origins[0], dialect="nsys"),))
    b = replace(b, devices=(replace(b.devices[0], metrics={"launches_per_step": 120.0}),))
    a = replace(a, devices=(replace(a.devices[0], metrics={"launches_per_step": 60.0}),))
    notes = " ".join(compare(a, b).notes)
    assert "different profilers (chrome and nsys)" in notes
    assert "60 device operations per step before and 120 after" in notes


@pytest.mark.parametrize(
    ("name", "width"), in_turn(sorted(made.EVERY), [40, 80, 200], pytest.mark.nightly)
)
def test_the_screen(name: str, width: int) -> None:
    """Every kind of result against a healthy one: one screen of plain lines that fit."""
    for pair in ((made.EVERY[name](), made.healthy()), (made.healthy(), made.EVERY[name]())):
        text = screen(compare(*pair), width)
        lines = text.splitlines()
        assert len(lines) <= 45
        assert all(len(line) <= width for line in lines)
        assert not any(sign in text for sign in "\x00\x1b\u202e")


def test_names_are_not_markup() -> None:
    a = made.result(made.device("[red]GPU[/red] [/nothing]"))
    assert "[red]GPU[/red] [/nothing]" in screen(compare(a, a))


def test_the_table(better: Comparison) -> None:
    text = screen(better)
    assert text.startswith("BETTER  step 1.")
    row = next(line for line in text.splitlines() if line.startswith("input wait"))
    assert row.rstrip().endswith("less")
    assert "SEVERELY STARVED · 22 steps · runs/resnet50" in text or "STARVED · 22 steps · …" in text


@pytest.mark.parametrize("name", sorted(made.EVERY))
def test_the_document(name: str) -> None:
    parsed = json.loads(
        json.dumps(as_dict(compare(made.EVERY[name](), made.healthy())), allow_nan=False)
    )
    assert parsed["schema"] == SCHEMA
    assert set(parsed) == {
        "schema",
        "outcome",
        "sentence",
        "before",
        "after",
        "devices",
        "only_before",
        "only_after",
        "notes",
        "feeds",
    }
    for device in parsed["devices"]:
        assert device["input"]["moved"] in ("less", "more", "same", "unknown")


def test_a_real_pair(data: Path) -> None:
    """ResNet50 with no workers, then with four."""
    traces = data / "traces" / "kineto"
    paths = [traces / f"tb_resnet50_nw{workers}_span1.pt.trace.json.gz" for workers in (0, 4)]
    if not all(path.exists() for path in paths):
        pytest.skip(
            f"no {paths[0].name} and its pair in {traces}; set FASTFEED_TEST_DATA to the folder"
            " that holds traces/"
        )
    comparison = compare(*(analyze([read(path)]) for path in paths))
    (change,) = comparison.devices
    assert comparison.outcome == "better"
    assert change.input.before == pytest.approx(0.339, abs=0.003)
    assert change.input.after < 0.01
    assert (change.input.direction, change.step.direction) == ("less", "less")
    assert by_key(change.causes)["cause:input"] is change.causes[0]
    assert by_key(change.parts)["compute"].direction == "same"  # the model is the same
    assert (
        "of the window, significant; framework overhead is now the largest cause"
        in comparison.sentence
    )
    assert compare(*(analyze([read(paths[1])]) for _ in range(2))).outcome == "same"
