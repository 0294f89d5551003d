"""The change for the slowest stage of a tf.data pipeline, by the kind of the stage."""

from __future__ import annotations

import re

__all__ = ["stage_advice"]

_AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"
_KINDS = (  # the first that matches the name of the stage
    (
        r"Parallel(Map|Batch)|MapAndBatch",
        (
            "it runs in parallel already: decode less (tf.image.decode_and_crop_jpeg), map whole"
            " batches, cache() before random ops, or decode on the GPU"
        ),
    ),
    (r"^Map|^Filter|^Scan", f"map(..., {_AUTOTUNE}) runs its function in parallel"),
    (
        r"Parallel(Interleave|FilesInterleave)",
        "raise cycle_length, read larger files, or keep them on a local disk",
    ),
    (r"Interleave|FlatMap", f"interleave(..., {_AUTOTUNE}) reads several files at once"),
    (
        r"Generator|PyFunc|MemoryCache|TensorSlice",
        "it is Python, or a single thread: read files with tf.data's own ops and interleave() them",
    ),
    (
        r"TFRecord|TextLine|FixedLengthRecord|SSTable|Csv|Reader|ListFiles|MatchingFiles",
        f"interleave(..., {_AUTOTUNE}) over more files, larger records, or a local disk",
    ),
    (r"Batch", f"batch(..., {_AUTOTUNE}), or batch after the elements have become small"),
    (
        r"Shuffle",
        "a smaller buffer, or shuffle file names and encoded records rather than decoded images",
    ),
    (r"Cache", "the first epoch fills the cache: measure a later one"),
    (r"DataService", "more workers of the tf.data service"),
    (
        r"Prefetch|Root|Model",
        "prefetch(tf.data.AUTOTUNE) after the slowest stage; what produces into it is too slow",
    ),
)


def stage_advice(stage: str) -> str:
    """The change for a stage, by a name with version and index, ParallelMapV2[0]."""
    return next(
        (advice for pattern, advice in _KINDS if re.search(pattern, stage)),
        "make it cheaper, or cache() behind it",
    )
