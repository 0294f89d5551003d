"""Saves a feed's position in a file that is replaced atomically."""

from __future__ import annotations

import json
import os
from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import StateError
from fastfeed.runtime.json_file import load_json, save_file

_MOST = 1 << 28  # bytes: a state is a few kilobytes, unless it holds weights of all samples


@checked
def save_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Save a feed's position as JSON, committed by atomic rename after fsync.

    Args:
        path (str | os.PathLike[str]): The file, in a folder that exists.
        state (dict[str, Any]): What `feed.state()` returned.

    Raises:
        StateError: If the file cannot be written.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=2)
        >>> ff.save_state("feed.json", feed.state())
    """
    save_file(path, f"{json.dumps(state, indent=1)}\n".encode(), "state", StateError)


@checked
def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a position written by `save_state`, for `feed.restore`.

    Args:
        path (str | os.PathLike[str]): The file.

    Returns:
        The state, which is valid at any world size.

    Raises:
        StateError: If the file cannot be read or is not a saved state.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=2)
        >>> ff.save_state("feed.json", feed.state())
        >>> feed.restore(ff.load_state("feed.json"))
    """
    return load_json(path, "state", "save_state", StateError, _MOST)
