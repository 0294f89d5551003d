"""Locations of the bytes of samples, for native threads that read them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class WholeFiles(NamedTuple):
    """Local files of n samples, each read whole.

    The names are those of all samples of a source, one after another.
    """

    root: bytes  # comes before every name that does not begin with a slash
    names: np.ndarray  # uint8 (bytes,)
    ends: np.ndarray  # int32 or int64 (samples,): where each name ends
    ids: np.ndarray  # int64 (n,): whose name it is; -1 for one that is not to be read
    sizes: np.ndarray | None  # int64 (n,): bytes as listed, -1 where that is not known
    folders: Sequence[
        tuple[bytes, bytes, int]
    ] = ()  # that they must lie in, as Within.native has them; (): anywhere
    owner: Any = None  # keeps the folders open

    @property
    def length(self) -> int:
        """Number of samples, each a whole file."""
        return len(self.ids)

    def path(self, k: int) -> bytes:
        """The path of sample k."""
        i = int(self.ids[k])
        name = self.names[self.ends[i - 1] if i else 0 : self.ends[i]].tobytes()
        return os.path.join(self.root, name)


class FileRanges(NamedTuple):
    """Byte ranges of local files for n samples.

    A file of another size or time of change is not read.
    """

    names: np.ndarray  # uint8 (bytes,): the paths of all files, one after another
    ends: np.ndarray  # int64 (files,): where each path ends
    files: np.ndarray  # int64 (n,): the file of each sample; -1 for one that is not to be read
    handles: np.ndarray  # int32 (n,): descriptor of the open file; -1: it is opened by its path
    firsts: np.ndarray  # int64 (n,): the first byte of each sample
    lasts: np.ndarray  # int64 (n,): the one after its last
    sizes: np.ndarray  # int64 (n,): bytes of the whole file
    modified_ns: np.ndarray  # int64 (n,): time of its last change
    head: int = 0  # bytes before each sample, whose CRC-32 has to be the sample's check
    checks: np.ndarray | None = None  # uint32 (n,)
    # the ranges are a TFRecord's data and checksum; this is how the image's entry begins
    feature: bytes | None = None
    height: int = 0  # the bytes are pixels of this size; 0: an encoded image
    width: int = 0
    owner: Any = None  # keeps the files open

    @property
    def length(self) -> int:
        """Number of samples, each a byte range."""
        return len(self.files)


class ArrayRows(NamedTuple):
    """Pixels of n samples in memory."""

    images: np.ndarray  # uint8 (samples, height, width, channels), C-contiguous
    ids: np.ndarray  # int64 (n,)

    @property
    def length(self) -> int:
        """Number of samples, each a row of the array."""
        return len(self.ids)


class Grouped(NamedTuple):
    """Samples of several sources. Those that are in no group are not to be read."""

    length: int  # samples
    # int64 (k,): rows among them, and where
    groups: Sequence[tuple[np.ndarray, WholeFiles | FileRanges | ArrayRows]]

    @classmethod
    def of(
        cls, length: int, parts: Sequence[tuple[np.ndarray, SampleLocations | None]]
    ) -> Grouped | None:
        """Join the groups of several sources, which may be Grouped themselves; None if empty."""
        groups: list[tuple[np.ndarray, WholeFiles | FileRanges | ArrayRows]] = []
        for rows, addresses in parts:
            if isinstance(addresses, Grouped):
                groups += [(rows[own], inner) for own, inner in addresses.groups]
            elif addresses is not None:
                groups.append((rows, addresses))
        return cls(length, groups) if groups else None


SampleLocations = WholeFiles | FileRanges | ArrayRows | Grouped
