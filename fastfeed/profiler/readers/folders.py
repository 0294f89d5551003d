"""A folder as the trace files in it: one recording of one or more ranks, told by content."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from fastfeed.errors import TraceError
from fastfeed.profiler.readers import detect
from fastfeed.profiler.readers import sniff as foreign

__all__ = ["expand"]

_MOST = 2_000  # files in a folder that are looked at
_DEEPEST = 6  # folders inside of each other; plugins/profile/<run>/ is 3
_BESIDE = "timeline"  # may accompany every other dialect
_BETTER = ("nsys", "nvprof", "xplane", "chrome", "nvprof_text", "nsys_report")  # of files of one recording
_STAMP = re.compile(r"\.(\d{13,19})(?=\.|$)")  # PyTorch's tensorboard_trace_handler: worker.<time>.pt.trace.json
_SUFFIXES = re.compile(
    r"(\.(gz|xz|zst|bz2|zip|json|trace|pt|xplane|pb|sqlite3?|db|nsys-rep|qdrep|qdstrm|nvprof|nvvp|csv|txt|log))+$", re.I
)


def expand(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files as they are, folders as the trace files in them, each once.

    TraceError where a folder has no trace, or several recordings of which one must be chosen.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        found |= dict.fromkeys(_traces(path) if path.is_dir() else [path])
    return list(found)


def _traces(folder: Path) -> list[Path]:
    dialects: dict[Path, str] = {}
    refused: list[str] = []
    for path in _files(folder):
        if foreign.is_result(path):  # lies beside the recording it was made of
            refused.append(f"{path} {foreign.RESULT}")
            continue
        try:
            dialects[path] = detect(path)
        except TraceError as error:
            refused.append(str(error))
    if not dialects:
        if len(refused) == 1:
            raise TraceError(f"{folder} holds no trace: {refused[0]}")
        what = f"none of its {len(refused)} files is one" if refused else "it has no file"
        raise TraceError(f"{folder} holds no trace, {what}; give the file or the folder that the profiler wrote")
    side = [path for path, dialect in dialects.items() if dialect == _BESIDE]
    main = _best({path: dialect for path, dialect in dialects.items() if dialect != _BESIDE})
    _one_recording(folder, main)
    return [*main, *side]


def _files(folder: Path) -> Iterator[Path]:
    """Regular files that are not hidden, in order of their names."""
    seen = 0
    try:
        for here, inside, names in os.walk(folder, onerror=_unreadable):
            depth = len(Path(here).relative_to(folder).parts)
            inside[:] = sorted(name for name in inside if not name.startswith(".")) if depth < _DEEPEST else []
            for name in sorted(names):
                path = Path(here, name)
                if name.startswith(".") or not path.is_file():
                    continue
                seen += 1
                if seen > _MOST:
                    raise TraceError(
                        f"{folder} holds more than {_MOST} files; give the trace files, or a smaller folder"
                    )
                yield path
    except OSError as error:
        raise TraceError(f"cannot list {folder}: {error.strerror}; check its permissions") from error


def _unreadable(error: OSError) -> None:
    raise error


def _best(dialects: dict[Path, str]) -> dict[Path, str]:
    """Of files of one name, or XPlane and Chrome traces of one run, those that tell most."""
    by_name: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in dialects:
        by_name[path.parent, _SUFFIXES.sub("", path.name)].append(path)
    kept = {min(same, key=lambda path: _BETTER.index(dialects[path])) for same in by_name.values()}
    xplanes = {path.parent for path in kept if dialects[path] == "xplane"}
    return {
        path: dialect
        for path, dialect in dialects.items()
        if path in kept and not (dialect == "chrome" and path.parent in xplanes)  # that is a part of the XPlane
    }


def _one_recording(folder: Path, dialects: dict[Path, str]) -> None:
    kinds = {"nsys" if dialect == "nsys_report" else dialect.removesuffix("_text") for dialect in dialects.values()}
    if len(kinds) > 1:
        few = ", ".join(f"{path.relative_to(folder)} ({dialect})" for path, dialect in list(dialects.items())[:4])
        raise TraceError(f"{folder} holds traces of several profilers: {few}; give the files of one of them")
    runs = dict.fromkeys(path.parent for path in dialects if dialects[path] == "xplane")
    if len(runs) > 1:
        named = ", ".join(run.name for run in list(runs)[:4])
        raise TraceError(f"{folder} holds {len(runs)} runs: {named}; give one of them, such as {max(runs)}")
    workers: dict[str, list[Path]] = defaultdict(list)
    for path in dialects:
        if _STAMP.search(path.name):
            workers[_STAMP.sub("", str(path.relative_to(folder)))].append(path)
    for same in workers.values():
        if len(same) > 1:
            named = ", ".join(path.name for path in sorted(same)[:3])
            raise TraceError(f"{folder} holds {len(same)} recordings of one worker: {named}; give one of each worker")
