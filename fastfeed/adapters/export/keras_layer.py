"""A Keras layer of the exact part of a list of ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.adapters.export.graph import GRAY, Cut, Gray, PixelGraph
from fastfeed.adapters.versions import framework
from fastfeed.errors import ConfigError
from fastfeed.feed.transform.config import TransformConfig
from fastfeed.feed.transform.saved import file_content
from fastfeed.ops.ops_file import read_document
from fastfeed.spec import ENCODED

keras: Any = framework("keras", "to_keras_layer")


def to_keras_layer(config: TransformConfig, size: Any) -> Any:
    """Build the layer that `Transform.to_keras_layer` returns."""
    return PixelLayer(file_content(config), size)


@keras.saving.register_keras_serializable("fastfeed")
class PixelLayer(keras.layers.Layer):
    """uint8 images (n, height, width, channels) to what a Transform makes of them, bit for bit.

    transform: its content in a file. size: (height, width) of whole images, or None.
    """

    def __init__(self, transform: dict[str, Any], size: Any = None, **options: Any) -> None:
        super().__init__(**({"trainable": False} | options))
        self._transform = dict(transform)
        self._size = size
        ops, values = read_document(self._transform, "PixelLayer", "transform", "to_keras_layer")
        self._graph = PixelGraph.of(ops, values.get("input", ENCODED), size)

    def call(self, images: Any) -> Any:
        """Images of the graph's spec, a row per image."""
        dtype = keras.backend.standardize_dtype(images.dtype)
        if dtype != "uint8" or tuple(images.shape[1:]) != self._graph.shape:
            expected = ", ".join(map(str, self._graph.shape))
            raise ConfigError(
                f"the layer takes uint8 (n, {expected}), got {dtype} {tuple(images.shape)}; pass"
                " images as bytes, and give keras.Input dtype='uint8'"
            )
        for step in self._graph.steps:
            images = _applied(step, images)
        return keras.ops.transpose(images, (0, 3, 1, 2)) if self._chw else images

    @property
    def _chw(self) -> bool:
        return self._graph.spec.layout == "CHW"

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PixelLayer:
        """The layer of a saved model, or the error that says why not, which Keras would wrap."""
        return cls(**config)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor, as JSON."""
        return super().get_config() | {"transform": self._transform, "size": self._size}


def _applied(step: Any, images: Any) -> Any:
    ops = keras.ops
    if isinstance(step, Cut):
        images = ops.take(ops.take(images, step.rows, axis=1), step.columns, axis=2)
        return images if step.inside.all() else ops.where(step.inside, images, step.fill)
    wide = ops.cast(images, "int32")
    if isinstance(step, Gray):
        shares = ops.convert_to_tensor(np.array(GRAY, np.int32))
        gray = (ops.sum(wide * shares, axis=3, keepdims=True) + (1 << 15)) // (1 << 16)
        return ops.cast(ops.repeat(gray, len(GRAY), axis=3), "uint8")
    values, firsts = (ops.convert_to_tensor(part) for part in step.flat())
    return ops.take(values, wide + firsts, axis=0)
