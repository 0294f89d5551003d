"""Names of a job's files in its target.

Everything but the shards and their indexes is in the folder JOB, which readers of data sets skip:
PyArrow, pandas, Spark and Dask skip names that begin with `_`, Hugging Face datasets skips folders
that begin with `__`.
"""

from __future__ import annotations

JOB = "__job"
TEMPORARY = "__tmp"  # folder below the target for temporary files; nothing in it is part of the job
RECORDS = f"{JOB}/records/"
LOCKS = f"{JOB}/locks/"
PREVIEWS = f"{JOB}/preview/"
DUPLICATES = f"{JOB}/duplicates.html"


def record_name(shard: str) -> str:
    """Name of a shard's record; `shard` is such as "train/shard-000012"."""
    return f"{RECORDS}{shard}.json"


def is_job_file(path: str) -> bool:
    """True if a path below a target is in the job's folder."""
    return path.startswith(f"{JOB}/")


SUFFIXES = {
    "webdataset": ".tar",
    "tfrecord": ".tfrecord",
    "parquet": ".parquet",
    "mds": ".mds",
    "raw": ".npy",
}
