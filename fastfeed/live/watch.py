"""Looks at all feeds about once a second, and keeps a summary of the last minutes."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from fastfeed.live.cpu import CpuReading, CpuUse, cpu_use, read_cpu
from fastfeed.live.folder import is_alive
from fastfeed.live.nvml import Gpus, GpuUse
from fastfeed.live.page import Page, PageError, read_page
from fastfeed.live.rates import PageReading, Rates, rates
from fastfeed.live.remedies import remedy
from fastfeed.live.states import Hysteresis, Judgment, State, judge
from fastfeed.system.clocks import steady_ns

BUCKET_S = 2.0  # that a value covers
BUCKETS = 120  # four minutes


class History:
    """The last minutes of one feed."""

    def __init__(self) -> None:
        self._shares: deque[float | None] = deque(maxlen=BUCKETS)
        self._begin: PageReading | None = None

    def add(self, reading: PageReading) -> None:
        """Add a look; one that spans several intervals fills all of them with its share."""
        begin = self._begin
        if begin is None:
            self._begin = reading
            return
        buckets = (reading.at_ns - begin.at_ns) / 1e9 / BUCKET_S
        if buckets >= 0.99:
            share = rates(begin, reading).wait
            self._shares.extend([share] * min(BUCKETS, round(buckets)))
            self._begin = reading

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Shares of time spent waiting, oldest first; None for intervals without iteration."""
        return tuple(self._shares)


# windows
SHORT_S = 10.0
LONG_S = 60.0
_ORDER = [
    State.STALLED,
    State.SEVERE,
    State.STARVED,
    State.TIGHT,
    State.GPU_IDLE,
    State.UNKNOWN,
    State.FED,
]


@dataclass(frozen=True, slots=True)
class FeedRow:
    """Current figures of one feed."""

    page_file: PageFile
    reading: PageReading
    judgment: Judgment
    remedy: str | None
    # of the last SHORT_S, or as long as it has been watched, or from look to look
    short: Rates | None
    long: Rates | None  # of the last LONG_S, likewise
    cpu: CpuUse
    gpu: GpuUse | None
    # share of time waiting, a value per history.BUCKET_S, oldest first
    waits: tuple[float | None, ...]
    # share of the last ten seconds that it waited while the GPU idled, an estimate
    exposed: float | None = None


@dataclass(frozen=True, slots=True)
class FeedTable:
    """All feeds, greatest loss first; `notes` are sentences about figures that are unavailable."""

    rows: tuple[FeedRow, ...]
    notes: tuple[str, ...]
    wall_s: float  # time of day


@dataclass(slots=True)
class _Feed:
    """State kept about one page between looks."""

    readings: deque[tuple[PageReading, CpuReading]] = field(default_factory=deque)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)
    history: History = field(default_factory=History)
    exposure: Exposure = field(default_factory=lambda: Exposure(SHORT_S))
    gpu: tuple[int, int | None] | None = None  # index and instance
    visible: tuple[int, ...] | None = None  # CUDA_VISIBLE_DEVICES of its process
    ended: bool = False  # its process


