"""Recordings of a few steps, several epochs, and validation, against the simulated truth."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from helpers.profiler.simulator.events import MS, US, Run
from helpers.profiler.simulator.loader import NEXT
from helpers.profiler.simulator.random_runs import recording
from helpers.profiler.simulator.scenarios import item, one_gpu
from helpers.profiler.simulator.to_trace import as_traces
from helpers.profiler.simulator.training import Trainer
from rich.console import Console

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import percent
from fastfeed.profiler.model.intervals import measure
from fastfeed.profiler.model.result import Phase, Result
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.reports import document, markdown, page, text

FRAME = "torch/utils/data/dataloader.py(701): __next__"


def reads_loss(trainer: Trainer) -> None:
    trainer.after = lambda step: item(trainer.host)


def wait(trainer: Trainer, ns: int) -> None:
    """The training thread waits in a loader."""
    host = trainer.host
    with host.inside(FRAME, RangeKind.PYTHON, Cause.INPUT), host.inside(NEXT, RangeKind.NVTX):
        host.spend(ns)


def validates(trainer: Trainer) -> None:
    """After each eighth step four batches of another, slow loader, forward only."""

    def after(step: int) -> None:
        item(trainer.host)
        if step % 8 == 7:
            for _ in range(4):
                wait(trainer, 9 * MS)
                for layer in range(8):
                    trainer.operator("aten::conv2d", f"conv_fprop_{layer % 4}", 1)
                item(trainer.host)

    trainer.after = after


def restarts(trainer: Trainer) -> None:
    """Before each eighth step the iterator is exhausted, and a new one starts workers."""
    host = trainer.host

    def before(step: int) -> None:
        if step and step % 8 == 0:
            wait(trainer, 50 * US)
            with host.inside(
                "torch/utils/data/dataloader.py(433): _get_iterator", RangeKind.PYTHON, Cause.INPUT
            ):
                host.spend(5 * MS)

    trainer.before = before
    trainer.after = lambda step: item(host)


def result_of(run: Run) -> Result:
    result = analyze(as_traces(run))
    for device in result.devices:
        for period in (device.whole, device.judged, *(phase.period for phase in device.phases)):
            assert sum(period.causes.values()) == period.budget.idle
    return result


def phases_of(result: Result) -> dict[str, Phase]:
    return {phase.kind: phase for phase in result.devices[0].phases}


def true_share(run: Run, begin: int, end: int) -> float:
    lost = sum(
        max(0, min(one.end, end) - max(one.start, begin))
        for one in run.idle
        if one.cause is Cause.INPUT
    )
    return lost / (end - begin)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cost", (2 * MS, 7 * MS, 14 * MS))
@pytest.mark.parametrize("active", (1, 2, 3))
def test_a_few_marked_steps_are_all_used(active: int, cost: int, seed: int):
    run = one_gpu(seed, lambda batch: cost, steps=8 + active, change=reads_loss, workers=1, depth=2)
    marks = [one for one in run.ranges if one.kind is RangeKind.STEP][-active:]
    begin, end = marks[0].start, marks[-1].end
    # ends with its mark
    run = replace(run, ranges=tuple(one for one in run.ranges if "train_step" not in one.name))
    result = result_of(recording(run, begin, end))
    (device,) = result.devices
    assert device.steps.steady.sum() == active
    assert device.judged.budget.window == end - begin
    assert device.share.value == pytest.approx(true_share(run, begin, end), abs=0.02)
    assert result.verdict.confidence in ("weak", "")


@pytest.mark.parametrize("active", (1, 2, 3))
@pytest.mark.parametrize("cost", (5 * MS, 14 * MS))
def test_work_of_the_step_before_is_no_gap_in_the_recording(active: int, cost: int):
    """Unsynchronized: the GPU still works for earlier launches when the first step begins."""
    run = one_gpu(0, lambda batch: cost, steps=10 + active, workers=1, depth=2)
    marks = [one for one in run.ranges if one.kind is RangeKind.STEP][8 : 8 + active]
    begin, end = marks[0].start, marks[-1].end
    known = recording(run, begin, end)
    launched = {call.corr for call in known.calls}
    ops = tuple(
        op for op in run.ops if op.start >= begin and (op.corr in launched or op.submitted < begin)
    )
    ranges = tuple(one for one in known.ranges if "train_step" not in one.name)
    result = result_of(replace(known, ops=ops, ranges=ranges))
    (device,) = result.devices
    assert begin < device.first < begin + 0.05 * (marks[0].end - begin)
    assert device.steps.steady.sum() == active
    assert device.share.value == pytest.approx(true_share(run, begin, end), abs=0.02)


@pytest.mark.parametrize("is_named", (True, False))
def test_waits_of_validation_are_not_charged_to_training(is_named: bool):
    run = one_gpu(0, steps=40, change=validates)
    if is_named:
        nexts = [one for one in run.ranges if one.name == NEXT]
        marks = [
            one
            for one in run.ranges
            if one.kind is RangeKind.STEP and int(one.name.split("#")[1]) % 8 == 7
        ]
        evaluations = [
            replace(
                mark,
                start=[one for one in nexts if one.start >= mark.start][1].start,
                name="evaluate",
                kind=RangeKind.NVTX,
            )
            for mark in marks
        ]
        run = replace(run, ranges=(*run.ranges, *evaluations))
    result = result_of(run)
    (device,) = result.devices
    validation = phases_of(result)["validation"]
    assert validation.count == 5
    assert any(
        "including its start and validation, input costs" in one for one in result.verdict.evidence
    )
    assert validation.period.causes[Cause.INPUT] > 0.95 * 5 * 4 * 0.85 * 9 * MS
    assert device.steps.steady.sum() == 34, (
        "without the first one, which waits for the loader to start"
    )
    assert device.share.value < 0.02
    assert result.verdict.word == "not_starved"


def screen(result: Result) -> str:
    out = io.StringIO()
    text.render(result, Console(file=out, width=80))
    return " ".join(out.getvalue().split())


def test_waits_at_the_starts_of_epochs_are_told():
    run = one_gpu(0, steps=48, change=restarts, epoch=8, startup=30 * MS)
    result = result_of(run)
    row = f"{percent(phases_of(result)['epoch_start'].period.budget.window / result.devices[0].whole.budget.window)}"
    assert f"The run 5 × start of an epoch, {row} of the recording, idle" in screen(result)
    assert "<h2>The run</h2>" in page.page(result)
    assert f"| 5 × start of an epoch | {row} |" in markdown.as_markdown(result)
    (phase,) = [
        one
        for one in document.as_dict(result)["devices"][0]["phases"]
        if one["kind"] == "epoch_start"
    ]
    assert (phase["count"], phase["change"]) == (5, result.verdict.change)
    assert sum(phase["causes"].values()) == phase["budget"]["idle"]
    (device,) = result.devices
    starts = phases_of(result)["epoch_start"]
    assert starts.count == 5
    assert starts.period.causes[Cause.INPUT] > 0.9 * measure(starts.period.spans)
    assert device.metrics["epoch_waits"] > 0.9
    assert result.verdict.change.startswith("persistent_workers=True")
    assert any(
        "of the waiting is at starts of epochs." in sentence for sentence in result.verdict.evidence
    )


def test_workers_that_stay_are_not_told_to():
    """The iterator is reset, and not created again."""
    run = one_gpu(0, steps=48, change=restarts, epoch=8, startup=30 * MS)
    names = {one.name for one in run.ranges if "_get_iterator" in one.name}
    reset = "torch/utils/data/dataloader.py(1233): _reset"
    run = replace(
        run,
        ranges=tuple(replace(one, name=reset) if one.name in names else one for one in run.ranges),
    )
    assert "start the next epoch's batches before this one ends" in result_of(run).verdict.change


@pytest.mark.parametrize("cost", (2 * MS, 11 * MS))
def test_a_run_of_steps_alone_has_no_other_phases(cost: int):
    run = one_gpu(0, lambda batch: cost, steps=20, change=reads_loss)
    assert set(phases_of(result_of(run))) <= {"warm_up"}
