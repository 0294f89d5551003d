"""Which files are meant: one address, a pattern, a folder, a list of them."""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.fetch import Unread
from fastfeed.sources.storage import Stat, Storage, is_local

__all__ = ["braces", "find_files", "local_stat"]

_MANY = 16  # addresses in one folder from which on listing it is cheaper than asking for each
_LISTS = ("s3", "s3a", "gs", "gcs", "memory", "abfs", "az")  # storage that lists what it holds


def find_files(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], suffix: str, storage: Storage, who: str
) -> list[tuple[str, Stat]]:
    """The files meant, in the order given and sorted inside a pattern: (address, stat) each.

    Patterns may hold braces, `{000..099}` or `{a,b}`, and `*`, `?`, `[...]`; a folder means its files that end in
    `suffix`. SourceError where one is missing, ConfigError where one is given twice.
    """
    items = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    if not items or not all(isinstance(item, (str, os.PathLike)) for item in items):
        raise ConfigError(
            f"{who} needs a path, a pattern such as 'train-{{000..099}}{suffix}', or a list; got {given!r}"
        )
    patterns = [pattern for item in items for pattern in braces(os.fspath(item).removeprefix("file://"))]
    plain = [p for p in patterns if not _has_magic(p) and not p.endswith("/")]
    known = dict(_stats(plain, storage, who, suffix))
    found: list[tuple[str, Stat]] = []
    for pattern in patterns:
        found += [(pattern, known[pattern])] if pattern in known else _matches(pattern, suffix, storage, who)
    seen: set[str] = set()
    for uri, _ in found:
        if uri in seen:
            raise ConfigError(f"{who}: {uri} is given twice; each file may be named once")
        seen.add(uri)
    return found


def braces(pattern: str) -> list[str]:
    """`a{0..2}{x,y}` is a0x, a0y, a1x, ...; numbers keep their leading zeros. As in a shell."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    inside, (start, end) = match[1], match.span()
    steps = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", inside)
    if steps:
        first, last = int(steps[1]), int(steps[2])
        digits = max(len(steps[1]), len(steps[2])) if steps[1].startswith("0") or steps[2].startswith("0") else 0
        parts: Iterable[str] = (
            f"{n:0{digits}d}" for n in (range(first, last + 1) if first <= last else range(first, last - 1, -1))
        )
    elif "," in inside:
        parts = inside.split(",")
    else:
        raise ConfigError(
            f"a pattern's braces must hold a range or a list, like {{000..099}} or {{a,b}}, got {match[0]!r}"
        )
    return [whole for part in parts for whole in braces(pattern[:start] + part + pattern[end:])]


def local_stat(path: str) -> Stat:
    """Of a file of this machine. OSError."""
    status = os.stat(path)
    return Stat(status.st_size, str(status.st_mtime_ns))


def _has_magic(pattern: str) -> bool:
    return any(c in pattern for c in ("*[" if pattern.startswith("http") else "*?["))


def _matches(pattern: str, suffix: str, storage: Storage, who: str) -> list[tuple[str, Stat]]:
    if is_local(pattern):
        path = pattern if _has_magic(pattern) else os.path.join(glob.escape(pattern), "*" + suffix)
        found = [(name, local_stat(name)) for name in sorted(glob.glob(path, recursive=True)) if os.path.isfile(name)]
    else:
        path = pattern if _has_magic(pattern) else f"{pattern.rstrip('/')}/*{suffix}"
        found = storage.find(path)
    if not found:
        raise SourceError(f"{who}: nothing matches {path}; check the path")
    return found


def _stats(uris: list[str], storage: Storage, who: str, suffix: str) -> list[tuple[str, Stat]]:
    """Of single addresses, local folders left out."""
    local = [uri for uri in uris if is_local(uri)]
    found = []
    for uri in local:
        if not os.path.isdir(uri):
            try:
                found.append((uri, local_stat(uri)))
            except OSError as error:
                raise SourceError(f"{who}: cannot open {uri}: {error.strerror}{_first(uris)}") from error
    folders: dict[str, list[str]] = defaultdict(list)
    for uri in uris:
        if not is_local(uri):
            folders[uri.rpartition("/")[0]].append(uri)
    for folder, inside in folders.items():
        if len(inside) >= _MANY and inside[0].partition("://")[0] in _LISTS:
            listed = dict(storage.find(f"{folder}/*{suffix}"))
            stats = [listed.get(uri, Unread("not_found")) for uri in inside]
        else:
            stats = storage.stat(inside)
        for uri, stat in zip(inside, stats, strict=True):
            if isinstance(stat, Unread):
                raise SourceError(f"{who}: cannot open {uri}: {stat.detail or stat.reason}{_first(uris)}")
            found.append((uri, stat))
    return found


def _first(uris: list[str]) -> str:
    return f" ({len(uris)} files were named)" if len(uris) > 1 else "; check the path"
