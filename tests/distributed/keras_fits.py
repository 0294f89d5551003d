"""Arguments of `fit` in addition to a feed, on one backend of Keras (the argument).

Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = sys.argv[1]

import keras
import numpy as np
import ranks_at_work as at_work

import fastfeed as ff

# JAX compiles one program sooner than every op by itself, TensorFlow and PyTorch do not
JIT = keras.backend.backend() == "jax"
FACTORS = {3: 4.0, 8: 0.0, 40: 2.5}
TOGETHER = 1 if sys.argv[1] == "torch" else 2  # steps per execution; Keras on PyTorch takes no more
BAD = (4, 8, 40)  # samples that cannot be read


class Told(keras.callbacks.Callback):
    """Losses of single steps, out of the running mean that Keras keeps; steps of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.losses, self.steps, self._sum = [], [], 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self.steps.append([])
        self._sum = 0.0

    def on_train_batch_end(self, step, logs=None):
        self.steps[-1].append(step)
        total = float(logs["loss"]) * (step + 1)
        self.losses.append(total - self._sum)
        self._sum = total


class Torn(ff.Arrays):
    """Some of its samples cannot be read."""

    def read(self, ids):
        return [
            (
                ff.Failure(int(id), f"memory:{id}", "read", "truncated", "torn")
                if int(id) in BAD
                else blob
            )
            for id, blob in zip(ids, super().read(ids), strict=True)
        ]


def model(build: bool = True, **options: Any) -> Any:
    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(at_work.SAMPLES, name="dense")]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(
        keras.optimizers.SGD(at_work.RATE, at_work.MOMENTUM), loss, jit_compile=JIT, **options
    )
    if build:
        net.build((None, 4, 4, 3))
        net.get_layer("dense").set_weights(at_work.start())
    return net


def fitted(
    data: ff.Feed,
    adapter: Any = None,
    epochs: int = at_work.EPOCHS,
    compiled: Any = None,
    **options: Any,
):
    told, net = Told(), model(**(compiled or {}))
    adapter = data.to_keras() if adapter is None else adapter
    net.fit(adapter, epochs=epochs, verbose=0, callbacks=[told], **options)
    kernel, bias = (weights.tolist() for weights in net.get_layer("dense").get_weights())
    state = [data.state()[name] for name in ("epoch", "step")]
    return {
        "kernel": kernel,
        "bias": bias,
        "losses": told.losses,
        "steps": told.steps,
        "state": state,
    }


def refused(call: Any) -> str:
    try:
        call()
    except ff.errors.ConfigError as error:
        return str(error)
    return "nothing was refused"


result: dict[str, Any] = {"together": TOGETHER}
ones, labels = np.ones(at_work.SAMPLES), np.arange(at_work.SAMPLES)
with at_work.feed() as data, at_work.validation() as val:
    net = model()
    result["refused"] = {
        "class_weight": refused(lambda: net.fit(data.to_keras(), class_weight={0: 2.0}, verbose=0)),
        "sample_weight": refused(lambda: net.fit(data.to_keras(), sample_weight=ones, verbose=0)),
        "y": refused(lambda: net.fit(data.to_keras(), y=labels, verbose=0)),
        "y of evaluate": refused(lambda: net.evaluate(val.to_keras(), y=labels, verbose=0)),
        "sample_weight of evaluate": refused(
            lambda: net.evaluate(val.to_keras(), sample_weight=ones, verbose=0)
        ),
        "factors": refused(lambda: data.to_keras(class_weight={0: -1.0})),
    }
    result["untouched"] = data.state()["epoch"], data.state()["step"]
with at_work.feed() as data:
    result["class_weight"] = fitted(data, data.to_keras(class_weight=FACTORS))
with at_work.feed() as data:
    result["steps_per_epoch"] = fitted(data, epochs=5, steps_per_epoch=2)
with at_work.feed() as data:
    result["steps_per_execution"] = fitted(data, compiled={"steps_per_execution": TOGETHER})
with (
    at_work.feed() as data
):  # the model is built by the first fit, and its metrics again by a second compile
    told, net = Told(), model(build=False, steps_per_execution=TOGETHER)
    data.seek(0, 2)
    net.fit(data.to_keras(), epochs=1, verbose=0, callbacks=[told])
    net.compile("sgd", "sparse_categorical_crossentropy", jit_compile=JIT)
    adapter = data.to_keras()
    for _ in range(2):
        net.fit(adapter, epochs=1, verbose=0)
    result["looks"] = [sum(map(len, told.steps)), data.state()["epoch"], data.state()["step"]]
with at_work.feed() as data:
    adapter, net, seen = data.to_keras(), model(build=False), []
    for _ in range(3):
        net.fit(adapter, steps_per_epoch=1, verbose=0)
        seen.append([data.state()["epoch"], data.state()["step"]])
    result["one step"] = seen
source = Torn(at_work.IMAGES, labels)
with ff.Feed(
    source, [ff.RandomFlip(), ff.ToFloat()], global_batch=8, seed=3, threads=1, on_bad="mask"
) as data:
    result["mask"] = fitted(data)
print(json.dumps(result))
