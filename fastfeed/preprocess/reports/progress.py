"""How far a job is, for people and for programs: a live picture on a terminal, lines in a log, JSON lines in a file."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fastfeed.errors import ConfigError
from fastfeed.preprocess.report import Progress

__all__ = [
    "Speed",
    "SpeedMeter",
    "format_duration",
    "format_megabytes",
    "format_reasons",
    "format_size",
    "show_progress",
]

LINES_S = 10.0  # between plain lines
_SHOWN = 4  # reasons

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Speed:
    """What this run does in a second, on the average since its first shard was begun."""

    images: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    left_s: float | None = None  # for the rest at this speed; None: not known yet


class SpeedMeter:
    """Turns counts into speeds. What was there before this run, and the time before its first shard, do not count."""

    def __init__(self) -> None:
        self._first: Progress | None = None
        self._last: Progress | None = None  # when bytes changed: they are counted by whole shards

    def __call__(self, now: Progress) -> Speed:
        """With this news."""
        if self._first is None or self._first.phase != now.phase:
            self._first, self._last = now, None
        first = self._first
        if now.bytes_in > (first.bytes_in if self._last is None else self._last.bytes_in):
            self._last = now
        images = _per_second(now.images_done - first.images_done, now.seconds - first.seconds)
        left = max(now.images - now.images_done, 0)
        left_s = 0.0 if not left else left / images if images else None
        if self._last is None:
            return Speed(images, left_s=left_s)
        span = self._last.seconds - first.seconds
        return Speed(
            images,
            _per_second(self._last.bytes_in - first.bytes_in, span),
            _per_second(self._last.bytes_out - first.bytes_out, span),
            left_s,
        )


@contextmanager
def show_progress(
    console: Console, log: Path | None = None, every_s: float = LINES_S, clock: Callable[[], float] = time.time
) -> Iterator[OnProgress]:
    """Give this to `run(on_progress=...)`. On a terminal a picture that is gone at the end, else a line now and then.

    `log` gets one JSON object per line, whenever a shard is done. ConfigError where it cannot be written.
    """
    listeners: list[OnProgress] = []
    file = _opened(log)
    try:
        if file is not None:
            listeners.append(_logger(file, clock))
        if not console.is_terminal:
            listeners.append(_lines(console, every_s))
            yield lambda now: _tell(listeners, now)
            return
        with Live(console=console, transient=True, auto_refresh=False) as live:
            pace = SpeedMeter()
            listeners.append(lambda now: live.update(picture(now, pace(now), console.width), refresh=True))
            yield lambda now: _tell(listeners, now)
    finally:
        if file is not None:
            file.close()


def picture(now: Progress, speed: Speed, width: int) -> Group:
    """A bar, and three lines under it."""
    share = now.images_done / now.images if now.images else 0.0
    bar = Table.grid(padding=(0, 1))
    left = "" if speed.left_s is None else f"{format_duration(speed.left_s)} left"
    # the bar's width follows from the words', or else their growing digits would make it twitch
    bar.add_row(ProgressBar(1.0, share, width=max(10, min(width, 100) - 28)), f"{share:5.1%}", Text(left, "bold cyan"))
    lines = [Text(f"{_what(now)}", style="bold"), Text(", ".join(_speeds(speed)))]
    if now.bad:
        lines.append(Text(f"{sum(now.bad.values()):,} bad: {format_reasons(now.bad)}", style="yellow"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(bar, *lines)


def line(now: Progress, speed: Speed) -> str:
    """All of it, for a log."""
    words = [_what(now), *_speeds(speed)]
    if speed.left_s is not None:
        words.append(f"{format_duration(speed.left_s)} left")
    if now.bad:
        words.append(f"{sum(now.bad.values()):,} bad ({format_reasons(now.bad)})")
    return ", ".join(words)


def document(now: Progress, speed: Speed, at: float) -> dict[str, object]:
    """All of it, for programs. `at` is seconds since 1970."""
    return {
        "time": round(at, 3),
        "seconds": round(now.seconds, 3),
        "phase": now.phase,
        "shards_done": now.shards_done,
        "shards": now.shards,
        "shards_before": now.shards_before,
        "images_done": now.images_done,
        "images": now.images,
        "images_per_s": round(speed.images, 3),
        "bytes_in": now.bytes_in,
        "bytes_out": now.bytes_out,
        "bytes_in_per_s": round(speed.bytes_in),
        "bytes_out_per_s": round(speed.bytes_out),
        "seconds_left": None if speed.left_s is None else round(speed.left_s, 1),
        "bad": dict(sorted(now.bad.items())),
    }


def format_reasons(bad: Mapping[str, int], most: int = _SHOWN) -> str:
    """`8 truncated, 4 corrupt`, the most frequent first."""
    ranked = sorted(Counter(bad).items(), key=lambda item: (-item[1], item[0]))
    words = [f"{n:,} {why}" for why, n in ranked[:most]]
    if len(ranked) > most:
        words.append(f"{sum(n for _, n in ranked[most:]):,} others")
    return ", ".join(words)


def format_duration(seconds: float) -> str:
    """`42 s`, `3:05 min`, `1:02:03 h`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    if whole < 172_800:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"
    return f"{whole // 86_400} d {whole // 3600 % 24} h"


def format_megabytes(count: float) -> str:
    """Of a second: `4.5 MB`; one decimal below 100."""
    return f"{count / 1e6:,.1f} MB" if count < 1e8 else f"{count / 1e6:,.0f} MB"


def format_size(count: float) -> str:
    """`512 bytes`, `4.5 MB`, `1.2 TB`: powers of 1000, three digits."""
    value, unit = float(count), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.5 or unit == "PB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 99.95 else f"{value:.1f} {unit}"


def _what(now: Progress) -> str:
    images = f"{now.images_done:,} of {now.images:,} images"
    if now.phase == "room":
        return f"a sample first, to see whether there is room: {images}"
    if now.phase != "shards":
        return f"looking at them first: {images}"
    return f"{now.shards_done:,} of {now.shards:,} shards, {images}"


def _speeds(speed: Speed) -> list[str]:
    if not speed.images:
        return []
    words = [f"{speed.images:,.1f} images/s" if speed.images < 100 else f"{speed.images:,.0f} images/s"]
    if speed.bytes_in:
        words.append(f"{format_megabytes(speed.bytes_in)}/s in, {format_megabytes(speed.bytes_out)}/s out")
    return words


def _lines(console: Console, every_s: float) -> OnProgress:
    pace, said = SpeedMeter(), -every_s

    def listen(now: Progress) -> None:
        nonlocal said
        speed = pace(now)
        if now.seconds - said >= every_s:
            said = now.seconds
            console.print(line(now, speed), markup=False, highlight=False, soft_wrap=True)

    return listen


def _logger(file: TextIO, clock: Callable[[], float]) -> OnProgress:
    pace, before = SpeedMeter(), ("", -1)

    def listen(now: Progress) -> None:
        nonlocal before
        speed = pace(now)
        if (now.phase, now.shards_done) != before:
            before = (now.phase, now.shards_done)
            file.write(json.dumps(document(now, speed, clock())) + "\n")
            file.flush()

    return listen


def _tell(listeners: list[OnProgress], now: Progress) -> None:
    for listen in listeners:
        listen(now)


def _opened(log: Path | None) -> TextIO | None:
    try:
        return None if log is None else log.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the log {log}: {error.strerror}; name a file in an existing folder") from error


def _per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
