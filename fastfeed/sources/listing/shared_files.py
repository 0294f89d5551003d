"""Files that links make part of two classes."""

from __future__ import annotations

import os

import numpy as np

from fastfeed.sources.tables.string_column import StringColumn

__all__ = ["file_in_two_classes"]


def file_in_two_classes(
    root: str, paths: StringColumn, labels: np.ndarray
) -> tuple[str, str] | None:
    """Two paths below `root` that are one file with two labels; None if there is no conflict.

    Asks for each file.
    """
    first: dict[tuple[int, int], int] = {}
    for i in range(len(paths)):
        try:
            stat = os.stat(os.path.join(root, paths[i]))
        except OSError:  # reading it will say so
            continue
        other = first.setdefault((stat.st_dev, stat.st_ino), i)
        if labels[other] != labels[i]:
            return paths[other], paths[i]
    return None
