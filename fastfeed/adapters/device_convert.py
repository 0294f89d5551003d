"""Decides where Normalize, ToFloat and ToLayout run: in the feed's threads, or on the device."""

from __future__ import annotations

from typing import Literal

from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession
from fastfeed.runtime.placement import Placement

Where = Literal["auto", "host", "device"]


def on_device(session: FeedSession, placement: Placement, convert: Where) -> bool:
    """True if the device converts.

    "auto": if it is an accelerator, since bytes are a quarter of the floats.
    """
    if convert not in ("auto", "host", "device"):
        raise ConfigError.of("convert", "one of auto, host, device", convert)
    return session.converts and (
        placement.accelerator if convert == "auto" else convert == "device"
    )
