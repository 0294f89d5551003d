"""Advice on recording a trace that can carry a verdict, by what this one lacks."""

from __future__ import annotations

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.trace import Origin

__all__ = ["ALL_RECORDED", "how_to_record"]

_GENERAL = (
    "Record some 30 steps after the first 10, host side included: fastfeed profile -- python"
    " train.py; or PyTorch's profiler with CPU and CUDA activities."
)
_FRAMES = {  # by dialect: recordings that lack what Python did
    "nsys": (
        "Record what Python does as well: fastfeed profile --with torch -- python train.py; or nsys"
        " profile -t cuda,nvtx,osrt --pytorch=functions-trace --python-backtrace=cuda; or NVTX"
        " ranges around loading."
    ),
    "chrome": (
        "Record Python's frames as well: torch.profiler.profile(activities=[CPU, CUDA],"
        " with_stack=True), some 30 steps after the first 10; or fastfeed profile -- python"
        " train.py."
    ),
    "xplane": (
        "Record Python's frames as well: python_tracer_level=1, host_tracer_level=2 in its options."
    ),
}
ALL_RECORDED = (
    "Nothing is missing, but only you know what the code is for. If it prepares batches, analyze"
    " this file with --input-range and its name; if not, move it out of the loop."
)
_MOSTLY = 0.2  # of the idle time is not explained by what was recorded of the host


def how_to_record(device: DeviceResult | None = None, origin: Origin | None = None) -> str:
    """The command or options for a better recording, with frames if those are missing.

    Args:
        device (DeviceResult | None): The device that the verdict is about. Default: None, no device
            was active.
        origin (Origin | None): Origin of its trace. Default: None.
    """
    if device is None or origin is None or not origin.host_calls:
        return _GENERAL
    judged = device.judged
    if judged.causes.get(Cause.HOST_UNKNOWN, 0) <= _MOSTLY * judged.budget.idle:
        return _GENERAL
    return _FRAMES.get(origin.dialect, _GENERAL)
