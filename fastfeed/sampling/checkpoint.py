"""A feed's saved position: a file that is replaced atomically, and checks of its order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import StateError
from fastfeed.runtime.json_file import load_json, save_file

MOST_EPOCHS = 1 << 31  # more would not be a position but damage
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


def read_position(
    state: Any,
    current: dict[str, Any],
    steps: int,
    fingerprint: str | None,
    changed: Callable[[str], str] | None,
    known: Iterable[str],
) -> tuple[int, int]:
    """(epoch, step) of a saved state; StateError names the first field that differs."""
    if not isinstance(state, Mapping):
        raise StateError(
            f"cannot restore from {state!r}: pass what feed.state() or ff.load_state(path) gave"
        )
    missing = [name for name in current if name not in state]
    if missing:
        raise StateError(
            f"a saved state needs {', '.join(current)}; {', '.join(missing)} missing; pass what"
            " feed.state() gave"
        )
    if unknown := [str(name) for name in state if name not in current and name not in known]:
        raise StateError(
            f"a saved state has no {', '.join(unknown)}; pass what feed.state() gave, without other"
            " keys"
        )
    for name in ("length", "seed", "global_batch", "shuffle", "tail", "fingerprint"):
        if state[name] != current[name] and not (name == "fingerprint" and fingerprint is None):
            if name == "fingerprint":
                what = changed(str(state[name])) if changed is not None else ""
                raise StateError(
                    "cannot restore: the data differs from what the state was saved"
                    f" with{what and f' ({what})'}; start a new run, or call restore(state,"
                    " strict=False) if names and order are the same"
                )
            hint = {
                "length": "samples came or went; start a new run",
                "global_batch": f"pass global_batch={state[name]} (batch counts per rank)",
                "shuffle": (
                    "pass"
                    f" shuffle={repr(state[name]) if state[name] in ('full', 'none') else state[name]}"
                ),
            }.get(name, f"pass {name}={state[name]!r}")
            raise StateError(
                f"cannot restore: {name} was {state[name]!r}, this feed has {current[name]!r}, "
                f"so the order would change; {hint}"
            )
    epoch = state["epoch"]
    step = state["step"]
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (epoch, step))
    if not (whole and 0 <= epoch < MOST_EPOCHS and 0 <= step <= steps):
        raise StateError(
            f"cannot restore: step must be in [0, {steps}] and epoch in [0, 2^31), got {step!r} and"
            f" {epoch!r}"
        )
    return (epoch + 1, 0) if step == steps else (epoch, step)
