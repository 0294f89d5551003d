"""Saves a feed's position in a file that is replaced atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fastfeed.errors import StateError
from fastfeed.runtime.atomic_write import atomic_write

__all__ = ["load_state", "save_state"]


def save_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write `feed.state()` as JSON, committed by atomic rename after fsync; until then the old file stays."""
    path = Path(path)
    text = json.dumps(state, indent=1) + "\n"
    try:
        with atomic_write(path, sync_parent=True) as file:
            file.write(text.encode())
    except FileNotFoundError:
        raise StateError(f"cannot save a state to {path}: no folder {path.parent}; create it first") from None


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save_state` wrote, for `feed.restore`. Raises StateError."""
    try:
        state = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise StateError(f"cannot read a state from {path}: {error.strerror}; pass what save_state wrote") from error
    except ValueError as error:
        raise StateError(f"{path} is not a saved state: {error}; pass what save_state wrote") from error
    if not isinstance(state, dict):
        raise StateError(f"{path} is not a saved state: got {type(state).__name__}; pass what save_state wrote")
    return state
