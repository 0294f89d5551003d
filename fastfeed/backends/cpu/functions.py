"""A user's function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad, FunctionFailed
from fastfeed.ops.function import Function

__all__ = ["KERNELS", "OpFailed"]


class OpFailed(Exception):
    """A user's function did not give an image; the text says why, the cause is what it raised."""

    def bad(self) -> Bad:
        """As the sample's result."""
        bad = FunctionFailed("op_failed", str(self))
        bad.error = self.__cause__ if isinstance(self.__cause__, Exception) else self
        return bad


def call(op: Function, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """The function's result, if it is an image as it came: in our memory, as ops behind it
    overwrite what they get.
    """
    shape, given = image.shape, image[...]  # a view: its shape and its flags are the function's own
    try:
        result = op.function(given, values["u"][row])
    except MemoryError:  # says nothing about this sample
        raise
    except (
        Exception
    ) as error:  # a user's function may raise anything; the feed's policy says what it means
        raise OpFailed(f"{op!r} raised {type(error).__name__}: {error}{_place(error)}") from error
    if not isinstance(result, np.ndarray) or result.dtype != np.uint8 or result.shape != shape:
        got = (
            f"{result.dtype}{list(result.shape)}"
            if isinstance(result, np.ndarray)
            else type(result).__name__
        )
        raise OpFailed(f"{op!r} must return uint8{list(shape)}, as it got, returned {got}")
    if result is not given:
        np.copyto(image, result)  # overlapping memory, as of image[:, ::-1], is fine
    return image


def _place(error: Exception) -> str:
    """The line of the user's function, where it has lines."""
    at = error.__traceback__ and error.__traceback__.tb_next  # the first is the call above
    return f" ({Path(at.tb_frame.f_code.co_filename).name}, line {at.tb_lineno})" if at else ""


KERNELS = {Function: call}
