"""Shows the progress of a job: live on a terminal, as plain lines, or as JSON lines in a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fastfeed.errors import ConfigError
from fastfeed.faults import format_reasons
from fastfeed.preprocess.model.report import (
    STAGES,
    OnProgress,
    Progress,
    format_duration,
)
from fastfeed.printable import format_size

LINES_S = 10.0  # between plain lines


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of this run per second, averaged since its first shard was started."""

    images: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    left_s: float | None = None  # remaining time at this speed; None: unknown


class SpeedMeter:
    """Computes speeds from Progress. Excludes earlier runs and the time before the first shard."""

    def __init__(self) -> None:
        self._first: Progress | None = None
        self._last: Progress | None = None  # when bytes last changed: they are counted per shard

    def __call__(self, now: Progress) -> Speed:
        """The speed at this Progress."""
        if self._first is None or self._first.phase != now.phase:
            self._first = now
            self._last = None
        first = self._first
        if now.bytes_in > (first.bytes_in if self._last is None else self._last.bytes_in):
            self._last = now
        images = _per_second(now.images_done - first.images_done, now.seconds - first.seconds)
        remaining = max(now.images - now.images_done, 0)
        left_s = 0.0 if not remaining else remaining / images if images else None
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
    console: Console,
    log: Path | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[OnProgress]:
    """Yield a callback for `run(on_progress=...)`: a live display, or lines without a terminal.

    `log` gets one JSON object per line for each completed shard. ConfigError if it cannot be
    written.
    """
    with ExitStack() as opened:
        listeners: list[Callable[[Progress, Speed], None]] = []
        pace = SpeedMeter()
        if log is not None:
            listeners.append(_json_logger(opened.enter_context(_open_log(log)), clock))
        if console.is_terminal:
            live = opened.enter_context(Live(console=console, transient=True, auto_refresh=False))
            listeners.append(
                lambda now, speed: live.update(render(now, speed, console.width), refresh=True)
            )
        else:
            listeners.append(_line_printer(console))

        def listen(now: Progress) -> None:
            speed = pace(now)
            for listener in listeners:
                listener(now, speed)

        yield listen


def render(now: Progress, speed: Speed, width: int) -> Group:
    """A progress bar with up to four lines below."""
    if now.phase in STAGES:  # listings have another display
        return Group() if now.phase == "source" else Group(Text(STAGES[now.phase], style="bold"))
    share = now.images_done / now.images if now.images else 0.0
    bar = Table.grid(padding=(0, 1))
    left = "" if speed.left_s is None else f"{format_duration(speed.left_s)} left"
    # fixed width: else growing digits would make the bar flicker
    bar.add_row(
        ProgressBar(1.0, share, width=max(10, min(width, 100) - 28)),
        f"{share:5.1%}",
        Text(left, "bold cyan"),
    )
    lines = [Text(_describe(now), style="bold"), Text(", ".join(_speeds(speed)))]
    if now.bad:
        bad = f"{sum(now.bad.values()):,} bad: {format_reasons(now.bad, 4)}"
        lines.append(Text(bad, style="yellow"))
    if now.dropped:
        lines.append(Text(f"{now.dropped:,} dropped"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(bar, *lines)


def format_line(now: Progress, speed: Speed) -> str:
    """Progress as one line of text."""
    if now.phase in STAGES:
        return STAGES[now.phase]
    words = [_describe(now), *_speeds(speed)]
    if speed.left_s is not None:
        words.append(f"{format_duration(speed.left_s)} left")
    if now.bad:
        words.append(f"{sum(now.bad.values()):,} bad ({format_reasons(now.bad, 4)})")
    if now.dropped:
        words.append(f"{now.dropped:,} dropped")
    return ", ".join(words)


def document(now: Progress, speed: Speed, at: float) -> dict[str, object]:
    """Progress as JSON values. `at` is seconds since 1970."""
    about = asdict(now) | {
        "time": round(at, 3),
        "seconds": round(now.seconds, 3),
        "images_per_s": round(speed.images, 3),
        "bytes_in_per_s": round(speed.bytes_in),
        "bytes_out_per_s": round(speed.bytes_out),
        "seconds_left": None if speed.left_s is None else round(speed.left_s, 1),
        "bad": dict(sorted(now.bad.items())),
    }
    del about["images_before"]
    return about


def _describe(now: Progress) -> str:
    images = f"{now.images_done:,} of {now.images:,} images"
    if now.phase == "room":
        return f"processing a sample to estimate the output size: {images}"
    if now.phase != "shards":
        return f"survey: {images}"
    return f"{now.shards_done:,} of {now.shards:,} shards, {images}"


def _speeds(speed: Speed) -> list[str]:
    if not speed.images:
        return []
    words = [f"{speed.images:,.{1 if speed.images < 100 else 0}f} images/s"]
    if speed.bytes_in:
        bytes_in, bytes_out = map(format_size, (speed.bytes_in, speed.bytes_out))
        words.append(f"{bytes_in}/s in, {bytes_out}/s out")
    return words


def _line_printer(console: Console) -> Callable[[Progress, Speed], None]:
    last_printed = -LINES_S

    def listen(now: Progress, speed: Speed) -> None:
        nonlocal last_printed
        if now.phase in STAGES or now.seconds - last_printed >= LINES_S:
            last_printed = last_printed if now.phase in STAGES else now.seconds
            console.print(format_line(now, speed), markup=False, highlight=False, soft_wrap=True)

    return listen


def _json_logger(file: TextIO, clock: Callable[[], float]) -> Callable[[Progress, Speed], None]:
    last_logged = ("", -1)

    def listen(now: Progress, speed: Speed) -> None:
        nonlocal last_logged
        if now.phase not in STAGES and (now.phase, now.shards_done) != last_logged:
            last_logged = (now.phase, now.shards_done)
            file.write(json.dumps(document(now, speed, clock())) + "\n")
            file.flush()

    return listen


def _open_log(log: Path) -> TextIO:
    try:
        return log.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write the log {log}: {error.strerror}; name a file in an existing folder"
        ) from error


def _per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
