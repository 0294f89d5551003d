"""Chrome traces of devices that are not read: other accelerators, and TensorFlow 1."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fastfeed.profiler.readers.chrome.hosts import TraceNames

__all__ = ["describe"]

_ONLY_GPUS = "and only GPUs can be analyzed; use the profiler of its maker"
_CATEGORIES = (  # how those of its device begin
    ("mtia_", f"is a trace of an MTIA of Meta, {_ONLY_GPUS}"),
    ("hpu_", f"is a trace of a Gaudi of Intel (Habana), {_ONLY_GPUS}"),
)
_PROCESSES = (
    (
        re.compile(r"^(Ascend Hardware|CANN)\b"),
        f"is a trace of NPUs of Huawei Ascend, {_ONLY_GPUS}",
    ),
    (
        re.compile(
            r"^/job:\S*/(device:)?\w+:\d+ (Compute|Tensors)$|/stream:\S+ (Compute|Tensors)$"
        ),
        (
            "is a timeline of TensorFlow 1 (timeline.Timeline), which has neither streams nor"
            " launches; record with tf.profiler.experimental and pass the .xplane.pb"
        ),
    ),
)


def describe(categories: Iterable[bytes], names: TraceNames) -> str:
    """Rest of the sentence "FILE is ..." for a trace without work of a GPU; "" if unknown."""
    texts = [cat.decode("utf-8", "replace").lower() for cat in categories]
    for prefix, description in _CATEGORIES:
        if any(text.startswith(prefix) for text in texts):
            return description
    for pattern, description in _PROCESSES:
        if any(pattern.search(name) for name in names.processes.values()):
            return description
    return ""
