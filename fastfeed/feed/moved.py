"""Names that a feed had before."""

from __future__ import annotations

import importlib
import operator
from functools import partial
from typing import Any

from fastfeed.feed.transform import Transform
from fastfeed.printable import warn
from fastfeed.runtime.guards import NotAnArray

# their places in its session
MOVED = {
    "error": "cursor.error",
    "moves": "cursor.moves",
    "epoch_ended": "cursor.epoch_ended",
    "open_batches": "cursor.open",
    "start_batches": "producer.start",
    "side_process": "config.side_process",
} | {
    name: name
    for name in (
        "advance",
        "allocate",
        "converts",
        "is_proving",
        "live",
        "meter",
        "notes",
        "partial",
        "place_on",
        "placed",
        "prefetch",
        "program",
        "proof",
        "source",
        "threads",
        "timeline",
        "weighted",
    )
}


def moved(feed: Any, name: str, session: Any) -> Any:
    """A name that moved to the session of a feed, with a DeprecationWarning."""
    if name == "shape":
        raise NotAnArray(feed)
    if name == "explain":
        text = "feed.explain() is deprecated and ends with the next minor version; use str(feed)"
        warn(text, DeprecationWarning, stacklevel=3)
        return session.explain
    if name == "transform":
        text = "feed.transform is deprecated; use ff.Transform.of(feed)"
        warn(text, DeprecationWarning, stacklevel=3)
        return Transform.of(feed)
    if name == "keras_backup":
        text = "feed.keras_backup(folder) is deprecated; use ff.keras.backup(feed, folder)"
        warn(text, DeprecationWarning, stacklevel=3)
        return partial(_keras_backup, session)
    if name not in MOVED:
        raise AttributeError(f"{type(feed).__name__!r} object has no attribute {name!r}")
    warn(
        f"feed.{name} is deprecated and ends with the next minor version; use"
        f" FeedSession.of(feed).{MOVED[name]}, from fastfeed.feed.session import FeedSession",
        DeprecationWarning,
        stacklevel=3,
    )
    return operator.attrgetter(MOVED[name])(session)


def _keras_backup(session: Any, *arguments: Any, **options: Any) -> Any:
    """`feed.keras_backup(...)`: imports Keras when it is called."""
    module = importlib.import_module("fastfeed.adapters.keras.backup")
    return module.backup(session, *arguments, **options)
