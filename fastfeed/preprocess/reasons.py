"""Why a photograph is not in the shards: the reasons of the feed, and those of a job."""

from __future__ import annotations

from fastfeed.faults import REASONS as _OF_FILES

__all__ = ["REASONS"]

REASONS = _OF_FILES | {
    "too_small": "fewer pixels than wanted",
    "aspect": "longer than wanted for its width",
    "policy": "of a format that is not wanted",
    "oom": "needs more memory than allowed",
    "worker_crash": "the process that decoded it died, twice",
    "duplicate_exact": "the same bytes as another",
    "duplicate_near": "looks like another",
}
