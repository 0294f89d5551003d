"""Divides shards among machines that do not communicate: `--part 3/8`, Slurm arrays."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from fastfeed.errors import ConfigError

__all__ = ["parse_part", "select_part"]

PartIndex = tuple[int, int]  # (i, n): the i-th of n, from 0

_SLURM = ("TASK_ID", "TASK_MIN", "TASK_MAX", "TASK_STEP", "TASK_COUNT")


def parse_part(text: str, environ: Mapping[str, str] = os.environ) -> PartIndex:
    """ "3/8" is the fourth of eight: parts count from 0, as ranks do.

    "auto": this task of a Slurm array.

    ConfigError.
    """
    if text == "auto":
        return _of_slurm(environ)
    parsed = re.fullmatch(r"(\d+)/(\d+)", text.strip(), re.ASCII)
    if not parsed or not int(parsed[2]):
        raise ConfigError(
            'part must be "i/n", such as 0/8 for the first of eight, or "auto" (Slurm), got'
            f" {text!r}",
            field="part",
        )
    i, n = int(parsed[1]), int(parsed[2])
    if i >= n:
        raise ConfigError(
            f"part must be in [0, {n}), got {i}: parts count from 0, to {n - 1}; in a Slurm array"
            f" (--array=0-{n - 1}) use --part auto",
            field="part",
        )
    return i, n


def select_part(pieces: Iterable[int], part: PartIndex) -> list[int]:
    """The pieces of a part. Depends only on the pieces' numbers, so no two parts share a piece."""
    i, n = part
    return [piece for piece in pieces if piece % n == i]


def _of_slurm(environ: Mapping[str, str]) -> PartIndex:
    """--array=0-7 and --array=1-8 and --array=10-80:10 are all eight parts."""
    names = [f"SLURM_ARRAY_{name}" for name in _SLURM]
    values = [environ.get(name, "") for name in names]
    if not all(value.isascii() and value.isdigit() for value in values):
        missing = ", ".join(
            name for name, value in zip(names, values, strict=True) if not value.isdigit()
        )
        raise ConfigError(
            'part "auto" reads the variables that Slurm sets for array tasks, but these are not'
            f' set: {missing}; submit with sbatch --array=0-7, or name the part: "0/8"',
            field="part",
        )
    id, low, high, step, count = map(int, values)
    if not step or (high - low) // step + 1 != count or not low <= id <= high or (id - low) % step:
        raise ConfigError(
            f'part "auto" needs an array without gaps, such as --array=0-7, got {count} tasks from'
            f' {low} to {high}; to repeat single parts, pass them as "3/8"',
            field="part",
        )
    return (id - low) // step, count
