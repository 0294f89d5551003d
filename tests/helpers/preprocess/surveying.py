"""What tests of the survey share: a target in memory, a watch that keeps a diary, surveys and files
made by hand.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from fastfeed.decode.base import DecodeFailure
from fastfeed.faults import Failure
from fastfeed.preprocess.model.task import MemoryLimitError
from fastfeed.preprocess.planning.survey import GOOD, ROW, Survey, SurveyTask, load_survey
from fastfeed.spec import ENCODED

POISONED = DecodeFailure("worker_crash")


class MemoryTarget:
    """As much of a Target as a survey needs."""

    text = "shelf"

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.held.get(name)

    def write(self, name: str, content: bytes) -> None:
        self.held[name] = content


class RecordingContext:
    """A Watch that allows `limit` bytes, and knows what it was told."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit = limit
        self.begun = []
        self.needs = []

    def begin(self, sample: int) -> None:
        self.begun.append(sample)

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        self.needs.append(need)
        if need > self.limit:
            raise MemoryLimitError(need, self.limit)
        yield


class BytesSource:
    """A source of these bytes; None is a file that cannot be read."""

    spec, classes = ENCODED, ()
    fingerprint = "files"

    def __init__(self, blobs: Sequence[bytes | None]) -> None:
        self.blobs = blobs
        self.asked = []

    def __len__(self) -> int:
        return len(self.blobs)

    def uri(self, i: int) -> str:
        return f"/photos/{i}.jpg"

    def read(self, ids: Sequence[int]) -> list[Any]:
        self.asked += ids
        return [
            Failure(i, self.uri(i), "read", "io_error") if self.blobs[i] is None else self.blobs[i]
            for i in ids
        ]

    def label(self, ids: np.ndarray) -> np.ndarray:
        return np.full(len(ids), -1, np.int64)


def scene(seed: int, height: int = 150, width: int = 200) -> Image.Image:
    """Soft blobs of light, as different from another seed's as photographs are."""
    noise = np.random.default_rng(seed).integers(0, 256, (12, 14, 3), dtype=np.uint8)
    return (
        Image.fromarray(noise)
        .resize((width, height), Image.Resampling.BICUBIC)
        .filter(ImageFilter.GaussianBlur(2))
    )


def saved(image: Image.Image, format: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **({"quality": 92} if format == "JPEG" else {}) | options)
    return file.getvalue()


def surveyed(
    source: Any,
    bounds: Sequence[int],
    pixels: bool = True,
    poison: Mapping[int, DecodeFailure] | None = None,
) -> Survey:
    """All pieces, done in reverse."""
    shelf = MemoryTarget()
    task = SurveyTask(source, shelf, np.array(bounds), pixels)  # type: ignore[arg-type]
    for piece in reversed(range(len(bounds) - 1)):
        task.run(piece, RecordingContext(), poison or {})
    return load_survey(shelf, range(len(bounds) - 1))  # type: ignore[arg-type]


def make_survey(
    contents: Sequence[int], hashes: Sequence[int], states: Sequence[int] | None = None
) -> Survey:
    """A survey in which equal `contents` are equal bytes."""
    rows = np.zeros(len(contents), ROW)
    rows["id"] = np.arange(len(contents))
    rows["sha"][:, 0] = np.array(contents, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    rows["dhash"] = np.array(hashes, np.uint64)
    rows["height"], rows["width"] = 300, 400
    rows["state"] = GOOD if states is None else states
    return Survey(rows)
