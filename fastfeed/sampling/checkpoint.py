"""Saves a feed's position in a file that is replaced atomically."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import StateError
from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.system.descriptors import open_regular

_MOST = 1 << 26  # bytes: a state is a few kilobytes
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR)


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
    path = Path(path)
    text = json.dumps(state, indent=1) + "\n"
    try:
        with atomic_write(path, sync_parent=True) as file:
            file.write(text.encode())
    except FileNotFoundError:
        raise StateError(
            f"cannot save a state to {path}: no folder {path.parent}; create it first"
        ) from None
    except OSError as error:
        if error.errno not in _UNWRITABLE:  # a full disk is not about the path
            raise
        raise StateError(
            f"cannot save a state to {path}: {error.strerror}; pass a file in a folder that can be"
            " written"
        ) from error


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
    try:
        with open(open_regular(path), "rb") as file:
            content = file.read(_MOST + 1)
        if len(content) > _MOST:
            raise StateError(
                f"{path} is not a saved state: more than {_MOST:,} bytes; pass what save_state"
                " wrote"
            )
        state = json.loads(content)
    except OSError as error:
        raise StateError(
            f"cannot read a state from {path}: {error.strerror}; pass what save_state wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"{path} is not a saved state: {error}; pass what save_state wrote"
        ) from error
    if not isinstance(state, dict):
        raise StateError(
            f"{path} is not a saved state: got {type(state).__name__}; pass what save_state wrote"
        )
    return state
