"""Finds the live pages of running feeds, and removes those that ended processes left behind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastfeed.live.folder import is_alive
from fastfeed.live.page import Page, PageError, read_page
from fastfeed.system.clocks import steady_ns

_NUMBERS = ("pid", "rank", "world", "local_rank")
_MAYBE_NUMBERS = ("samples", "batch", "steps", "threads", "prefetch")  # None: of another loader
_TEXTS = ("host", "feed", "name", "source")
# the page of a process that was killed is shown this long after its last batch, then removed
KEPT_S = 60.0


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page, and whether its process lives."""

    path: str
    page: Page
    # None: not known here, the process is in another container or on another machine
    alive: bool | None


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages found in the folders.

    `problems` are sentences; `removed` counts pages of processes that have ended.
    """

    pages: tuple[FoundPage, ...]
    problems: tuple[str, ...] = ()
    removed: int = 0


def find_pages(folders: Sequence[str], pid: int | None = None, now_ns: int | None = None) -> Pages:
    """All readable pages in these folders, or those of one process, by rank.

    Args:
        folders: Folders of pages; one that does not exist holds none.
        pid: Only pages of this process.
        now_ns: CLOCK_MONOTONIC; None: now.
    """
    now_ns = steady_ns() if now_ns is None else now_ns
    pages: list[FoundPage] = []
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
                found = FoundPage(path, page, is_alive(page.identity))
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
    return Pages(tuple(pages), tuple(problems), removed)


def _check(path: str, identity: Mapping[str, Any]) -> None:
    """Check that all fields in use are present and of their type: anyone may write the file."""
    wrong = [name for name in _NUMBERS if not _is_number(identity.get(name), 1 << 31)]
    wrong += [name for name in _MAYBE_NUMBERS if not _is_number(identity.get(name) or 0, 1 << 53)]
    wrong += [name for name in _TEXTS if not isinstance(identity.get(name), str)]
    if wrong:
        raise PageError(f"{path} is damaged: it does not say whose page it is ({wrong[0]})")


def _is_number(value: Any, end: int) -> bool:
    return isinstance(value, int) and 0 <= value < end


def _is_old(found: FoundPage, now_ns: int) -> bool:
    idle_ns = now_ns - found.page.counters["updated_ns"]
    return not 0 <= idle_ns < KEPT_S * 1e9  # negative: of a boot before this one
