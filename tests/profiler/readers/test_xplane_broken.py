"""XPlane files that are not what they should be: a sentence, or what could be read, and never a
crash.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.xplanes import Line, Plane, Ref, event, field_of, gpu, space, varint

from fastfeed.errors import TraceError
from fastfeed.profiler.readers.decompress import head
from fastfeed.profiler.readers.xplane import reader as xplane

STEPS = [event("train", 10 * n, 10 * n + 9, {"step_num": n, "x": -1, "y": 0.5}) for n in range(4)]
CALLS = [event("cuLaunchKernel", 10 * n, 10 * n + 2, {"correlation_id": n + 1}) for n in range(4)]
WORK = [
    event(
        "gemm", 10 * n + 4, 10 * n + 8, {"correlation_id": n + 1, "memcpy_details": Ref("size:8")}
    )
    for n in range(4)
]
PLANES = [
    gpu(0, [Line("Stream #7(Compute)", WORK, 7)]),
    Plane("/host:CPU", [Line("python3", [*STEPS, *CALLS], 41)]),
    Plane("Task Environment", stats={"profile_start_time": 1_771_595_650_217_823_548}),
]
WHOLE = space(PLANES)


def written(tmp_path: Path, content: bytes, name: str = "a.xplane.pb") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_cut_anywhere(tmp_path: Path) -> None:
    between = [len(space(PLANES[:count], hostnames=())) for count in range(4)]
    read = 0
    for size in range(1, len(WHOLE)):
        path = written(tmp_path, WHOLE[:size])
        try:
            trace = xplane.read(path)
        except TraceError:
            continue
        read += 1
        assert len(trace.ops.start) == 4
        assert trace.origin.notes or size in between  # a space of fewer planes is a space, too
    assert read  # the device's plane comes first: what follows may be missing


def test_any_byte_wrong(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    refused = 0
    for _ in range(400):
        content = bytearray(WHOLE)
        for place in draw.integers(0, len(content), 1 + int(draw.integers(4))):
            content[place] = draw.integers(256)
        try:
            trace = xplane.read(written(tmp_path, bytes(content)))
        except TraceError:
            refused += 1
            continue
        for rows in (trace.ops, trace.calls, trace.ranges):
            assert np.all(rows.end >= rows.start)
            assert np.all(rows.name < len(trace.names))
        assert np.all(trace.calls.thread < len(trace.threads))
    assert refused < 400


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty; the recording was not finished"),
        (b"\n" + varint((1 << 63) - 1) + b"\x12\x0d/device:GPU:0", "holds nothing to analyze"),
        (
            bytes(range(256)) * 40,
            "holds nothing to analyze: it is not an XSpace, or its end is missing",
        ),
        (b"\x0a\x02" * 50_000, "holds nothing to analyze"),
        (
            field_of(1, field_of(2, "/host:metadata")) + b"\x0a\x00" * 9000,
            "its planes are /host:metadata, none of a GPU",
        ),
        (space([Plane("Task Environment")]), "its planes are Task Environment, none of a GPU"),
        (
            space([Plane("/device:TPU:0", [Line("Steps", STEPS, 1)])]),
            "is a profile of a TPU; only profiles of GPUs",
        ),
        (
            WHOLE.decode("latin-1").replace("\x01", "\ufffd").encode(),
            "was damaged when it was copied as text",
        ),
        (
            field_of(4, field_of(1, "type.googleapis.com/tensorflow.profiler.Steps")),
            "is a result of xprof (Steps)",
        ),
    ],
)
def test_refusals(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = written(tmp_path, content)
    assert xplane.knows(path, head(path))
    with pytest.raises(TraceError) as caught:
        xplane.read(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_results_say_what_to_give_instead(tmp_path: Path) -> None:
    path = written(tmp_path, field_of(2, b"\x09" + bytes(8)), "host.overview_page.pb")
    assert xplane.knows(path, head(path))
    with pytest.raises(
        TraceError,
        match=r"is a result of xprof \(overview_page\), not a recording; pass the .xplane.pb",
    ):
        xplane.read(path)


@pytest.mark.parametrize(
    "begin",
    [b"", b'{"traceEvents": []}', b"SQLite format 3\x00", b"\n\n\n", b"PK\x03\x04", b"\n" * 99],
)
def test_other_files_are_left_to_others(begin: bytes) -> None:
    assert not xplane.knows(Path("something"), begin)


def test_a_huge_file_is_refused_before_it_fills_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xplane, "_LARGEST", 100)
    with pytest.raises(TraceError, match="holds more than 2 GiB"):
        xplane.read(written(tmp_path, WHOLE))


def plane_with(*events: bytes) -> bytes:
    """A GPU with one kernel's name, one stat's name, and these events, in an unusual order of
    fields.
    """
    named = field_of(4, field_of(1, 1) + field_of(2, field_of(1, 1) + field_of(2, "gemm")))
    known = field_of(
        5, field_of(1, 1) + field_of(2, field_of(1, 1) + field_of(2, "correlation_id"))
    )
    line = b"".join(field_of(4, one) for one in events) + field_of(2, "Stream #7(Compute)")
    return field_of(1, known + named + field_of(3, line) + field_of(2, "/device:GPU:0"))


def test_times_that_cannot_be(tmp_path: Path) -> None:
    far = (1 << 63) - 1
    events = [
        field_of(1, 1) + field_of(2, 4000) + field_of(3, 5000),
        field_of(1, 1) + field_of(2, far) + field_of(3, far),
        field_of(1, 1) + field_of(2, 4000) + field_of(3, -5000),
        field_of(1, 1)
        + field_of(5, 900)
        + field_of(3, 10**12),  # a sum over 900 occurrences: no time, no damage
    ]
    trace = xplane.read(written(tmp_path, plane_with(*events)))
    assert (trace.ops.start.tolist(), trace.ops.end.tolist()) == ([4], [9])
    assert "2 events with impossible times were left out" in trace.origin.notes


def test_stats_in_an_unusual_order(tmp_path: Path) -> None:
    stat = field_of(3, 77) + field_of(1, 1)  # the value before its name
    trace = xplane.read(
        written(
            tmp_path,
            plane_with(field_of(4, stat) + field_of(3, 9000) + field_of(2, 1000) + field_of(1, 1)),
        )
    )
    assert trace.ops.corr.tolist() == [77]
    assert (trace.ops.start.tolist(), trace.ops.end.tolist()) == ([1], [10])
    assert trace.name(int(trace.ops.name[0])) == "gemm"


def test_very_many_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastfeed.profiler.readers.xplane.planes._MAX_LINES", 1000)
    work = field_of(1, 1) + field_of(2, 4000) + field_of(3, 5000)
    trace = xplane.read(written(tmp_path, plane_with(work, *[b""] * 10_000)))
    assert len(trace.ops.start) == 1
    gpu_plane = field_of(2, "/device:GPU:0") + b"\x1a\x00" * 2000  # lines
    trace = xplane.read(written(tmp_path, plane_with(work) + field_of(1, gpu_plane)))
    assert "damaged planes were read in part: /device:GPU:0" in trace.origin.notes
    trace = xplane.read(written(tmp_path, plane_with(work) + b"\x0a\x00" * 9000))  # planes
    assert (
        "the file is cut off or damaged: planes after that position are left out"
        in trace.origin.notes
    )
    assert len(trace.ops.start) == 1
