"""Tracks for ui.perfetto.dev as Chrome JSON: device, causes of gaps, steps, input waits.

Times are microseconds with three decimals, so exact to the nanosecond, since the first op of all
devices. `otherData` contains that moment on each device's own clock.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import one_line
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.reports import figures

TRACKS = ("device", "gap cause", "steps", "input waits")
_NAME = 400  # characters of a name


def write(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the tracks, compressed if the path ends with .gz. Raises OSError if that fails."""
    begins = figures.offsets(result)
    path = Path(path)
    with (
        gzip.open(path, "wt", encoding="utf-8", compresslevel=4)
        if path.suffix == ".gz"
        else path.open("w", encoding="utf-8") as file
    ):
        file.write('{"displayTimeUnit":"ns","otherData":')
        json.dump(
            {
                "producer": "fastfeed",
                "zero_ns": {
                    f"{index} {one_line(device.label)}": str(begin)
                    for index, (device, begin) in enumerate(
                        zip(result.devices, begins, strict=True)
                    )
                },
            },
            file,
        )
        file.write(',"traceEvents":[\n')
        comma = ""
        for index, (device, begin) in enumerate(zip(result.devices, begins, strict=True)):
            for event in _device(index + 1, device, begin):
                file.write(comma + event)
                comma = ",\n"
        file.write("\n]}\n")


def _device(pid: int, device: DeviceResult, begin: int) -> Iterator[str]:
    yield _meta("process_name", pid, 0, name=one_line(device.label))
    yield _meta("process_sort_index", pid, 0, sort_index=pid)
    for tid, track in enumerate(TRACKS, 1):
        yield _meta("thread_name", pid, tid, name=track)
        yield _meta("thread_sort_index", pid, tid, sort_index=tid)
    for key, spans in device.busy.items():
        yield from _spans(pid, 1, figures.PARTS.get(key, key), spans, begin)
    yield from _slices(pid, device, begin)
    yield from _steps(pid, device, begin)
    yield from _spans(pid, 4, Cause.INPUT.title, device.waits, begin)


def _slices(pid: int, device: DeviceResult, begin: int) -> Iterator[str]:
    slices = device.slices
    titles = {int(cause): json.dumps(cause.title) for cause in Cause}
    keys = {int(cause): cause.key for cause in Cause}
    prefixes: dict[tuple[int, int, int], str] = {}
    columns = (slices.start, slices.end, slices.cause, slices.gap, slices.thread, slices.name)
    for start, end, cause, gap, thread, name in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        prefix = prefixes.get((cause, thread, name))
        if prefix is None:
            args = {
                "cause": keys[cause],
                "thread": _at(device.threads, thread),
                "inside": _at(device.names, name),
            }
            prefix = prefixes[cause, thread, name] = json.dumps(
                {key: text for key, text in args.items() if text}
            )[:-1]
        yield _event(pid, 2, titles[cause], start - begin, end - begin, f'{prefix},"gap":{gap}}}')


def _steps(pid: int, device: DeviceResult, begin: int) -> Iterator[str]:
    waited, idle = figures.step_shares(device)
    for index, (start, end) in enumerate(device.steps.spans.tolist()):
        args = {
            "steady": bool(device.steps.steady[index]),
            "input": round(float(waited[index]), 4),
            "idle": round(float(waited[index] + idle[index]), 4),
        }
        label = one_line(_at(device.steps.labels, index), _NAME) or f"step {index}"
        yield _event(pid, 3, json.dumps(label), start - begin, end - begin, json.dumps(args))


def _spans(pid: int, tid: int, name: str, spans: np.ndarray, begin: int) -> Iterable[str]:
    text = json.dumps(name)
    return (
        _event(pid, tid, text, start - begin, end - begin, "{}") for start, end in spans.tolist()
    )


def _event(pid: int, tid: int, name: str, start: int, end: int, args: str) -> str:
    """`name` and `args` are already JSON."""
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
