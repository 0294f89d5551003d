"""Writers of shard files, by format; equal entries give equal bytes."""

from __future__ import annotations

import importlib

from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.writers.base import Create, File, Writer

__all__ = ["Create", "File", "Writer", "new_writer", "writer_for"]

_MODULES = {"webdataset": "tar", "raw": "arrays"}  # others are named after the format


def writer_for(packing: Packing) -> type[Writer]:
    """The writer class of a format; MissingExtra if its package is not installed."""
    module = _MODULES.get(packing.format, packing.format)
    return importlib.import_module(f"fastfeed.preprocess.writers.{module}").Writer


def new_writer(create: Create, stem: str, plan: JobPlan) -> Writer:
    """A writer of one of the plan's shards."""
    packing = plan.recipe.packing
    return writer_for(packing)(create, stem, packing, plan.columns, plan.multi, plan.images)
