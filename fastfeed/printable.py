"""Text from files, names and addresses of others, as a message, a log or a terminal may show it."""

from __future__ import annotations

import functools
import logging
import re
import warnings
from typing import Any

LIMIT = 200  # characters of one value in a message
_TAIL = 40  # of them from the end: a path ends in the file's name
_LONG_WORD = re.compile(rf"\S{{{LIMIT + 1},}}")
# text in quotes, as `repr` writes it; an apostrophe inside a word is neither the beginning nor the
# end
_LONG_QUOTES = [
    re.compile(rf"(?<!\w){q}((?:[^{q}\n]|{q}(?=\w)){{{LIMIT + 1},}}){q}(?!\w)") for q in "'\""
]


def printable(value: object, limit: int | None = LIMIT) -> str:
    """One line of up to `limit` characters without control characters; longer values are cut.

    What steers a terminal, breaks a line or cannot be encoded is written as an escape, such as
    `\\x1b`.

    Args:
        value (object): Text, bytes (UTF-8 where they are), or what `str` makes a text of; for
            quotes pass `repr(x)`.
        limit (int | None): Characters of the result, at least 80; None: all. Default: 200.

    Returns:
        The text.
    """
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if limit is None or len(text) <= limit:
        shown = _escaped(text)
        if limit is None or len(shown) <= limit:
            return shown
        head = shown
        tail = shown[-_TAIL:]
    else:
        head = _escaped(text[:limit])
        tail = _escaped(text[-_TAIL:])[-_TAIL:]
    middle = f"... ({len(text):,} characters) ..."
    return head[: limit - len(middle) - len(tail)] + middle + tail


def printable_message(text: str) -> str:
    """A message with long words and quotes cut, control characters escaped.

    It is one line, but for a list: lines indented by two spaces, and a line that follows them. Any
    other line break comes from a value, such as the name of a file, and is escaped.
    """
    if len(text) > LIMIT:
        for quotes in _LONG_QUOTES:
            text = quotes.sub(lambda found: found[0][0] + printable(found[1]) + found[0][0], text)
        text = _LONG_WORD.sub(lambda word: printable(word[0]), text)
    if text.isprintable():
        return text
    first, *rest = text.split("\n")
    shown = [_escaped(first)]
    for before, line in zip((first, *rest), rest, strict=False):
        is_of_list = line.startswith("  ") or before.startswith("  ")
        shown.append(("\n" if is_of_list else "\\n") + _escaped(line))
    return "".join(shown)


class _PrintableMessages(logging.Filter):
    """Make the message of every record printable: it may quote paths and files from elsewhere."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = printable_message(record.getMessage())
        record.args = ()
        return True


log = logging.getLogger("fastfeed")  # of all modules
log.addFilter(_PrintableMessages())


def format_size(count: float) -> str:
    """`512 bytes`, `4.5 MB`, `1.2 TB`: powers of 1000, three digits."""
    value = float(count)
    unit = "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.5 or unit == "PB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 99.95 else f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """`1 step`, `1,000 steps`, `2 batches`."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def warn(text: str, category: type[Warning] = RuntimeWarning, *, stacklevel: int) -> None:
    """Issue a warning as one printable line: it may quote paths and files from elsewhere.

    Args:
        text (str): Of the warning.
        category (type[Warning]): Its class. Default: RuntimeWarning.
        stacklevel (int): As of `warnings.warn`, counted from the caller of this function, which is
            1.
    """
    warnings.warn(printable(text, None), category, stacklevel=stacklevel + 1)


def _escaped(text: str) -> str:
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    )


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8, as Python has it
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def function_name(function: Any) -> str:
    """Name of a function in messages and saved states, the same in every process."""
    inner = function.func if isinstance(function, functools.partial) else function
    return getattr(inner, "__qualname__", type(inner).__qualname__)
