"""What Keras would silently do wrong with a feed: found in the frames of its `fit`, and refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed

__all__ = ["check_fitted", "refuse_ignored", "refuse_same_feed"]

_IGNORED = {
    "class_weight": "use feed.to_keras(class_weight={...})",
    "sample_weight": "put weights into the source, as in ff.Table(weight=...)",
    "y": "labels come from the feed's source",
}
_MAX_FRAMES = 16  # between Keras's `fit` and us, at most


def refuse_ignored(caller: Mapping[str, Any]) -> None:
    """Keras drops other arguments of `fit` that gets an adapter; its iterator, which asks us first, still has them."""
    for name, instead in _IGNORED.items():
        if caller.get(name) is not None and "steps_per_execution" in caller:
            raise ConfigError(
                f"{name} must not be given to fit or evaluate together with a feed: Keras would ignore it; {instead}"
            )


def refuse_same_feed(feed: Feed) -> None:
    """A feed has one position: validating on the one that is trained on would end its epoch."""
    validation = _fit_locals().get("validation_data")
    if _feed_of(_fit_locals().get("x")) is feed and _feed_of(validation) is feed:
        raise ConfigError(
            "x and validation_data must be two feeds, got the same feed for both; create another Feed, of the "
            "validation data, with shuffle=False and no random ops"
        )


def check_fitted(feed: Feed) -> None:
    """ConfigError where the `fit` that calls this gets another feed, whose position would not be saved."""
    fitted = _feed_of(_fit_locals().get("x"))
    if fitted is not None and fitted is not feed:
        raise ConfigError(
            f"this keras_backup saves the position of {feed!r}, but fit is given {fitted!r}; use the keras_backup of "
            "the feed that is fitted"
        )


def _fit_locals() -> Mapping[str, Any]:
    """Return the local variables of the innermost running `fit` of Keras; empty if none runs."""
    frame: Any = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == "fit" and "validation_data" in frame.f_locals:
            return frame.f_locals
        frame = frame.f_back
    return {}


def _feed_of(data: Any) -> Feed | None:
    """The feed behind an argument of `fit`."""
    feed = getattr(data, "_fastfeed", None)
    return getattr(feed, "feed", feed)  # a dataset's owner may be the epochs of a feed
