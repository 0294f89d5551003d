"""Folders for the tests of ImageFolder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fastfeed.sources import ImageFolder


def tree(root: Path, *names: str) -> Path:
    """Files whose content is their name; ImageFolder looks at no content.

    A -> B is a link, a/ a folder.
    """
    for name in names:
        name, _, target = name.partition(" -> ")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        elif name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(name.encode())
    return root


def names(source: ImageFolder) -> list[str]:
    return [os.path.relpath(source.uri(i), source.root) for i in range(len(source))]


def labels(source: ImageFolder) -> list[int]:
    return source.label(np.arange(len(source))).tolist()
