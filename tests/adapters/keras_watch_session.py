"""Run by test_watch_callbacks.py, once per Keras backend: a feed that is slower than the steps, and who notices."""

import json
import os
import sys
import time
import warnings

os.environ["KERAS_BACKEND"] = sys.argv[1]
os.environ["OMP_NUM_THREADS"] = "1"  # the machine may be busy
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras.src import backend

import fastfeed as ff

MAKE_S, STEP_S, STEPS = 0.4, 0.15, 24


class Slow(ff.Arrays):
    def read(self, ids):
        time.sleep(MAKE_S / 4 * len(ids))
        return super().read(ids)


class Sleep(keras.callbacks.Callback):
    """The step's time, and what a callback believes that times the gap between batches."""

    async_safe = True

    def __init__(self):
        super().__init__()
        self.ended, self.gaps, self.began = 0.0, 0.0, time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        now = time.perf_counter()
        if batch > 10:
            self.gaps += now - self.ended
        if batch == 10:
            self.began = now
        time.sleep(STEP_S)

    def on_train_batch_end(self, batch, logs=None):
        self.ended = time.perf_counter()


class Logs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(dict(logs or {}))


keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
pixels = np.zeros((4 * STEPS, 8, 8, 3), np.uint8)
feed = ff.Feed(Slow(pixels, np.zeros(4 * STEPS, np.int64)), [ff.ToFloat()], batch=4, threads=1)
sleep, logs, watch = Sleep(), Logs(), ff.Watch(feed, every=5)
callbacks = keras.callbacks.CallbackList([watch], model=model)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    history = model.fit(feed.to_keras(), epochs=1, verbose=0, callbacks=[watch, sleep, logs])
ended = time.perf_counter()
print(
    json.dumps(
        {
            "async": bool(getattr(callbacks, "_async_train", True)),
            "may_be_async": bool(getattr(backend, "IS_THREAD_SAFE", True)),
            "seen": [entry.get("feed_wait") for entry in logs.seen],
            "rate": logs.seen[-1].get("feed_rate"),
            "history": history.history,
            "gaps": sleep.gaps / (ended - sleep.began),
            "stats": feed.stats().wait_share,
        }
    )
)
