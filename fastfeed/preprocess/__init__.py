"""Turns millions of photographs into training shards: planned first, committed atomically,
resumable.

    report = run("photos/", "shards/", Recipe(Scaling(512), Encoding("jpeg", 90)))

The bytes depend only on the plan, not on the workers, the engine, or how often the job was
interrupted. In the order of a run:

job              runs all of these
inputs/          photographs, labels, captions; shards of a previous job
recipe           how photographs (image_recipe) and shards are made
planning         which photograph goes into which shard, decided once; `--append` adds shards.
                 survey/: duplicates and split. plan is its file; changes and same_source compare it
                 with the source now
engines/         where shards are built: local, executor, Ray; workers/ supervises the processes;
task is the contract shard            one shard: pixels/ decodes, resizes and encodes, entry is one
sample, extras what your function
                 adds to it, writers/ write each format
targets/         local or remote folders, in which a shard is committed by atomic rename
record, state    what is committed already, read from the target: how a job resumes; layout names
its files run_state        progress and limits of a run; report is its result finalize
manifest and list of bad images; versions records libraries reports/         progress, estimate,
status, statistics, verification, preview
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastfeed.preprocess.extras import Sample
    from fastfeed.preprocess.inputs.inputs import Input, open_input
    from fastfeed.preprocess.job import run
    from fastfeed.preprocess.recipe import (
        Choice,
        Encoding,
        Limits,
        Metadata,
        Packing,
        Recipe,
        Scaling,
    )
    from fastfeed.preprocess.report import Progress, Report
    from fastfeed.preprocess.task import Engine

__all__ = [
    "Choice",
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
    "open_input",
    "run",
]

_MODULES = {
    "Engine": "task",
    "Input": "inputs.inputs",
    "Progress": "report",
    "Report": "report",
    "Sample": "extras",
    "open_input": "inputs.inputs",
    "run": "job",
}  # all others: recipe


def __getattr__(name: str) -> object:
    """On demand: a worker process needs neither the job nor its reports."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'recipe')}"), name)


def __dir__() -> list[str]:
    return __all__
