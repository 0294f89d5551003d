"""Methods of Pillow's plugins with other constants, without any change to Pillow itself."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def with_globals(method: Any, **names: Any) -> Any:
    """The method, in which these globals of its module have other values."""
    changed = {**method.__globals__, **names}
    return FunctionType(
        method.__code__, changed, method.__name__, method.__defaults__, method.__closure__
    )
