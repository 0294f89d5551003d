"""Parses events, a few megabytes at a time; the keys around them are `EventStream.metadata`.

Complete events are taken apart by the native kernel; without it, by one regular expression for
Kineto's order of keys. Only the others go through the JSON parser, where numbers stay text: a
float64 of today's time in microseconds has steps of 250 ns.

As lenient as real files demand: control characters in strings, broken UTF-8, an extra comma, NaN,
garbage after the end, a missing end. Only events that are not in the file are lost, and
`EventStream.notes` counts damaged ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from fastfeed.errors import TraceError
from fastfeed.profiler.readers import decompress
from fastfeed.profiler.readers.chrome.lenient_json import (
    END,
    NestedTooDeeply,
    after_list,
    end_of_list,
    is_hopeless,
    loads,
    loads_all,
)

PIECE = 4 << 20  # bytes that are parsed together
_MAX_BYTES = 64 << 20  # of anything that is not a list of events: with more the file is not a trace
_MAX_EVENT = 16 << 20  # of one event
_TAIL = 64 << 10
_MAX_NESTED = 64  # objects inside of one event, before it is skipped
# events that are no JSON: each takes time, and a few kilobytes can hold millions
_MAX_DROPPED = 100_000

# of a file, from the last event's brace on
_REST = re.compile(rb'\}\s*,?\s*\]\s*(?:,\s*"[^"]*"\s*:|\}?\s*\Z)')
BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
# an object ends here and the next begins; a quote in a string has a backslash, so this is no part
# of a string
_BETWEEN = rb"\}\s*,\s*\{"
_BOUNDARIES = re.compile(_BETWEEN + rb'(?=\s*"\w+"\s*:)')
# flow arrows, counters and instants, which are not used, are consumed with the separator before
# them
_NEXT = _BETWEEN + rb'(?:\s*"ph":\s*"[^XBEM]"[^}]*\}(?:\s*\})?\s*,\s*\{)*(?=\s*"\w+"\s*:)'
_OTHER = rb'((?:[^}]+|\}(?!\s*,\s*\{\s*"\w+"\s*:))*)'
_SIMPLE = rb'(?:"[^"]*"|[^,{}"\[\]]+)'
# PyTorch leaves quotes in names as they are: one that no comma and no brace follows does not end
# the name
_NAME = rb'"([^"]*(?:"(?!\s*[,}])[^"\n]*)*)"'
_EVENT = (  # a complete one, in Kineto's order of keys
    rb'\s*"ph":\s*"X",\s*"cat":\s*"([^"\\]+)",\s*"name":\s*'
    + _NAME
    + rb',\s*("pid":\s*'
    + _SIMPLE
    + rb',\s*"tid":\s*'
    + _SIMPLE
    + rb'),\s*"ts":\s*"?(-?[\d.]+)"?,\s*"dur":\s*"?(-?[\d.]+)"?'
    + rb'(?:\s*,\s*"args":\s*\{(%b)\}\s*)?\s*'
)
_ROWS = rb"(?:" + _EVENT + rb"(?:" + _NEXT + rb"|\Z)|" + _OTHER + rb"(?:" + _NEXT + rb"|\Z))"
# a negated set takes three times as long as one negated character
_QUICK = re.compile(_ROWS % rb"[^}]*")
_EXACT = re.compile(_ROWS % rb"[^{}]*")


class EventStream:
    """Iterable of groups of events; then `metadata` has the other keys, `notes` the damage.

    The optional `scan` takes a piece and returns the texts of the events that it leaves to the
    parser.
    """

    def __init__(
        self, source: decompress.Stream, scan: Callable[[bytes], list[bytes]] | None = None
    ) -> None:
        self._source = source
        self._scan = scan
        self._before = b""
        self._after: bytes | None = None  # once the list of events has ended
        self.broken = 0  # places that are no JSON
        self._dropped = 0  # texts at these places
        self._nested = 0  # events that nest too deeply
        self._tail: list[bytes] = []  # what is no JSON at the end of the piece
        self._partial: list[bytes] = []  # the parts so far of an event that contains objects
        self._unfinished: dict[Any, list[dict[str, Any]]] = {}  # B events without their E
        self._begun = 0  # of these, how many
        self._unopened = 0  # E events without their B
        self._useless = 0  # events without a phase, or without times
        self.meta: list[dict[str, Any]] = []  # M events
        self.metadata: dict[str, Any] = {}
        self.notes: list[str] = []
        self.open: list[CompleteEvent] = []  # begun, not ended: dur is b"0"

    def __iter__(self) -> Iterator[dict[bytes, list[Any]]]:
        """Rows, or tuples that begin like them, of a piece of the file by category."""
        for piece in self._pieces():
            self._tail = []
            groups, others = ({}, self._scan(piece)) if self._scan else self._matched(piece)
            events = list(self._parse(piece, others)) if others else []
            for row in filter(None, map(self._row, events)):
                groups.setdefault(row.cat, []).append(row)
            yield groups
        self._finish()

    @property
    def held(self) -> int:
        """Events in memory that are not rows yet, and those that cost time without content."""
        return len(self.meta) + self._begun + self._dropped + self._unopened

    def _matched(self, piece: bytes) -> tuple[dict[bytes, list[Any]], list[bytes]]:
        """Rows by category, and the texts of events of another layout."""
        groups: dict[bytes, list[Any]] = {b"": []}
        rows = _QUICK.findall(piece)
        # objects in arguments: their end may look like that of the event
        if b"{" in b"".join([row[5] for row in rows]):
            rows = _EXACT.findall(piece)
        for row in rows:
            try:
                groups[row[0]].append(row)
            except KeyError:
                groups[row[0]] = [row]
        others = [row[6] for row in groups.pop(b"") if row[6]]
        return groups, others

    def _pieces(self) -> Iterator[bytes]:
        """Text of events, without the first brace and the last."""
        carry = self._read_first()
        while carry is not None:
            searched = max(0, len(carry) - 64)
            part = decompress.read_up_to(self._source, PIECE)
            carry += part
            if not part:
                if carry.strip():
                    yield carry
                return
            boundaries = list(
                _BOUNDARIES.finditer(carry, max(searched, len(carry) - _TAIL))
            ) or list(_BOUNDARIES.finditer(carry, searched))
            if not boundaries:
                if len(carry) > _MAX_EVENT:
                    raise TraceError(
                        f"{_MAX_EVENT >> 20} MiB of it have no event, this is not a trace; record"
                        " it again"
                    )
                continue
            yield carry[: boundaries[-1].start()]
            if self._after is not None:
                self._after += carry[boundaries[-1].start() :]
                break
            carry = carry[boundaries[-1].end() :]
        while (
            self._after is not None
            and len(self._after) < _MAX_BYTES
            and (part := self._source.read(PIECE))
        ):
            self._after += part

    def _read_first(self) -> bytes | None:
        """The beginning of the list of events. None: there is no list, or it is empty."""
        text = b""
        while part := decompress.read_up_to(self._source, PIECE):
            searched = max(0, len(text) - 64)
            text += part
            match = _BARE.match(text) or BEGIN.search(text, searched)
            if match:
                self._before = text[: match.end()]
                break
            if len(text) > _MAX_BYTES:
                raise TraceError(
                    f"there is no traceEvents in its first {_MAX_BYTES >> 20} MiB; pass a Chrome"
                    " trace"
                )
        else:
            self._before = text
            return None
        rest = text[match.end() :]
        blanks = 0
        while not (content := rest.lstrip()):  # the piece ended just here
            part = decompress.read_up_to(self._source, PIECE)
            blanks += len(part)
            if not part:
                return None
            if blanks > _MAX_BYTES:
                raise TraceError(
                    f"{_MAX_BYTES >> 20} MiB of it are blanks, this is not a trace; record it again"
                )
            rest = content + part  # blanks are not kept
        if content[:1] != b"{":
            self._after = b"}" + content
        return content[1:] if content[:1] == b"{" else None

    def _parse(self, piece: bytes, texts: list[bytes]) -> Iterator[dict[str, Any]]:
        """Events whose keys are in another order.

        Events that were split at inner objects are joined again.
        """
        try:
            events = loads_all([*self._partial, *texts])
        except ValueError:
            pass
        else:
            self._partial = []
            yield from events
            return
        for text in texts:
            if self._after is not None:
                return  # the list ended, what follows is not an event
            yield from self._parse_one(piece, text)

    def _parse_one(self, piece: bytes, text: bytes) -> list[dict[str, Any]]:
        error = None
        if len(self._partial) > _MAX_NESTED:
            self._drop(len(self._partial))
        for texts in ([text], [*self._partial, text]) if self._partial else ([text],):
            try:
                events = loads_all(texts)
            except ValueError as reason:
                error = reason
            else:
                self._drop(len(self._partial) + 1 - len(texts))
                return events
        self._partial.append(text)
        events = self._end(piece, text)
        if events is not None:
            self._partial = []
        elif isinstance(error, NestedTooDeeply):
            self._nested = self._nested + 1
            self._partial = []
        elif is_hopeless(error):
            self._tail = self._partial if piece.endswith(text) else []
            self._drop(len(self._partial))
        return events or []

    def _drop(self, texts: int) -> None:
        """Drop a run of `texts` consecutive texts that are not JSON."""
        self.broken += bool(texts)
        self._dropped += texts
        self._partial = []
        if self._dropped > _MAX_DROPPED:
            raise TraceError(
                f"more than {_MAX_DROPPED:,} of its events are not JSON; copy the file again, or"
                " record again"
            )

    def _end(self, piece: bytes, text: bytes) -> list[dict[str, Any]] | None:
        """The last events, if the list ends in this text."""
        if not END.search(text):
            return None
        for texts in (self._partial, [text]) if len(self._partial) > 1 else ([text],):
            end = end_of_list(texts)
            if (
                end is None
                or end < 0
                or (len(texts) < len(self._partial) and not _REST.match(text, end))
            ):
                continue
            last = [*texts[:-1], text[:end]]
            try:
                events = loads_all(last)
            except NestedTooDeeply:
                events = []
                if self._scan is None or self._scan(
                    b"},{".join(last)
                ):  # the kernel minds no levels
                    self._nested += 1
            except ValueError:
                continue
            self.broken += len(texts) < len(self._partial)
            self._after = piece[piece.rindex(text) + end :]
            return events
        return None

    def _row(self, event: Any) -> CompleteEvent | None:
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase is None or (phase == "X" and not ("ts" in event and "dur" in event)):
            self._useless += 1
            if self._useless > _MAX_DROPPED:
                raise TraceError(
                    f"more than {_MAX_DROPPED:,} of its events have no phase or no times, this is"
                    " not a trace; record it again"
                )
        if phase == "X":
            return to_complete_event(event, event.get("dur", "none"))
        if phase == "M":
            self.meta.append(event)
        elif phase == "B":
            self._unfinished.setdefault(thread_key(event), []).append(event)
            self._begun += 1
        elif phase == "E":
            opened = self._unfinished.get(thread_key(event))
            if opened:
                opening = opened.pop()
                self._begun -= 1
                return to_complete_event(
                    opening | {"args": opening.get("args") or event.get("args")},
                    duration(opening, event),
                )
            self._unopened += 1
        return None

    def _finish(self) -> None:
        if self._after is None:  # the last event is no JSON
            self._after = after_list(self._partial or self._tail)
        before = self._before
        after = (self._after or b"").partition(b"]")[2]
        if BEGIN.search(before):
            for text in (before + b"]" + after, before + b"]}"):
                try:
                    metadata = loads(text)
                    self.metadata = metadata if isinstance(metadata, dict) else {}
                    break
                except ValueError:
                    continue
        self.open = [
            to_complete_event(event, 0) for opened in self._unfinished.values() for event in opened
        ]
        self.broken += bool(self._partial)
        if self._source.damage:
            self.notes.append(f"The file is incomplete: {self._source.damage}.")
        elif self._after is None and before:
            self.notes.append(
                "The file ends in the middle of its events: what came before was read."
            )
            self.broken = max(0, self.broken - 1)
        if self._nested:
            self.notes.append(f"Events whose values nest too deeply, skipped: {self._nested}.")
        if self.broken:
            self.notes.append(f"Places in the file that are not JSON, skipped: {self.broken}.")


class CompleteEvent(NamedTuple):
    """A complete event. Bytes are JSON as it was written, str and other values are parsed."""

    cat: bytes
    name: Any
    thread_key: Any  # b'"pid": 1, "tid": 2' or (1, 2)
    ts: bytes  # decimal text, microseconds
    dur: bytes
    args: Any  # bytes between the braces, b"" for none, a parsed value, or None


def duration(opening: dict[str, Any], closing: dict[str, Any]) -> str:
    try:
        return f"{Decimal(closing.get('ts')) - Decimal(opening.get('ts')):f}"  # type: ignore[arg-type]
    except (ArithmeticError, TypeError, ValueError):
        return "?"


def to_complete_event(event: dict[str, Any], dur: Any) -> CompleteEvent:
    name = event.get("name")
    cat = event.get("cat")
    return CompleteEvent(
        (cat if isinstance(cat, str) else "").encode("utf-8", "replace"),
        name if isinstance(name, str) else "" if name is None else str(name),
        thread_key(event),
        str(event.get("ts")).strip().encode("utf-8", "replace"),
        str(dur).strip().encode("utf-8", "replace"),
        event.get("args"),
    )


def thread_key(event: dict[str, Any]) -> tuple[Any, Any]:
    pid = event.get("pid", -1)
    tid = event.get("tid", -1)
    return pid if isinstance(pid, int) else str(pid), tid if isinstance(tid, int) else str(tid)
