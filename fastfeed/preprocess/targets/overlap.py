"""Check that source and target do not overlap: outputs would become inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from fastfeed.errors import ConfigError

_SAME = {"s3a": "s3", "gcs": "gs", "abfss": "abfs"}  # two names of one protocol
_MAGIC = re.compile(r"[*?\[{]")

PathLike = str | os.PathLike[str]
PathParts = tuple[str, ...]  # the protocol, and the parts of the path


def check_overlap(source: PathLike, target: PathLike) -> None:
    """Raise ConfigError if source and target are the same or one contains the other.

    Resolves symbolic links and folders mounted twice. Neither has to exist.
    """
    if problem := _overlap(os.fspath(source), os.fspath(target)):
        raise ConfigError(
            f"source and target must not overlap, got {source} and {target}: {problem}; choose a"
            " target outside the source",
            field="target",
        )


def _overlap(source: str, target: str) -> str:
    target_parts = _parts(target)
    pattern = _parts(source)
    fixed = next((k for k, part in enumerate(pattern) if k and _MAGIC.search(part)), len(pattern))
    if pattern[0] == "file" and os.path.lexists(
        "/" + "/".join(pattern[1:])
    ):  # a folder may be called "a[1]"
        fixed = len(pattern)
    start = pattern[:fixed]
    magic = pattern[fixed:]
    if start[0] != target_parts[0]:
        return ""
    if start[0] == "file":
        start, inside, contains = _real(start), *_nested(_real(start), _real(target_parts))
        target_parts = _real(target_parts)
    else:
        inside = start[: len(target_parts)] == target_parts
        contains = target_parts[: len(start)] == start
    if inside and contains and not magic:
        return "they are the same"
    if inside:
        return "the source is inside the target"
    if contains and (not magic or _matches_below(target_parts[len(start) :], magic)):
        return "the target is inside the source"
    return ""


def _parts(text: str) -> PathParts:
    protocol, mark, rest = text.partition("://")
    if not mark:
        protocol = "file"
        rest = text
    if protocol in ("file", "local"):
        return ("file", *os.path.abspath(rest).split("/")[1:])
    # a user and a password
    rest = rest.partition("@")[2] if "@" in rest.partition("/")[0] else rest
    return (_SAME.get(protocol, protocol), *(part for part in rest.split("/") if part))


def _real(parts: PathParts) -> PathParts:
    real = os.path.realpath("/" + "/".join(parts[1:]))
    return ("file", *(part for part in real.split("/") if part))


def _nested(source: PathParts, target: PathParts) -> tuple[bool, bool]:
    """Two bools, by the file system: source inside target, target inside source."""
    source_ids = [_identity(source[:k]) for k in range(1, len(source) + 1)]
    target_ids = [_identity(target[:k]) for k in range(1, len(target) + 1)]
    inside = target_ids[-1] is not None and target_ids[-1] in source_ids
    contains = source_ids[-1] is not None and source_ids[-1] in target_ids
    return (
        inside or source[: len(target)] == target,
        contains or target[: len(source)] == source,
    )


def _identity(parts: PathParts) -> tuple[int, int] | None:
    try:
        status = os.stat("/" + "/".join(parts[1:]))
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _matches_below(below: Sequence[str], magic: Sequence[str]) -> bool:
    """True if a pattern's parts can match something below a folder."""
    for k, part in enumerate(magic):
        if "**" in part or "{" in part:  # braces may contain slashes: refuse to be safe
            return True
        if k == len(below):
            return True
        if not fnmatchcase(below[k], part):
            return False
    return False
