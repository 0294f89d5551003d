"""Events parsed by the native extension: columns of a piece of the file, no object per event."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from fastfeed.profiler.readers.chrome.args import step_name
from fastfeed.profiler.readers.chrome.events import FAMILIES_OF_DEVICE, EventTable, event_family


@functools.cache
def extension() -> Any:
    """The native extension; None if it is not built, or too old to know of traces."""
    try:
        native = importlib.import_module("fastfeed._native")
    except ImportError:
        return None
    return native if hasattr(native, "EventScanner") else None


def scan_into(events: EventTable) -> Callable[[bytes], list[bytes]] | None:
    """A function that adds the plain events of a piece to the table and returns all other texts.

    None without the native extension: the reader then matches pieces with a regular expression.
    """
    native = extension()
    return _Scan(events, native.EventScanner()) if native else None


class _Scan:
    """Maps the extension's numbers of texts to those of the table."""

    def __init__(self, events: EventTable, scanner: Any) -> None:
        self._events = events
        self._scanner = scanner
        self._cats: list[bytes] = []
        self._names: list[bytes] = []
        self._index_of_name = _IndexMap()
        self._index_of_call = _IndexMap()
        self._thread_keys = np.empty(0, np.int32)
        self._stream_keys = np.empty(0, np.int32)

    def __call__(self, piece: bytes) -> list[bytes]:
        columns, others = self._scanner.scan(piece)
        events = self._events
        self._cats += self._scanner.cats(len(self._cats))
        self._names += self._scanner.names(len(self._names))
        threads = self._scanner.threads(len(self._thread_keys))
        self._thread_keys = _extended(
            self._thread_keys, map(events.thread_keys.__getitem__, threads)
        )
        streams = [
            tuple(map(int, text.split(b",")))
            for text in self._scanner.streams(len(self._stream_keys))
        ]
        self._stream_keys = _extended(
            self._stream_keys, map(events.stream_keys.__getitem__, streams)
        )
        counts = np.bincount(columns["cat"], minlength=len(self._cats))
        for number in np.flatnonzero(counts).tolist():
            cat = self._cats[number]
            events.count(cat, int(counts[number]))
            family = event_family(cat)
            if family:
                at = (
                    slice(None)
                    if counts[number] == len(columns["cat"])
                    else np.flatnonzero(columns["cat"] == number)
                )
                self._add(
                    piece, cat, family, {name: column[at] for name, column in columns.items()}
                )
        return others

    def _add(self, piece: bytes, cat: bytes, family: str, rows: dict[str, np.ndarray]) -> None:
        events = self._events
        args = _ArgTexts(piece, rows["args_at"], rows["args_size"])
        events.negative += int((rows["end"] < rows["start"]).sum())
        thread_key = self._thread_keys[rows["thread"]]
        columns: dict[str, Any] = {
            "start": rows["start"],
            "end": np.maximum(rows["start"], rows["end"]),
            "thread_key": thread_key,
        }
        if family == "uncategorized":
            names = (
                step_name(self._names[name], arg)
                for name, arg in zip(rows["name"].tolist(), args, strict=True)
            )
            columns["name"] = np.fromiter(map(events.names.__getitem__, names), np.int32, len(args))
        elif family == "call":
            columns["name"] = self._index_of_call(rows["name"], self._names, events.calls_names)
        else:
            columns["name"] = self._index_of_name(rows["name"], self._names, events.names)
        if family in ("call", "uncategorized"):
            columns["corr"] = rows["corr"]
        elif family in FAMILIES_OF_DEVICE:
            stream = rows["stream"]
            columns["stream_key"] = np.append(self._stream_keys, np.int32(-1))[stream]
            for at in np.flatnonzero(stream < 0).tolist():
                columns["stream_key"][at] = events.find_stream(args[at], int(thread_key[at]))[0]
            columns |= {"corr": rows["corr"], "bytes": rows["bytes"]}
        events.add_columns(cat, family, columns, args)


class _IndexMap:
    """The extension's numbers of names to indexes of strings; each name is looked up once."""

    def __init__(self) -> None:
        self._indexes = np.empty(0, np.int32)

    def __call__(self, numbers: np.ndarray, names: Sequence[bytes], index: Any) -> np.ndarray:
        self._indexes = _extended(self._indexes, [-1] * (len(names) - len(self._indexes)))
        indexes = self._indexes[numbers]
        if (indexes < 0).any():
            for number in np.unique(numbers[indexes < 0]).tolist():
                self._indexes[number] = index[names[number]]
            indexes = self._indexes[numbers]
        return indexes


class _ArgTexts(Sequence[bytes]):
    """The text between the braces of each event's arguments."""

    def __init__(self, piece: bytes, at: np.ndarray, size: np.ndarray) -> None:
        self._piece = piece
        self._at = at
        self._size = size

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[bytes]: ...
    def __getitem__(self, row: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(row, slice):
            return _ArgTexts(self._piece, self._at[row], self._size[row])
        return self._piece[self._at[row] : self._at[row] + self._size[row]]

    def __iter__(self) -> Iterator[bytes]:
        return (
            self._piece[at:end]
            for at, end in zip(self._at.tolist(), (self._at + self._size).tolist(), strict=True)
        )


def _extended(array: np.ndarray, more: Any) -> np.ndarray:
    more = np.fromiter(more, np.int32)
    return np.concatenate([array, more]) if len(more) else array
