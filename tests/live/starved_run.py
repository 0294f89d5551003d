"""Run by test_starved_run.py: Keras on TensorFlow trains on photographs until it is ended; one core
has to do.
"""

import os
import sys
import time

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras

import fastfeed as ff

STEP_S = 0.25


class Step(keras.callbacks.Callback):
    """A step takes its time elsewhere, as on a GPU: a hog of cores does not slow it down."""

    async_safe = True

    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(STEP_S)


feed = ff.Feed(
    ff.ImageFolder(sys.argv[1]),
    [ff.RandomResizedCrop(224), ff.ToFloat()],
    batch=32,
    threads=1,
    name="real",
)
model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5)])
model.compile(
    "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
)
model.fit(feed.to_keras(), epochs=100_000, verbose=0, callbacks=[Step(), ff.Watch(feed, warn=None)])
