"""Arrays that lie in a GPU's memory, as CuPy's do: no flag "writeable", nothing becomes NumPy's by
itself.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np


class GpuArray:
    """Its owner may write to `values` again.

    `dlpack`: a framework here can read it, as one on that GPU could.
    """

    def __init__(self, values: np.ndarray, dlpack: bool = False, device: int = 0) -> None:
        self.values, self._dlpack, self.device_id = values, dlpack, device
        self.nbytes, self.ndim, self.shape, self.dtype = (
            values.nbytes,
            values.ndim,
            values.shape,
            values.dtype,
        )
        self.flags = types.SimpleNamespace(c_contiguous=True, f_contiguous=False, owndata=True)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (1 << 40, False),
            "version": 3,
            "stream": 7,
        }

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __dlpack__(self, **how: Any) -> Any:
        if self._dlpack:
            return self.values.__dlpack__(**how)
        raise BufferError("memory of a GPU, which this framework does not have")

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__() if self._dlpack else (2, self.device_id)

    def get(self) -> np.ndarray:
        """A copy on the host."""
        return self.values.copy()
