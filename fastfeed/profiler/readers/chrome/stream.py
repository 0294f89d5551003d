"""Events out of the bytes of a Chrome trace, a few megabytes at a time; what is around them becomes `Stream.about`.

Most writers put an event's keys in one order, so most events are taken apart by one regular expression
(chrome_layout), and only the others by the JSON parser. Numbers stay text: a float64 of today's time in microseconds
has steps of 250 ns.

Lenient as real files demand: control characters in strings, broken UTF-8, a comma too many, NaN, garbage after the
end, an end that is missing. Only events that are not there at all are lost, and `Stream.notes` counts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from fastfeed.errors import TraceError
from fastfeed.profiler.readers import decompress
from fastfeed.profiler.readers.chrome.layout import CUTS, Layout, learned

__all__ = ["BEGIN", "Row", "Stream", "loads"]

PIECE = 4 << 20  # bytes that are looked at together
_MOST = 256 << 20  # of anything that is not a list of events: what is larger is no trace
_TAIL = 64 << 10
_PATIENCE = 64  # objects inside of one event, before it is given up

_END = re.compile(rb'\}\s*,?\s*\]\s*(?:,\s*"|\}|\Z)')
BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")


class Row(NamedTuple):
    """A complete event. Bytes are JSON as it was written, str and other values are parsed."""

    cat: bytes
    name: Any
    place: Any  # b'"pid": 1, "tid": 2' or (1, 2)
    ts: bytes  # decimal text, microseconds
    dur: bytes
    args: Any  # bytes between the braces, b"" for none, a parsed value, or None


class Stream:
    """`for groups in Stream(source): ...`; then `about` has the keys beside traceEvents, `notes` what was wrong."""

    def __init__(self, source: decompress.Stream) -> None:
        self._source = source
        self._before = b""
        self._after: bytes | None = None  # once the list of events has ended
        self._layout = Layout()
        self._lessons = 8  # how often the layout may be learned
        self._odd = 0
        self._torn: list[bytes] = []  # parts of an event with objects in it, so far
        self._left: dict[Any, list[dict[str, Any]]] = {}  # begun, not ended
        self.meta: list[dict[str, Any]] = []  # M events
        self.about: dict[str, Any] = {}
        self.notes: list[str] = []
        self.open: list[Row] = []  # begun, not ended: dur is b"0"

    def __iter__(self) -> Iterator[dict[bytes, list[Any]]]:
        """Rows, or tuples that begin like them, of a piece of the file by category."""
        for piece in self._pieces():
            groups: dict[bytes, list[Any]] = {b"": []}
            for row in self._layout.rows(piece):
                try:
                    groups[row[0]].append(row)
                except KeyError:
                    groups[row[0]] = [row]
            plain = groups.pop(b"")
            others = [row[6] for row in plain if row[6]]
            if len(others) < len(plain) and (loose := [row for row in plain if row[3]]):
                groups[b""] = loose  # complete, without a category
            events = list(self._parsed(piece, others)) if others else []
            if self._lessons and len(events) * 2 > sum(map(len, groups.values())):
                self._lessons -= 1
                self._layout = learned(events) or self._layout
            for row in filter(None, map(self._row, events)):
                groups.setdefault(row.cat, []).append(row)
            yield groups
        self._finish()

    def _pieces(self) -> Iterator[bytes]:
        """Text of events, without the first brace and the last."""
        carry = self._first()
        while carry is not None:
            seen = max(0, len(carry) - 64)
            part = decompress.read_up_to(self._source, PIECE)
            carry += part
            if not part:
                if carry.strip():
                    yield carry
                return
            cuts = list(CUTS.finditer(carry, max(seen, len(carry) - _TAIL))) or list(CUTS.finditer(carry, seen))
            if not cuts:
                if len(carry) > _MOST:
                    raise TraceError(f"one event is longer than {_MOST >> 20} MiB, this is no trace; record it again")
                continue
            yield carry[: cuts[-1].start()]
            if self._after is not None:
                self._after += carry[cuts[-1].start() :]
                break
            carry = carry[cuts[-1].end() :]
        while self._after is not None and len(self._after) < _MOST and (part := self._source.read(PIECE)):
            self._after += part

    def _first(self) -> bytes | None:
        """What was read of the list of events. None: there is no list, or it is empty."""
        text = b""
        while part := decompress.read_up_to(self._source, PIECE):
            seen = max(0, len(text) - 64)
            text += part
            found = _BARE.match(text) or BEGIN.search(text, seen)
            if found:
                self._before = text[: found.end()]
                break
            if len(text) > _MOST:
                raise TraceError(f"there is no traceEvents in its first {_MOST >> 20} MiB; give a Chrome trace")
        else:
            self._before = text
            return None
        rest = text[found.end() :]
        while not (begun := rest.lstrip()):  # the piece ended just here
            part = decompress.read_up_to(self._source, PIECE)
            if not part:
                return None
            rest += part
        if begun[:1] != b"{":
            self._after = b"}" + begun
        return begun[1:] if begun[:1] == b"{" else None

    def _parsed(self, piece: bytes, texts: list[bytes]) -> Iterator[dict[str, Any]]:
        """Events that are not in the usual order of keys. Objects inside of events put themselves together again."""
        try:
            found = _loads_all([*self._torn, *texts])
        except ValueError:
            pass
        else:
            self._torn = []
            yield from found
            return
        for text in texts:
            if self._after is not None:
                return  # the list ended, what follows is no event
            yield from self._one(piece, text)

    def _one(self, piece: bytes, text: bytes) -> list[dict[str, Any]]:
        try:
            found = _loads_all([text])
        except ValueError:
            pass
        else:
            self._odd += bool(self._torn)
            self._torn = []
            return found
        if len(self._torn) > _PATIENCE:
            self._odd += 1
            self._torn = []
        self._torn.append(text)
        try:
            found = _loads_all(self._torn)
        except ValueError:
            found = self._end(piece, text, self._torn)
        if found is None:
            return []
        self._torn = []
        return found

    def _end(self, piece: bytes, text: bytes, torn: list[bytes]) -> list[dict[str, Any]] | None:
        """The last events, if the list ends in this text."""
        for found in _END.finditer(text):
            for begun in (torn, [text]):
                try:
                    last = _loads_all([*begun[:-1], text[: found.start()]])
                except ValueError:
                    continue
                self._odd += len(begun) < len(torn)
                self._after = piece[piece.rindex(text) + found.start() :]
                return last
        return None

    def _row(self, event: Any) -> Row | None:
        if not isinstance(event, dict):
            return None
        phase = event.get("ph")
        if phase == "X":
            return _row_of(event, event.get("dur", 0))
        if phase == "M":
            self.meta.append(event)
        elif phase == "B":
            self._left.setdefault(_place(event), []).append(event)
        elif phase == "E":
            begun = self._left.get(_place(event))
            if begun:
                opening = begun.pop()
                return _row_of(opening | {"args": opening.get("args") or event.get("args")}, _between(opening, event))
        return None

    def _finish(self) -> None:
        before, after = self._before, (self._after or b"").partition(b"]")[2]
        if BEGIN.search(before):
            for text in (before + b"]" + after, before + b"]}"):
                try:
                    about = loads(text)
                    self.about = about if isinstance(about, dict) else {}
                    break
                except ValueError:
                    continue
        self.open = [_row_of(one, 0) for begun in self._left.values() for one in begun]
        self._odd += bool(self._torn)
        if self._source.damage:
            self.notes.append(f"The file is not whole: {self._source.damage}.")
        elif self._after is None and before:
            self.notes.append("The file ends in the middle of its events: what came before was read.")
            self._odd = max(0, self._odd - 1)
        if self._odd:
            self.notes.append(f"Places in the file that are not JSON, skipped: {self._odd}.")


def loads(text: bytes) -> Any:
    """JSON as lenient as it gets: decimals stay text, what follows the value is ignored. ValueError."""
    try:
        return _DECODER.raw_decode(text.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))[0]
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


_DECODER = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str)


def _loads_all(texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """Texts of objects without their outer braces; all of it must be JSON."""
    text = b"[{%b}]" % b"},{".join(texts)
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False, parse_float=str, parse_constant=str)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _between(opening: dict[str, Any], closing: dict[str, Any]) -> str:
    try:
        return f"{Decimal(closing.get('ts')) - Decimal(opening.get('ts')):f}"  # type: ignore[arg-type]
    except (ArithmeticError, TypeError, ValueError):
        return "?"


def _row_of(event: dict[str, Any], dur: Any) -> Row:
    name, cat = event.get("name"), event.get("cat")
    return Row(
        (cat if isinstance(cat, str) else "").encode("utf-8", "replace"),
        name if isinstance(name, str) else "" if name is None else str(name),
        _place(event),
        str(event.get("ts")).strip().encode("utf-8", "replace"),
        str(dur).strip().encode("utf-8", "replace"),
        event.get("args"),
    )


def _place(event: dict[str, Any]) -> tuple[Any, Any]:
    pid, tid = event.get("pid", -1), event.get("tid", -1)
    return pid if isinstance(pid, int) else str(pid), tid if isinstance(tid, int) else str(tid)
