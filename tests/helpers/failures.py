"""What the tests of faults share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfeed.faults import Failure, FaultPolicy
from fastfeed.feed.faults.quarantine import Quarantine

NO_LIMITS = FaultPolicy(max_share=1, max_run=10**9)


def failure(id: int, reason: str = "truncated", **more: Any) -> Failure:
    return Failure(id, f"photos/{id}.jpg", "decode", reason, **more)


def quarantine(
    path: Path | None = None,
    *,
    length: int = 1000,
    uri: Callable[[int], str] | None = None,
    **more: Any,
):
    policy = more.pop("policy", NO_LIMITS)
    return Quarantine(
        path, policy=policy, length=length, uri=uri or (lambda i: f"photos/{i}.jpg"), **more
    )


def listed(path: Path) -> list[int]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]
