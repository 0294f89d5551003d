"""XSpace, as JAX and TensorFlow save it: planes (a device, the host) of lines (a stream, a thread) of events.

The schema is tsl/profiler/protobuf/xplane.proto. Event and stat names are kept once per plane, behind the events that
use them. An event's start is `line.timestamp_ns * 1000 + offset_ps`, in picoseconds; start and end are both cut down to
nanoseconds, so that events which touch still touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fastfeed.profiler.readers.xplane.protobuf import (
    FIXED64,
    LEN,
    Content,
    Damaged,
    Walk,
    double,
    fields,
    signed,
    split,
    text,
    varints,
    words,
)  # fmt: skip

__all__ = ["Events", "Line", "Plane", "Stats", "events_of", "plane_of"]

_CHUNK = 1 << 17  # events that are decoded together: what fits the caches
_MOST_FIELDS = 1 << 22  # of a plane, not counting events: lines, names, and its own stats
_MOST_LINES = 1 << 17
_LEAST = 4  # bytes of an event with a name and a time
_FAR = 1 << 62  # no real time is later than this
_DOUBLE, _TEXT, _REF = 2, 5, 7  # numbers of the values of a stat


@dataclass(frozen=True, slots=True)
class Line:
    id: int
    name: str
    timestamp_ns: int
    begin: np.ndarray  # where its events begin and end in the file: int64
    end: np.ndarray


@dataclass(frozen=True, slots=True)
class Stats:
    """All values of one kind of stat, in the order of their events."""

    event: np.ndarray  # int64, index into Events
    number: np.ndarray  # field number of the value: 2 double, 3 uint64, 4 int64, 5 text, 6 bytes, 7 a stat's name
    value: np.ndarray  # int64: the number, its raw bits for a double, or where the text begins
    stop: np.ndarray  # where the text ends


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane, its events not decoded yet."""

    name: str
    lines: tuple[Line, ...]
    names: Mapping[int, str]  # of events
    stat_names: Mapping[int, str]
    about: Mapping[str, int | float | str]  # the plane's own stats
    data: Content = field(repr=False)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Events:
    """Events of some lines of a plane."""

    plane: Plane
    line: np.ndarray  # int32, index into the lines asked for
    code: np.ndarray  # int32, index into `names`
    start: np.ndarray  # int64 ns
    end: np.ndarray
    names: tuple[str, ...]
    stats: Mapping[str, Stats]
    damaged: int  # events that were read in part
    impossible: int  # events left out for times that cannot be: negative durations, after the year 2116

    def __len__(self) -> int:
        return len(self.start)

    def ints(self, stat: str) -> np.ndarray:
        """An integer stat of every event: int64, -1 where it has none."""
        found = np.full(len(self), -1, np.int64)
        if stat in self.stats:
            of = self.stats[stat]
            number = (of.number == 3) | (of.number == 4)
            found[of.event[number]] = of.value[number]
            for row in np.flatnonzero((of.number == _TEXT) | (of.number == _REF)):
                said = self._text(of, int(row))
                if said.isdecimal() and len(said) < 19:
                    found[of.event[row]] = int(said)
        return found

    def texts(self, stat: str) -> tuple[np.ndarray, list[str]]:
        """A text stat of every event: int32 codes, -1 where it has none, and what they stand for."""
        codes = np.full(len(self), -1, np.int32)
        if stat not in self.stats:
            return codes, []
        of = self.stats[stat]
        index: dict[str, int] = {}
        refs, place = np.unique(np.where(of.number == _REF, of.value, -1), return_inverse=True)
        of_ref = [index.setdefault(self.plane.stat_names.get(int(ref), ""), len(index)) for ref in refs]
        coded = np.asarray(of_ref, np.int32)[place]
        for row in np.flatnonzero(of.number == _TEXT):
            coded[row] = index.setdefault(self._text(of, int(row)), len(index))
        codes[of.event] = coded
        return codes, list(index)

    def _text(self, of: Stats, row: int) -> str:
        if of.number[row] == _REF:
            return self.plane.stat_names.get(int(of.value[row]), "")
        return text(self.plane.data, int(of.value[row]), int(of.stop[row]))


def plane_of(data: Content, start: int, end: int) -> Plane:
    """The plane in data[start:end]; what came before damage, where there is some."""
    name, lines, whole = "", [], True
    names: dict[int, str] = {}
    stat_names: dict[int, str] = {}
    stats: list[tuple[int, int]] = []
    try:
        for count, (number, wire, value, stop) in enumerate(fields(data, start, end)):
            if count == _MOST_FIELDS or len(lines) > _MOST_LINES:
                raise Damaged("more lines and names than any recording has")
            if wire != LEN:
                continue
            if number == 2:
                name = text(data, value, stop)
            elif number == 3:
                lines.append((value, stop))
            elif number in (4, 5):
                whole &= _name_of(data, value, stop, names if number == 4 else stat_names)
            elif number == 6:
                stats.append((value, stop))
    except Damaged:
        whole = False
    about: dict[str, int | float | str] = {}
    for begin, stop in stats:
        whole &= _stat_of(data, begin, stop, stat_names, about)
    made = [_line_of(data, begin, stop) for begin, stop in lines]
    whole &= all(good for _, good in made)
    return Plane(name, tuple(line for line, _ in made), names, stat_names, about, data, whole)


def _name_of(data: Content, start: int, end: int, names: dict[int, str]) -> bool:
    """One entry of a map from id to metadata, of which only the name is of use. False where it is damaged."""
    at, said = 0, ""
    try:
        for number, wire, value, stop in fields(data, start, end):
            if number == 1 and wire != LEN:
                at = signed(value)
            elif number == 2 and wire == LEN:
                inner = fields(data, value, stop)
                said = next((text(data, one.value, one.stop) for one in inner if one[:2] == (2, LEN)), "")
    except Damaged:
        return False
    names[at] = said
    return True


