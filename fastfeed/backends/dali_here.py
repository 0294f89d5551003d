"""DALI, or what to install."""

from __future__ import annotations

from fastfeed.errors import MissingExtra

try:
    from nvidia.dali import Pipeline, fn, math, types
    from nvidia.dali.backend import GetCUDADeviceCount
    from nvidia.nvimgcodec import CodeStream
except ImportError as error:
    raise MissingExtra(
        "Feed(backend=\"dali\") needs NVIDIA DALI: pip install 'fastfeed[cuda13]', "
        "or 'fastfeed[cuda12]' for an older driver (never both)"
    ) from error

__all__ = ["CodeStream", "GetCUDADeviceCount", "Pipeline", "fn", "math", "types"]
