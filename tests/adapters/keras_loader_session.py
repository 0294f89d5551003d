"""Run by test_watch_loaders.py, once per backend: data of several kinds under Keras, with known
sleeps.

The backend is the argument; a line of stdin names a kind of data, a line of stdout has what is said
of its waiting.

Whatever else the machine does makes steps and batches longer, so both are timed in the steps that
count: batches by what makes them, steps by a callback. What a callback cannot see is where between
two of its calls a batch was there: that is said as a range.
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
from keras.src import backend

import fastfeed as ff

BACKEND = sys.argv[1]
MAKE_S = 0.8  # to make a batch
STEP_S = 0.3
QUICK, STEPS = 6, 18  # batches before the first that takes long to make; all
# steps between whose beginnings is measured: all batches take long, and queues are empty
FIRST, LAST = (
    10,
    17,
)
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
    return tf.data.Dataset.from_generator(
        lambda: map(batch, range(STEPS)), output_signature=signature
    ).prefetch(2)


class Slow(ff.Arrays):
    def read(self, ids):
        make(min(ids) // 4)
        return super().read(ids)


def feed():
    pixels = np.zeros((4 * STEPS, 1, 1, 3), np.uint8)
    return ff.Feed(
        Slow(pixels, np.zeros(4 * STEPS, np.int64)),
        [ff.ToFloat()],
        batch=4,
        threads=1,
        shuffle=False,
    )


class Clock(keras.callbacks.Callback):
    """The step's time, and when Keras called."""

    async_safe = True

    def __init__(self, watched):
        super().__init__()
        self.watched = watched
        self.begins, self.slept, self.ends, self.counted = {}, {}, {}, {}

    def on_train_batch_begin(self, batch, logs=None):
        counters = self.watched.live.page().counters
        self.counted[batch] = (counters["wait_ns"], counters["consumer_ns"])
        self.begins[batch] = time.perf_counter()
        time.sleep(STEP_S)
        self.slept[batch] = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.ends[batch] = time.perf_counter()


class Logs(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.last = dict(logs or {})


KINDS = {
    "feed": feed,
    "tfdata": tfdata,
    "pydataset": Dataset,
    "generator": lambda: (batch(index) for index in range(STEPS + 2)),
}


def measure(kind):
    begun.clear()
    made.clear()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    loader = KINDS[kind]()
    watched = loader if kind == "feed" else ff.watched(loader)
    data, clock, logs = watched.to_keras(), Clock(watched), Logs()
    watch = ff.Watch(data, every=5)
    limit = STEPS if kind == "generator" else None
    history = model.fit(
        data, epochs=1, steps_per_epoch=limit, verbose=0, callbacks=[watch, clock, logs]
    )
    watched.close()
    callbacks = keras.callbacks.CallbackList([watch], model=model)
    return waiting(clock) | {
        "logs": logs.last,
        "history": history.history,
        "async": bool(getattr(callbacks, "_async_train", True)),
        "may_be_async": bool(getattr(backend, "IS_THREAD_SAFE", True)),
    }


def waiting(clock):
    steps, longest, shortest = LAST - FIRST, 0.0, 0.0
    for step in range(FIRST, LAST):
        if (
            BACKEND == "torch"
        ):  # takes the batch before the next step begins, the others within their training function
            taken, asked, end = step + 1, clock.ends[step], clock.begins[step + 1]
        else:
            taken, asked, end = step, clock.slept[step], clock.ends[step]
        longest += end - asked
        shortest += max(0.0, made[taken] - asked)
    seconds = clock.begins[LAST] - clock.begins[FIRST]
    wait, consumer = (clock.counted[LAST][n] - clock.counted[FIRST][n] for n in range(2))
    numbers = range(FIRST + 1, LAST)
    gaps = sum(clock.begins[step + 1] - clock.ends[step] for step in range(FIRST, LAST))
    return {
        "wait": wait / (wait + consumer),
        "gaps": gaps / seconds,  # what a callback believes that times the gap between batches
        "rate": 4 * steps / seconds,
        "made": float(
            np.mean([made[k] - begun[k] for k in numbers])
        ),  # p, from begin to end, or from end to end
        "apart": float(np.mean([made[k] - made[k - 1] for k in numbers])),
        "step": [
            (seconds - longest) / steps,
            (seconds - shortest) / steps,
        ],  # c, at least and at most
    }


for line in sys.stdin:
    print(json.dumps(measure(line.strip())), flush=True)
