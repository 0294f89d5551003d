"""Training shards from millions of images: planned first, committed atomically, resumable.

    report = run("photos/", "shards/", Recipe(Scaling(512), Encoding("jpeg", 90)))

The bytes depend only on the plan, not on workers, the engine, or interruptions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fastfeed.printable import warn

if TYPE_CHECKING:
    from fastfeed.preprocess.inputs.inputs import Input
    from fastfeed.preprocess.inputs.source_spec import open_input
    from fastfeed.preprocess.job.job import run
    from fastfeed.preprocess.job.merge import merge
    from fastfeed.preprocess.job.update import update
    from fastfeed.preprocess.model.bad_filter import BadFilter
    from fastfeed.preprocess.model.recipe import (
        Encoding,
        Limits,
        Metadata,
        Packing,
        Recipe,
        Scaling,
        Selection,
    )
    from fastfeed.preprocess.model.report import Progress, Report
    from fastfeed.preprocess.model.task import Engine
    from fastfeed.preprocess.reports.plan_table import plan_table
    from fastfeed.preprocess.shard.user_function import Drop, Sample

__all__ = [
    "BadFilter",
    "Drop",
    "Encoding",
    "Engine",
    "Input",
    "Limits",
    "Metadata",
    "Packing",
    "Progress",
    "Recipe",
    "Report",
    "Sample",
    "Scaling",
    "Selection",
    "merge",
    "open_input",
    "plan_table",
    "run",
    "update",
]

_MODULES = {  # all others: model.recipe
    "BadFilter": "model.bad_filter",
    "Drop": "shard.user_function",
    "Engine": "model.task",
    "Input": "inputs.inputs",
    "Progress": "model.report",
    "Report": "model.report",
    "Sample": "shard.user_function",
    "merge": "job.merge",
    "open_input": "inputs.source_spec",
    "plan_table": "reports.plan_table",
    "run": "job.job",
    "update": "job.update",
}


def __getattr__(name: str) -> object:
    """Import on demand: a worker process needs neither the job nor its reports."""
    if name == "Choice":
        warn("Choice is called Selection now", DeprecationWarning, stacklevel=2)
        name = "Selection"
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(
        importlib.import_module(f"{__name__}.{_MODULES.get(name, 'model.recipe')}"), name
    )


def __dir__() -> list[str]:
    return __all__