def _stat_of(
    data: Content, start: int, end: int, names: Mapping[int, str], about: dict[str, int | float | str]
) -> bool:
    """One stat of a plane, into `about`. False where it is damaged."""
    name = ""
    try:
        for number, wire, value, stop in fields(data, start, end):
            if number == 1:
                name = names.get(signed(value), "")
            elif wire == LEN:
                about[name] = text(data, value, min(stop, value + 1000))
            elif number == _REF:
                about[name] = names.get(value, "")
            else:
                about[name] = double(value) if wire == FIXED64 else signed(value)
    except Damaged:
        return False
    return True


def _line_of(data: Content, start: int, end: int) -> tuple[Line, bool]:
    others, begin, stop, whole = split(data, start, end, 4, _LEAST)
    number = {one.number: signed(one.value) for one in others if one.wire != LEN}
    said = {one.number: text(data, one.value, one.stop) for one in others if one.wire == LEN}
    return Line(number.get(1, 0), said.get(2) or said.get(11, ""), number.get(3, 0), begin, stop), whole


def events_of(plane: Plane, lines: tuple[Line, ...], wanted: frozenset[str]) -> Events:
    """The events of these lines with the stats whose names, in lower case, are wanted."""
    ids = sorted(plane.names)
    keep = {at: name.lower() for at, name in plane.stat_names.items() if name.lower() in wanted}
    begin = np.concatenate([np.empty(0, np.int64), *(line.begin for line in lines)])
    end = np.concatenate([np.empty(0, np.int64), *(line.end for line in lines)])
    of_line = np.repeat(np.arange(len(lines), dtype=np.int32), [len(line.begin) for line in lines])
    zero = np.array([line.timestamp_ns for line in lines] or [0], np.int64)
    view, kept = words(plane.data), np.array(sorted(keep), np.int64)
    parts, stats, damaged, impossible, count = [], [], 0, 0, 0
    for low in range(0, len(begin), _CHUNK):
        rows = slice(low, low + _CHUNK)
        values, found, bad = _decoded(view, begin[rows], end[rows], kept)
        damaged += bad
        meta, offset, length, timed = values
        base = zero[of_line[rows]]
        good = timed & (length >= 0) & (length < _FAR)
        for value in (offset, base):
            good &= (value > -_FAR) & (value < _FAR)
        impossible += int(np.count_nonzero(timed & ~good))
        moved = np.cumsum(good) - 1 + count  # where each event stands after the others are left out
        start, stop = base + offset // 1000, base + (offset + length) // 1000
        parts.append((of_line[rows][good], meta[good], start[good], stop[good]))
        stats.append([column[good[found[0]]] for column in (moved[found[0]], *found[1:])])
        count += int(np.count_nonzero(good))
    line, meta, start, stop = (
        np.concatenate(column) for column in zip(*parts or [(np.empty(0, np.int64),) * 4], strict=True)
    )
    event, which, number, value, ends = (
        np.concatenate(column) for column in zip(*stats or [(np.empty(0, np.int64),) * 5], strict=True)
    )
    by_name: dict[str, Stats] = {}
    for at, name in keep.items():
        mine = which == at
        if mine.any():
            by_name[name] = Stats(event[mine], number[mine], value[mine], ends[mine])
    code = np.searchsorted(ids, meta) if ids else np.zeros(len(meta), np.int64)
    known = code < len(ids)
    known[known] = np.asarray(ids, np.int64)[code[known]] == meta[known]
    names = (*(plane.names[at] for at in ids), "")  # the last is that of events without one
    code = np.where(known, code, len(ids)).astype(np.int32)
    return Events(plane, line, code, start, stop, names, by_name, damaged, impossible)


def _decoded(
    view: np.ndarray, begin: np.ndarray, end: np.ndarray, kept: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], list[np.ndarray], int]:
    """(metadata id, offset ps, duration ps, has a time) of events; (event, id, number, value, stop) of their stats."""
    meta, offset, length = np.zeros((3, len(begin)), np.int64)
    timed = np.ones(len(begin), bool)
    places: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    walk = Walk(view, begin, end)
    for rows, number, wire, value, stop in walk:
        for at, column in ((1, meta), (2, offset), (3, length)):
            mine = (number == at) & (wire != LEN)
            column[rows[mine]] = value[mine]
        timed[rows[number == 5]] = False  # a sum over many occurrences, which has no place in time
        mine = np.flatnonzero((number == 4) & (wire == LEN))
        if len(mine) and len(kept):
            mine = mine[_may_be(view, value[mine], stop[mine], kept)]
            places.append((rows[mine], value[mine], stop[mine]))
    of, first, last = (np.concatenate(column) for column in zip(*places or [(np.empty(0, np.int64),) * 3], strict=True))
    which, kind, said, ends = np.zeros((4, len(of)), np.int64)
    inner = Walk(view, first, last)
    for rows, number, wire, value, stop in inner:
        named = (number == 1) & (wire != LEN)
        which[rows[named]] = value[named]
        for column, given in ((kind, number), (said, value), (ends, stop)):
            column[rows[~named]] = given[~named]
    mine = np.isin(which, kept)
    return (meta, offset, length, timed), [one[mine] for one in (of, which, kind, said, ends)], walk.damaged


def _may_be(view: np.ndarray, begin: np.ndarray, stop: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Whether a stat is one of those kept: its id comes first, unless an unusual writer wrote it."""
    plain = ((view[begin] & np.uint64(0xFF)) == 8) & (stop - begin > 1)
    which, _ = varints(view, begin + 1)
    return np.where(plain, np.isin(which, kept), True)
