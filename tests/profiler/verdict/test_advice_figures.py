"""Figures and notes of a verdict: per step only if steps are judged, with the file of a note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.profiler import kineto_files as make

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.readers import read


def copy(corr: int, ts: int, dur: int, size: int) -> Any:
    return make.event(
        "gpu_memcpy",
        make.HTOD,
        ts,
        dur,
        pid=0,
        tid=7,
        device=0,
        context=1,
        stream=7,
        correlation=corr,
        bytes=size,
    )


def test_counts_of_the_whole_recording_are_not_told_per_step(tmp_path: Path) -> None:
    """One step of six kernels is whole; the recording holds thirty."""
    events: list[Any] = [make.event("user_annotation", "ProfilerStep#3", 1000, 120)]
    for at in range(30):
        events += [make.launch(at, 800 + 20 * at), make.kernel(at, 810 + 20 * at, 5)]
    result = analyze([read(make.write(tmp_path / "few.json", events))])
    metrics = result.devices[0].metrics
    assert result.devices[0].steady is None
    assert "launches_per_step" not in metrics
    assert not any("per step" in sentence for sentence in result.verdict.evidence)


def test_pageable_copies_are_to_be_pinned(tmp_path: Path) -> None:
    """The driver stages for 300 of each 1000 microseconds, and no thread waits for batches."""
    events: list[Any] = []
    for at in range(40):
        start = 1000 * at
        call = make.event("cuda_runtime", "cudaMemcpyAsync", start, 300, correlation=2 * at)
        events += [call, copy(2 * at, start + 300, 20, 1 << 20)]
        events += [make.launch(2 * at + 1, start + 301), make.kernel(2 * at + 1, start + 320, 680)]
    result = analyze([read(make.write(tmp_path / "pageable.json", events))])
    assert result.verdict.word in ("starved", "severe", "borderline")
    assert "pin_memory=True" in result.verdict.change


def test_a_note_on_one_file_of_several_names_it(tmp_path: Path) -> None:
    with_device = make.write(tmp_path / "busy.json", [make.launch(1, 80), make.kernel(1, 90, 2)])
    without = make.write(tmp_path / "idle.json", [make.event("cpu_op", "aten::add", 10, 5)])
    assert [
        note
        for note in analyze([read(without)]).notes
        if note.startswith("The trace has no device work")
    ]
    notes = analyze([read(with_device), read(without)]).notes
    assert [note for note in notes if note.startswith("idle.json: The trace has no device work")]
