"""Reads and transforms the images of samples: one of each, or several by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.pillow_warnings import named
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.readahead import (
    DEFERRED,
    EachImage,
    known_sizes,
    read_ahead,
    read_each,
)
from fastfeed.preprocess.model.condition import DROPPED, UNKNOWN, SampleValues
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.record import ProcessedImage, with_others
from fastfeed.preprocess.model.task import (
    MemoryLimitError,
    NeedsMore,
    ReservedContext,
    TaskContext,
    to_decode_failure,
)
from fastfeed.preprocess.pixels.transform import Transformer
from fastfeed.sources.base import Source

NO_SAMPLE = -1
_Transform = Callable[[bytes, TaskContext], ProcessedImage | DecodeFailure]
Uri = Callable[[int, str], str]  # of an image of a sample, by its name; "": of the only one


class SampleImages:
    """Images of the samples of a source, transformed by a recipe.

    Args:
        source: With the ids of the plan; its `together` are the images of a sample, if it has any.
        recipe: That of the job.
        uri: Addresses for messages.
        sample_uri: Addresses for metadata.
    """

    def __init__(self, source: Source, recipe: Recipe, uri: Uri, sample_uri: Uri) -> None:
        self._images: dict[str, Source] = dict(getattr(source, "together", None) or {"": source})
        images = [*self._images.values()]
        self._source: Any = source if len(images) == 1 else EachImage(images)
        self._recipe = recipe
        self._uri = uri
        self._sample_uri = sample_uri

    def source(self, name: str) -> Source:
        """The source of an image; "" for the first or only one."""
        return self._images[name or next(iter(self._images))]

    @contextmanager
    def read(
        self, ids: Sequence[int], context: TaskContext
    ) -> Iterator[Iterator[tuple[int, Any, float]]]:
        """Read samples as `read_ahead` does, with a tuple of what it returns for each image.

        Time spent waiting is attributed to no sample.
        """
        count = len(self._images)
        places = [i * count + k for i in ids for k in range(count)]
        with read_ahead(self._source, places, lambda: context.begin(NO_SAMPLE)) as blobs:
            yield self._by_sample(ids, blobs)

    def _by_sample(
        self, ids: Sequence[int], blobs: Iterator[tuple[int, Any, float]]
    ) -> Iterator[tuple[int, tuple[Any, ...], float]]:
        for i in ids:
            _, own, waits = zip(*islice(blobs, len(self._images)), strict=True)
            yield i, own, sum(waits)
            del own

    def make(
        self, sample: int, blobs: Sequence[Any], context: TaskContext, known: SampleValues = UNKNOWN
    ) -> ProcessedImage | DecodeFailure:
        """Transform the images of a sample from what `read` returned; the first failure is its own.

        `Limits.where` is about the first image.
        """
        made: dict[str, ProcessedImage] = {}
        for k, (name, blob) in enumerate(zip(self._images, blobs, strict=True)):
            transform = self._transforms[1] if k else partial(self._transforms[0], known=known)
            image = self._make_one(sample, k, blob, context, transform)
            if not isinstance(image, ProcessedImage):
                is_named = name and image.reason != DROPPED
                detail = f"{name}: {image.detail}".removesuffix(": ") if is_named else image.detail
                return DecodeFailure(image.reason, detail)
            made[name] = image
        first, *others = made
        if not others:
            return made[first]
        uris = {name: self._sample_uri(sample, name) for name in others}
        return with_others(made[first], {name: (uris[name], made[name]) for name in others})

    def _make_one(
        self, sample: int, k: int, blob: Any, context: TaskContext, transform: _Transform
    ) -> ProcessedImage | DecodeFailure:
        """Transform image `k` of a sample."""
        if isinstance(blob, Failure):
            return DecodeFailure(blob.reason, blob.detail)
        name = [*self._images][k]
        try:
            with named(partial(self._uri, sample, name)):
                if blob is DEFERRED:
                    return self._make_large(sample, k, context, transform)
                context.begin(sample)
                return transform(blob, context)
        except Exception as error:
            return to_decode_failure(error)

    def _make_large(
        self, sample: int, k: int, context: TaskContext, transform: _Transform
    ) -> ProcessedImage | DecodeFailure:
        """Reserve memory before reading a file; start over with more if decoding needs it."""
        place = sample * len(self._images) + k
        need = known_sizes(self._source, [place])[0]
        try:
            while True:
                context.begin(NO_SAMPLE)  # waiting for memory must not count against its timeout
                with context.room(need):
                    (blob,) = read_each(self._source, [place])
                    if isinstance(blob, Failure):
                        return DecodeFailure(blob.reason, blob.detail)
                    context.begin(sample)
                    reserved = ReservedContext(context, need - len(blob))
                    try:
                        return transform(blob, reserved)
                    except NeedsMore as more:
                        need = len(blob) + more.need
                    del blob
        except MemoryLimitError as error:
            return DecodeFailure("oom", str(error))

    @cached_property
    def _transforms(self) -> tuple[Transformer, Transformer]:
        """Those of the first image, and of the others, which no condition is about."""
        plain = replace(self._recipe, limits=replace(self._recipe.limits, where=""))
        return Transformer(self._recipe), Transformer(plain)
