"""Monotonic clock in nanoseconds, the same one as `clock_ns` in native code.

Linux: CLOCK_MONOTONIC, as is `time.monotonic_ns`. Windows: the performance counter; before Python
3.13 `time.monotonic_ns` is another clock there, which ticks 64 times a second.
"""

from __future__ import annotations

import time

steady_ns = time.perf_counter_ns
