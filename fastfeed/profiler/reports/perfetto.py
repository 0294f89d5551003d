"""Tracks for ui.perfetto.dev, in the Chrome JSON that it opens: what the device did, gap causes, steps, input waits.

Times are microseconds with three digits after the point, which is every nanosecond, since the first op of all devices.
`otherData` says when that was on each device's own clock.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from fastfeed.profiler.model.causes import CAUSES, Cause
from fastfeed.profiler.model.format import one_line
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.reports import figures

__all__ = ["write"]

TRACKS = ("device", "gap cause", "steps", "input waits")
_NAME = 400  # characters of a name


def write(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the tracks; compressed where the path ends with .gz. OSError where it cannot be written."""
    begins = figures.offsets(result)
    with _opened(Path(path)) as file:
        file.write('{"displayTimeUnit":"ns","otherData":')
        json.dump({"producer": "fastfeed", "zero_ns": {
            f"{index} {one_line(one.label)}": str(begin)
            for index, (one, begin) in enumerate(zip(result.devices, begins, strict=True))
        }}, file)  # fmt: skip
        file.write(',"traceEvents":[\n')
        comma = ""
        for index, (one, begin) in enumerate(zip(result.devices, begins, strict=True)):
            for event in _device(index + 1, one, begin):
                file.write(comma + event)
                comma = ",\n"
        file.write("\n]}\n")


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8", compresslevel=4) as file:
            yield file
    else:
        with path.open("w", encoding="utf-8") as file:
            yield file


def _device(pid: int, one: DeviceResult, begin: int) -> Iterator[str]:
    yield _meta("process_name", pid, 0, name=one_line(one.label))
    yield _meta("process_sort_index", pid, 0, sort_index=pid)
    for tid, track in enumerate(TRACKS, 1):
        yield _meta("thread_name", pid, tid, name=track)
        yield _meta("thread_sort_index", pid, tid, sort_index=tid)
    for key, spans in one.busy.items():
        yield from _spans(pid, 1, figures.PARTS.get(key, key), spans, begin)
    yield from _slices(pid, one, begin)
    yield from _steps(pid, one, begin)
    yield from _spans(pid, 4, CAUSES[Cause.INPUT].title, one.waits, begin)


def _slices(pid: int, one: DeviceResult, begin: int) -> Iterator[str]:
    slices = one.slices
    titles = {int(cause): json.dumps(about.title) for cause, about in CAUSES.items()}
    keys = {int(cause): about.key for cause, about in CAUSES.items()}
    known: dict[tuple[int, int, int], str] = {}
    columns = (slices.start, slices.end, slices.cause, slices.gap, slices.thread, slices.name)
    for start, end, cause, gap, thread, name in zip(*(column.tolist() for column in columns), strict=True):
        said = known.get((cause, thread, name))
        if said is None:
            args = {"cause": keys[cause], "thread": _at(one.threads, thread), "inside": _at(one.names, name)}
            said = known[cause, thread, name] = json.dumps({key: text for key, text in args.items() if text})[:-1]
        yield _event(pid, 2, titles[cause], start - begin, end - begin, f'{said},"gap":{gap}}}')


def _steps(pid: int, one: DeviceResult, begin: int) -> Iterator[str]:
    shares = figures.step_shares(one)
    for index, (start, end) in enumerate(one.steps.spans.tolist()):
        args = {
            "steady": bool(one.steps.steady[index]),
            "input": round(float(shares.input[index]), 4),
            "idle": round(float(shares.input[index] + shares.idle[index]), 4),
        }
        label = one_line(_at(one.steps.labels, index), _NAME) or f"step {index}"
        yield _event(pid, 3, json.dumps(label), start - begin, end - begin, json.dumps(args))


def _spans(pid: int, tid: int, name: str, spans: np.ndarray, begin: int) -> Iterable[str]:
    text = json.dumps(name)
    return (_event(pid, tid, text, start - begin, end - begin, "{}") for start, end in spans.tolist())


def _event(pid: int, tid: int, name: str, start: int, end: int, args: str) -> str:
    """`name` and `args` are JSON already."""
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"name":{name},"ts":{_micros(start)},"dur":{_micros(end - start)},'
        f'"args":{args}}}'
    )


def _meta(name: str, pid: int, tid: int, /, **args: object) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})


def _micros(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _at(texts: tuple[str, ...], index: int) -> str:
    return one_line(texts[index], _NAME) if 0 <= index < len(texts) else ""
