"""Bad samples as data, not exceptions: the failure, the policy for it, and the limits that end a run.

`feed/quarantine.py` keeps the list of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastfeed.errors import ConfigError

__all__ = ["REASONS", "TRANSIENT", "Failure", "FaultPolicy", "too_many"]

REASONS = {
    "not_found": "no file there",
    "io_error": "the file could not be read",
    "empty": "zero bytes",
    "not_image": "the content is no image",
    "unsupported_format": "an image of a kind that is not decoded here",
    "truncated": "the file ends too early",
    "corrupt": "the decoder refused the content",
    "bomb": "more pixels or bytes than allowed",
    "timeout": "reading took too long",
    "changed": "the shard is not the one that was indexed",
    "label_missing": "the sample has no label",
    "op_failed": "a function in the list of ops failed",
}
# read again in the next epoch: a function may fail for some random numbers only, or be repaired by then
TRANSIENT = frozenset({"io_error", "timeout", "op_failed"})


@dataclass(frozen=True, slots=True)
class Failure:
    """One bad sample."""

    id: int
    uri: str
    stage: str  # "read", "decode" or "augment"
    reason: str  # a key of REASONS
    detail: str = ""
    offset: int | None = None  # bytes into the shard, for sources that have shards

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ConfigError(f"reason must be one of {', '.join(REASONS)}, got {self.reason!r}")

    def __str__(self) -> str:
        return f"{self.uri}: {self.reason} ({self.detail or REASONS[self.reason]})"


@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """What happens to a bad sample, and when the run stops.

    "substitute" puts another sample in its place (chosen by (seed, epoch, id), so it does not depend on ranks, batches
    or threads); "mask" keeps a black image with weight 0; "raise" ends the run.
    """

    action: Literal["substitute", "mask", "raise"] = "substitute"
    max_share: float = 0.25  # of the scheduled samples; exceeded when chance cannot explain it
    max_run: int = 1000  # bad samples in a row
    attempts: int = 16  # substitutes tried for one bad sample

    def __post_init__(self) -> None:
        if self.action not in ("substitute", "mask", "raise"):
            raise ConfigError(f'on_bad must be "substitute", "mask" or "raise", got {self.action!r}')
        if not 0 <= self.max_share <= 1:
            raise ConfigError(f"max_share must be in [0, 1], got {self.max_share!r}; 1 switches the limit off")
        if self.max_run < 1 or self.attempts < 1:
            raise ConfigError(f"max_run and attempts must be >= 1, got {self.max_run} and {self.attempts}")

    @classmethod
    def of(cls, on_bad: str | FaultPolicy) -> FaultPolicy:
        """A policy from its name, or as it is."""
        return on_bad if isinstance(on_bad, cls) else cls(on_bad)  # type: ignore[arg-type]


def too_many(bad: int, handled: int, max_share: float) -> bool:
    """Whether `bad` of `handled` samples exceed the limit by more than three standard deviations of a binomial count.

    The margin keeps a data set at four fifths of the limit from being stopped by an unlucky start.
    """
    return bad > handled * max_share + 3 * (handled * max_share * (1 - max_share)) ** 0.5
