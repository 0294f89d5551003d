"""Images seen through a matrix, in DALI's terms.

Bilinear results differ from OpenCV's, which looks between pixels in steps of 1/32: a few levels
where edges are hard.
"""

from __future__ import annotations

from typing import Any

from fastfeed.backends.dali.arithmetic import OpContext
from fastfeed.backends.dali.imports import fn, types
from fastfeed.ops.base import shade
from fastfeed.ops.warp import Affine, Perspective, Rotate

_LOOKS = {"bilinear": types.INTERP_LINEAR, "nearest": types.INTERP_NN}


def matrices(op: Any, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """Matrices from output to input, in pixels from the corner as in DALI; the last entry is 1."""
    matrix = values["matrix"] / values["matrix"][:, 2:, 2:]
    return {"matrix": matrix if _tilts(op, context) else matrix[:, :2]}


def warp(op: Any, values: Any, image: Any, context: OpContext) -> Any:
    fill = [float(v) for v in shade(op.fill, context.channels)]
    how = _LOOKS[op.filter]
    matrix = values["matrix"]
    if not _tilts(op, context):
        return fn.warp_affine(image, matrix=matrix, fill_value=fill[0], interp_type=how)
    return fn.experimental.warp_perspective(image, matrix=matrix, fill_value=fill, interp_type=how)


def _tilts(op: Any, context: OpContext) -> bool:
    """True if the op needs all nine numbers, or more than one for the fill.

    DALI's affine warp takes six, and one for the fill.
    """
    return isinstance(op, Perspective) or len(set(shade(op.fill, context.channels))) > 1


FEEDS = dict.fromkeys((Rotate, Affine, Perspective), matrices)
LOWERING = dict.fromkeys((Rotate, Affine, Perspective), warp)


def lacks(op: Any) -> bool:
    """True if DALI has no such warp."""
    return op.border != "constant" or getattr(op, "expand", False)


LACKING = dict.fromkeys((Rotate, Affine, Perspective), lacks)
