"""Waits that leave the GPU idle: the trainer waits while the multiprocessors have nothing to do.

An estimate.

A trainer may wait for a batch while its GPU still works on what was queued before: such a wait
costs nothing. Bins of a fifth of a second tell both apart, as far as GPM counts (not below 0.1 s).
"""

from __future__ import annotations

from collections import deque

from fastfeed.live.rates import Reading

BIN_S = 0.2
IDLE_SM = 0.2  # below this share of its bin a GPU counts as idle


class Exposure:
    """The exposed waits of one feed."""

    def __init__(self, window_s: float) -> None:
        self._window_ns = int(window_s * 1e9)
        # its end, ns waited while the GPU idled, ns in all
        self._bins: deque[tuple[int, float, float]] = deque()
        self._last: Reading | None = None

    def add(self, reading: Reading, sm: float | None) -> None:
        """The end of a bin; sm: share of it in which the multiprocessors worked."""
        last, self._last = self._last, reading
        if last is None or sm is None:
            return
        wait = max(0, reading.wait - last.wait)
        spent = wait + max(0, reading.consumer - last.consumer)
        self._bins.append((reading.at_ns, wait if sm < IDLE_SM else 0, spent))
        while self._bins and reading.at_ns - self._bins[0][0] >= self._window_ns:
            self._bins.popleft()

    @property
    def share(self) -> float | None:
        """The exposed share of the trainer's time in the window, 0..1; None if unknown."""
        spent = sum(spent for _, _, spent in self._bins)
        return sum(exposed for _, exposed, _ in self._bins) / spent if spent else None
