"""Opens the shards of a previous job as input; its plan lists its files and format."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.formats import ColumnNames, default_labels, open_shards
from fastfeed.preprocess.model.layout import SUFFIXES, record_name
from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.recipe import SPLIT_NAME
from fastfeed.preprocess.targets.ranges import target_location
from fastfeed.preprocess.targets.target import Target
from fastfeed.printable import warn
from fastfeed.sources.base import Source
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.storage.local_file import read_file
from fastfeed.storage.reads import ByteRange, Unread, is_local
from fastfeed.storage.storage import Storage

_DEFAULTS = ColumnNames()
_MAX_LEVELS = 2  # folders between a target and its shards, at most: train/512x768
# column of a job's, by kind
METADATA = {"tar": "json", "tfrecord": "image/meta", "mds": "meta", "table": "meta"}
# column with the names of several classes, by kind
NAMES = {"tar": "json:class", "tfrecord": "image/class/text", "mds": "class", "table": "class"}
# kinds of sources by format; others have the format's name
KINDS = {"webdataset": "tar", "parquet": "table"}


@dataclass(frozen=True, slots=True, eq=False)
class PreviousJob:
    """The samples in a job's shards."""

    origin: str  # source of that job
    source: Source
    caption: str  # caption column; "": none
    kind: str  # as `detect_kind` says
    types: dict[str, ColumnType]  # of the metadata columns that it wrote


def open_previous_job(
    path: str,
    storage: Storage,
    requested: ColumnNames = _DEFAULTS,
    columns: Sequence[str] = (),
    label_kind: LabelKind | None = None,
    with_metadata: bool = False,
    binary: Collection[str] = (),
) -> PreviousJob | None:
    """Open the shards of a job in `path`; None if there is no job.

    `label_kind` is of labels other than the job's own, which are indices of its classes.
    `with_metadata` adds the column METADATA, and those of bytes; `binary`: of `columns`, those of
    bytes. ConfigError if `path` holds several splits.
    """
    found = _find_plan(path, storage)
    if found is None:
        return None
    plan, root, subfolder = found
    format = plan.recipe.packing.format
    inside = f"{subfolder}/" if subfolder else ""
    shards = [shard for shard in plan.shards if shard.name.startswith(inside)]
    if not shards:
        raise SourceError(f"{root} was written by a job, but {subfolder} is not part of it")
    tops = {shard.name.partition("/")[0] for shard in shards}
    splits = {top for top in tops if re.fullmatch(SPLIT_NAME, top)}
    if not subfolder and len(splits) > 1:
        raise ConfigError(
            f"{root} holds {' and '.join(sorted(splits))}: name one of them,"
            f" {root}/{sorted(splits)[0]}"
        )
    if plan.images:
        raise ConfigError(
            f"{root} holds samples of several images, {', '.join(plan.images)}; name its shards,"
            f" '{path.rstrip('/')}/*{SUFFIXES[format]}', and the column of each image, or open them"
            " in ff.Together",
            field="image",
        )
    suffix = SUFFIXES[format]
    files = [f"{root}/{shard.name}{suffix}" for shard in shards]
    records = _records(root, shards, storage)
    pairs = zip(files, records, strict=True)
    present = [file for file, record in pairs if record and record["ids"]]
    if not present:
        none = f"none of the {len(files)} shards of this job is there yet, or none has a sample"
        raise SourceError(f"{root}: {none}")
    kind = KINDS.get(format, format)
    own = requested.label in (None, *default_labels(kind))
    if with_metadata and kind in METADATA:
        own_bytes = [name for name, own in plan.columns.items() if own == "bytes"]
        binary = {*binary, *own_bytes}
        columns = list(dict.fromkeys((*columns, METADATA[kind], *own_bytes)))
    classes = (plan.classes or None) if own else None
    if own:
        label_kind = "multi" if plan.multi else "index"
        requested = replace(requested, label=NAMES[kind]) if plan.multi else requested
    source, resolved = open_shards(
        kind,
        present,
        requested,
        columns,
        storage,
        False,
        classes,
        label_kind=label_kind,
        binary=binary,
    )
    return PreviousJob(plan.source, source, resolved.caption or "", kind, plan.columns)


