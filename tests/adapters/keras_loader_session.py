"""Run by test_watch_loaders.py: data of other kinds under Keras, with known sleeps, and what is said of its waiting.

Arguments: backend, kind of data, seconds to make a batch, seconds of a step. Whatever else the machine does makes steps
and batches longer, so both are timed in the steps that count: batches by what makes them, steps by a callback. What a
callback cannot see is where between two of its calls a batch was there: that is said as a range.
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

BACKEND, KIND, MAKE_S, STEP_S = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
QUICK, STEPS = 6, 18  # batches before the first that takes long to make; all
FIRST, LAST = 10, 17  # steps between whose beginnings is measured: all batches take long, and queues are empty
begun, made = {}, {}  # when a batch was begun and when it was there, by number


def make(index):
    begun[index] = time.perf_counter()
    if index >= QUICK:
        time.sleep(MAKE_S)
    made[index] = time.perf_counter()


def batch(index):
    make(index)
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
        make(min(ids) // 4)
        return super().read(ids)


def feed():
    pixels = np.zeros((4 * STEPS, 1, 1, 3), np.uint8)
    return ff.Feed(Slow(pixels, np.zeros(4 * STEPS, np.int64)), [ff.ToFloat()], batch=4, threads=1, shuffle=False)


class Clock(keras.callbacks.Callback):
    """The step's time, and when Keras called."""

    async_safe = True

    def __init__(self):
        super().__init__()
        self.begins, self.slept, self.ends, self.counted = {}, {}, {}, {}

    def on_train_batch_begin(self, batch, logs=None):
        counters = watched.live.page().counters
        self.counted[batch] = (counters["wait_ns"], counters["consumer_ns"])
        self.begins[batch] = time.perf_counter()
        time.sleep(STEP_S)
        self.slept[batch] = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.ends[batch] = time.perf_counter()


class Logs(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.last = dict(logs or {})


KINDS = {"pydataset": lambda: Dataset(), "tfdata": tfdata, "generator": lambda: map(batch, range(STEPS + 2))}
keras.utils.set_random_seed(1)
layers = [keras.layers.Flatten(), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile("sgd", "mse", jit_compile=False)
watched = feed() if KIND == "feed" else ff.watched((x for x in KINDS[KIND]()) if KIND == "generator" else KINDS[KIND]())
data, clock, logs = watched.to_keras(), Clock(), Logs()
model.fit(data, epochs=1, steps_per_epoch=STEPS if KIND == "generator" else None, verbose=0,
          callbacks=[ff.Watch(data, every=5), clock, logs])  # fmt: skip

steps, longest, shortest = LAST - FIRST, 0.0, 0.0
for step in range(FIRST, LAST):
    if BACKEND == "torch":  # takes the batch before the next step begins, the others within their training function
        taken, asked, end = step + 1, clock.ends[step], clock.begins[step + 1]
    else:
        taken, asked, end = step, clock.slept[step], clock.ends[step]
    longest += end - asked
    shortest += max(0.0, made[taken] - asked)
seconds = clock.begins[LAST] - clock.begins[FIRST]
wait, consumer = (clock.counted[LAST][n] - clock.counted[FIRST][n] for n in range(2))
numbers = range(FIRST + 1, LAST)
result = {
    "wait": wait / (wait + consumer),
    "made": float(np.mean([made[k] - begun[k] for k in numbers])),  # p, from begin to end, or from end to end
    "apart": float(np.mean([made[k] - made[k - 1] for k in numbers])),
    "step": [(seconds - longest) / steps, (seconds - shortest) / steps],  # c, at least and at most
    "logs": logs.last,
}
print(json.dumps(result))
