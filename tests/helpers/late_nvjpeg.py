"""nvJPEG on a `LateGpu`: `fake_nvjpeg.cpp` in place of NVIDIA's library and driver."""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any

from helpers.cuda_on_cpu import compiled
from helpers.late_cupy import LateCupy
from helpers.late_gpu import LateGpu
from helpers.needs import missing


class FakeNvjpeg:
    """What a test sets and counts."""

    def __init__(self) -> None:
        self._library = compiled(
            Path(__file__).with_name("fake_nvjpeg.cpp").read_text("utf-8"), ("-ljpeg",)
        )
        self.path = self._library._name

    def __getitem__(self, what: str) -> int:
        return int(self._library.fake_get(what.encode()))

    def __setitem__(self, what: str, value: int) -> None:
        self._library.fake_set(what.encode(), ctypes.c_int(value))

    @property
    def contexts(self) -> int:
        """That are current on this thread."""
        return int(self._library.fake_contexts())


def install(monkeypatch: Any) -> tuple[FakeNvjpeg, LateCupy]:
    """A machine with one GPU that has a JPEG engine."""
    fake = FakeNvjpeg()
    if missing("nvidia"):
        cupy = LateCupy(LateGpu())
        monkeypatch.setitem(sys.modules, "cupy", cupy)
    else:  # with DALI, for ops that it has
        cupy = importlib.import_module("helpers.late_dali").install(LateGpu(), monkeypatch)
    monkeypatch.setattr("fastfeed.backends.nvjpeg.backend.find_nvjpeg", lambda cuda: fake.path)
    monkeypatch.setattr("fastfeed.backends.nvjpeg.backend.DRIVER", fake.path)
    # a LateGpu keeps all there ever was
    monkeypatch.setattr("fastfeed.backends.nvjpeg.decoder_stream._STEP", 1 << 16)
    for what in (
        "no_engine",
        "refused_width",
        "bad_width",
        "always_bad",
        "wrong",
        "full",
        "lost",
        "decoded",
        "most",
        "taller",
        "asking",
        "no_room",
    ):
        fake[what] = 0
    fake["devices"] = 1
    return fake, cupy
