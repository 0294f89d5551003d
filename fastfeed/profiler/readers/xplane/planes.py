"""Parses an XSpace: planes (device, host) of lines (stream, thread) of events.

The schema is tsl/profiler/protobuf/xplane.proto. Event and stat names are kept once per plane,
behind the events that use them. An event's start is `line.timestamp_ns * 1000 + offset_ps`, in
picoseconds; start and end are both cut down to nanoseconds, so that events which touch still touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fastfeed.profiler.readers.protobuf import (
    FIXED64,
    LEN,
    Content,
    DamagedMessage,
    FieldIterator,
    double,
    fields,
    signed,
    split,
    text,
    varints,
    words,
)

_CHUNK = 1 << 17  # events that are decoded together: what fits the caches
_MAX_FIELDS = 1 << 22  # of a plane, not counting events: lines, names, and its own stats
_MAX_LINES = 1 << 17
_MIN_EVENT_SIZE = 4  # bytes of an event with a name and a time
_MAX_TIME = 1 << 62  # real times are smaller
# numbers of the values of a stat
_DOUBLE = 2
_TEXT = 5
_REF = 7


@dataclass(frozen=True, slots=True)
class PlaneLine:
    id: int
    name: str
    timestamp_ns: int
    begin: np.ndarray  # where its events begin and end in the file: int64
    end: np.ndarray


@dataclass(frozen=True, slots=True)
class Stats:
    """All values of one kind of stat, in the order of their events."""

    event: np.ndarray  # int64, index into Events
    # field number of the value: 2 double, 3 uint64, 4 int64, 5 text, 6 bytes, 7 a stat's name
    number: np.ndarray
    value: np.ndarray  # int64: the number, its raw bits for a double, or where the text begins
    stop: np.ndarray  # where the text ends


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane, with its events not yet decoded."""

    name: str
    lines: tuple[PlaneLine, ...]
    names: Mapping[int, str]  # of events
    stat_names: Mapping[int, str]
    properties: Mapping[str, int | float | str]  # the plane's own stats
    data: Content = field(repr=False)
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class PlaneEvents:
    """Events of some lines of a plane."""

    plane: Plane
    line: np.ndarray  # int32, index into the lines asked for
    code: np.ndarray  # int32, index into `names`
    start: np.ndarray  # int64 ns
    end: np.ndarray
    names: tuple[str, ...]
    stats: Mapping[str, Stats]
    damaged: int  # events that were read in part
    impossible: (
        int  # events left out for times that cannot be: negative durations, after the year 2116
    )

    def __len__(self) -> int:
        return len(self.start)

    def ints(self, stat: str) -> np.ndarray:
        """An integer stat of every event: int64, -1 for events without it."""
        values = np.full(len(self), -1, np.int64)
        if stat in self.stats:
            stats = self.stats[stat]
            number = (stats.number == 3) | (stats.number == 4)
            values[stats.event[number]] = stats.value[number]
            for row in np.flatnonzero((stats.number == _TEXT) | (stats.number == _REF)):
                digits = self._text(stats, int(row))
                if digits.isdecimal() and len(digits) < 19:
                    values[stats.event[row]] = int(digits)
        return values

    def texts(self, stat: str) -> tuple[np.ndarray, list[str]]:
        """A text stat of every event: int32 codes, -1 if missing, and the texts."""
        codes = np.full(len(self), -1, np.int32)
        if stat not in self.stats:
            return codes, []
        stats = self.stats[stat]
        index: dict[str, int] = {}
        refs, ref_index = np.unique(
            np.where(stats.number == _REF, stats.value, -1), return_inverse=True
        )
        of_ref = [
            index.setdefault(self.plane.stat_names.get(int(ref), ""), len(index)) for ref in refs
        ]
        coded = np.asarray(of_ref, np.int32)[ref_index]
        for row in np.flatnonzero(stats.number == _TEXT):
            coded[row] = index.setdefault(self._text(stats, int(row)), len(index))
        codes[stats.event] = coded
        return codes, list(index)

    def _text(self, stats: Stats, row: int) -> str:
        if stats.number[row] == _REF:
            return self.plane.stat_names.get(int(stats.value[row]), "")
        return text(self.plane.data, int(stats.value[row]), int(stats.stop[row]))


