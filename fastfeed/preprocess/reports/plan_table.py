"""A job as an Arrow table, a row per image, for Ray Data, Spark, pandas and the like."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fastfeed.preprocess.targets.target import open_target

if TYPE_CHECKING:
    import pyarrow as pa


def plan_table(
    dst: str | os.PathLike[str], *, target_storage: dict[str, Any] | None = None
) -> pa.Table:
    """Return a job as a table: a row for each image of the plan, shard by shard.

    Images that an update has removed have no row, nor have those that the plan leaves out.

    Reads the metadata of samples from the shards, not their images, and nothing of the source.

    Args:
        dst (str | os.PathLike[str]): The target of a job.
        target_storage (dict[str, Any] | None): fsspec options for `dst`. Default: None.

    Returns:
        Columns `id` (int64, of the plan), `uri` (relative to the source unless the job has absolute
            ones), `state` ("done", "bad", or "planned": its shard is not done), `class`, `label`
            (int64; both are lists where images have several classes), `split` (null without one), `shard` (path below `dst`), `position` (in the
            shard, from 0), `source_height`, `source_width` (pixels), `source_bytes`, `reason` and
            `detail` of bad ones, and, if the job has metadata columns, the struct `columns`, in
            which values of mixed types are JSON. Unknown values are null, such as the URI of a
            planned image, and the shard of a bad one.

    Raises:
        MissingExtra: PyArrow is not installed.
        SourceError: There is no job, or a shard cannot be read.

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, plan_table, run
        >>> report = run("photos", "shards", Recipe(Scaling(16)))
        >>> table = plan_table("shards")
        >>> table.num_rows, table["state"].unique().to_pylist()
        (6, ['done'])
    """
    from fastfeed.preprocess.reports.arrow_table import arrow_table  # needs PyArrow

    return arrow_table(open_target(dst, target_storage, writes=False))
