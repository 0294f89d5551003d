"""Names the file in Pillow's warnings, and logs each kind of warning once.

Pillow does not know which file its bytes came from. So threads name the file that they decode
(`named`), and a warning that Python would show there goes to the log ("fastfeed") with that name.
Filters are left alone: warnings that a user ignores stay silent, and those of other threads are
shown as usual.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastfeed.printable import log

# computes a file's uri, which is needed only for those that Pillow warns of
Name = Callable[[], str]

_MAX_KINDS = 100  # limit of kinds logged: Pillow has a few dozen, some of which quote the file
_told: set[str] = set()  # texts without their numbers


class _Thread(threading.local):
    name: Name | None = None


_thread = _Thread()


class _ShowWarning:
    """Replaces `warnings.showwarning`, which Python calls for warnings that pass its filters."""

    def __init__(self, replaced: Callable[..., object]) -> None:
        self._replaced = replaced

    def __call__(self, message: Warning | str, *rest: Any) -> None:
        if not tell_current(message):
            self._replaced(message, *rest)


@contextmanager
def named(name: Name | None) -> Iterator[None]:
    """Name the file that this thread decodes in the block; None for a file without a name."""
    before = _thread.name
    _thread.name = name
    # checked each time: warnings.catch_warnings() of any thread restores an earlier function. Each
    # replaced function gets a new wrapper, so that no wrapper of an earlier one is called in a
    # circle
    if name is not None and not isinstance(warnings.showwarning, _ShowWarning):
        warnings.showwarning = _ShowWarning(warnings.showwarning)
    try:
        yield
    finally:
        _thread.name = before


def current_name() -> Name | None:
    """The name passed to `named` in this thread."""
    return _thread.name


def tell_current(message: Warning | str) -> bool:
    """Report a warning about the file that this thread decodes; False if it decodes none."""
    name = _thread.name
    if name is not None:
        _outlet.send(name(), f"{message}")
    return name is not None


def tell(name: str, text: str) -> None:
    """Log Pillow's warning about a file, unless it was logged for another one.

    Texts that differ only in numbers count as one.
    """
    text = " ".join(text.split())
    kind = re.sub(r"\d+", "0", text)
    if kind in _told or len(_told) >= _MAX_KINDS:
        return
    _told.add(kind)
    text_format = "%s: Pillow says: %s (reported for the first such file only)"
    log.warning(text_format, name, text)


@dataclass(slots=True)
class _Outlet:
    send: Callable[[str, str], None]


_outlet = _Outlet(tell)


def send_to(send: Callable[[str, str], None]) -> None:
    """Send all warnings of this process, as (uri, text), to the process that logs them."""
    _outlet.send = send
