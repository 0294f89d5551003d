"""What commands print: reports on standard output, sentences on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console

from fastfeed.errors import ConfigError

__all__ = ["fail", "report", "say", "visible"]

_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


def visible(text: str, keep: str = "") -> str:
    """Text whose control characters, but for those in `keep`, are escapes: a file's name must not steer a terminal."""
    return "".join(char if char in keep or not _is_control(char) else ascii(char)[1:-1] for char in text)


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f" or char in _DIRECTIONS


def say(text: str, style: str | None = None) -> None:
    """One line on standard error. Where that cannot be written no one can be told."""
    try:
        _Console(stderr=True, soft_wrap=True).print(visible(text), style=style, markup=False, highlight=False)
    except OSError:
        _discard(sys.stderr)


def fail(text: str) -> None:
    """The lines of an error on standard error, as they are. Where that cannot be written no one can be told."""
    try:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


@contextmanager
def report(stderr: bool = False) -> Iterator[Console]:
    """A console for standard output, and `sys.stdout` itself; or one for standard error.

    A reader that has left, as `head` does, is no error: what is printed then goes nowhere. The same applies to all that
    goes wrong on standard error. ConfigError for anything else.
    """
    stream = sys.stderr if stderr else sys.stdout
    try:
        yield _Console(stderr=stderr)
        if stream is not None:
            stream.flush()
    except OSError as error:
        _discard(stream)
        if not stderr and not isinstance(error, BrokenPipeError):
            reason = error.strerror or error
            raise ConfigError(f"cannot write to standard output: {reason}; write to another file") from error


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # instead of exit code 1


def _discard(stream: TextIO | None) -> None:
    """Send to nowhere what is left in the buffer, or Python complains when it exits."""
    if stream is None:
        return
    with suppress(OSError, ValueError):  # no real file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
