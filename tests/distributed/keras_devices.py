"""Keras on JAX with DataParallel over four devices of one process. Prints one JSON object."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
# XLA\'s threads: one that waits in an all-reduce holds its, and two may not be enough
os.environ["NPROC"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
import ranks_at_work as at_work
from keras.src.backend.jax import trainer

import fastfeed as ff

arrived: list[list[Any]] = []


def noted(data: Any, layouts: Any = None, plain: Any = trainer._distribute_data) -> Any:
    """How batches arrive at Keras, and whether it lays them out again."""
    placed = plain(data, layouts)
    arrived.append(
        [
            len(data[0].sharding.device_set) if hasattr(data[0], "sharding") else 0,
            placed[0] is data[0],
        ]
    )
    return placed


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


def weights(net: Any) -> dict[str, Any]:
    return dict(
        zip(
            ("kernel", "bias"),
            (w.tolist() for w in net.get_layer("dense").get_weights()),
            strict=True,
        )
    )


trainer._distribute_data = noted
keras.distribution.set_distribution(keras.distribution.DataParallel())
net = model()
with at_work.feed() as data, at_work.feed(flip=False, shuffle=False) as val:
    history = net.fit(
        data.to_keras(), epochs=at_work.EPOCHS, verbose=0, validation_data=val.to_keras()
    ).history
    told = weights(net) | {"history": history, "arrived": arrived.copy(), "text": str(data)}
    told["state"] = [data.state()["epoch"], data.state()["step"]]
    told["shape"] = list(net.predict(val.to_keras(), verbose=0).shape)
    told["evaluated"] = [float(value) for value in net.evaluate(val.to_keras(), verbose=0)]
with at_work.feed(6) as wrong:
    try:
        model().fit(wrong.to_keras(), verbose=0)
    except ff.errors.ConfigError as error:
        told["wrong batch"] = str(error)
keras.distribution.set_distribution(None)
alone = model()
alone.get_layer("dense").set_weights([np.asarray(told["kernel"]), np.asarray(told["bias"])])
x, y = at_work.IMAGES.astype(np.float32) / 255, np.arange(at_work.SAMPLES)
told["by hand"] = [
    float(value) for value in alone.evaluate(x[:40], y[:40], batch_size=8, verbose=0)
]
print(json.dumps(told))
