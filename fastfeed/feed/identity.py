"""The fingerprint of ops and policy: what decides a batch in addition to data and order."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastfeed.faults import FaultPolicy
from fastfeed.feed.explain import short
from fastfeed.ops.function import Function
from fastfeed.ops.program.program import Program

__all__ = ["changes", "identity"]

MEANING = 2  # of the ops: a higher number in every release in which an op gives other pixels
_KEYS = {
    "ops": "the ops",
    "meaning": "what ops mean in this version of fastfeed",
    "on_bad": "the policy for bad samples",
}


def identity(program: Program, policy: FaultPolicy) -> dict[str, Any]:
    """Strings and integers that differ where batches would, for a saved state."""
    ops = [_text(step.op) for step in program.steps if not step.implied]
    replaced = (
        f"{policy.action}, {policy.attempts} attempts"
        if policy.action == "substitute"
        else policy.action
    )
    return {"ops": ops, "meaning": MEANING, "on_bad": replaced}


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What a saved state says other than this feed, in words; empty where nothing, or where it says
    nothing.
    """
    found = []
    for key, what in _KEYS.items():
        before = saved.get(key, now[key])
        if before == now[key]:
            continue
        if key == "ops" and isinstance(before, list):
            gone, new = (
                [op for op in a if op not in b] for a, b in ((before, now[key]), (now[key], before))
            )
            # only the order changed
            gone, new = (
                gone or ([] if new else before),
                new or ([] if gone else now[key]),
            )
            found.append(
                f"{what} were {', '.join(map(str, gone)) or 'fewer'}, now"
                f" {', '.join(new) or 'fewer'}"
            )
        else:
            found.append(f"{what} was {before!r}, now {now[key]!r}")
    return "; ".join(found)


def _text(op: Any) -> str:
    """As `print(feed)` shows it, with a hash where that leaves something out."""
    text = short(op)
    return f"{text}#{_hash(op)}" if "..." in text else text


def _hash(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=4)
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Function)):
        digest.update(type(value).__name__.encode())
        for field in dataclasses.fields(value):
            _feed(digest, getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        digest.update(b"(%d" % len(value))
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    else:
        digest.update(repr(value).encode("utf-8", "backslashreplace"))
