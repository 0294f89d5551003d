"""The CPU's share of decoding next to a GPU, measured in the first batches, saved per machine."""

from __future__ import annotations

import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.runtime.atomic_write import atomic_write

_SETTLING = 3  # batches that warm both sides up and are not measured
_ALONE = 5  # batches that the GPU decodes alone, to compare with
_BATCHES = 18  # in all
_MOST = 0.95  # both sides get work while they are measured
_LEAST = 0.05


class DecodeShare:
    """Finds the share at which both sides finish together, if that is faster than the GPU alone.

    It may not be: DALI's threads and the native extension's want the same cores.
    """

    def __init__(self, path: Path, key: str, fixed: float | None) -> None:
        self._path = path
        self._key = key
        stored = read_measured(path).get(key) if fixed is None else fixed
        self._share = 0.3 if stored is None else float(stored)
        self._remaining = _BATCHES if stored is None else 0
        self._alone: list[float] = []  # samples per second, as the two below
        self._together: list[float] = []
        self._sides: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    @property
    def value(self) -> float:
        """The share for the next batch."""
        return 0.0 if self._asks_alone() else self._share

    @property
    def measured(self) -> bool:
        """True once the share is final."""
        return self._remaining == 0

    def note(self, cpu: tuple[int, float], gpu: tuple[int, float]) -> None:
        """Record one batch: (samples, seconds) of each side, measured at the same time.

        No samples for the CPU: the GPU decoded alone.
        """
        with self._lock:
            alone = not cpu[0]
            if self._remaining == 0 or not gpu[0] or gpu[1] <= 0 or (not alone and cpu[1] <= 0):
                return
            if alone != self._asks_alone():  # it was begun before
                return
            self._remaining -= 1
            if alone:
                self._alone.append(gpu[0] / gpu[1])
            elif self._alone:
                self._balance(cpu, gpu)

    def _asks_alone(self) -> bool:
        return 0 <= _BATCHES - self._remaining - _SETTLING < _ALONE

    def _balance(self, cpu: tuple[int, float], gpu: tuple[int, float]) -> None:
        self._sides.append((cpu[0] / cpu[1], gpu[0] / gpu[1]))
        self._together.append((cpu[0] + gpu[0]) / max(cpu[1], gpu[1]))
        own, other = np.median(np.array(self._sides), axis=0)
        self._share = float(np.clip(own / (own + other), _LEAST, _MOST))
        if self._remaining == 0:
            balanced = self._together[len(self._together) // 2 :]
            if np.median(balanced) <= np.median(self._alone):
                self._share = 0.0
            save_measured(self._path, {self._key: round(self._share, 3)})


def decodes_on_cpu(blob: Any, share: float) -> bool:
    """True if the CPU decodes this file.

    Decided by the file's bytes, so that its pixels do not depend on the batch it is in.
    """
    return share > 0 and zlib.crc32(bytes(blob[-256:])) < share * 2**32


def measurements_file() -> Path:
    """Path of the file with this machine's measurements."""
    own = os.environ.get("FASTFEED_CACHE")
    return Path(own if own else Path.home() / ".cache" / "fastfeed") / "decode.json"


def read_measured(path: Path) -> dict[str, Any]:
    """Measurements saved on this machine; empty if the file is missing or not ours."""
    try:
        stored = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def save_measured(path: Path, more: dict[str, Any]) -> None:
    """Add to the saved measurements. If the folder is not writable, the next run measures again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, mode=0o600) as file:
            file.write(json.dumps(read_measured(path) | more, indent=1).encode())
    except OSError:
        return
