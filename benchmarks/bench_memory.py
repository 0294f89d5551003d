"""Is memory bounded by (prefetch + 2) batches, and flat over 100 epochs?"""

from __future__ import annotations

import math
from multiprocessing import get_context
from typing import Any

from rounds import DATA, arguments, finish, rss_mb

import fastfeed as ff
from fastfeed.feed.session import FeedSession

BATCH, EPOCHS = 32, 100


def main() -> None:
    options = arguments(__doc__, rounds=1)
    result = {}
    for prefetch in (
        0,
        2,
        6,
    ):  # each in a fresh process: memory that one run leaves behind must not help the next
        with get_context("spawn").Pool(1) as pool:
            result[f"prefetch {prefetch}"] = pool.apply(grow, (prefetch, options.threads))
    finish("Is memory bounded and flat?", {"epochs": EPOCHS, "result": result}, options.out)


def grow(prefetch: int, threads: int) -> dict[str, Any]:
    """Resident memory above that of a constructed feed."""
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    ops = [ff.RandomResizedCrop(224), ff.RandomFlip(), ff.Normalize.imagenet()]
    with ff.Feed(source, ops, batch=BATCH, threads=threads, prefetch=prefetch) as feed:
        batch_mb = math.prod((BATCH, *FeedSession.of(feed).program.spec.shape)) * 4 / 1e6
        before, after_epoch = rss_mb(), []
        for _ in range(EPOCHS):
            for _batch in feed:
                pass
            after_epoch.append(round(rss_mb() - before, 1))
    return {
        "batch_mb": round(batch_mb, 1),
        "batches_mb": round((prefetch + 2) * batch_mb, 1),
        "grown_mb_after_epochs": {str(i): after_epoch[i - 1] for i in (1, 2, 10, 25, 50, 100)},
        "epochs_25_to_100_change_mb": round(after_epoch[-1] - after_epoch[24], 1),
    }


if __name__ == "__main__":
    main()
