"""What an `s3.S3Server` does wrong on request, and the entries of its log; for the test's side and
the server's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """What befalls requests whose "METHOD /bucket/key?query" has `only` in it (a regular
    expression).

    At most one of the six from `share_503` to `share_reset`, which may add up to 1, befalls a
    request. Which one it is depends on the seed, on the bytes asked for, and on how often they were
    since the faults were set; the order in which requests come in does not matter.
    """

    latency_s: float = 0.0  # from the request to the first byte of the reply
    share_slow: float = 0.0  # of requests whose latency is slow_factor times that
    slow_factor: float = 10.0
    share_503: float = 0.0  # SlowDown
    share_500: float = 0.0  # InternalError
    share_timeout: float = 0.0  # no reply for hang_s
    hang_s: float = 3600.0
    share_drop: float = 0.0  # the connection is closed without a reply
    share_cut: float = 0.0  # half of the body, then the connection is closed
    share_reset: float = 0.0  # half of the body, then the connection is reset
    # only the first so many requests for the same bytes are open to these six
    attempts: int | None = None
    # False: Range is ignored and the whole object sent, as by simple web servers
    ranges: bool = True
    only: str = ""
    seed: int = 0

    def outcome(self, what: str, attempt: int) -> tuple[str, float]:
        """The fault that befalls the attempt-th request for `what`, "" if none; and its latency, in
        seconds.
        """
        drawn = hashlib.blake2b(f"{self.seed} {attempt} {what}".encode(), digest_size=16).digest()
        fate, pace = (int.from_bytes(half, "big") / 2**64 for half in (drawn[:8], drawn[8:]))
        slow = pace < self.share_slow
        latency_s = self.latency_s * (self.slow_factor if slow else 1)
        if self.attempts is None or attempt < self.attempts:
            for fault in ("503", "500", "timeout", "drop", "cut", "reset"):
                fate -= getattr(self, f"share_{fault}")
                if fate < 0:
                    return fault, latency_s
        return "slow" if slow else "", latency_s


@dataclass(slots=True)
class Entry:
    """One request and what became of it. Times are this machine's time.monotonic()."""

    method: str
    path: str  # /bucket/key, unquoted
    query: str
    range: str  # the header, or ""
    start_s: float
    end_s: float | None = None  # None: in flight
    status: int = 0  # 0: no reply, or none yet
    sent: int = 0  # bytes of the body
    fault: str = ""  # "503", "500", "timeout", "drop", "cut", "reset", "slow"
