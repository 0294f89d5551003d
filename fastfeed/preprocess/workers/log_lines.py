"""Writes log lines that many workers have in common only once per driver."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, TextIO

from fastfeed.printable import log
from fastfeed.system import shared_memory
from fastfeed.system.processes import user

if TYPE_CHECKING:
    _Handler = logging.StreamHandler[TextIO]
else:
    _Handler = logging.StreamHandler  # no generic class before Python 3.11


class _OneTells(_Handler):
    """Writes in only one of a driver's workers: the one that holds a system-wide socket name."""

    _name: socket.socket | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._tells():
            super().emit(record)

    def _tells(self) -> bool:
        if self._name is None:
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                name.bind(f"\0fastfeed-log-{os.getppid()}-{user()}")
            except OSError:  # another worker has it; on systems without such names, all write
                name.close()
                return not shared_memory.is_available()
            self._name = name
        return True


def tell_through(stream: TextIO) -> None:
    """Let fastfeed's own warnings reach this stream, and no other log anything."""
    root = logging.getLogger()
    root.handlers[:] = [logging.NullHandler()]
    log.handlers[:] = [_OneTells(stream)]
    log.propagate = False
