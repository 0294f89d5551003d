"""Loads samples of one or several images, and the columns that are read with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.executor import Executor
from fastfeed.faults import REASONS, Failure
from fastfeed.feed.batch.loader import ImageLoader, LoadedSamples
from fastfeed.feed.batch.pending_batch import PendingBatch
from fastfeed.feed.config import FeedConfig
from fastfeed.feed.faults.outages import Outages
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.runtime.timeline import Timeline
from fastfeed.sources.base import Fetching, Optionals, has_same_geometry, image_sources
from fastfeed.sources.column_arrays import as_array

ReadImages = Callable[[str, list[int]], list[Any]]  # image, rows -> bytes or Failure each


class SampleLoader:
    """One loader per image; a sample is bad if any of its images is."""

    def __init__(
        self,
        config: FeedConfig,
        executors: Mapping[str, Executor],  # by image
        quarantine: Quarantine,
        timeline: Timeline,
        max_bytes: int,  # of all images that a task holds
    ) -> None:
        source = config.source
        self._source = source
        self._executors = executors
        self._optionals = Optionals(source)
        self.sources = image_sources(source)
        self.reads_columns = self._optionals.column_values([]) is not None
        self._same_geometry = has_same_geometry(source)
        share = max_bytes // len(self.sources)
        self.loaders: dict[str, ImageLoader] = {}
        for name, image in self.sources.items():
            outages = Outages(config.outage, len(image), image.uri, timeline.progress)
            loader = ImageLoader(image, quarantine, timeline, share, outages, executors[name], name)
            self.loaders[name] = loader
        self.first = next(iter(self.loaders.values()))

    def close(self) -> None:
        """End threads that run Python for native ones."""
        for executor in self._executors.values():
            executor.close()

    @property
    def remote(self) -> dict[str, Fetching]:
        """Sources of the images that are worth reading ahead, by name."""
        images = self.sources.items()
        return {name: s for name, s in images if isinstance(s, Fetching) and s.remote}

    def load(
        self, ids: np.ndarray, batch: PendingBatch, read: ReadImages
    ) -> dict[str, LoadedSamples]:
        """All images of the first of these samples, up to the limit of bytes.

        `bad` is one dictionary for all of them.
        """
        images: dict[str, LoadedSamples] = {}
        for name, loader in self.loaders.items():
            try:
                images[name] = loader.load(ids, batch, partial(read, name))
            except Exception as error:
                note_image(error, name)
                raise
            ids = images[name].ids  # as many as fit
        if len(images) > 1:
            images = self._joined(images, len(ids))
        if self.reads_columns:
            self._read_columns(ids, next(iter(images.values())).bad, batch)
        return images

    def _joined(self, images: dict[str, LoadedSamples], count: int) -> dict[str, LoadedSamples]:
        """The first `count` samples of all images, each bad if one of its images is."""
        images = {name: samples.first(count) for name, samples in images.items()}
        bad: dict[int, Failure | None] = {}
        for name, samples in images.items():
            for row, failure in samples.bad.items():
                bad[row] = bad.get(row) or self._named(name, failure)
            samples.bad = bad
        if self._same_geometry:
            first = next(iter(images.values()))
            for name, samples in images.items():
                self._align(first, samples, name)
        return images

    def _named(self, name: str, failure: Failure | None) -> Failure | None:
        """The failure of an image as one of its sample, whose address is that of the first."""
        if not name or failure is None or failure.reason == "outage":
            return failure
        uri = self._source.uri(failure.id)
        where = name if failure.uri == uri else f"{name}, {failure.uri}"
        detail = f"{where}: {failure.detail or REASONS[failure.reason]}"
        return replace(failure, uri=uri, detail=detail)

    def _align(self, first: LoadedSamples, samples: LoadedSamples, name: str) -> None:
        """Let ops see the size of the first image; sizes out of proportion make samples bad."""
        if np.array_equal(first.sizes, samples.sizes):
            return
        samples.seen = first.sizes
        for row in np.flatnonzero(~in_proportion(first.sizes, samples.sizes)).tolist():
            (height, width) = samples.sizes[row].tolist()
            expected = first.sizes[row].tolist()
            detail = (
                f"{height}x{width} pixels (height x width), out of proportion to the first image's"
                f' {expected[0]}x{expected[1]}; Together(geometry="own") crops each by itself'
            )
            if row not in samples.bad:
                id = int(samples.ids[row])
                samples.bad[row] = self.failure(name, id, DecodeFailure("corrupt", detail))

    def _read_columns(
        self, ids: np.ndarray, bad: dict[int, Failure | None], batch: PendingBatch
    ) -> None:
        """Read columns of the good samples; a sample whose columns cannot be read is bad."""
        rows = [row for row in range(len(ids)) if row not in bad]
        if not rows:
            return
        good = ids[rows].tolist()
        entries = self.first.outages.settle(
            good, self._column_entries(good), self._column_entries, batch.stop
        )
        for row, id, entry in zip(rows, good, entries, strict=True):
            if entry is None or isinstance(entry, Failure):
                bad[row] = entry
            else:
                batch.columns[id] = entry

    def columns(self, batch: PendingBatch, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the metadata columns, read with the samples if the source does so."""
        if not self.reads_columns:
            return self._optionals.columns(ids)
        # masked: what can be read of them
        others = [id for id in ids.tolist() if id not in batch.columns]
        unread = self._optionals.column_values(others) if others else None
        by_id = batch.columns | dict(zip(others, unread or (), strict=True))
        rows = [by_id[id] for id in ids.tolist()]
        return {name: as_array([values[name] for values in rows]) for name in rows[0]}

    def values(
        self, batch: PendingBatch, ids: np.ndarray, names: Collection[str]
    ) -> dict[str, np.ndarray]:
        """Labels and columns of samples by name, as the source has them."""
        values = {"label": self._source.label(ids)} if "label" in names else {}
        if len(values) < len(names):
            values |= self.columns(batch, ids)
        return {name: values[name] for name in names}

    def _column_entries(self, ids: list[int]) -> list[Any]:
        """The columns of each sample by name, or the first failure among them."""
        rows = self._optionals.column_values(ids) or []
        return [
            next(value for value in row.values() if isinstance(value, Failure))
            if Failure in map(type, row.values())
            else row
            for row in rows
        ]

    def failure(self, image: str, id: Any, bad: DecodeFailure) -> Failure:
        """The failure of an image as the quarantine lists it; errors as `ImageLoader.failure`."""
        failure = self._named(image, self.loaders[image].failure(id, bad))
        assert failure is not None
        return failure


def in_proportion(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Pairs of sizes (height, width), int64 (n, 2), of one shape to within a pixel: bool (n,)."""
    off = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    return off <= np.maximum(first, second).max(axis=1)


def note_image(error: Exception, image: str) -> None:
    """Note the name of an image, if it has one, on an error; see PEP 678."""
    if image:
        notes = [*getattr(error, "__notes__", ()), f"in the image {image!r}"]
        error.__notes__ = notes  # type: ignore[attr-defined]
