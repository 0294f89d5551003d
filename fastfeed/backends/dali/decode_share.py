"""The share of a batch that the CPU decodes alongside a GPU, measured in the first batches and saved per machine."""

from __future__ import annotations

import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.runtime.atomic_write import atomic_write

__all__ = ["DecodeShare", "decodes_on_cpu", "kept_file", "read_measured"]

_BATCHES = 16  # to measure with
_SETTLING = 3  # warm-up batches of these that are not measured
_MOST = 0.95  # both sides always get work, or they could not be measured
_LEAST = 0.05


class DecodeShare:
    """Finds the share at which both sides finish at the same time."""

    def __init__(self, path: Path, key: str, fixed: float | None) -> None:
        self._path, self._key = path, key
        stored = read_measured(path).get(key) if fixed is None else fixed
        self.value = 0.3 if stored is None else float(stored)
        self._remaining = _BATCHES if stored is None else 0
        self._rates: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    @property
    def measured(self) -> bool:
        """Whether the share is final."""
        return self._remaining == 0

    def note(self, cpu: tuple[int, float], gpu: tuple[int, float]) -> None:
        """Record one batch: (samples, seconds) of each side, measured concurrently."""
        with self._lock:
            if self._remaining == 0 or not (cpu[0] and gpu[0]) or cpu[1] <= 0 or gpu[1] <= 0:
                return
            self._remaining -= 1
            if self._remaining >= _BATCHES - _SETTLING:
                return
            self._rates.append((cpu[0] / cpu[1], gpu[0] / gpu[1]))
            own, other = np.median(np.array(self._rates), axis=0)
            self.value = float(np.clip(own / (own + other), _LEAST, _MOST))
            if self._remaining == 0:
                save_measured(self._path, {self._key: round(self.value, 3)})


def decodes_on_cpu(blob: Any, share: float) -> bool:
    """Whether the CPU decodes this file: by its bytes, so that its pixels do not depend on the batch it is in."""
    return share > 0 and zlib.crc32(bytes(blob[-256:])) < share * 2**32


def kept_file() -> Path:
    """Where this machine's measurements are."""
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
