"""Verifies the output of a job by reading all of it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.model.layout import RECORDS, TEMPORARY, is_job_file, record_name
from fastfeed.preprocess.model.record import ShardRecord
from fastfeed.preprocess.shard.array_files import Rows
from fastfeed.preprocess.targets.job_state import Job, indexes, open_job, read_records
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.lock import has_ended, job_lock
from fastfeed.preprocess.targets.ranges import HashedFile, Read, reader
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.tables.parquet_footer import row_groups

MDS_INDEX = "index.json"  # derived from the records
# of readers, and the folder in which they keep them
INDEX = ".ffindex"
INDEXES = ".fastfeed"
_READERS = 4

OnShard = Callable[[int, int], None]  # (shards checked, shards)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in the output."""

    kind: str  # "missing", "size", "content", "samples", "record", "foreign", "temporary", "index"
    name: str  # below the target
    detail: str
    shard: int | None = None  # index of a shard that must be rebuilt

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    shards: int  # planned
    done: int  # with a record of this plan
    whole: int  # without a problem
    samples: int  # in shards without a problem
    bytes: int  # bytes read
    problems: tuple[Problem, ...] = ()

    @property
    def broken(self) -> list[int]:
        """Indexes of the shards that must be rebuilt."""
        return sorted({problem.shard for problem in self.problems if problem.shard is not None})


def verify(job: Job, on_shard: OnShard | None = None) -> Verification:
    """Check size, sha256 and number of samples of every file of every shard."""
    target, present, records = job.target, job.target.files(), matching_records(job)
    problems: list[Problem] = []
    whole = samples = read = 0
    with ThreadPoolExecutor(_READERS, "fastfeed-verify") as pool:
        order = [records[index] for index in sorted(records)]
        results = pool.map(lambda record: _check_shard(job, record, present), order)
        for number, (record, (shard_problems, count)) in enumerate(
            zip(order, results, strict=True)
        ):
            problems += shard_problems
            read += count
            if not shard_problems:
                whole = whole + 1
                samples = samples + len(record.ids)
            if on_shard is not None:
                on_shard(number + 1, len(records))
    problems += _foreign_files(job, records, present)
    if len(records) == len(job.shards):
        problems += _check_indexes(job, order)
    stale = [name for name in temporary_names(target) if has_ended(name.rpartition("/")[2])]
    if stale:
        more = f", and {len(stale) - 1} more" if len(stale) > 1 else ""
        detail = f"left by a run that was killed{more}; the next run removes it"
        problems.append(Problem("temporary", stale[0], detail))
    return Verification(len(job.shards), len(records), whole, samples, read, tuple(problems))


def matching_records(job: Job) -> dict[int, ShardRecord]:
    """Records of this plan, whether or not their files exist."""
    hashes = job.plan.shard_hashes
    present = job.target.files()
    indexes = {record_name(shard.name): shard.index for shard in job.shards}
    found = read_records(job.target, [name for name in indexes if name in present])
    return {
        record.index: record
        for record in found  # others are reported by _foreign_files
        if record.index == indexes.get(record.name) and record.plan == hashes[record.index]
    }


def repair(job: Job, verified: Verification) -> list[str]:
    """Remove records of broken shards, or else rewrite wrong indexes; returns their names.

    Shards that were rebuilt since stay. ConfigError while another process updates the job, or if
    one has updated it since it was verified.
    """
    target = job.target
    with job_lock(target, shared=True):
        now = open_job(target)
        if now.plan.edited_hash != job.plan.edited_hash:
            raise ConfigError(
                f"another process has changed the plan in {target.text} since it was verified;"
                " nothing was changed: verify again"
            )
        records = matching_records(now)
        present = target.files()
        names = [
            now.shards[index].name
            for index in verified.broken
            if index not in records or _check_shard(now, records[index], present)[0]
        ]
        for name in names:
            target.remove(record_name(name))
        wrong = [problem.name for problem in verified.problems if problem.kind == "index"]
        if names or len(records) < len(now.shards):
            return names
        contents = indexes(now, [records[index] for index in sorted(records)])
        for name in wrong:
            target.write(name, contents[name])
    return wrong


def _check_indexes(job: Job, records: list[ShardRecord]) -> Iterator[Problem]:
    """Indexes that are missing, or not those of the records."""
    for name, content in indexes(job, records).items():
        found = job.target.read(name)
        if found != content:
            detail = "is not there" if found is None else "is not the index of these shards"
            yield Problem("index", name, f"{detail}; a run writes it again, or --fix")


def _check_shard(
    job: Job, record: ShardRecord, present: dict[str, int]
) -> tuple[list[Problem], int]:
    """Problems of a shard, and the bytes read."""
    problems: list[Problem] = []
    count = 0
    for part in record.files:
        if part.name not in present:
            problems.append(Problem("missing", part.name, "is not there", record.index))
        elif present[part.name] != part.bytes:
            detail = f"has {present[part.name]:,} bytes, should have {part.bytes:,}"
            problems.append(Problem("size", part.name, detail, record.index))
        else:
            count += part.bytes
            detail = ""
            try:
                if HashedFile(job.target, part.name, part.bytes).sha256() != part.sha256:
                    detail = "content differs from what was written (sha256)"
            except OSError as error:
                detail = f"cannot be read: {error}"
            if detail:
                problems.append(Problem("content", part.name, detail, record.index))
    if not problems:
        problems += _check_samples(job, record)
    return problems, count


