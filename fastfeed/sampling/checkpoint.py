"""A position kept in a file: whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from fastfeed.errors import StateError

__all__ = ["load_state", "save_state"]


def save_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write `feed.state()` as JSON: under another name, to the disk, then renamed. What was there stays until then."""
    path = Path(path)
    text = json.dumps(state, indent=1) + "\n"
    try:
        fd, temporary = tempfile.mkstemp(prefix=path.name + ".", suffix=".new", dir=path.parent)
    except FileNotFoundError:
        raise StateError(f"cannot save a state to {path}: no folder {path.parent}; create it first") from None
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it the owner's alone
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C as well: what is half written must not stay
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename, too, shall outlive a power cut
    finally:
        os.close(folder)


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save_state` wrote, for `feed.restore`. StateError."""
    try:
        state = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise StateError(f"cannot read a state from {path}: {error.strerror}; pass what save_state wrote") from error
    except ValueError as error:
        raise StateError(f"{path} is not a saved state: {error}; pass what save_state wrote") from error
    if not isinstance(state, dict):
        raise StateError(f"{path} is not a saved state: got {type(state).__name__}; pass what save_state wrote")
    return state
