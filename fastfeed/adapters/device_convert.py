"""Where Normalize, ToFloat and ToLayout are done: by the feed's threads, or where the bytes have arrived."""

from __future__ import annotations

from typing import Literal

from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed
from fastfeed.runtime.placement import Placement

__all__ = ["Where", "on_device"]

Where = Literal["auto", "host", "device"]


def on_device(feed: Feed, placement: Placement, convert: Where) -> bool:
    """Whether the device converts. "auto": unless it is the processor, as bytes are a quarter of floats to copy."""
    if convert not in ("auto", "host", "device"):
        raise ConfigError(f"convert must be one of auto, host, device, got {convert!r}")
    return feed.converts and (placement.accelerator if convert == "auto" else convert == "device")
