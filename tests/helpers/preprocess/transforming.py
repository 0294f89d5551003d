"""Photographs for the tests of what becomes of one: a Watch that counts, files of many kinds."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.recipe import Encoding, Limits, Recipe, Scaling
from fastfeed.preprocess.model.record import ProcessedImage
from fastfeed.preprocess.model.task import MemoryLimitError
from fastfeed.preprocess.pixels.transform import Transformer


class CountingContext:
    """A Watch with a limit in bytes; knows what it was asked for."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit = limit
        self.needs: list[int] = []
        self.inside = 0

    def begin(self, sample: int) -> None:
        raise AssertionError("who looks at one photograph does not number them")

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        assert not self.inside, "asking while holding would wait for ever"
        self.needs.append(need)
        if need > self.limit:
            raise MemoryLimitError(need, self.limit)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


def recipe(
    scaling: Scaling | None = None, encoding: Encoding | None = None, limits: Limits | None = None
) -> Recipe:
    return Recipe(scaling or Scaling(32), encoding or Encoding(), limits or Limits())


def transformed(blob: bytes, *parts: Any) -> ProcessedImage | DecodeFailure:
    """With these parts of a recipe, in their order."""
    return Transformer(recipe(*parts))(blob, CountingContext())


def processed(blob: bytes, *parts: Any) -> ProcessedImage:
    result = transformed(blob, *parts)
    assert isinstance(result, ProcessedImage), result
    return result


def saved_as(pixels: np.ndarray | Image.Image, format: str, **options: Any) -> bytes:
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    written = io.BytesIO()
    image.save(written, format, **options)
    return written.getvalue()


def pixels_of(result: ProcessedImage) -> np.ndarray:
    """The pixels of a result."""
    if result.extension == "npy":
        return np.load(io.BytesIO(result.image), allow_pickle=False)
    return np.asarray(Image.open(io.BytesIO(result.image)))
