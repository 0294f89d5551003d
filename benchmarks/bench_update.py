"""What does it take to remove 1,000 images of a million, and to label many of them otherwise?

The job is made up: a plan of a million small images in a thousand WebDataset shards. Some shards are
real, and hold all that is changed; the others are sparse files, which an update does not read.
Each update is timed in turn with a plain copy of the real shards, with the same fsync.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rounds import finish, parser

from fastfeed.preprocess import Packing, Recipe, update
from fastfeed.preprocess.model.plan import JobPlan, saved
from fastfeed.preprocess.model.record import (
    Counts,
    Entry,
    ProcessedImage,
    ShardFile,
    ShardRecord,
    make_entry,
)
from fastfeed.preprocess.planning.check_source import ROW, name_hash, samples_file
from fastfeed.preprocess.shard.versions import versions
from fastfeed.preprocess.targets.target import open_target
from fastfeed.preprocess.writers import writer_for

PLAN = """
import json, resource, sys, time
from fastfeed.preprocess import update
begun = time.perf_counter()
report = update(sys.argv[1], sys.argv[2], remove=sys.argv[3], dry_run=True)
took, peak = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": round(took, 2), "peak_mb": round(peak / 1e3), "says": report.selection[0]}))
"""


def main() -> None:
    options = parser(__doc__, rounds=5)
    options.add_argument("--images", type=int, default=1_000_000)
    options.add_argument("--real", type=int, default=40, help="shards with images")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        job = root / "shards"
        made = make(job, given.images, given.real)
        each = made["images_per_shard"]
        per_round = 1000 // given.real
        plans = [planned(root, [k * each for k in range(given.real)]) for _ in range(given.rounds)]
        times: dict[str, list[float]] = {"remove": [], "relabel": [], "copy": []}
        for turn in range(given.rounds + 1):
            taken = [k * each + turn * per_round for k in range(given.real)]
            names = [name(i + n) for i in taken for n in range(per_round)]
            label = ("odd", "even")[turn % 2]
            kept = range((given.rounds + 1) * per_round, each)
            labels = {name(k * each + n): label for k in range(given.real) for n in kept}
            work: dict[str, Callable[[], Any]] = {
                "remove": lambda names=names: update("photos", job, remove=names),
                "copy": lambda: copied(job, root / "copy", given.real),
                "relabel": lambda labels=labels: update("photos", job, relabel=labels),
            }
            for kind, call in work.items():
                begun = time.perf_counter()
                call()
                if turn:
                    times[kind].append(round(time.perf_counter() - begun, 3))
    copy = statistics.median(times["copy"])
    finish(
        "What does it take to remove 1,000 images of a million?",
        {
            **made,
            "plan": plans,
            **{
                kind: {
                    "seconds": statistics.median(rounds),
                    "of_copy": round(statistics.median(rounds) / copy, 2),
                    "mb_per_s": round(made["real_mb"] / statistics.median(rounds)),
                    "rounds": rounds,
                }
                for kind, rounds in times.items()
            },
        },
        given.out,
    )


def name(i: int) -> str:
    return f"{i:09d}.jpg"


def planned(root: Path, ids: list[int]) -> dict[str, Any]:
    """Time and memory of the plan of an update, in a process of its own."""
    listed = root / "names.txt"
    listed.write_text("".join(f"{name(i + n)}\n" for i in ids for n in range(1000 // len(ids))))
    command = [sys.executable, "-c", PLAN, "photos", str(root / "shards"), str(listed)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def copied(job: Path, target: Path, real: int) -> None:
    """Copies of the real shards and their indexes, each durable."""
    target.mkdir(exist_ok=True)
    for k in range(real):
        for suffix in (".tar", ".idx"):
            path = target / f"shard-{k:06d}{suffix}"
            shutil.copyfile(job / path.name, path)
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def make(folder: Path, images: int, real: int) -> dict[str, Any]:
    """A complete job."""
    recipe = Recipe(packing=Packing(samples=images // 1000))
    plan = JobPlan(
        recipe,
        source="photos",
        fingerprint="made up",
        length=images,
        classes=("even", "odd"),
        order=np.arange(images),
        groups=(("", images),),
        made_with=versions(recipe),
    )
    target = open_target(folder)
    rows = np.zeros(images, ROW)
    rows["name"] = [name_hash(name(i).encode()) for i in range(images)]
    for file, content in {samples_file(plan): saved(rows), **plan.files()}.items():
        target.write(file, content)
    pixels = np.random.default_rng(0).integers(0, 255, (96, 96, 3), np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "JPEG", quality=90)
    hash = plan.hash
    whole = 0
    for shard in plan.shards:
        ids = range(shard.first, shard.last)
        if shard.index >= real:
            part = ShardFile(f"{shard.name}.tar", 20_000_000, "0" * 64)
            with open(folder / part.name, "wb") as file:
                os.truncate(file.fileno(), part.bytes)
            record = ShardRecord(
                shard.name, shard.index, hash, (part,), tuple(ids), (), (), Counts(), "0" * 8000
            )
            target.write(record.name, record.dump())
            continue
        attempt = target.attempt()
        writer = writer_for(recipe.packing)(attempt.create, shard.name, recipe.packing)
        tally = Counts()
        for i in ids:
            entry = sample(i, encoded.getvalue())
            writer.add(entry)
            tally.add(Counts.of(entry))
        offsets = tuple(writer.close())

        def recorded(
            files: Any, shard: Any = shard, offsets: Any = offsets, tally: Any = tally
        ) -> Any:
            sums = "0" * 8 * (shard.last - shard.first)
            ids = tuple(range(shard.first, shard.last))
            record = ShardRecord(
                shard.name, shard.index, hash, tuple(files), ids, offsets, (), tally, sums
            )
            return record.name, record.dump()

        attempt.commit(recorded)
        whole += (folder / f"{shard.name}.tar").stat().st_size
    return {
        "images": images,
        "shards": len(plan.shards),
        "real_shards": real,
        "real_mb": round(whole / 1e6),
        "images_per_shard": images // 1000,
    }


def sample(i: int, image: bytes) -> Entry:
    facts = {
        "format": "JPEG",
        "source_height": 960,
        "source_width": 960,
        "source_bytes": 400_000,
        "sha256": f"{i:064x}",
        "orientation": 1,
        "icc": "none",
        "mode": "RGB",
    }
    made = ProcessedImage(image, "jpg", 96, 96, facts)
    return make_entry(i, made, name(i), i % 2, ("even", "odd"), {})


if __name__ == "__main__":
    main()
