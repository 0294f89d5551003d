"""Bad samples as data: the failure, its policy, and the limits that end a run.

`feed/quarantine.py` keeps the list of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.printable import printable
from fastfeed.system.descriptors import EXHAUSTED

REASONS = {
    "not_found": "no file there",
    "denied": "storage refuses to give it",
    "io_error": "the file could not be read",
    "not_allowed": "a table may not read it",
    "empty": "zero bytes",
    "not_image": "the content is not an image",
    "unsupported_format": "an image of a kind that is not decoded here",
    "truncated": "the file ends too early",
    "corrupt": "the decoder refused the content",
    "bomb": "more pixels or bytes than allowed",
    "timeout": "reading took too long",
    "outage": "storage answered no read at all",
    "changed": "the shard is not the one that was indexed",
    "label_missing": "the sample has no label",
    "op_failed": "a function in the list of ops failed",
    "internal": "an error in the code that reads or transforms the sample",
}
# characters: a sentence that says what to do, in which values are cut already
_LONGEST_DETAIL = 1000
# of the way to a file rather than of the file: reads that fail so are repeated, and waited for
# while all of them do
STORAGE = frozenset({"io_error", "timeout"})
# read again in the next epoch: a file may be back by then, a function fails for some random numbers
# only, or is mended
TRANSIENT = STORAGE | {"not_found", "denied", "op_failed", "internal"}


def format_reasons(bad: Mapping[str, int], limit: int | None = None) -> str:
    """`8 truncated, 4 corrupt`, the most frequent first, equal ones by name."""
    ranked = sorted(bad.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{n:,} {why}" for why, n in ranked[:limit]]
    if others := sum(n for _, n in ranked[len(words) :]):
        words.append(f"{others:,} others")
    return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Failure:
    """One bad sample.

    Args:
        id (int): Sample id.
        uri (str): Its location.
        stage (str): "read", "decode" or "augment".
        reason (str): A key of `fastfeed.faults.REASONS`, such as "truncated".
        detail (str): Message of the system or the decoder: a line of up to 1,000 printable
            characters. Default: "".
        offset (int | None): Bytes into the shard. Default: None, the source has no shards.

    Raises:
        ConfigError: If `reason` is unknown.

    Example:
        >>> print(ff.Failure(3, "photos/a.jpg", "decode", "truncated"))
        photos/a.jpg: truncated (the file ends too early)
    """

    id: int
    uri: str
    stage: str
    reason: str
    detail: str = ""
    offset: int | None = None

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ConfigError.of("reason", f"one of {', '.join(REASONS)}", self.reason)
        object.__setattr__(self, "detail", printable(self.detail, _LONGEST_DETAIL))

    def __str__(self) -> str:
        return f"{printable(self.uri)}: {self.reason} ({self.detail or REASONS[self.reason]})"


@checked
@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """Policy for bad samples, and limits that stop the run.

    Args:
        action (str): "substitute" puts another sample in its place, chosen by (seed, epoch, id), so
            it does not depend on ranks, batches or threads; "mask" keeps a black image with weight
            0; "raise" ends the run. Default: "substitute".
        max_share (float): Share of bad samples, in [0, 1], above which the run stops, once chance
            cannot explain it; 1 switches the limit off. Default: 0.25.
        max_run (int): Bad samples in a row at which the run stops, at least 1. Default: 1000.
        attempts (int): Substitutes tried for one bad sample, at least 1. Default: 16.
        on_error (str): What an error raised by your own function means: "raise" ends the run with
            it, "bad" marks the sample as bad with the reason `op_failed`. A MemoryError always ends
            the run. Default: "raise".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.FaultPolicy.of("mask")
        FaultPolicy(action='mask', max_share=0.25, max_run=1000, attempts=16, on_error='raise')
    """

    action: Literal["substitute", "mask", "raise"] = "substitute"
    max_share: float = 0.25
    max_run: int = 1000
    attempts: int = 16
    on_error: Literal["raise", "bad"] = "raise"

    def __post_init__(self) -> None:
        if self.action not in ("substitute", "mask", "raise"):
            raise ConfigError.of("on_bad", '"substitute", "mask" or "raise"', self.action)
        if self.on_error not in ("raise", "bad"):
            raise ConfigError.of("on_error", '"raise" or "bad"', self.on_error)
        if not 0 <= self.max_share <= 1:
            raise ConfigError.of(
                "max_share", "in [0, 1]", self.max_share, "1 switches the limit off"
            )
        if self.max_run < 1 or self.attempts < 1:
            raise ConfigError(
                f"max_run and attempts must be >= 1, got {self.max_run} and {self.attempts}",
                field="max_run",
            )

    @classmethod
    def of(cls, on_bad: str | FaultPolicy) -> FaultPolicy:
        """The policy for a name, or the given policy unchanged.

        Args:
            on_bad (str | FaultPolicy): An action, or a policy.

        Returns:
            The policy.
        """
        return on_bad if isinstance(on_bad, cls) else cls(on_bad)  # type: ignore[arg-type]


@checked
@dataclass(frozen=True, slots=True)
class Outage:
    """Behavior of a feed while storage answers none of its reads.

    It waits, with a line in the log ("fastfeed", level WARNING), and resumes when storage answers
    again: batches are what they would have been.

    Args:
        wait (float): Seconds from the first request that failed, >= 0, whatever the answer;
            `float("inf")` waits forever. Default: 900.0.
        then (str): "raise": StorageError, and `feed.state()` holds the position. "substitute":
            samples are replaced in this epoch as bad ones are, without being listed. Default:
            "raise".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.Outage.of(60)
        Outage(wait=60, then='raise')
    """

    wait: float = 900.0
    then: Literal["raise", "substitute"] = "raise"

    def __post_init__(self) -> None:
        if (
            isinstance(self.wait, bool)
            or not isinstance(self.wait, (int, float))
            or not self.wait >= 0
        ):
            raise ConfigError.of(
                "Outage(wait=...)", "seconds >= 0", self.wait, "float('inf') waits forever"
            )
        if self.then not in ("raise", "substitute"):
            raise ConfigError.of("Outage(then=...)", '"raise" or "substitute"', self.then)

    @classmethod
    def of(cls, outage: float | Outage) -> Outage:
        """The outage policy for a number of seconds, or the given policy unchanged.

        Args:
            outage (float | Outage): Seconds to wait, or an outage.

        Returns:
            The outage.
        """
        return outage if isinstance(outage, cls) else cls(outage)  # type: ignore[arg-type]


def ends_run(error: BaseException) -> bool:
    """True if an error at a sample ends the run; any other marks the sample as `internal`.

    Those of the family are raised on purpose, and a lack of memory or of file descriptors says
    nothing about a sample.
    """
    if isinstance(error, (FastfeedError, MemoryError)) or not isinstance(error, Exception):
        return True
    return isinstance(error, OSError) and error.errno in EXHAUSTED


def error_text(error: BaseException) -> str:
    """An unforeseen error in one line: its type, its text, and the line of code that raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = (
        f" ({Path(at.tb_frame.f_code.co_filename).name}, line {at.tb_lineno})"
        if at is not None
        else ""
    )
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{place}{notes}"


def too_many(bad: int, handled: int, max_share: float) -> bool:
    """True if `bad` of `handled` exceed the limit by three standard deviations of a binomial.

    The margin keeps a data set at four fifths of the limit from being stopped by an unlucky start.
    """
    return bad > handled * max_share + 3 * (handled * max_share * (1 - max_share)) ** 0.5


def fault_policies(
    on_bad: str | FaultPolicy, on_error: Literal["raise", "bad"] | None, outage: float | Outage
) -> tuple[FaultPolicy, Outage]:
    """Fault policies from the arguments of a feed; ConfigError if they contradict each other."""
    policy = FaultPolicy.of(on_bad)
    outage = Outage.of(outage)
    if policy.action == "raise" and outage.then == "substitute":
        raise ConfigError(
            'on_bad="raise" ends the run at the first bad sample, but'
            ' outage=Outage(then="substitute") replaces samples; use Outage(then="raise"), or'
            " another on_bad",
            field="on_bad",
        )
    return (policy if on_error is None else replace(policy, on_error=on_error)), outage
