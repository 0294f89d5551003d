"""How much of the decode stage's rate is left after a feed has done everything else?

Decode alone: the engine's probe and decode over blobs in memory, windows known, into one buffer,
same threads, same
chunks. The feed: files, order, draws, windows, fault handling, batches, hand-over. Same images,
same crops.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from helpers.engines import engine_for
from rounds import DATA, arguments, finish, interleaved, ratio

import fastfeed as ff
from fastfeed.decode import Request
from fastfeed.feed.session import FeedSession
from fastfeed.sampling.rng import uniform

BATCH, CHUNK, EPOCHS = 50, 16, 6


def main() -> None:
    options = arguments(__doc__, rounds=9)
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    ops = [ff.RandomResizedCrop(224), ff.RandomFlip()]
    plain = ff.Feed(source, ops, batch=BATCH, threads=options.threads)
    normalized = ff.Feed(
        source, [*ops, ff.Normalize.imagenet()], batch=BATCH, threads=options.threads
    )
    result = interleaved(
        options.rounds,
        {
            "decode alone": decode_alone(plain, options.threads),
            "feed, uint8": lambda: walk(plain),
            "feed, normalized float32": lambda: walk(normalized),
        },
    )
    ratios = {
        name: ratio(result, name, "decode alone")
        for name in ("feed, uint8", "feed, normalized float32")
    }
    question = "What share of the decode stage's rate does iterating a feed reach?"
    finish(
        question,
        {"images": len(source), "batch": BATCH, "result": result, "share": ratios},
        options.out,
    )


def walk(feed: ff.Feed) -> int:
    """EPOCHS epochs from the first; the images seen."""
    return sum(len(batch) for batch in feed.batches(0, epochs=EPOCHS))


def decode_alone(feed: ff.Feed, threads: int):
    """The same crops of the same images in the same order, by the engine alone."""
    session = FeedSession.of(feed)
    program, plan, source = session.program, session.plan, session.source
    engine, blobs = engine_for(program), source.read(range(len(source)))
    sizes = np.array([(h.height, h.width) for h in engine.probe(blobs)])
    work = []
    for epoch in range(EPOCHS):
        for step in range(plan.steps):
            ids = plan.ids(epoch, step)
            draws = program.draw(lambda slot, n: uniform(plan.seed, epoch, ids, slot, n))  # noqa: B023
            windows = program.windows(draws, sizes[ids])
            for first in range(0, len(ids), CHUNK):
                rows = slice(first, first + CHUNK)
                work.append(([blobs[i] for i in ids[rows]], windows[rows], rows))
    out, go = np.empty((BATCH, 224, 224, 3), np.uint8), threading.Event()

    def one(task) -> int:
        some, windows, rows = task
        engine.decode(Request(some, engine.probe(some), windows, program.filter), out[rows], go)
        return len(some)

    def run() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(one, work))

    return run


if __name__ == "__main__":
    main()
