"""Expands paths, patterns, folders and lists of them to files."""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import STORAGE
from fastfeed.printable import printable
from fastfeed.storage.local_file import read_file, unread
from fastfeed.storage.reads import ByteRange, Stat, Unread, is_local
from fastfeed.storage.storage import Storage

# TFRecords are called train-00000-of-01024, too: train-*-of-01024
SPLIT = re.compile(r"[0-9*?}]-of-[0-9]{2,}$")

_MANY = 16  # addresses in one folder above which listing it is cheaper than a stat for each
_MAX_FILES = 1_000_000  # files of one pattern; more is a typo
_INDEXES = (".idx", ".index", ".json", ".jsonl")  # of shards, and reports on them
# storage that can list its contents
_LISTABLE = ("s3", "s3a", "gs", "gcs", "memory", "abfs", "az", "hf")


def find_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    suffix: str,
    storage: Storage,
    who: str,
    notes: list[str] | None = None,
    also: re.Pattern[str] | None = None,
) -> list[tuple[str, Stat]]:
    """The files, in the order of the arguments and sorted inside a pattern: (address, stat) each.

    Patterns may hold braces, `{000..099}` or `{a,b}`, and `*`, `?`, `[...]`; a folder means its
    files that end in `suffix` or, without any, those whose names `also` fits. A local file that
    exists under a name with such characters is meant literally. SourceError where one is missing,
    ConfigError where one is given twice.
    """
    items = listed_paths(paths)
    if not items or not all(isinstance(item, (str, os.PathLike)) for item in items):
        raise ConfigError(
            f"{who} needs a path, a pattern such as 'train-{{000..099}}{suffix}', or a list; got"
            f" {paths!r}",
            field="paths",
        )
    texts = [os.fspath(item).removeprefix("file://") for item in items]
    patterns = [
        pattern for text in texts for pattern in ([text] if _exists(text) else expand_braces(text))
    ]
    plain = [p for p in patterns if not p.endswith("/") and (_exists(p) or not _has_magic(p))]
    stats = _stats(plain, storage, who, suffix)
    files: list[tuple[str, Stat]] = []
    for pattern in patterns:
        if pattern in stats:
            files.append((pattern, stats[pattern]))
            continue
        files += _matches(pattern, suffix, also, storage, who)
        if notes is not None and is_local(pattern) and os.path.isdir(pattern):
            notes += _skipped_note(pattern, suffix, also)
    unique: set[str] = set()
    for uri, _ in files:
        same = os.path.abspath(uri) if is_local(uri) else uri
        if same in unique:
            raise ConfigError(
                f"{who}: {uri} is given twice; each file may be named once", field="paths"
            )
        unique.add(same)
    return files


def listed_paths(paths: Any) -> list[Any]:
    """The items of a list, or one path; errors in them are raised where they are opened."""
    if isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable):
        return [paths]
    return list(paths)


def left_out_note(entries: Sequence[str], folder: str) -> list[str]:
    """A note on the entries of a folder that are not read; none without any."""
    if not entries:
        return []
    noun, such = ("entry", ": ") if len(entries) == 1 else ("entries", ", such as ")
    return [f"left out {len(entries):,} other {noun} of {folder}{such}{entries[0]}"]


def expand_braces(pattern: str) -> list[str]:
    """`a{0..2}{x,y}` is a0x, a0y, a1x, ...; numbers keep their leading zeros. As in a shell."""
    expanded = list(_expanded(pattern))
    _check_count(pattern, len(expanded))
    return expanded


def _check_count(pattern: str, count: int) -> None:
    if count > _MAX_FILES:
        raise ConfigError(
            f"{pattern!r} must expand to at most {_MAX_FILES:,} files, got more; shorten its"
            " ranges",
            field="paths",
        )


def _expanded(pattern: str) -> Iterator[str]:
    begin = pattern.find("{")
    if begin < 0:
        yield pattern
        return
    end = begin
    commas = [begin]
    depth = 0
    for end in range(begin, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[end], 0)
        if depth == 0:
            break
        if pattern[end] == "," and depth == 1:
            commas.append(end)
    if depth:
        raise ConfigError(f"a brace in {pattern!r} is not closed", field="paths")
    parts = [pattern[a + 1 : b] for a, b in zip(commas, [*commas[1:], end], strict=True)]
    if len(parts) == 1:
        options = _numbers(pattern, parts[0])
    else:
        options = [o for part in parts for o in expand_braces(part)]
    tails = expand_braces(pattern[end + 1 :])
    _check_count(pattern, len(options) * len(tails))
    for option in options:
        for tail in tails:
            yield pattern[:begin] + option + tail


