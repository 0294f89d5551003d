"""A process of `test_keras_layer.py`: layers against transforms, on the backend of the environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from helpers import exported

import fastfeed as ff


def equal(result: Any, want: np.ndarray) -> bool:
    """The same bits."""
    result = np.asarray(keras.ops.convert_to_numpy(result))
    return result.dtype == want.dtype and result.tobytes() == want.tobytes()


def refusal(call: Any) -> str:
    """The text of the error that a call raises."""
    try:
        call()
    except ff.errors.ConfigError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    """Print a line of JSON."""
    cases = {}
    some = None if keras.backend.backend() == "tensorflow" else exported.EVERY_NODE
    for name, ops, size, images in exported.cases(some):
        layer = ff.Transform(ops).to_keras_layer(size=size)
        want = exported.expected(ops, images)
        cases[name] = [equal(layer(images), want)]
        if name in ("chw", "fill"):
            entry = keras.Input(images.shape[1:], dtype="uint8")
            model = keras.Model(entry, layer(entry))
            assert model.output_shape == (None, *want.shape[1:])
            model.save(folder / "model.keras")
            loaded = keras.models.load_model(folder / "model.keras")
            cases[name] += [equal(model(images), want), equal(loaded(images), want)]
    layer = ff.Transform([ff.Resize((16, 16))]).to_keras_layer()
    config = layer.get_config()
    config["transform"] = config["transform"] | {"meaning": 1}
    print(
        json.dumps(
            {
                "backend": keras.backend.backend(),
                "cases": cases,
                "floats": refusal(lambda: layer(exported.LEVELS.astype("float32"))),
                "other size": refusal(lambda: layer(exported.LEVELS[:, :8])),
                "other version": refusal(lambda: type(layer).from_config(config)),
            }
        )
    )


main(Path(sys.argv[1]))
