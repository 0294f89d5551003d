"""Opens a target: a folder or a URL."""

from __future__ import annotations

import importlib
import os
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.preprocess.targets.base import Target

__all__ = ["Target", "open_target"]


def open_target(
    path: str | os.PathLike[str], options: dict[str, Any] | None = None, *, writes: bool = True
) -> Target:
    """Open a folder or a URL; without `writes` it must exist. ConfigError, TargetError.

    `options` go to the storage client.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise ConfigError.of("the target", "a folder or a URL such as s3://bucket/train", text)
    local = text.removeprefix("file://")
    if "://" in local or "::" in local:
        return importlib.import_module("fastfeed.preprocess.targets.remote").open_remote(
            text, options or {}, writes
        )
    if options:
        raise ConfigError(
            f"storage options are for URLs, got {', '.join(sorted(options))} for the folder {text}",
            field="target_storage",
        )
    return importlib.import_module("fastfeed.preprocess.targets.local").open_local(
        text, local, writes
    )
