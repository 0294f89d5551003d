"""Output of commands: reports on standard output, sentences on standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO

import rich.console
import typer
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fastfeed.errors import ConfigError
from fastfeed.printable import printable


class Console(rich.console.Console):
    """A console that shows control characters, and raises BrokenPipeError if its reader leaves."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """Yield the segments of what is printed, without control characters in texts."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_shown(segment.text))

    def plain(self, text: str, style: str | None = None) -> None:
        """Print a text as it is: no markup, no numbers in color, no added line breaks."""
        self.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _shown(text: str) -> str:
    return "\n".join(printable(line, None) for line in text.split("\n"))


def say(text: str, style: str | None = None) -> None:
    """Print one line on standard error, if it can be written."""
    try:
        Console(stderr=True).plain(printable(text, None), style)
    except OSError:
        _discard(sys.stderr)


def fail(text: str) -> None:
    """Print the lines of an error on standard error, if it can be written."""
    try:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


@contextmanager
def report(stderr: bool = False) -> Iterator[Console]:
    """A console for standard output, and `sys.stdout` itself; or one for standard error.

    A reader that has left, as `head` does, is no error: what is printed then goes nowhere. The same
    applies to all that goes wrong on standard error. ConfigError for anything else.
    """
    stream = sys.stderr if stderr else sys.stdout
    try:
        yield Console(stderr=stderr)
        if stream is not None:
            stream.flush()
    except OSError as error:
        _discard(stream)
        if not stderr and not isinstance(error, BrokenPipeError):
            _cannot_write(error)


class _Output(io.FileIO):
    """Standard output that remembers its error, which does not name the file."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def remember_errors() -> None:
    """Let `command_output` know errors of standard output."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        return
    if type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO:
        raw = _Output(stream.fileno(), "w", closefd=False)
        is_buffered = isinstance(stream.buffer, io.BufferedWriter)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw) if is_buffered else raw,
            stream.encoding,
            stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def _is_of_output(error: OSError) -> bool:
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return isinstance(raw, _Output) and raw.error is error


@contextmanager
def command_output() -> Iterator[None]:
    """Context of a command that ends quietly if the reader of its output leaves.

    Raises ConfigError if standard output cannot be written; other errors pass.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _discard(sys.stdout)
            raise typer.Exit from None
        if _is_of_output(error):
            _discard(sys.stdout)
            _cannot_write(error)
        raise
    except (typer.Exit, SystemExit):
        _end()
        raise
    except BaseException:  # Ctrl-C as well: Python would complain of what is still held
        if _flush() is not None:
            _discard(sys.stdout)
        raise
    _end()


def _end() -> None:
    error = _flush()
    if error is not None:
        _discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            _cannot_write(error)


def _flush() -> OSError | None:
    """Write the rest of standard output; the error if that is not possible."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return error
    except ValueError:  # it was closed
        return None
    return None


def _cannot_write(error: OSError) -> NoReturn:
    reason = error.strerror or error
    raise ConfigError(
        f"cannot write to standard output: {reason}; write to another file"
    ) from error


def _discard(stream: TextIO | None) -> None:
    """Discard the rest of the buffer, or Python complains when it exits."""
    if stream is None:
        return
    with suppress(OSError, ValueError):  # no real file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def show_facts(console: Console, title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print a title and aligned rows; long values wrap within their column."""
    console.print(Text(printable(title, None), style="bold"), soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12, style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(f"  {name}"), Text(value))  # Text: brackets are not markup here
    console.print(table)


def show_written(console: Console, contents: str, path: object) -> None:
    """Print the file that has been written, `7 rows -> sheet.png`."""
    console.print(Text.assemble(f"{contents} -> ", (printable(path, None), "bold")), soft_wrap=True)
