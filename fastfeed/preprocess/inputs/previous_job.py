"""What a job has written, opened again: the plan in its `_job` folder says in which files, and of which format."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.formats import ColumnNames, open_shards
from fastfeed.preprocess.plan import ORDER, PLAN, JobPlan
from fastfeed.preprocess.writers import SUFFIXES
from fastfeed.sources.base import Source
from fastfeed.storage.byte_range import Span, is_local
from fastfeed.storage.local_file import read_file
from fastfeed.storage.retry import Unread
from fastfeed.storage.storage import Storage

__all__ = ["PreviousJob", "open_previous_job"]

_SPLITS = ("train", "val")
_USUAL = ColumnNames()
_UP = 2  # folders between a target and its shards, at most: train/512x768
_KINDS = {"webdataset": "tar", "parquet": "table"}  # of sources, by format; the others have its name


@dataclass(frozen=True, slots=True, eq=False)
class PreviousJob:
    """The samples of a job's shards."""

    source: Source
    caption: str  # the column that holds it; "": none
    kind: str  # as `kind_of` says


def open_previous_job(
    place: str, storage: Storage, asked: ColumnNames = _USUAL, columns: Sequence[str] = ()
) -> PreviousJob | None:
    """The shards of a job in `place`, or in a folder of it: `train`, `val`. None where no job is there.

    ConfigError where `place` holds both; a warning where shards are missing.
    """
    if any(c in place for c in "*?[{") or not _maybe(place):
        return None
    for up in range(_UP + 1):
        root, below = _split(place, up)
        if not root:
            return None
        plan = _plan(root, storage)
        if plan is not None:
            return _opened(plan, root, below, storage, asked, columns)
        if not is_local(place) and not _looks_like_a_part(below or place):
            return None
    return None


def _maybe(place: str) -> bool:
    """It may be a folder: files need no look for a plan."""
    return os.path.isdir(place.removeprefix("file://")) if is_local(place) else not os.path.splitext(place)[1]


def _looks_like_a_part(place: str) -> bool:
    """Asking remote storage costs time: only for folders that a job makes."""
    name = place.rstrip("/").rpartition("/")[2]
    return name in _SPLITS or all(part.isdigit() for part in name.split("x"))


def _split(place: str, up: int) -> tuple[str, str]:
    """The folder so many above, and what leads from there to `place`."""
    place = place.removeprefix("file://")
    place = os.path.abspath(place) if is_local(place) else place.rstrip("/")
    parts = place.split("/")
    root, below = "/".join(parts[: len(parts) - up]), "/".join(parts[len(parts) - up :])
    return ("" if root.endswith((":", ":/")) else root), below


def _plan(root: str, storage: Storage) -> JobPlan | None:
    head = _read(f"{root}/{PLAN}", storage)
    order = None if head is None else _read(f"{root}/{ORDER}", storage)
    return None if head is None or order is None else JobPlan.load(head, order, root)


def _read(uri: str, storage: Storage) -> bytes | None:
    found = read_file(uri) if is_local(uri) else storage.read([Span(uri)])[0]
    if not isinstance(found, Unread):
        return found
    if found.reason in ("not_found", "empty") or (is_local(uri) and not os.path.exists(uri)):
        return None
    if found.detail.startswith("permission denied"):  # S3's answer for what is not there, to those who may not list
        return None
    raise SourceError(f"cannot read {uri}: {found.detail or found.reason}")


def _opened(
    plan: JobPlan, root: str, below: str, storage: Storage, asked: ColumnNames, columns: Sequence[str]
) -> PreviousJob:
    format, inside = plan.recipe.packing.format, f"{below}/" if below else ""
    shards = [shard for shard in plan.shards if shard.name.startswith(inside)]
    if not shards:
        raise SourceError(f"{root} is what a job has written, but {below} is no part of it")
    splits = {shard.name.partition("/")[0] for shard in shards} & set(_SPLITS)
    if not below and len(splits) > 1:
        raise ConfigError(f"{root} holds {' and '.join(sorted(splits))}: name one of them, {root}/{sorted(splits)[0]}")
    suffix = SUFFIXES[format]
    files = [f"{root}/{shard.name}{suffix}" for shard in shards]
    there = [file for file, full in zip(files, map(_samples, _records(root, shards, storage)), strict=True) if full]
    if not there:
        raise SourceError(f"{root}: no shard of the {len(files)} of this job is there yet, or none has a sample")
    kind = _KINDS.get(format, format)
    source, found = open_shards(kind, there, asked, columns, storage, False, plan.classes or None)
    return PreviousJob(source, found.caption or "", kind)


def _records(root: str, shards: list[Any], storage: Storage) -> list[dict[str, Any] | None]:
    """What is said of each shard; None where it is not there yet. With a warning."""
    names = [f"{root}/{shard.name}.json" for shard in shards]
    if is_local(root):
        found = [_read(name, storage) for name in names]
    else:
        found = [None if isinstance(x, Unread) else x for x in storage.read([Span(name) for name in names])]
    missing = found.count(None)
    if missing:
        warnings.warn(
            f"{root}: {missing} of {len(names)} shards are not there yet: the job is not complete", stacklevel=4
        )
    try:
        return [None if content is None else json.loads(content) for content in found]
    except ValueError as error:
        raise SourceError(f"{root}: a shard's record is damaged: {error}; `fastfeed verify` says which") from error


def _samples(record: dict[str, Any] | None) -> int:
    return len(record["ids"]) if record else 0
