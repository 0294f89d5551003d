"""Is the share of time that a feed says the trainer waited true?

Keras `fit` with a source slowed on purpose.

The same model is trained on the same arrays, read at once and read slowly. What the slow run takes
longer is time the trainer must have waited; the feed's own figure is held against it.
"""

from __future__ import annotations

import os
import time

import numpy as np
from rounds import arguments, finish

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

import fastfeed as ff

BATCH, STEPS, SIZE = 16, 20, 128


class Slowed(ff.Arrays):
    """Sleeps this long per batch before it gives anything."""

    seconds = 0.0

    def read(self, ids):
        time.sleep(self.seconds * len(ids) / BATCH)
        return super().read(ids)


def main() -> None:
    options = arguments(__doc__, rounds=3)
    images = np.random.default_rng(0).integers(
        0, 256, (BATCH * STEPS, SIZE, SIZE, 3), dtype=np.uint8
    )
    source = Slowed(images, np.zeros(len(images), int))
    model = keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    rows = []
    for i in range(options.rounds + 1):
        for slow_ms in (25, 75, 150, 300):
            # the quick run before and the one after the slow run say what computing alone takes
            # just now
            quick = [fit(model, source, 0.0)]
            seconds, said = fit(model, source, slow_ms / 1e3)
            quick.append(fit(model, source, 0.0))
            computing = sum(s * (1 - share) for s, share in quick) / len(quick)
            if i:
                told = {
                    "waited_share_by_feed": round(said, 3),
                    "by_the_clock": round(1 - computing / seconds, 3),
                }
                rows.append(
                    {"read_ms_per_batch": slow_ms, "two_epochs_seconds": round(seconds, 2), **told}
                )
    worst = max(abs(r["waited_share_by_feed"] - r["by_the_clock"]) for r in rows)
    result = {
        "backend": keras.backend.backend(),
        "rows": rows,
        "largest_difference": round(worst, 3),
    }
    finish("Does the wait share tell the truth?", result, options.out)


def fit(model: keras.Model, source: Slowed, seconds: float) -> tuple[float, float]:
    """Seconds of two epochs after a first one, and the share of them that the feed says was
    waited.
    """
    source.seconds = seconds
    with ff.Feed(source, [ff.ToFloat()], batch=BATCH, threads=1, prefetch=1) as feed:
        marks = []

        class Mark(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                stats = feed.stats()
                marks.append((time.perf_counter(), stats.seconds, stats.wait_seconds))

        model.fit(feed.to_keras(), epochs=3, verbose=0, callbacks=[Mark()])
        (begin, before, waited), (end, after, waited_in_all) = marks[0], marks[-1]
        return end - begin, (waited_in_all - waited) / (after - before)


if __name__ == "__main__":
    main()
