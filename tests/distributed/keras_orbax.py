"""Keras's OrbaxCheckpoint inside an epoch, and a run that resumes from it. Prints one JSON object.

Argument: a folder.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import ranks_at_work as at_work

END = 7  # batches of the first run, of which the checkpoint has 6


class Ends(keras.callbacks.Callback):
    """Ends a run after some batches."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == END:
            raise KeyboardInterrupt


def model() -> Any:
    pixels = keras.Input((4, 4, 3))  # Keras restores weights by the names of layers
    logits = keras.layers.Dense(at_work.SAMPLES, name="dense")(keras.layers.Flatten()(pixels))
    net = keras.Model(pixels, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.SGD(at_work.RATE, at_work.MOMENTUM), loss)
    net.set_weights(at_work.start())
    return net


with at_work.feed() as data:
    saves = keras.callbacks.OrbaxCheckpoint(sys.argv[1], save_freq=2, save_on_background=False)
    try:
        model().fit(data.to_keras(), epochs=2, verbose=0, callbacks=[saves, Ends()])
    except KeyboardInterrupt:
        saves.checkpointer.close()

net = keras.saving.load_model(sys.argv[1])
steps = int(net.optimizer.iterations)
with at_work.feed() as data:
    data.seek(*divmod(steps, len(data)))
    net.fit(data.to_keras(), initial_epoch=steps // len(data), epochs=2, verbose=0)
    state = data.state()
kernel, bias = (weights.tolist() for weights in net.get_weights())
told = {"kernel": kernel, "bias": bias, "resumed": steps, "epoch": state["epoch"]}
print(json.dumps(told))
