"""Finds nvJPEG, NVIDIA's library for the JPEG engine of its GPUs."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

from fastfeed.errors import MissingExtra

DRIVER = "libcuda.so.1"  # the CUDA driver's own library
_VERSIONS = (13, 12)  # of CUDA, newest first


def find_nvjpeg(cuda: int) -> str:
    """Path of the first library that loads: NVIDIA's Python packages, then CUDA's installation.

    Args:
        cuda: the newest version of CUDA that the driver runs; newer libraries load and then fail.

    Raises:
        MissingExtra: If no library loads, with the reason for each that was found.
    """
    reasons = []
    names = [f"libnvjpeg.so.{version}" for version in _VERSIONS if version <= cuda]
    for path in [*_packaged(names), *names]:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            if "cannot open shared object file" not in str(error):
                reasons.append(str(error))
        else:
            return path
    why = f" ({'; '.join(reasons)})" if reasons else ""
    raise MissingExtra(
        f"decoding by the JPEG engine needs nvJPEG, which is not here{why}: pip install"
        " 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for an older driver"
    )


def _packaged(names: list[str]) -> list[str]:
    """Paths in nvidia-nvjpeg and nvidia-nvjpeg-cu12.

    They share a namespace with NVIDIA's other packages.
    """
    found = importlib.util.find_spec("nvidia")
    folders = (
        [] if found is None else [Path(folder) for folder in found.submodule_search_locations or ()]
    )
    return [
        str(path)
        for name in names
        for folder in folders
        for path in sorted(folder.glob(f"*/lib/{name}"))
    ]
