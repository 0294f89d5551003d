"""One rank of a run that is killed: writes down what it gets, and keeps its position after each
batch.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import fastfeed as ff

OPS = [ff.RandomResizedCrop(16), ff.RandomFlip()]
GLOBAL_BATCH, EPOCHS = 12, 7


def source(pattern: str, options: dict[str, Any], cache: str | None) -> Any:
    """Two thirds of shards on S3, one third of others there, drawn from a few at a time."""
    shards = ff.TarShards(
        f"{pattern}/a-{{000..007}}.tar", storage=options, cache=cache, progress=False
    )
    others = ff.TarShards(f"{pattern}/b-*.tar", storage=options, cache=cache, progress=False)
    return ff.Mixture({"a": shards, "b": others}, {"a": 2, "b": 1})


def feed(
    world: ff.World, pattern: str, options: dict[str, Any], cache: str | None, **more: Any
) -> ff.Feed:
    """This rank's; the same order and pictures at every world size."""
    return ff.Feed(
        source(pattern, options, cache),
        OPS,
        global_batch=GLOBAL_BATCH,
        seed=7,
        world=world,
        threads=2,
        shuffle=ff.Blocks(window=2, lanes=3),
        **more,
    )


def rows(batch: ff.Batch) -> list[tuple[int, int]]:
    """What a batch holds: (id, checksum of the pixels) of each sample."""
    return [
        (int(i), zlib.crc32(image.tobytes()))
        for i, image in zip(batch.ids, batch.images, strict=True)
    ]


def run(
    rank: int,
    size: int,
    folder: str,
    resume: str | None,
    pattern: str,
    options: dict[str, Any],
    in_step: Any,
) -> None:
    """Go on from `resume` to the end; `folder` gets batches-<rank>.jsonl and state-<rank>.json.

    `in_step` is a barrier: like ranks that exchange gradients, none is more than a step ahead.
    """
    place = Path(folder)
    with feed(ff.World(rank, size), pattern, options, str(place.parent / "cache")) as made:
        if resume is not None:
            made.restore(ff.load_state(resume))
        with (place / f"batches-{rank}.jsonl").open("w") as log:
            while made.state()["epoch"] < EPOCHS:
                for batch in made:
                    line = {
                        "epoch": batch.epoch,
                        "step": batch.step,
                        "first": made.plan.bounds[0],
                        "rows": rows(batch),
                    }
                    log.write(json.dumps(line) + "\n")
                    log.flush()
                    ff.save_state(place / f"state-{rank}.json", made.state())
                    in_step.wait()
        (place / f"done-{rank}").touch()
