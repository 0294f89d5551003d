"""Imports DALI, or raises an error that names the package to install."""

from __future__ import annotations

import importlib
from typing import Any

from fastfeed.errors import MissingExtra

try:
    _dali: Any = importlib.import_module("nvidia.dali")
    fn, math, types = (
        importlib.import_module(f"nvidia.dali.{name}") for name in ("fn", "math", "types")
    )
    _backend, _codec = (
        importlib.import_module(f"nvidia.{name}") for name in ("dali.backend", "nvimgcodec")
    )
except ImportError as error:
    raise MissingExtra(
        "Feed(backend=\"dali\") needs NVIDIA DALI: pip install 'fastfeed[cuda13]', "
        "or 'fastfeed[cuda12]' for an older driver (never both)"
    ) from error

Pipeline = _dali.Pipeline
GetCUDADeviceCount = _backend.GetCUDADeviceCount
CodeStream = _codec.CodeStream
