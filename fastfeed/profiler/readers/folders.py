"""The trace files in a folder: one recording of one or more ranks, detected by content."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from fastfeed.errors import TraceError
from fastfeed.profiler.readers import detect, sniff

_MAX_FILES = 2_000  # files in a folder
_MAX_DEPTH = 6  # of nested folders; plugins/profile/<run>/ is 3
_TIMELINE = "timeline"  # may accompany every other dialect
# among files of one recording
_PREFERRED = ("nsys", "nvprof", "xplane", "chrome", "nvprof_text", "nsys_report")
_SUFFIXES = re.compile(
    r"(\.(gz|xz|zst|bz2|zip|json|trace|pt|xplane|pb|sqlite3?|db|nsys-rep|qdrep|qdstrm|nvprof|nvvp|csv|txt|log))+$",
    re.I,
)


def expand(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Expand folders to the trace files in them; files are unchanged, duplicates removed.

    TraceError if a folder has no trace, or several recordings of which one must be chosen.
    """
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        files |= dict.fromkeys(_traces_in(path) if path.is_dir() else [path])
    return list(files)


def _traces_in(folder: Path) -> list[Path]:
    dialects: dict[Path, str] = {}
    refusals: list[str] = []
    for path in _files(folder):
        if sniff.xprof_result(path):  # next to the recording it was computed from
            refusals.append(f"{path} {sniff.XPROF_RESULT}")
            continue
        try:
            dialects[path] = detect(path)
        except TraceError as error:
            refusals.append(str(error))
    if not dialects:
        if len(refusals) == 1:
            raise TraceError(f"{folder} holds no trace: {refusals[0]}")
        reason = f"none of its {len(refusals)} files is one" if refusals else "it has no file"
        raise TraceError(
            f"{folder} holds no trace, {reason}; pass the file or the folder that the profiler"
            " wrote"
        )
    timelines = [path for path, dialect in dialects.items() if dialect == _TIMELINE]
    traces = _most_complete(
        {path: dialect for path, dialect in dialects.items() if dialect != _TIMELINE}
    )
    _check_one_recording(folder, traces)
    return [*traces, *timelines]


def _files(folder: Path) -> Iterator[Path]:
    """Regular files that are not hidden, sorted by name."""
    count = 0
    try:
        for directory, subfolders, names in os.walk(folder, onerror=_raise):
            depth = len(Path(directory).relative_to(folder).parts)
            subfolders[:] = (
                sorted(name for name in subfolders if not name.startswith("."))
                if depth < _MAX_DEPTH
                else []
            )
            for name in sorted(names):
                path = Path(directory, name)
                if name.startswith(".") or not path.is_file():
                    continue
                count += 1
                if count > _MAX_FILES:
                    raise TraceError(
                        f"{folder} holds more than {_MAX_FILES} files; pass the trace files, or a"
                        " smaller folder"
                    )
                yield path
    except OSError as error:
        raise TraceError(
            f"cannot list {folder}: {error.strerror}; check its permissions"
        ) from error


def _raise(error: OSError) -> None:
    raise error


def _most_complete(dialects: dict[Path, str]) -> dict[Path, str]:
    """Among files with one name, and XPlane and Chrome traces of one run, the most detailed."""
    by_name: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in dialects:
        by_name[path.parent, _SUFFIXES.sub("", path.name)].append(path)
    chosen = {
        min(same, key=lambda path: _PREFERRED.index(dialects[path])) for same in by_name.values()
    }
    xplanes = {path.parent for path in chosen if dialects[path] == "xplane"}
    return {
        path: dialect
        for path, dialect in dialects.items()
        if path in chosen
        and not (dialect == "chrome" and path.parent in xplanes)  # it is a part of the XPlane
    }


def _check_one_recording(folder: Path, dialects: dict[Path, str]) -> None:
    kinds = {
        "nsys" if dialect == "nsys_report" else dialect.removesuffix("_text")
        for dialect in dialects.values()
    }
    if len(kinds) > 1:
        examples = ", ".join(
            f"{path.relative_to(folder)} ({dialect})"
            for path, dialect in list(dialects.items())[:4]
        )
        raise TraceError(
            f"{folder} holds traces of several profilers: {examples}; pass the files of one of them"
        )
    runs = dict.fromkeys(path.parent for path in dialects if dialects[path] == "xplane")
    if len(runs) > 1:
        named = ", ".join(run.name for run in list(runs)[:4])
        raise TraceError(
            f"{folder} holds {len(runs)} runs: {named}; pass one of them, such as {max(runs)}"
        )
