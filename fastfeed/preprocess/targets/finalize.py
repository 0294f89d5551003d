"""Files written once all shards are complete: manifest, list of bad images, indexes.

Also the log of run times.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.record import Counts, Record
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.preprocess.targets.target import Target

__all__ = ["BAD", "MANIFEST", "TIMES", "finalize", "indexes", "log_run"]

MANIFEST, BAD, TIMES = f"{JOB}/manifest.json", f"{JOB}/bad.jsonl", f"{JOB}/times.jsonl"


def finalize(job: Job) -> None:
    """Write the list of bad photographs, the format's indexes, and last the manifest."""
    records = [job.records[index] for index in sorted(job.records)]
    for name, content in indexes(job, records).items():
        _write(job.target, name, content)
    bad = [
        {
            "id": sample.id,
            "uri": sample.uri,
            "shard": record.shard,
            "reason": sample.reason,
            "detail": sample.detail,
        }
        for record in records
        for sample in record.bad
    ]
    _write(job.target, BAD, "".join(json.dumps(row) + "\n" for row in bad).encode())
    _write(
        job.target,
        MANIFEST,
        json.dumps(_manifest(job, records), indent=1, sort_keys=True).encode() + b"\n",
    )
    job.target.sweep(everything=True)


def _manifest(job: Job, records: list[Record]) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        main = record.files[0]
        groups.setdefault(record.shard.rpartition("/")[0], []).append(
            {
                "name": main.name,
                "bytes": main.bytes,
                "sha256": main.sha256,
                "samples": len(record.ids),
            }
        )
    counts = Counts.sum(record.tally for record in records)
    return {
        "plan": job.plan.hash,
        "recipe": job.plan.recipe.document(),
        "made_with": job.plan.made_with,
        "classes": list(job.plan.classes),
        "shards": groups,
        "samples": counts.samples,
        "bytes": sum(record.bytes for record in records),
        "bad": dict(Counter(sample.reason for record in records for sample in record.bad)),
        "left_out": job.plan.left_out,
        **({"shares": job.plan.shares} if job.plan.shares else {}),
    }


def indexes(job: Job, records: list[Record]) -> dict[str, bytes]:
    """Content of the indexes of a complete job, by name: MDS has one in each folder."""
    if job.plan.recipe.packing.format != "mds":
        return {}
    from fastfeed.preprocess.writers.mds import index_json

    packing, image = job.plan.recipe.packing, job.plan.recipe.encoding.image
    folders: dict[str, list[tuple[str, int, str, int, dict[str, Any]]]] = {}
    for record in records:
        folder, _, _ = record.shard.rpartition("/")
        main = record.files[0]
        name = main.name[len(folder) + bool(folder) :]
        file = name, main.bytes, main.sha256, len(record.ids), record.arrays
        folders.setdefault(folder, []).append(file)
    return {
        f"{folder}/index.json".lstrip("/"): index_json(files, packing, image)
        for folder, files in folders.items()
    }


def _write(target: Target, name: str, content: bytes) -> None:
    """Write a file unless it has this content already."""
    if target.read(name) != content:
        target.write(name, content)


def log_run(
    target: Target,
    seconds: float,
    images: int,
    stages: Mapping[str, float],
    shards: int,
    **more: Any,
) -> None:
    """Append one line to TIMES."""
    line = {"seconds": round(seconds, 3), "images": images, "shards": shards, **more}
    line["stages"] = {stage: round(took, 3) for stage, took in sorted(stages.items())}
    target.write(TIMES, (target.read(TIMES) or b"") + json.dumps(line).encode() + b"\n")
