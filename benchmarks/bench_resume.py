"""How long does it take to see that a job of a million photographs is finished, and what is left of
one that is not?

The job is made up: a plan of a million, a thousand shards (as large as real ones, but sparse),
their records. Timed is the whole command, `fastfeed preprocess resume`, with the start of Python.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rounds import finish, parser

from fastfeed.preprocess import Packing, Recipe
from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.record import (
    BadSample,
    Counts,
    ProcessedImage,
    ShardFile,
    ShardRecord,
)
from fastfeed.preprocess.shard.versions import versions


def main() -> None:
    options = parser(__doc__, rounds=7)
    options.add_argument("--images", type=int, default=1_000_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder), given.images)
        resume = [timed("resume", sys.prefix, folder) for _ in range(given.rounds + 1)][1:]
        status = [timed("status", folder) for _ in range(given.rounds)]
    report = {
        **made,
        "resume_s": {"median": statistics.median(resume), "rounds": resume},
        "status_s": {"median": statistics.median(status), "rounds": status},
    }
    finish(
        "How long does it take to see that a job of a million photographs is finished?",
        report,
        given.out,
    )


def timed(command: str, *places: str) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("fastfeed")), "preprocess", command, *places],
        capture_output=True,
        text=True,
        check=True,
    )
    took = round(time.perf_counter() - begun, 3)
    assert (
        "1000 of 1000" in done.stdout + done.stderr or "1,000 of 1,000" in done.stdout + done.stderr
    ), done.stdout
    return took


def make(folder: Path, images: int) -> dict[str, int]:
    """A finished job."""
    recipe = Recipe(packing=Packing(samples=images // 1000))
    plan = JobPlan(
        recipe,
        source=sys.prefix,
        fingerprint="made up",
        length=images,
        classes=(),
        left_out={},
        order=np.arange(images),
        groups=(("", images),),
        made_with=versions(recipe),
    )
    for name, content in plan.files().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    rng, hash, records = np.random.default_rng(0), plan.hash, 0
    for shard in plan.shards:
        ids = [i for i in range(shard.first, shard.last) if i % 997]
        sizes = rng.integers(60_000, 300_000, len(ids)) // 512 * 512 + 2048
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        tally = Counts()
        for i in range(40):
            facts = {
                "format": "JPEG",
                "source_height": 4000 + i,
                "source_width": 6000,
                "source_bytes": 8_000_000,
            }
            tally.add(ProcessedImage(b"", "jpg", 512, 768 + i, facts))
        bad = tuple(
            BadSample(i, f"/photographs/{i}.jpg", "truncated")
            for i in range(shard.first, shard.last)
            if not i % 997
        )
        part = ShardFile(f"{shard.name}.tar", int(offsets[-1]), "0" * 64)
        with open(folder / part.name, "wb") as file:
            os.truncate(file.fileno(), part.bytes)
        record = ShardRecord(
            shard.name,
            shard.index,
            hash,
            (part,),
            tuple(ids),
            tuple(offsets[:-1].tolist()),
            bad,
            tally,
        )
        content = record.dump()
        records += len(content)
        (folder / record.name).write_bytes(content)
    return {"images": images, "shards": len(plan.shards), "bytes_of_records": records}


if __name__ == "__main__":
    main()
