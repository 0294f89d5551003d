"""Writers of shard files, by format; equal entries give equal bytes."""

from __future__ import annotations

import importlib

from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.writers.base import Create, File, ShardWriter

__all__ = ["Create", "File", "ShardWriter", "new_writer", "writer_for"]

_WRITERS = {
    "webdataset": ("tar", "TarWriter"),
    "tfrecord": ("tfrecord", "TFRecordWriter"),
    "mds": ("mds", "MDSWriter"),
    "parquet": ("parquet", "ParquetWriter"),
    "raw": ("arrays", "RawWriter"),
}


def writer_for(packing: Packing) -> type[ShardWriter]:
    """The writer class of a format; MissingExtra if its package is not installed."""
    module, name = _WRITERS[packing.format]
    return getattr(importlib.import_module(f"fastfeed.preprocess.writers.{module}"), name)


def new_writer(create: Create, stem: str, plan: JobPlan) -> ShardWriter:
    """A writer of one of the plan's shards."""
    packing = plan.recipe.packing
    return writer_for(packing)(create, stem, packing, plan.columns, plan.multi, plan.images)
