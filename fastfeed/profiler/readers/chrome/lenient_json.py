"""Lenient JSON, and the end of a list of events, even if these are no JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

END = re.compile(rb'\}\s*,?\s*\]\s*(?:,\s*"|\}|\Z)')  # the list of events may end here
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_TRIES = 8  # of these places


def loads(text: bytes) -> Any:
    """JSON as lenient as it gets: decimals stay text, what follows the value is ignored.

    ValueError.
    """
    return _decoded(
        text.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"), json.JSONDecoder.raw_decode
    )[0]


class NestedTooDeeply(ValueError):
    """JSON whose values contain more levels than Python's parser takes."""


def _decoded(text: str, decode: Callable[[json.JSONDecoder, str], Any]) -> Any:
    try:
        try:
            return decode(_DECODER, text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # Python refuses to make an integer of more than 4,300 digits
            return decode(_ANY_DIGITS, text)
    except RecursionError as error:
        raise NestedTooDeeply("nested too deeply") from error


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < 640 else digits  # what every Python allows


_DECODER = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str)
_ANY_DIGITS = json.JSONDecoder(
    strict=False, parse_float=str, parse_constant=str, parse_int=_integer
)


def loads_all(texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """Texts of objects without their outer braces; all of it must be JSON."""
    text = b"[{%b}]" % b"},{".join(texts)
    return _decoded(text.decode("utf-8", "replace"), json.JSONDecoder.decode)


def end_of_list(texts: Sequence[bytes]) -> int | None:
    """Position of the brace in the last of these consecutive texts that ends the list of events.

    -1 where quotes or brackets do not match.
    """
    before = b"},{".join([*texts[:-1], b""])
    opened = bytearray(b"{")
    closed = 0
    for token in _BRACKETS.finditer(before + texts[-1]):
        bracket = token[0]
        if bracket in b"{[":
            opened += bracket
        elif bracket == b"]" and not opened:
            return closed - len(before) if closed >= len(before) else None
        elif bracket in b"}]":
            if not opened or opened.pop() != bracket[0] - 2:  # 2 from [ to ] and from { to }
                return -1
            closed = token.start()
        elif bracket == b'"':
            return -1
    return None


def after_list(texts: Sequence[bytes]) -> bytes | None:
    """Content after the last event, from its brace on; None if the list does not end here."""
    text = b"},{".join(texts)
    end = end_of_list([text])
    if end is None:
        return None
    for at in [end] if end >= 0 else [match.start() for match in END.finditer(text)][-_TRIES:]:
        after = text[at:].partition(b"]")[2].strip()
        try:
            if after:
                _decoded(
                    (b'{"traceEvents":[]' + after).decode("utf-8", "replace"),
                    json.JSONDecoder.decode,
                )
        except ValueError:
            continue
        return text[at:]
    return None


def is_hopeless(error: ValueError | None) -> bool:
    """True if no continuation makes the text valid JSON: the error is not at its end."""
    if not isinstance(error, json.JSONDecodeError) or error.msg.startswith("Unterminated string"):
        return False
    return error.pos < len(error.doc) - 4
