"""Turns millions of photographs into training shards: planned first, committed atomically, resumable.

    report = run("photos/", "shards/", Recipe(Scaling(512), Encoding("jpeg", 90)))

The bytes depend only on the plan, not on the workers, the engine, or how often the job was interrupted.
"""

from __future__ import annotations

from fastfeed.preprocess.inputs.inputs import Input, open_input
from fastfeed.preprocess.job import run
from fastfeed.preprocess.recipe import Choice, Encoding, Limits, Metadata, Packing, Recipe, Scaling
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
    "Scaling",
    "open_input",
    "run",
]
