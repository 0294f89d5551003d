"""Source and target must not lie in one another: what a job writes would be listed as its input the next time."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from fastfeed.errors import ConfigError

__all__ = ["check_overlap"]

_SAME = {"s3a": "s3", "gcs": "gs", "abfss": "abfs"}  # two names of one protocol
_MAGIC = re.compile(r"[*?\[{]")

Given = str | os.PathLike[str]
Place = tuple[str, ...]  # the protocol, and the parts of the path


class Named(Protocol):
    """A target."""

    @property
    def text(self) -> str: ...


def check_overlap(source: Given | Sequence[Given], target: Given | Named) -> None:
    """ConfigError where one lies in the other, or both are the same: folders, URLs, or patterns for the source.

    Symbolic links, and folders mounted twice, are seen through. Nothing has to be there.
    """
    there = os.fspath(target) if isinstance(target, (str, os.PathLike)) else target.text
    sources = [source] if isinstance(source, (str, os.PathLike)) else source
    for place in [os.fspath(item) for item in sources]:
        how = _overlap(place, there)
        if how:
            raise ConfigError(
                f"source and target must not lie in one another, got {place} and {there}: {how}; choose a target "
                "beside the source"
            )


def _overlap(source: str, target: str) -> str:
    here, pattern = _place(target), _place(source)
    fixed = next((k for k, part in enumerate(pattern) if k and _MAGIC.search(part)), len(pattern))
    if pattern[0] == "file" and _exists(pattern):  # a folder may be called "a[1]"
        fixed = len(pattern)
    start, magic = pattern[:fixed], pattern[fixed:]
    if start[0] != here[0]:
        return ""
    if start[0] == "file":
        start, inside, around = _real(start), *_nested(_real(start), _real(here))
        here = _real(here)
    else:
        inside, around = start[: len(here)] == here, here[: len(start)] == start
    if inside and around and not magic:
        return "they are the same"
    if inside:
        return "the source lies in the target"
    if around and (not magic or _matches_below(here[len(start) :], magic)):
        return "the target lies in the source"
    return ""


def _place(text: str) -> Place:
    protocol, mark, rest = text.partition("://")
    if not mark:
        protocol, rest = "file", text
    if protocol in ("file", "local"):
        return ("file", *os.path.abspath(rest).split("/")[1:])
    rest = rest.partition("@")[2] if "@" in rest.partition("/")[0] else rest  # a user and a password
    return (_SAME.get(protocol, protocol), *(part for part in rest.split("/") if part))


def _exists(place: Place) -> bool:
    return os.path.lexists("/" + "/".join(place[1:]))


def _real(place: Place) -> Place:
    real = os.path.realpath("/" + "/".join(place[1:]))
    return ("file", *(part for part in real.split("/") if part))


def _nested(source: Place, target: Place) -> tuple[bool, bool]:
    """Whether the source is the target or lies in it, and the other way round, as the file system has it."""
    ids = [_identity(source[:k]) for k in range(1, len(source) + 1)]
    others = [_identity(target[:k]) for k in range(1, len(target) + 1)]
    inside = source[: len(target)] == target or (others[-1] is not None and others[-1] in ids)
    around = target[: len(source)] == source or (ids[-1] is not None and ids[-1] in others)
    return inside, around


def _identity(place: Place) -> tuple[int, int] | None:
    try:
        status = os.stat("/" + "/".join(place[1:]))
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _matches_below(below: Sequence[str], magic: Sequence[str]) -> bool:
    """Whether a pattern's parts can match something below a folder, both from where the pattern begins."""
    for k, part in enumerate(magic):
        if "**" in part or "{" in part:  # braces may hold slashes: rather refused
            return True
        if k == len(below):
            return True
        if not fnmatchcase(below[k], part):
            return False
    return False
