"""A source in memory whose samples have any address, and whose reads fail as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastfeed.faults import Failure
from fastfeed.spec import ENCODED
from helpers.jpegs import encoded


class Addressed:
    """`failing(id)` is a reason, or empty; reads are counted in `reads`."""

    spec, classes, fingerprint = ENCODED, (), "one"

    def __init__(
        self,
        length: int,
        uri: Callable[[int], Any] = "s3://one/{}.jpg".format,
        failing: Callable[[int], str] = lambda id: "",
    ) -> None:
        self.failing, self.reads, self._length, self._uri = failing, [], length, uri
        self._blobs = [
            encoded(np.full((16, 16, 3), 6 * i % 256, np.uint8)) for i in range(min(length, 40))
        ]

    def __len__(self) -> int:
        return self._length

    def uri(self, i: int) -> Any:
        return self._uri(i)

    def read(self, ids: Sequence[int]) -> list[Any]:
        self.reads += ids
        reasons = [self.failing(i) for i in ids]
        return [
            Failure(i, str(self.uri(i)), "read", reason, "503")
            if reason
            else self._blobs[i % len(self._blobs)]
            for i, reason in zip(ids, reasons, strict=True)
        ]

    def label(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(ids, np.int64)