class Monitor:
    """Call `look()` repeatedly; rates need two samples."""

    def __init__(
        self,
        folders: Sequence[str],
        pid: int | None = None,
        gpus: Gpus | None = None,
        clock: Callable[[], int] = steady_ns,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folders = folders
        self._pid = pid
        self._gpus = gpus
        self._clock = clock
        self._feeds: dict[str, _Feed] = {}
        self._wall = wall

    def look(self) -> FeedTable:
        """Read the pages, CPUs and GPUs once."""
        pages = find_pages(self._folders, self._pid, self._clock())
        gpus = self._gpus.sample() if self._gpus is not None else []
        self._feeds = {found.path: self._feeds.get(found.path) or _Feed() for found in pages.pages}
        rows = [self._row(found, self._feeds[found.path], gpus) for found in pages.pages]
        rows.sort(
            key=lambda row: (
                _ORDER.index(row.judgment.state),
                -((row.short and row.short.wait) or 0),
            )
        )
        notes = [*pages.problems, *(self._gpus.notes if self._gpus is not None else ())]
        return FeedTable(tuple(rows), tuple(notes), self._wall())

    def wait(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Until the next look.

        Where GPUs have GPM, five glances a second tell which waits leave them idle.
        """
        end = self._clock() + int(seconds * 1e9)
        while (left := (end - self._clock()) / 1e9) > 0:
            sleep(min(left, BIN_S) if self._gpus is not None and self._gpus.has_gpm else left)
            self.glance()

    def glance(self) -> None:
        """Waits and GPUs now, between two looks."""
        if self._gpus is None or not self._gpus.has_gpm:
            return
        shares = self._gpus.glance()
        for path, feed in self._feeds.items():
            if feed.gpu in shares:
                with suppress(OSError, ValueError):  # closed meanwhile
                    feed.exposure.add(
                        PageReading(read_page(path), self._clock(), feed.ended), shares[feed.gpu]
                    )

    def _row(self, page_file: PageFile, feed: _Feed, gpus: Sequence[GpuUse]) -> FeedRow:
        page = page_file.page
        now = self._clock()
        feed.ended = page_file.alive is False
        reading = PageReading(page, now, feed.ended)
        pids = [
            page.identity["pid"],
            *([page.counters["helper_pid"]] if page.counters["helper_pid"] else []),
        ]
        elsewhere = page_file.alive is None  # the number means another process here
        cpu = read_cpu([] if elsewhere else pids, now)
        feed.history.add(reading)
        feed.readings.append((reading, cpu))
        while len(feed.readings) > 2 and now - feed.readings[1][0].at_ns >= LONG_S * 1e9:
            feed.readings.popleft()
        short = _since(feed.readings, SHORT_S)
        long = _since(feed.readings, LONG_S)
        window = None if short is None else rates(short[0], reading)
        if feed.visible is None:
            feed.visible = () if elsewhere else visible_gpus(variables(pids[0]))
        gpu = find_gpu(page.identity.get("local_rank", 0), pids, feed.visible, gpus)
        feed.gpu = None if gpu is None else (gpu.index, gpu.instance)
        use = CpuUse() if short is None else cpu_use(short[1], cpu)
        sm = None if gpu is None else gpu.sm
        judgment = feed.hysteresis(
            judge(
                reading,
                window,
                alive=page_file.alive,
                stopped=cpu.stopped,
                sm=sm,
                cores=use.cores,
                wall_s=self._wall(),
            )
        )
        text = remedy(judgment.state, window, page.identity.get("threads") or 0, use, gpu)
        return FeedRow(
            page_file,
            reading,
            judgment,
            text,
            window,
            None if long is None else rates(long[0], reading),
            use,
            gpu,
            feed.history.shares,
            feed.exposure.share,
        )


def lasts_about(window: Rates | None, seconds: float) -> TypeGuard[Rates]:
    """True if this window is about `seconds` long, within a quarter.

    Windows are shorter at first, and longer if looks are rare.
    """
    return window is not None and 0.98 * seconds <= window.seconds <= 1.25 * seconds


def _since(
    readings: deque[tuple[PageReading, CpuReading]], seconds: float
) -> tuple[PageReading, CpuReading] | None:
    """The newest reading at least `seconds` old, or the oldest; None if there is only one."""
    if len(readings) < 2:
        return None
    newest = readings[-1][0].at_ns
    chosen = readings[0]
    for entry in readings:
        if newest - entry[0].at_ns < seconds * 1e9 * 0.99:
            break
        chosen = entry
    return chosen


def variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it cannot be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode("ascii", "replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def visible_gpus(environment: Mapping[str, str]) -> tuple[int, ...]:
    """GPUs by number that a process with these variables may use; empty for all."""
    numbers = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return tuple(int(number) for number in numbers if number.strip().isdigit())


def find_gpu(
    local_rank: int, pids: Sequence[int], visible: Sequence[int], gpus: Sequence[GpuUse]
) -> GpuUse | None:
    """The GPU on which a process computes, or else that of its rank."""
    for gpu in gpus:
        if set(pids) & set(gpu.pids):
            return gpu
    if any(gpu.instance is not None for gpu in gpus):
        return None
    by_index = {gpu.index: gpu for gpu in gpus}
    if visible:
        return by_index.get(visible[local_rank % len(visible)])
    return by_index.get(local_rank) if os.environ.get("CUDA_VISIBLE_DEVICES") != "" else None


BIN_S = 0.2


IDLE_SM = 0.2  # below this share of its bin a GPU counts as idle


class Exposure:
    """An estimate of the exposed waits of one feed: waits while the multiprocessors had no work.

    A trainer may wait for a batch while its GPU still works on what was queued before: such a wait
    costs nothing. Bins of a fifth of a second tell both apart, as far as GPM counts (not below
    0.1 s).
    """

    def __init__(self, window_s: float) -> None:
        self._window_ns = int(window_s * 1e9)
        # its end, ns waited while the GPU idled, ns in all
        self._bins: deque[tuple[int, float, float]] = deque()
        self._last: PageReading | None = None

    def add(self, reading: PageReading, sm: float | None) -> None:
        """The end of a bin; sm: share of it in which the multiprocessors worked."""
        last = self._last
        self._last = reading
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


_NUMBERS = ("pid", "rank", "world", "local_rank")


_MAYBE_NUMBERS = ("samples", "batch", "steps", "threads", "prefetch")  # None: of another loader


_TEXTS = ("host", "feed", "name", "source")


# the page of a process that was killed is shown this long after its last batch, then removed
KEPT_S = 60.0


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page, and whether its process lives."""

    path: str
    page: Page
    # None: not known here, the process is in another container or on another machine
    alive: bool | None


@dataclass(frozen=True, slots=True)
class PageListing:
    """Pages found in the folders.

    `problems` are sentences; `removed` counts pages of processes that have ended.
    """

    pages: tuple[PageFile, ...]
    problems: tuple[str, ...] = ()
    removed: int = 0


def find_pages(
    folders: Sequence[str], pid: int | None = None, now_ns: int | None = None
) -> PageListing:
    """All readable pages in these folders, or those of one process, by rank.

    Args:
        folders: Folders of pages; one that does not exist holds none.
        pid: Only pages of this process.
        now_ns: CLOCK_MONOTONIC; None: now.
    """
    now_ns = steady_ns() if now_ns is None else now_ns
    pages: list[PageFile] = []
    problems: list[str] = []
    removed = denied = 0
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                paths = [entry.path for entry in entries if entry.name.endswith(".live")]
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(
                f"cannot list {folder}: {error.strerror}; run fastfeed watch as the user who trains"
            )
            continue
        for path in paths:
            try:
                page = read_page(path)
                _check(path, page.identity)
                found = PageFile(path, page, is_alive(page.identity))
            except FileNotFoundError:  # closed meanwhile
                continue
            except PermissionError:
                denied += 1
                continue
            except (OSError, ValueError) as error:
                problems.append(f"{error}")
                continue
            if found.alive is False and _is_old(found, now_ns):
                with suppress(OSError):
                    os.unlink(path)
                removed += 1
            elif pid is None or pid in (page.identity["pid"], page.counters["helper_pid"]):
                pages.append(found)
    if denied:
        users = "pages of other users" if denied > 1 else "page of another user"
        problems.append(
            f"{denied} {users} cannot be read; run fastfeed watch as that user, or as root"
        )
    pages.sort(
        key=lambda found: (found.page.identity["host"], found.page.identity["rank"], found.path)
    )
    return PageListing(tuple(pages), tuple(problems), removed)


def _check(path: str, identity: Mapping[str, Any]) -> None:
    """Check that all fields in use are present and of their type: anyone may write the file."""
    wrong = [name for name in _NUMBERS if not _is_number(identity.get(name), 1 << 31)]
    wrong += [name for name in _MAYBE_NUMBERS if not _is_number(identity.get(name) or 0, 1 << 53)]
    wrong += [name for name in _TEXTS if not isinstance(identity.get(name), str)]
    if wrong:
        raise PageError(f"{path} is damaged: it does not say whose page it is ({wrong[0]})")


def _is_number(value: Any, end: int) -> bool:
    return isinstance(value, int) and 0 <= value < end


def _is_old(page_file: PageFile, now_ns: int) -> bool:
    idle_ns = now_ns - page_file.page.counters["updated_ns"]
    return not 0 <= idle_ns < KEPT_S * 1e9  # negative: of a boot before this one