def parse_plane(data: Content, start: int, end: int) -> Plane:
    """The plane in data[start:end]; if it is damaged, the part before the damage."""
    name = ""
    lines = []
    is_complete = True
    names: dict[int, str] = {}
    stat_names: dict[int, str] = {}
    stats: list[tuple[int, int]] = []
    try:
        for count, (number, wire, value, stop) in enumerate(fields(data, start, end)):
            if count == _MAX_FIELDS or len(lines) > _MAX_LINES:
                raise DamagedMessage("more lines and names than any recording has")
            if wire != LEN:
                continue
            if number == 2:
                name = text(data, value, stop)
            elif number == 3:
                lines.append((value, stop))
            elif number in (4, 5):
                is_complete &= _parse_name(data, value, stop, names if number == 4 else stat_names)
            elif number == 6:
                stats.append((value, stop))
    except DamagedMessage:
        is_complete = False
    properties: dict[str, int | float | str] = {}
    for begin, stop in stats:
        is_complete &= _parse_stat(data, begin, stop, stat_names, properties)
    parsed = [_parse_line(data, begin, stop) for begin, stop in lines]
    is_complete &= all(complete for _, complete in parsed)
    return Plane(
        name, tuple(line for line, _ in parsed), names, stat_names, properties, data, is_complete
    )


def _parse_name(data: Content, start: int, end: int, names: dict[int, str]) -> bool:
    """One entry of a map from id to metadata, of which only the name is used.

    False if it is damaged.
    """
    at = 0
    name = ""
    try:
        for number, wire, value, stop in fields(data, start, end):
            if number == 1 and wire != LEN:
                at = signed(value)
            elif number == 2 and wire == LEN:
                inner = fields(data, value, stop)
                name = next(
                    (
                        text(data, field_.value, field_.stop)
                        for field_ in inner
                        if field_[:2] == (2, LEN)
                    ),
                    "",
                )
    except DamagedMessage:
        return False
    names[at] = name
    return True


def _parse_stat(
    data: Content,
    start: int,
    end: int,
    names: Mapping[int, str],
    properties: dict[str, int | float | str],
) -> bool:
    """Add one stat of a plane to `properties`; False if it is damaged."""
    name = ""
    try:
        for number, wire, value, stop in fields(data, start, end):
            if number == 1:
                name = names.get(signed(value), "")
            elif wire == LEN:
                properties[name] = text(data, value, min(stop, value + 1000))
            elif number == _REF:
                properties[name] = names.get(value, "")
            else:
                properties[name] = double(value) if wire == FIXED64 else signed(value)
    except DamagedMessage:
        return False
    return True


def _parse_line(data: Content, start: int, end: int) -> tuple[PlaneLine, bool]:
    others, begin, stop, is_complete = split(data, start, end, 4, _MIN_EVENT_SIZE)
    number = {field_.number: signed(field_.value) for field_ in others if field_.wire != LEN}
    texts = {
        field_.number: text(data, field_.value, field_.stop)
        for field_ in others
        if field_.wire == LEN
    }
    return (
        PlaneLine(
            number.get(1, 0), texts.get(2) or texts.get(11, ""), number.get(3, 0), begin, stop
        ),
        is_complete,
    )


