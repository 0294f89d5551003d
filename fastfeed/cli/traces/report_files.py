"""Report files of commands, checked before long work starts and written at the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastfeed.errors import ConfigError, TraceError
from fastfeed.runtime.atomic_write import atomic_write

if TYPE_CHECKING:
    from fastfeed.profiler.model.result import Result

_HTML = "--html"
_PERFETTO = "--perfetto"
_SUFFIXES = {_HTML: (".html", ".htm"), _PERFETTO: (".json", ".json.gz")}
_TITLES = (  # of every page
    b"<title>Why is this GPU idle",
    b"<title>Before and after: ",
    b"<title>Is it the input",
)


def check(inputs: Sequence[Path], html: Path | None, perfetto: Path | None, force: bool) -> None:
    """Raise ConfigError for a path that cannot be written, is an input, or is a foreign file.

    `force` allows overwriting any file that is not an input.
    """
    paths = {_HTML: html, _PERFETTO: perfetto}
    outputs = {option: path for option, path in paths.items() if path is not None}
    for option, path in outputs.items():
        suffixes = _SUFFIXES[option]
        has_folder = path.absolute().parent.is_dir()
        if path.is_dir() or not has_folder or not path.name.lower().endswith(suffixes):
            allowed = f"a {' or '.join(suffixes)} in an existing folder"
            raise ConfigError(f"{option} must be {allowed}, got {path}")
        try:
            with tempfile.TemporaryFile(dir=path.absolute().parent):
                pass
        except OSError as error:
            raise _unwritable(path, error) from error
    for option, path in outputs.items():
        if not path.exists():
            continue
        if _is_input(path, inputs):
            raise ConfigError(
                f"{option} would overwrite {path}, which is read; choose another name"
            )
        if not force and not _is_report(path):
            raise ConfigError(
                f"{option} would overwrite {path}, which fastfeed did not write; choose another"
                " name, or add --force"
            )


def save(result: Result, html: Path | None, perfetto: Path | None) -> list[str]:
    """Write the HTML page and the Perfetto tracks. Returns a line of text for each file written."""
    from fastfeed.profiler.reports import page
    from fastfeed.profiler.reports import perfetto as tracks

    lines = [save_page(html, page.page(result))] if html else []
    if perfetto:
        try:
            tracks.write(result, perfetto)
        except OSError as error:
            raise _unwritable(perfetto, error) from error
        lines.append(f"tracks for ui.perfetto.dev: {perfetto}")
    return lines


def save_page(path: Path, html: str) -> str:
    """Write one HTML page. Returns a line of text about it."""
    try:
        with atomic_write(path) as file:
            file.write(html.encode("utf-8", "replace"))
    except OSError as error:
        raise _unwritable(path, error) from error
    return f"report: {path}"


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write {path}: {error.strerror}; choose another path")


def _is_input(path: Path, inputs: Sequence[Path]) -> bool:
    """True if this file, by any name or link, is an input or a trace in an input folder."""
    from fastfeed.profiler.readers.folders import expand

    if Path("-") in inputs and os.path.samestat(os.fstat(0), path.stat()):
        return True
    files = expand(inputs)
    return any(file.exists() and file.samefile(path) for file in files)


def _is_report(path: Path) -> bool:
    """True if an earlier run wrote this file, or it is empty."""
    from fastfeed.profiler.readers import decompress, sniff

    if not path.stat().st_size:
        return True
    try:
        head = decompress.head(path, 4096)
    except TraceError:  # no regular file, or not readable: nothing of ours
        return False
    return any(title in head for title in _TITLES) or sniff.is_own_tracks(head)
