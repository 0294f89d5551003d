"""Millions of photographs into training shards: planned first, committed whole, resumable.

    report = run("photos/", "shards/", Recipe(Scaling(512), Encoding("jpeg", 90)))

The bytes depend on the plan alone, not on workers, engine, or how often the job was broken off.
"""

from __future__ import annotations

from fastfeed.preprocess.inputs.inputs import Input, open_input
from fastfeed.preprocess.job import run
from fastfeed.preprocess.recipe import Choice, Encoding, Limits, Packing, Recipe, Scaling
from fastfeed.preprocess.report import Progress, Report
from fastfeed.preprocess.task import Engine

__all__ = [
    "Choice",
    "Encoding",
    "Engine",
    "Input",
    "Limits",
    "Packing",
    "Progress",
    "Recipe",
    "Report",
    "Scaling",
    "open_input",
    "run",
]