def decode_events(
    plane: Plane, lines: tuple[PlaneLine, ...], wanted: frozenset[str]
) -> PlaneEvents:
    """The events of these lines with the stats whose lower-case names are in `wanted`."""
    ids = sorted(plane.names)
    wanted_names = {
        at: name.lower() for at, name in plane.stat_names.items() if name.lower() in wanted
    }
    begin = np.concatenate([np.empty(0, np.int64), *(line.begin for line in lines)])
    end = np.concatenate([np.empty(0, np.int64), *(line.end for line in lines)])
    of_line = np.repeat(np.arange(len(lines), dtype=np.int32), [len(line.begin) for line in lines])
    zero = np.array([line.timestamp_ns for line in lines] or [0], np.int64)
    view = words(plane.data)
    wanted_ids = np.array(sorted(wanted_names), np.int64)
    parts = []
    stats = []
    damaged = 0
    impossible = 0
    count = 0
    for low in range(0, len(begin), _CHUNK):
        rows = slice(low, low + _CHUNK)
        values, stat_rows, damaged_here = _decoded(view, begin[rows], end[rows], wanted_ids)
        damaged += damaged_here
        meta, offset, length, timed = values
        base = zero[of_line[rows]]
        valid = timed & (length >= 0) & (length < _MAX_TIME)
        for value in (offset, base):
            valid &= (value > -_MAX_TIME) & (value < _MAX_TIME)
        impossible += int(np.count_nonzero(timed & ~valid))
        # where each event stands after the others are left out
        new_row = np.cumsum(valid) - 1 + count
        start = base + offset // 1000
        stop = base + (offset + length) // 1000
        parts.append((of_line[rows][valid], meta[valid], start[valid], stop[valid]))
        stats.append(
            [column[valid[stat_rows[0]]] for column in (new_row[stat_rows[0]], *stat_rows[1:])]
        )
        count += int(np.count_nonzero(valid))
    line, meta, start, stop = (
        np.concatenate(column)
        for column in zip(*parts or [(np.empty(0, np.int64),) * 4], strict=True)
    )
    event, which, number, value, ends = (
        np.concatenate(column)
        for column in zip(*stats or [(np.empty(0, np.int64),) * 5], strict=True)
    )
    by_name: dict[str, Stats] = {}
    for at, name in wanted_names.items():
        rows_ = which == at
        if rows_.any():
            by_name[name] = Stats(event[rows_], number[rows_], value[rows_], ends[rows_])
    code = np.searchsorted(ids, meta) if ids else np.zeros(len(meta), np.int64)
    has_name = code < len(ids)
    has_name[has_name] = np.asarray(ids, np.int64)[code[has_name]] == meta[has_name]
    names = (*(plane.names[at] for at in ids), "")  # the last is that of events without one
    code = np.where(has_name, code, len(ids)).astype(np.int32)
    return PlaneEvents(plane, line, code, start, stop, names, by_name, damaged, impossible)


def _decoded(
    view: np.ndarray, begin: np.ndarray, end: np.ndarray, wanted_ids: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], list[np.ndarray], int]:
    """Columns (metadata id, offset ps, duration ps, has a time), and (event, id, ...) of stats."""
    meta, offset, length = np.zeros((3, len(begin)), np.int64)
    timed = np.ones(len(begin), bool)
    stat_spans: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    event_fields = FieldIterator(view, begin, end)
    for rows, number, wire, value, stop in event_fields:
        for at, column in ((1, meta), (2, offset), (3, length)):
            rows_ = (number == at) & (wire != LEN)
            column[rows[rows_]] = value[rows_]
        timed[rows[number == 5]] = False  # a sum over many occurrences, without a time
        rows_ = np.flatnonzero((number == 4) & (wire == LEN))
        if len(rows_) and len(wanted_ids):
            rows_ = rows_[_may_be_wanted(view, value[rows_], stop[rows_], wanted_ids)]
            stat_spans.append((rows[rows_], value[rows_], stop[rows_]))
    event, first, last = (
        np.concatenate(column)
        for column in zip(*stat_spans or [(np.empty(0, np.int64),) * 3], strict=True)
    )
    which, kind, number_or_start, ends = np.zeros((4, len(event)), np.int64)
    stat_fields = FieldIterator(view, first, last)
    for rows, number, wire, value, stop in stat_fields:
        is_id = (number == 1) & (wire != LEN)
        which[rows[is_id]] = value[is_id]
        for column, new_values in ((kind, number), (number_or_start, value), (ends, stop)):
            column[rows[~is_id]] = new_values[~is_id]
    rows_ = np.isin(which, wanted_ids)
    return (
        (meta, offset, length, timed),
        [one[rows_] for one in (event, which, kind, number_or_start, ends)],
        event_fields.damaged,
    )


def _may_be_wanted(
    view: np.ndarray, begin: np.ndarray, stop: np.ndarray, wanted_ids: np.ndarray
) -> np.ndarray:
    """Mask of stats that may be wanted: their id, if it comes first, is one of these."""
    starts_with_id = ((view[begin] & np.uint64(0xFF)) == 8) & (stop - begin > 1)
    which, _ = varints(view, begin + 1)
    return np.where(starts_with_id, np.isin(which, wanted_ids), True)
