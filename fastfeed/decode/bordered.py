"""Windows that reach beyond what is there: any engine decodes what is inside, the border is laid around it."""

from __future__ import annotations

import numpy as np

from fastfeed.decode.base import Bad, Engine, Request, Stop
from fastfeed.ops.base import Border

__all__ = ["decode"]


def decode(engine: Engine, request: Request, border: Border | None, out: np.ndarray, stop: Stop) -> list[Bad | None]:
    """As `engine.decode`; where a window reaches beyond its limit, the border is seen."""
    if border is None:
        return engine.decode(request, out, stop)
    raise AssertionError("being written")
