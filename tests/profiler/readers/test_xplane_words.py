"""xprof's words about two runs, from its own results, and ours from the same figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastfeed.profiler.model.causes import SEVERE, STARVED, word
from fastfeed.profiler.readers.protobuf import FIXED64, LEN, PAD, WireField, double, fields, text

# fields of InputPipelineAnalysisResult and of what is packed in it, as xprof's input_pipeline.proto
# has them
INPUT_PERCENT, STEPS, RECOMMENDATION = 3, 4, 7
ANY_VALUE, BOTTLENECK, STATEMENT = 2, 2, 2
STEP_MS, WAIT_MS, H2D_MS = 2, 11, 12
OURS = {"NOT": "not_starved", "MODERATELY": "starved", "HIGHLY": "severe"}


class Result:
    """An InputPipelineAnalysisResult."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes() + bytes(PAD)
        self._top = WireField(0, LEN, 0, len(self._data) - PAD)

    def _inside(self, message: WireField, number: int) -> Iterator[WireField]:
        return (
            one for one in fields(self._data, message.value, message.stop) if one.number == number
        )

    def _doubles(self, message: WireField) -> dict[int, float]:
        inside = fields(self._data, message.value, message.stop)
        return {one.number: double(one.value) for one in inside if one.wire == FIXED64}

    def steps(self) -> list[dict[int, float]]:
        """Milliseconds by field number, one per step."""
        return [
            self._doubles(next(self._inside(packed, ANY_VALUE)))
            for packed in self._inside(self._top, STEPS)
        ]

    def average_percent(self) -> float:
        return self._doubles(next(self._inside(self._top, INPUT_PERCENT)))[1]

    def statement(self) -> str:
        packed = next(self._inside(next(self._inside(self._top, RECOMMENDATION)), BOTTLENECK))
        found = next(self._inside(next(self._inside(packed, ANY_VALUE)), STATEMENT))
        return text(self._data, found.value, found.stop)


@pytest.fixture(params=["tf_gpu_compute_bound", "tf_gpu_input_bound"])
def result(request: pytest.FixtureRequest, data: Path) -> Result:
    path = data / "traces" / "xplane" / f"{request.param}.input_pipeline.pb"
    if not path.is_file():
        pytest.skip(f"no {path}; set FASTFEED_TEST_DATA to the folder that holds traces/")
    return Result(path)


def shares(result: Result) -> list[float]:
    return [
        (step.get(WAIT_MS, 0.0) + step.get(H2D_MS, 0.0)) / step[STEP_MS] for step in result.steps()
    ]


def test_the_word_is_xprofs(result: Result) -> None:
    steps = result.steps()
    total = sum(step[STEP_MS] for step in steps)
    waited = sum(step.get(WAIT_MS, 0.0) + step.get(H2D_MS, 0.0) for step in steps)
    said = re.search(
        r"(NOT|MODERATELY|HIGHLY) input-bound because (?:only )?([\d.]+)%", result.statement()
    )
    assert said is not None
    assert len(steps) == 11
    assert word(waited / total) == OURS[said[1]]
    assert word(float(said[2]) / 100) == OURS[said[1]]
    assert 100 * waited / total == pytest.approx(float(said[2]), abs=0.1)


def test_every_step_says_the_same(result: Result) -> None:
    assert len({word(share) for share in shares(result)}) == 1
    assert 100 * sum(shares(result)) / len(shares(result)) == pytest.approx(
        result.average_percent(), abs=1e-9
    )


def test_the_marks_are_xprofs() -> None:
    assert (STARVED, SEVERE) == (0.05, 0.20)
    assert [word(share) for share in (0.0, 0.0499, 0.05, 0.1999, 0.2, 1.0)] == [
        "not_starved",
        "not_starved",
        "starved",
        "starved",
        "severe",
        "severe",
    ]
