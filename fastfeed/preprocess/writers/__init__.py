"""Writers of shard files, by format; equal entries give equal bytes."""

from __future__ import annotations

import importlib

from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.writers.base import Create, File, Writer

__all__ = ["Create", "File", "Writer", "writer_for"]

_MODULES = {"webdataset": "tar", "raw": "arrays"}  # others are named after the format


def writer_for(packing: Packing) -> type[Writer]:
    """The writer class of a format; MissingExtra if its package is not installed."""
    module = _MODULES.get(packing.format, packing.format)
    return importlib.import_module(f"fastfeed.preprocess.writers.{module}").Writer
