"""Classes and sizes of samples that are separate files, for `fastfeed plan`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fastfeed.sources.base import Sharded

if TYPE_CHECKING:
    from fastfeed.cli.plan.cluster import Simulation
    from fastfeed.sources.base import Source

_MEASURED = 1000  # files whose sizes stand for all
_ALL = 20_000  # files that are measured for a picture
_NAMED = 2_000_000  # samples whose folders are looked up
# of a picture; samples that are a row at least
_ROWS = 60
_PLACE = 8


@dataclass(frozen=True, slots=True, eq=False)
class SampleGroups:
    """Samples by class or, with a single class, by place in the listing."""

    of: np.ndarray  # int64 (samples,): the group of each
    names: tuple[str, ...]  # of classes; empty for places

    @property
    def counts(self) -> np.ndarray:
        """Samples of each group, int64 (groups,)."""
        return np.bincount(self.of, minlength=len(self.names))


def group_samples(source: Source) -> SampleGroups:
    """Classes by label or folder; neighbors are joined if a picture has too few rows."""
    of, names = _classes(source)
    if len(names) < 2:
        rows = min(max(len(source) // _PLACE, 1), _ROWS)
        return SampleGroups(np.arange(len(source)) * rows // len(source), ())
    if len(names) > _ROWS:
        of = of * _ROWS // len(names)
        firsts = -(-np.arange(_ROWS) * len(names) // _ROWS)
        names = tuple(f"{names[first]} ..." for first in firsts.tolist())
    return SampleGroups(of, names)


def _classes(source: Source) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each sample, and the names of those that have samples."""
    if source.classes:
        labels = source.label(np.arange(len(source)))
        names = np.array([*source.classes, "(no label)"], object)
    elif (paths := getattr(source, "paths", None)) is not None and len(source) <= _NAMED:
        folders = [
            path.partition("/")[0] if "/" in path else "(no folder)" for path in paths.tolist()
        ]
        names, labels = np.unique(np.array(folders, object), return_inverse=True)
    else:
        return np.zeros(0, np.int64), ()
    present, of = np.unique(labels, return_inverse=True)
    return of, tuple(names[present].tolist())


def has_separate_files(source: Source) -> bool:
    """True if each sample is a separate file, in a folder or named by a table."""
    return not isinstance(source, Sharded) or getattr(source, "paths", None) is not None


def file_sizes(source: Source, all_sizes: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Ids, int64 (n,), and bytes, float64 (n,), of samples with known sizes, or some of them."""
    limit = _ALL if all_sizes else _MEASURED
    ids = np.unique(np.linspace(0, len(source) - 1, min(len(source), limit), dtype=np.int64))
    listed = getattr(source, "sizes", np.zeros_like)(ids).tolist()
    known = []
    sizes = []
    for id, size in zip(ids.tolist(), listed, strict=True):
        try:
            sizes.append(
                size if size > 0 else os.stat(re.sub(r"#row \d+$", "", source.uri(id))).st_size
            )
            known.append(id)
        except OSError:  # remote, or missing
            continue
    return np.array(known, np.int64), np.array(sizes, np.float64)


def with_mean_size(simulation: Simulation) -> Simulation:
    """The simulation with bytes by the mean file size, if sizes are unknown and files local."""
    source = simulation.source
    if simulation.bytes.any() or not has_separate_files(source):
        return simulation
    sizes = file_sizes(source)[1]
    mean = float(sizes.mean()) if len(sizes) else 0.0
    return replace(
        simulation,
        bytes=simulation.samples * mean,
        unit_bytes=mean * len(source) / simulation.units,
    )
