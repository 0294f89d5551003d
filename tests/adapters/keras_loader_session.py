"""Run by test_watch_loaders.py: data of other kinds under Keras, with known sleeps, and what is said of its waiting.

Arguments: backend, kind of data, seconds to make a batch, seconds of a step.
"""

import json
import os
import sys
import time

os.environ["KERAS_BACKEND"] = sys.argv[1]
os.environ["OMP_NUM_THREADS"] = "1"  # the machine may be busy
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

import fastfeed as ff

KIND, MAKE_S, STEP_S = sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
QUICK, STEPS = 16, 34  # batches before the first that takes long to make; all
CALM, MEASURED = (6, 12), (20, 33)  # steps: after compiling, when nothing is waited for; when every batch takes long
made = []  # (when it began, seconds that it took): sleeps take longer than asked for


def sleep(seconds, times):
    began = time.perf_counter()
    time.sleep(seconds)
    times.append((began, time.perf_counter() - began))


def batch(index):
    if index >= QUICK:
        sleep(MAKE_S, made)
    return np.full((4, 3), index, np.float32), np.zeros((4, 1), np.float32)


class Dataset(keras.utils.PyDataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return batch(index)


def tfdata():
    import tensorflow as tf

    signature = (tf.TensorSpec((4, 3), tf.float32), tf.TensorSpec((4, 1), tf.float32))
    return tf.data.Dataset.from_generator(lambda: map(batch, range(STEPS)), output_signature=signature).prefetch(2)


class Slow(ff.Arrays):
    def read(self, ids):
        if min(ids) >= 4 * QUICK:
            sleep(MAKE_S, made)
        return super().read(ids)


def feed():
    pixels = np.zeros((4 * STEPS, 1, 1, 3), np.uint8)
    return ff.Feed(Slow(pixels, np.zeros(4 * STEPS, np.int64)), [ff.ToFloat()], batch=4, threads=1, shuffle=False)


class Sleep(keras.callbacks.Callback):
    """The step's time, and what is known at the beginning of each step."""

    async_safe = True

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        counters = watched.live.page().counters
        self.seen.append((time.perf_counter(), counters["wait_ns"], counters["consumer_ns"]))
        time.sleep(STEP_S)


class Logs(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.last = dict(logs or {})


KINDS = {"pydataset": lambda: Dataset(), "tfdata": tfdata, "generator": lambda: map(batch, range(STEPS + 2))}
keras.utils.set_random_seed(1)
layers = [keras.layers.Flatten(), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile("sgd", "mse", jit_compile=False)
watched = feed() if KIND == "feed" else ff.watched((x for x in KINDS[KIND]()) if KIND == "generator" else KINDS[KIND]())
data, clock, logs = watched.to_keras(), Sleep(), Logs()
model.fit(data, epochs=1, steps_per_epoch=STEPS if KIND == "generator" else None, verbose=0,
          callbacks=[ff.Watch(data, every=5), clock, logs])  # fmt: skip
times = [at for at, _, _ in clock.seen]
first, last = (clock.seen[step] for step in MEASURED)
wait, consumer = last[1] - first[1], last[2] - first[2]
p = float(np.median([took for began, took in made if first[0] <= began < last[0]]))
calm = np.diff(times[CALM[0] : CALM[1] + 1])  # by another clock than the feed's, where nothing waits
c, noise = float(np.median(calm)), float(np.subtract(*np.percentile(calm, [75, 25])))
print(json.dumps({"wait": wait / (wait + consumer), "p": p, "c": c, "noise": noise, "logs": logs.last}))
