"""One worker of a MultiWorkerMirroredStrategy ("worker"), or one process with a MirroredStrategy of
two ("devices").

Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import ranks_at_work as at_work
import tensorflow as tf

import fastfeed as ff


class Own:
    """A loop of one's own, with the model in three lines."""

    def __init__(self, strategy: Any, replica_share: float) -> None:
        with strategy.scope():
            self.variables = [tf.Variable(value) for value in at_work.start()]
            self.speeds = [tf.Variable(tf.zeros_like(variable)) for variable in self.variables]
        self.strategy, self.share = strategy, replica_share
        self.run = tf.function(lambda images, labels: strategy.run(self.replica, (images, labels)))

    def replica(self, images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = (
                tf.reshape(images, (-1, at_work.PIXELS)) @ self.variables[0] + self.variables[1]
            )
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(each) * self.share
        gradients = tape.gradient(loss, self.variables)
        gradients = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, gradients
        )
        for variable, speed, gradient in zip(self.variables, self.speeds, gradients, strict=True):
            speed.assign(at_work.MOMENTUM * speed - at_work.RATE * gradient)
            variable.assign_add(speed)
        return loss

    def told(self) -> dict[str, Any]:
        return dict(
            zip(("kernel", "bias"), (v.numpy().tolist() for v in self.variables), strict=True)
        )


def ids(strategy: Any, labels: Any) -> list[int]:
    return [int(label) for part in strategy.experimental_local_results(labels) for label in part]


def loop(strategy: Any, distribute: Any, whole: int = 1) -> dict[str, Any]:
    """Of one's own. `whole` batches of the feed in each step."""
    seen, steps = [], []
    with at_work.feed() as data:
        own = Own(strategy, 1 / data.plan.global_batch / whole)
        made = distribute(data)
        for _ in range(at_work.EPOCHS):
            before = len(seen)
            for images, labels in made:
                seen.append(ids(strategy, labels))
                own.run(images, labels)
            steps.append(len(seen) - before)
    return own.told() | {"seen": seen, "steps": steps}


def model() -> Any:
    net = keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(at_work.SAMPLES, name="dense")]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(
        keras.optimizers.SGD(at_work.RATE, at_work.MOMENTUM), loss, weighted_metrics=["accuracy"]
    )
    net.build((None, 4, 4, 3))
    net.get_layer("dense").set_weights(at_work.start())
    return net


def fit(strategy: Any, inside: bool) -> dict[str, Any]:
    """The model is made in the scope; fit is called there or not.

    In two parts, the second in mid-epoch.
    """
    counts: list[int] = []

    class Counts(keras.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):
            counts.append(step)

    with at_work.feed() as data, at_work.validation() as val:
        with strategy.scope():
            net = model()
        with strategy.scope() if inside else contextlib.nullcontext():
            history = net.fit(
                data.to_keras(),
                epochs=1,
                verbose=0,
                callbacks=[Counts()],
                validation_data=val.to_keras(),
            )
            history = history.history | {"state": data.state()}
            net.fit(
                data.to_keras(),
                epochs=1,
                verbose=0,
                callbacks=[Counts()],
                validation_data=val.to_keras(),
            )
            evaluated = [float(value) for value in net.evaluate(val.to_keras(), verbose=0)]
            predicted = list(net.predict(val.to_keras(), verbose=0).shape)
    kernel, bias = net.get_layer("dense").get_weights()
    x, y = at_work.IMAGES.astype(np.float32) / 255, np.arange(at_work.SAMPLES)
    by_hand = model()
    by_hand.get_layer("dense").set_weights([kernel, bias])
    wanted = [float(value) for value in by_hand.evaluate(x, y, batch_size=8, verbose=0)]
    return {
        "kernel": kernel.tolist(),
        "bias": bias.tolist(),
        "steps": counts,
        "first": history,
        "evaluated": evaluated,
        "by_hand": wanted,
        "predicted": predicted,
    }


def restored(strategy: Any) -> list[int]:
    """How many steps each epoch of a fit has that resumes in the middle of one."""
    counts: list[int] = []

    class Counts(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            counts.append(0)

        def on_train_batch_end(self, step, logs=None):
            counts[-1] += 1

    with at_work.feed() as data, strategy.scope():
        data.seek(0, 3)
        model().fit(data.to_keras(), epochs=2, verbose=0, callbacks=[Counts()])
        return [*counts, *(data.state()[name] for name in ("epoch", "step"))]


def refused(call: Any) -> str:
    try:
        call()
    except ff.errors.ConfigError as error:
        return str(error)
    return "nothing was refused"


def worker() -> dict[str, Any]:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    told = loop(
        strategy,
        lambda data: strategy.distribute_datasets_from_function(lambda context: data.to_tfdata()),
    )
    with at_work.feed() as data:
        told["alone"] = refused(lambda: model().fit(data.to_keras(), verbose=0))
        with strategy.scope():
            told["together"] = refused(lambda: model().fit(data.to_keras(), verbose=0))
    return told


def devices() -> dict[str, Any]:
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])
    told = {
        "pieces": loop(
            strategy, lambda data: strategy.experimental_distribute_dataset(data.to_tfdata())
        ),
        "whole": loop(
            strategy,
            lambda data: strategy.distribute_datasets_from_function(
                lambda context: data.to_tfdata()
            ),
            2,
        ),
        "fit": fit(strategy, inside=True),
        "fit outside": fit(strategy, inside=False),
        "restored": restored(strategy),
    }
    ahead = tf.data.experimental.prefetch_to_device("/CPU:0")
    for name, make in (
        ("applied", lambda data: data.to_tfdata().apply(ahead)),
        ("device", lambda data: data.to_tfdata(device="/CPU:0")),
    ):
        with at_work.feed() as data:
            made = make(data)
            told[name] = [
                labels.numpy().tolist() for _ in range(at_work.EPOCHS) for _, labels in made
            ]
    return told


if __name__ == "__main__":
    print(json.dumps({"worker": worker, "devices": devices}[sys.argv[1]]()))
