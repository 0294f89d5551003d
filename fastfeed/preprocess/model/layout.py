"""Names of a job's files in its target, and where earlier versions kept them.

Everything but the shards and their indexes is in the folder JOB, which readers of data sets skip:
PyArrow, pandas, Spark and Dask skip names that begin with `_`, Hugging Face datasets skips folders
that begin with `__`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

JOB = "__job"
TEMPORARY = "__tmp"  # folder below the target for temporary files; nothing in it is part of the job
TEMPORARY_FOLDERS = (TEMPORARY, "_tmp")  # the second is that of earlier versions
RECORDS = f"{JOB}/records/"
LOCKS = f"{JOB}/locks/"
PREVIEWS = f"{JOB}/preview/"
DUPLICATES = f"{JOB}/duplicates.html"
_EARLIER_JOB = "_job/"
_EARLIER_TOP = {f"{JOB}/{name}": name for name in ("manifest.json", "bad.jsonl")}
_INDEX = "index.json"  # of MDS; its place is given by the format


def record_name(shard: str) -> str:
    """Name of a shard's record; `shard` is such as "train/shard-000012"."""
    return f"{RECORDS}{shard}.json"


def is_job_file(path: str) -> bool:
    """True if a path below a target is in a job's folder, of any version."""
    return path.startswith((f"{JOB}/", _EARLIER_JOB))


@dataclass(frozen=True, slots=True)
class Layout:
    """Converts names of files to paths below the target, and back."""

    is_earlier: bool = False

    def path(self, name: str) -> str:
        """Path below the target of the file `name`."""
        if not self.is_earlier or not name.startswith(f"{JOB}/"):
            return name
        if name.startswith(RECORDS):
            return name.removeprefix(RECORDS)
        return _EARLIER_TOP.get(name) or _EARLIER_JOB + name.removeprefix(f"{JOB}/")

    def name(self, path: str) -> str:
        """Name of the file at this path below the target."""
        if not self.is_earlier:
            return path
        if path.startswith(_EARLIER_JOB):
            return f"{JOB}/" + path.removeprefix(_EARLIER_JOB)
        if path in _EARLIER_TOP.values():
            return f"{JOB}/{path}"
        if path.endswith(".json") and path.rpartition("/")[2] != _INDEX:
            return RECORDS + path
        return path


CURRENT = Layout()
EARLIER = Layout(is_earlier=True)


def layout_in(exists: Callable[[str], bool]) -> Layout:
    """The layout of a target, CURRENT if it is empty; `exists` takes a path below it."""
    plan = f"{JOB}/plan.json"
    return EARLIER if exists(EARLIER.path(plan)) and not exists(plan) else CURRENT


SUFFIXES = {
    "webdataset": ".tar",
    "tfrecord": ".tfrecord",
    "parquet": ".parquet",
    "mds": ".mds",
    "raw": ".npy",
}