def image_names(plan: JobPlan) -> tuple[str | None, str]:
    """Column or feature of the first image in a job's shards, and its extension in tars."""
    format = plan.recipe.packing.format
    extension = plan.recipe.encoding.extension
    if not plan.images:
        return None, extension
    first = plan.images[0]
    column = f"image/{first}/encoded" if format == "tfrecord" else first
    return column, f"{first}.{extension}"


def open_shard(
    target: Target, plan: JobPlan, shard: str, index: str, columns: Sequence[str] = ()
) -> Source:
    """Open a shard of a job as a source with these columns; `index` is a file. SourceError."""
    format = plan.recipe.packing.format
    root, storage = target_location(target)
    image, extension = image_names(plan)
    kind = KINDS.get(format, format)
    path = f"{root}/{shard}{SUFFIXES[format]}"
    label = NAMES.get(kind) if plan.multi else None if plan.classes else ""
    return open_shards(
        kind,
        path if kind == "table" else [path],
        ColumnNames(label, image, caption=""),
        columns,
        storage,
        progress=False,
        classes=plan.classes or None,
        label_kind="multi" if plan.multi else "index",
        more={"index": index, "images": [extension]},
    )[0]


def _find_plan(path: str, storage: Storage) -> tuple[JobPlan, str, str] | None:
    """The plan of a job in `path` or above, its folder, and the path from there."""
    may_be_folder = os.path.isdir(path) if is_local(path) else not os.path.splitext(path)[1]
    if any(c in path for c in "*?[{") or not may_be_folder:  # files have no plan
        return None
    for up in range(_MAX_LEVELS + 1):
        root, subfolder = _split(path, up)
        if not root:
            return None
        plan = JobPlan.read(lambda name: _read(f"{root}/{name}", storage), root)  # noqa: B023
        if plan is not None:
            return plan, root, subfolder
        name = (subfolder or path).rstrip("/").rpartition("/")[2]
        # other folders are not a job's: that avoids requests to storage
        if not is_local(path) and not re.fullmatch(rf"{SPLIT_NAME}|[0-9]+x[0-9]+", name):
            return None
    return None


def _split(path: str, up: int) -> tuple[str, str]:
    """The folder `up` levels above, and the path from it to `path`."""
    path = path.removeprefix("file://")
    path = os.path.abspath(path) if is_local(path) else path.rstrip("/")
    parts = path.split("/")
    root = "/".join(parts[: len(parts) - up])
    subfolder = "/".join(parts[len(parts) - up :])
    return ("" if root.endswith((":", ":/")) else root), subfolder


def _read(uri: str, storage: Storage) -> bytes | None:
    content = read_file(uri) if is_local(uri) else storage.read([ByteRange(uri)])[0]
    if not isinstance(content, Unread):
        return content
    if content.reason in ("not_found", "empty") or (is_local(uri) and not os.path.exists(uri)):
        return None
    # S3's answer for missing objects without permission to list
    if content.detail.startswith("permission denied"):
        return None
    raise SourceError(f"cannot read {uri}: {content.detail or content.reason}")


def _records(root: str, shards: list[Any], storage: Storage) -> list[dict[str, Any] | None]:
    """The record of each shard; None, and a warning, if it is missing."""
    names = [f"{root}/{record_name(shard.name)}" for shard in shards]
    if is_local(root):
        contents = [_read(name, storage) for name in names]
    else:
        blobs = storage.read([ByteRange(name) for name in names])
        contents = [None if isinstance(blob, Unread) else blob for blob in blobs]
    if missing := contents.count(None):
        some = f"{missing} of {len(names)} shards are not there yet: the job is not complete"
        warn(f"{root}: {some}", UserWarning, stacklevel=3)
    try:
        return [None if content is None else json.loads(content) for content in contents]
    except ValueError as error:
        raise SourceError(
            f"{root}: a shard's record is damaged: {error}; `fastfeed preprocess verify` shows"
            " which"
        ) from error