def _numbers(pattern: str, inside: str) -> Sequence[str]:
    """`08..10` is 08, 09, 10; `0..9..3` is 0, 3, 6, 9."""
    steps = re.fullmatch(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.-?([0-9]{1,18}))?", inside)
    if not steps or steps[3] == "0":
        raise ConfigError(
            f"braces must hold a range or a list, like {{000..099}} or {{a,b}}, got {{{inside}}} in"
            f" {pattern!r}",
            field="paths",
        )
    first = int(steps[1])
    last = int(steps[2])
    step = int(steps[3] or 1)
    padded = any(re.match("-?0[0-9]", text) for text in (steps[1], steps[2]))
    digits = max(len(steps[1]), len(steps[2])) if padded else 0
    _check_count(pattern, abs(last - first) // step + 1)
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{n:0{digits}d}" for n in numbers]


def local_stat(path: str) -> Stat:
    """Return the size and version of a local file. Raises OSError."""
    status = os.stat(path)
    return Stat(status.st_size, str(status.st_mtime_ns))


def stat_file(uri: str, storage: Storage) -> Stat | Unread:
    """Size and version of a file, local or remote."""
    if not is_local(uri):
        return storage.stat([uri])[0]
    try:
        return local_stat(uri)
    except OSError as error:
        return unread(error, uri)


def read_whole(uri: str, storage: Storage) -> bytes | Unread:
    """All bytes of a file, local or remote."""
    return read_file(uri) if is_local(uri) else storage.read([ByteRange(uri)])[0]


def _exists(path: str) -> bool:
    return is_local(path) and os.path.lexists(path)


def _has_magic(pattern: str) -> bool:
    return any(c in pattern for c in ("*[" if pattern.startswith("http") else "*?["))


def _matches(
    pattern: str, suffix: str, also: re.Pattern[str] | None, storage: Storage, who: str
) -> list[tuple[str, Stat]]:
    magic = _has_magic(pattern) and not _exists(pattern)
    inside = "*" if also else f"*{suffix}"  # of a folder
    if is_local(pattern):
        path = pattern if magic else os.path.join(glob.escape(pattern), inside)
        found = sorted(glob.glob(path, recursive=True))
        names = [name for name in found if not os.path.isdir(name)]
        names = names if magic else _shards(names, suffix, also)
        stats = _stats(names, storage, who, suffix)
    else:
        path = pattern if magic else f"{pattern.rstrip('/')}/{inside}"
        stats = dict(storage.find(path))
        names = list(stats) if magic else _shards(list(stats), suffix, also)
    files = [(name, stats[name]) for name in names]
    path = path if magic else path.removesuffix(inside) + f"*{suffix}"
    if not files:
        raise SourceError(f"{who}: nothing matches {printable(path)}; check the path")
    return files


def _shards(names: Sequence[str], suffix: str, also: re.Pattern[str] | None) -> list[str]:
    """The shards in a folder."""
    ending = [name for name in names if name.endswith(suffix)]
    return ending if ending or also is None else [name for name in names if also.search(name)]


def _skipped_note(folder: str, suffix: str, also: re.Pattern[str] | None) -> list[str]:
    """A note on the other contents of a folder besides its shards and their indexes."""
    names = sorted(os.listdir(folder))
    shards = {*_shards(names, suffix, also)}
    hidden = [name for name in names if name.startswith(".") and name in shards]
    entries = [name for name in names if name not in shards and not name.startswith((".", "_"))]
    entries = [name for name in hidden + entries if not name.endswith(_INDEXES)]
    return left_out_note(entries, folder)


def _stats(uris: list[str], storage: Storage, who: str, suffix: str) -> dict[str, Stat]:
    """Return the stats of single addresses, without folders."""
    stats: dict[str, Stat] = {}
    missing: list[str] = []
    down = False
    folders: dict[str, list[str]] = defaultdict(list)
    for uri in uris:
        if not is_local(uri):
            folders[uri.rpartition("/")[0]].append(uri)
        elif not os.path.isdir(uri):
            try:
                stats[uri] = local_stat(uri)
                if not os.path.isfile(uri):
                    missing.append(f"{printable(uri)}: not a regular file")
            except (OSError, ValueError) as error:
                missing.append(f"{printable(uri)}: {getattr(error, 'strerror', None) or error}")
    for folder, inside in folders.items():
        listed = _listed(folder, storage) if len(inside) >= _MANY else {}
        stats |= {uri: listed[name] for uri in inside if (name := uri.rpartition("/")[2]) in listed}
        remaining = [uri for uri in inside if uri not in stats]
        for uri, stat in zip(remaining, storage.stat(remaining), strict=True):
            if isinstance(stat, Stat):
                stats[uri] = stat
            elif stat.reason != "not_found" or uri.endswith(suffix):
                # else it may be a folder: it is listed later
                missing.append(f"{printable(uri)}: {stat.detail or stat.reason}")
                down = down or stat.reason in STORAGE
    if missing:
        others = len(missing) - 1
        more = f" (and {others} more of the {len(uris)} named)" if others else ""
        what_next = "try again when its storage answers" if down else "check the path"
        raise SourceError(f"{who}: cannot open {missing[0]}{more}; {what_next}")
    return stats


def _listed(folder: str, storage: Storage) -> dict[str, Stat]:
    """Files in a folder by name; empty if it cannot be listed, as in some public buckets."""
    if folder.partition("://")[0] not in _LISTABLE or _has_magic(folder):
        return {}
    try:
        return {uri.rpartition("/")[2]: stat for uri, stat in storage.find(f"{folder}/*")}
    except SourceError:
        return {}