def _check_samples(job: Job, record: ShardRecord) -> Iterator[Problem]:
    planned = job.shards[record.index]
    plan = job.plan
    listed = len(record.ids) + len(record.bad)
    ids = plan.order[planned.first : planned.last]
    wanted = int(np.count_nonzero(~np.isin(ids, plan.edits.gone)))
    if listed != wanted or (record.ids and not record.files):
        detail = f"lists {listed} images, {wanted} are planned"
        if listed == wanted:
            detail = f"lists {len(record.ids)} samples and no file"
        yield Problem("record", record.name, detail, record.index)
    elif record.files and (record.ids or record.files[0].bytes):  # an empty TFRecord has no bytes
        main = record.files[0]
        format = job.plan.recipe.packing.format
        read = reader(job.target, main.name)
        try:
            count = count_samples(format, main.name, main.bytes, read)
        except SourceError as error:
            detail = str(error).removeprefix(f"{main.name} ")
            yield Problem("samples", main.name, detail, record.index)
        else:
            if count != len(record.ids):
                detail = f"holds {count} samples, should hold {len(record.ids)}"
                yield Problem("samples", main.name, detail, record.index)


def _foreign_files(
    job: Job, records: dict[int, ShardRecord], present: dict[str, int]
) -> Iterator[Problem]:
    """Files that belong to no record."""
    recorded = {part.name for record in records.values() for part in record.files}
    recorded |= {record.name for record in records.values()}
    index = {record_name(shard.name): shard.index for shard in job.shards}
    stems = {shard.name: shard.index for shard in job.shards}
    for name in sorted(present.keys() - recorded):
        if is_job_file(name) and not name.startswith(RECORDS):
            continue
        is_index = name.endswith(INDEX) or f"/{INDEXES}/" in f"/{name}"
        if is_index or name.rpartition("/")[2] == MDS_INDEX:
            continue
        if name in index:
            yield Problem("record", name, "is damaged, or of another plan", index[name])
        elif os.path.splitext(name)[0] in stems:
            yield Problem("foreign", name, "of a shard that is not complete; a run rebuilds it")
        else:
            yield Problem("foreign", name, "is not of this job")


def temporary_names(target: Target) -> list[str]:
    """Names of temporary folders, one per process; unknown for buckets."""
    if not isinstance(target, LocalTarget):
        return []
    with suppress(OSError):
        folder = os.path.join(target.folder, TEMPORARY)
        return sorted(f"{TEMPORARY}/{name}" for name in os.listdir(folder))
    return []


def count_samples(format: str, name: str, size: int, read: Read) -> int:
    """Number of samples that a reader finds in a shard's main file. SourceError."""
    try:
        return _COUNTERS[format](ForwardReader(name, size, read, 1 << 16))
    except (ValueError, KeyError, OSError) as error:
        raise SourceError(f"{name} cannot be read: {error}") from error


def _in_tar(reader: ForwardReader) -> int:
    from fastfeed.sources.tar.headers import members

    notes: list[str] = []
    keys = {member.name.partition(".")[0] for member in members(reader, notes)}
    _raise_notes(notes)
    return len(keys)


def _in_tfrecord(reader: ForwardReader) -> int:
    from fastfeed.sources.tfrecord.records import records

    notes: list[str] = []
    count = sum(1 for _ in records(reader, notes))
    _raise_notes(notes)
    return count


def _in_parquet(reader: ForwardReader) -> int:
    tail = reader.read(reader.size - 8, 8)  # the footer's length, and the magic
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > reader.size - 12:
        raise ValueError("it does not end as a Parquet file does")
    footer = reader.read(reader.size - 8 - length, length)
    return sum(group.rows for group in row_groups(footer, reader.size))


def _in_mds(reader: ForwardReader) -> int:
    """u32 count, u32 offsets[count + 1], JSON, samples (MosaicML streaming, base/format/mds)."""
    count = int.from_bytes(reader.read(0, 4), "little")
    offsets = np.frombuffer(reader.read(4, 4 * (count + 1)), "<u4").astype(np.int64)
    is_complete = len(offsets) == count + 1 and int(offsets[-1]) == reader.size
    if not is_complete or bool(np.any(np.diff(offsets) < 0)):
        raise ValueError(f"its offset table does not match the file size, {reader.size}")
    return count


def _in_arrays(reader: ForwardReader) -> int:
    rows = Rows.of(reader)
    if rows.first + rows.count * rows.size != reader.size:
        shape = (rows.count, *rows.shape)
        raise ValueError(f"an array {shape} of {rows.dtype} does not fit {reader.size} bytes")
    return rows.count


def _raise_notes(notes: list[str]) -> None:
    if notes:
        raise ValueError("; ".join(notes[:3]))


_COUNTERS = {
    "webdataset": _in_tar,
    "tfrecord": _in_tfrecord,
    "parquet": _in_parquet,
    "mds": _in_mds,
    "raw": _in_arrays,
}
