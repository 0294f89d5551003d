"""Rows of a job's images in an Arrow table."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from fastfeed.errors import MissingExtra, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.plan_ids import sample_columns
from fastfeed.preprocess.inputs.previous_job import KINDS, METADATA, open_shard
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.record import ShardRecord
from fastfeed.preprocess.planning.bad_images import PlannedClasses, bad_images
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.target import Target

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtra.of("plan_table", "PyArrow", "parquet") from error

_BUCKET = re.compile(r"(?:^|/)[0-9]+x[0-9]+$")  # the end of a shard's folder
_AT_ONCE = 1024  # samples whose metadata is read together
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("uri", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("class", pa.string()),
        pa.field("label", pa.int64()),
        pa.field("split", pa.string()),
        pa.field("shard", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("source_height", pa.int64()),
        pa.field("source_width", pa.int64()),
        pa.field("source_bytes", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
_SIZES = ("source_height", "source_width", "source_bytes")


def arrow_table(target: Target) -> pa.Table:
    """The table that `plan_table` returns."""
    job = open_job(target)
    classes = PlannedClasses(job.target, job.plan)
    bad: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for image in bad_images(job, classes):
        keep = job.plan.recipe.metadata.absolute_uri
        row = {"uri": image.sample.uri if keep else image.name, "class": image.class_name or None}
        row |= {"reason": image.sample.reason, "detail": image.sample.detail or None}
        bad[image.shard].append({"id": image.sample.id, "state": "bad"} | row)
    schema = _SCHEMA
    for name in ("class", "label") if job.plan.multi else ():
        place = schema.get_field_index(name)
        schema = schema.set(place, pa.field(name, pa.list_(schema.field(name).type)))
    batches: list[pa.RecordBatch] = []
    columns = _Columns()
    for shard in job.shards:
        record = job.records.get(shard.index)
        if record is None:
            ids = job.plan.ids(shard)  # the source, which has the names, is not read
            pairs = zip(ids.tolist(), classes.of(ids), strict=True)
            rows = [{"id": i, "state": "planned", "class": name or None} for i, name in pairs]
        else:
            rows = [*_samples(job, record, columns), *bad[shard.index]]
        split = _BUCKET.sub("", shard.name.rpartition("/")[0]) or None
        columns.pad(len(rows))
        batches.append(pa.RecordBatch.from_pylist([row | {"split": split} for row in rows], schema))
    table = pa.Table.from_batches(batches, schema)
    return table.append_column("columns", columns.array()) if columns.values else table


def _samples(job: Job, record: ShardRecord, columns: _Columns) -> Iterator[dict[str, Any]]:
    """Rows of the samples in a shard, in order."""
    if not record.ids:
        return
    name = record.shard + SUFFIXES[job.plan.recipe.packing.format]
    pairs = zip(record.ids, _metadata(job, record), strict=True)
    for position, (i, meta) in enumerate(pairs):
        columns.add(meta.get("columns") or {})
        yield {
            "id": i,
            "state": "done",
            "shard": name,
            "position": position,
            **{key: meta.get(key) for key in ("uri", "class", "label", *_SIZES)},
        }


def _metadata(job: Job, record: ShardRecord) -> list[dict[str, Any]]:
    """Metadata of a shard's samples, in order. SourceError."""
    is_raw = job.plan.recipe.packing.format == "raw"
    try:
        if is_raw:
            lines = (job.target.read(f"{record.shard}.meta.jsonl") or b"").splitlines()
            found = [json.loads(line)["meta"] for line in lines]
        else:
            found = list(_of_source(job, record))
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{record.shard}: its metadata cannot be read: {error}") from error
    if len(found) != len(record.ids):
        raise SourceError(
            f"{record.shard} holds {len(found)} samples, its record lists {len(record.ids)};"
            " `fastfeed preprocess verify` shows what is wrong"
        )
    return found


def _of_source(job: Job, record: ShardRecord) -> Iterator[dict[str, Any]]:
    format = job.plan.recipe.packing.format
    column = METADATA[KINDS.get(format, format)]
    with tempfile.TemporaryDirectory(prefix="fastfeed-plan-") as scratch:
        index = os.path.join(scratch, "shard.ffindex")
        source = open_shard(job.target, job.plan, record.shard, index, [column])
        for first in range(0, len(source), _AT_ONCE):
            for values in sample_columns(source, range(first, min(first + _AT_ONCE, len(source)))):
                if isinstance(values, Failure):
                    raise SourceError(str(values))
                meta = values.get(column)
                yield json.loads(meta) if isinstance(meta, (str, bytes)) else meta or {}


class _Columns:
    """Values of metadata columns by name, of all rows so far."""

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = {}
        self._rows = 0  # of batches that are complete
        self._added = 0  # rows since

    def add(self, columns: dict[str, Any]) -> None:
        """Add the values of the next row."""
        for name, value in columns.items():
            column = self.values.setdefault(name, [])
            column += [None] * (self._rows + self._added - len(column))
            column.append(value)
        self._added += 1

    def pad(self, count: int) -> None:
        """End a batch of `count` rows, of which the last ones may have no columns."""
        self._rows += count
        self._added = 0

    def array(self) -> pa.StructArray:
        """All rows as one struct."""
        arrays = []
        for column in self.values.values():
            arrays.append(_typed([*column, *[None] * (self._rows - len(column))]))
        return pa.StructArray.from_arrays(arrays, names=list(self.values))


def _typed(values: Sequence[Any]) -> pa.Array:
    """An array of the values; of mixed types, of their JSON."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else json.dumps(value) for value in values])
