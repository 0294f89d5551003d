"""Arrays of samples: as `.npy`, and of one type and shape per name in a shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.preprocess.model.entry import Entry
from fastfeed.preprocess.model.sample_faults import SampleFault

__all__ = ["HEAD", "ArrayColumns", "as_npy", "npy_header"]

HEAD = 128  # bytes of a header


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """NumPy's format 1.0 (numpy.lib.format), padded to 128 bytes here, as NumPy versions pad
    differently.
    """
    about = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + (HEAD - 10).to_bytes(2, "little") + about.ljust(HEAD - 11) + b"\n"


def as_npy(array: np.ndarray) -> bytes:
    """The content of a file."""
    return npy_header(array.dtype.str, array.shape) + array.tobytes()


class ArrayColumns:
    """Names, types and shapes of a shard's arrays, which its first sample decides."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[Any]] = {}  # dtype and shape by name, as records have them
        self._started = False

    def forget(self) -> None:
        """Let the next sample decide: none has been written."""
        self.kinds, self._started = {}, False

    def arrays(self, entry: Entry) -> list[tuple[str, np.ndarray]]:
        """Return the arrays of a sample, sorted by name.

        SampleFault where they differ from those of the first.
        """
        kinds = {name: [a.dtype.name, list(a.shape)] for name, a in sorted(entry.arrays.items())}
        if not self._started:
            self.kinds, self._started = kinds, True
        if kinds != self.kinds:
            raise SampleFault(
                "all samples of a shard must have arrays of the same names, types and shapes:"
                f" {_text(self.kinds)} so far, {entry.meta.get('uri') or entry.key} has"
                f" {_text(kinds)}"
            )
        return [(name, entry.arrays[name]) for name in kinds]


def _text(kinds: dict[str, list[Any]]) -> str:
    return (
        ", ".join(f"{name} {dtype} {tuple(shape)}" for name, (dtype, shape) in kinds.items())
        or "none"
    )
