"""ResNet-18, ResNet-50 and ViT-B/16 in plain JAX, as torchvision has them: images float32 NHWC in,
scores out.

Weights are float32, activations bfloat16. Batch normalization is that of training; the averages
that only evaluation needs are not kept. Equal blocks are one `lax.scan`, so that a net of fifty
layers compiles in the time of a small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Weights = Any  # a tree of arrays
_LAYOUT = ("NHWC", "HWIO", "NHWC")
_HALF = jnp.bfloat16


def _drawn(rng: np.random.Generator, *shape: int, scale: float = 0.02) -> np.ndarray:
    return scale * rng.standard_normal(shape, np.float32)


def _conv_weights(rng: np.random.Generator, size: int, given: int, width: int) -> np.ndarray:
    return _drawn(rng, size, size, given, width, scale=(2 / (size * size * width)) ** 0.5)


def _conv(x: Any, weights: Any, stride: int = 1) -> Any:
    """Padded on both sides alike, as PyTorch does; XLA's "SAME" is not for stride 2."""
    edge = (weights.shape[0] // 2,) * 2
    return lax.conv_general_dilated(
        x, weights.astype(_HALF), (stride,) * 2, (edge,) * 2, dimension_numbers=_LAYOUT
    )


def _normal_weights(width: int) -> Weights:
    return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}


def _normal(x: Any, weights: Weights, axes: tuple[int, ...], epsilon: float) -> Any:
    """Mean 0 and variance 1 over these axes, then scaled: batch or layer normalization."""
    wide = x.astype(jnp.float32)
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return (
        (wide - mean) * lax.rsqrt(variance + epsilon) * weights["scale"] + weights["bias"]
    ).astype(_HALF)


def _batch_normal(x: Any, weights: Weights) -> Any:
    return _normal(x, weights, (0, 1, 2), 1e-5)


def _linear_weights(rng: np.random.Generator, given: int, width: int) -> Weights:
    return {"kernel": _drawn(rng, given, width), "bias": np.zeros(width, np.float32)}


def _stacked(blocks: list[Weights]) -> Weights:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *blocks)


def _linear(x: Any, weights: Weights) -> Any:
    return x @ weights["kernel"].astype(_HALF) + weights["bias"].astype(_HALF)


class Resnet(NamedTuple):
    """Stages of residual blocks: of two 3x3 convolutions, or bottlenecks of 1x1, 3x3, 1x1."""

    blocks: tuple[int, ...]  # in each stage
    bottleneck: bool
    width: int = 64

    def init(self, rng: np.random.Generator, side: int = 224, classes: int = 1000) -> Weights:
        """For images of any side."""
        weights: dict[str, Any] = {
            "stem": _conv_weights(rng, 7, 3, self.width),
            "stem_normal": _normal_weights(self.width),
        }
        given = self.width
        for stage, count in enumerate(self.blocks):
            width = self.width << stage
            out = 4 * width if self.bottleneck else width
            first = self._block(rng, given, width, out)
            if (
                given != out
            ):  # the first block of a stage changes the width, and its shortcut with it
                first |= {
                    "short": _conv_weights(rng, 1, given, out),
                    "short_normal": _normal_weights(out),
                }
            rest = [self._block(rng, out, width, out) for _ in range(count - 1)]
            weights[f"stage{stage}"] = {"first": first} | ({"rest": _stacked(rest)} if rest else {})
            given = out
        return weights | {"head": _linear_weights(rng, given, classes)}

    def _block(self, rng: np.random.Generator, given: int, width: int, out: int) -> Weights:
        layers = [(1, given, width), (3, width, width), (1, width, out)] if self.bottleneck else []
        layers = layers or [(3, given, width), (3, width, out)]
        block: dict[str, Any] = {}
        for number, (size, before, after) in enumerate(layers):
            block[f"conv{number}"] = _conv_weights(rng, size, before, after)
            block[f"normal{number}"] = _normal_weights(after)
        return block

    def _residual(self, x: Any, block: Weights, stride: int = 1) -> Any:
        strided = 1 if self.bottleneck else 0  # the first convolution of 3x3
        last = 2 if self.bottleneck else 1
        y = x
        for number in range(last + 1):
            y = _conv(y, block[f"conv{number}"], stride if number == strided else 1)
            y = _batch_normal(y, block[f"normal{number}"])
            if number < last:
                y = jax.nn.relu(y)
        if "short" in block:
            x = _batch_normal(_conv(x, block["short"], stride), block["short_normal"])
        return jax.nn.relu(x + y)

    def scores(self, weights: Weights, images: Any) -> Any:
        """Shape (n, classes), float32."""
        x = _conv(images.astype(_HALF), weights["stem"], 2)
        x = jax.nn.relu(_batch_normal(x, weights["stem_normal"]))
        edges = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), edges)
        for stage in range(len(self.blocks)):
            blocks = weights[f"stage{stage}"]
            x = self._residual(x, blocks["first"], 2 if stage else 1)
            if "rest" in blocks:
                x, _ = lax.scan(
                    lambda y, block: (self._residual(y, block), None), x, blocks["rest"]
                )
        return _linear(x.mean((1, 2)), weights["head"]).astype(jnp.float32)


class Vit(NamedTuple):
    """A vision transformer whose encoder normalizes before attention and before its two linear
    layers.
    """

    layers: int = 12
    width: int = 768
    heads: int = 12
    patch: int = 16

    def init(self, rng: np.random.Generator, side: int = 224, classes: int = 1000) -> Weights:
        tokens = (side // self.patch) ** 2 + 1
        return {
            "patch": _conv_weights(rng, self.patch, 3, self.width),
            "patch_bias": np.zeros(self.width, np.float32),
            "class": np.zeros((1, 1, self.width), np.float32),
            "position": _drawn(rng, 1, tokens, self.width),
            "layers": _stacked([self._layer(rng) for _ in range(self.layers)]),
            "normal": _normal_weights(self.width),
            "head": _linear_weights(rng, self.width, classes),
        }

    def _layer(self, rng: np.random.Generator) -> Weights:
        return {
            "normal0": _normal_weights(self.width),
            "inward": _linear_weights(rng, self.width, 3 * self.width),  # queries, keys and values
            "outward": _linear_weights(rng, self.width, self.width),
            "normal1": _normal_weights(self.width),
            "wide": _linear_weights(rng, self.width, 4 * self.width),
            "narrow": _linear_weights(rng, 4 * self.width, self.width),
        }

    def _encoded(self, x: Any, layer: Weights) -> Any:
        n, tokens, width = x.shape
        split = (n, tokens, 3, self.heads, width // self.heads)
        inward = _linear(_normal(x, layer["normal0"], (-1,), 1e-6), layer["inward"]).reshape(split)
        attended = jax.nn.dot_product_attention(inward[:, :, 0], inward[:, :, 1], inward[:, :, 2])
        x = x + _linear(attended.reshape(x.shape), layer["outward"])
        y = jax.nn.gelu(
            _linear(_normal(x, layer["normal1"], (-1,), 1e-6), layer["wide"]), approximate=False
        )
        return x + _linear(y, layer["narrow"])

    def scores(self, weights: Weights, images: Any) -> Any:
        """Shape (n, classes), float32."""
        stride, kernel = (self.patch,) * 2, weights["patch"].astype(_HALF)
        x = lax.conv_general_dilated(
            images.astype(_HALF), kernel, stride, "VALID", dimension_numbers=_LAYOUT
        )
        x = x.reshape(len(x), -1, self.width) + weights["patch_bias"].astype(_HALF)
        first = jnp.broadcast_to(weights["class"].astype(_HALF), (len(x), 1, self.width))
        x = jnp.concatenate([first, x], 1) + weights["position"].astype(_HALF)
        x, _ = lax.scan(lambda y, layer: (self._encoded(y, layer), None), x, weights["layers"])
        x = _normal(x[:, 0], weights["normal"], (-1,), 1e-6)
        return _linear(x, weights["head"]).astype(jnp.float32)


NETS: dict[str, Resnet | Vit] = {
    "resnet50": Resnet((3, 4, 6, 3), True),
    "resnet18": Resnet((2, 2, 2, 2), False),
    "vit_b": Vit(),
}
TINY_NETS: dict[str, Resnet | Vit] = {  # for stand-ins: the same code
    "resnet50": Resnet((1, 2), True, 4),
    "resnet18": Resnet((1, 2), False, 4),
    "vit_b": Vit(2, 16, 2, 16),
}


def trainer(net: Resnet | Vit, batch: int, side: int, classes: int = 1000) -> tuple[Any, Any, Any]:
    """(its state, one step of SGD with momentum: (state, images, labels) -> (state, loss), labels
    for a batch).
    """

    def loss(weights: Weights, images: Any, labels: Any) -> Any:
        chances = jax.nn.log_softmax(net.scores(weights, images))
        return -jnp.take_along_axis(chances, labels[:, None], 1).mean()

    def step(state: Any, images: Any, labels: Any) -> Any:
        weights, speed = state
        now, slopes = jax.value_and_grad(loss)(weights, images, labels)
        speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slopes)
        return (jax.tree.map(lambda w, v: w - 0.01 * v, weights, speed), speed), now

    # tied to a device, as batches of a feed are: otherwise each net would be compiled once for
    # either
    here = jax.devices()[0]
    weights = net.init(np.random.default_rng(0), side, classes)
    state = jax.device_put((weights, jax.tree.map(np.zeros_like, weights)), here)
    return state, jax.jit(step, donate_argnums=0), jax.device_put(np.arange(batch) % classes, here)
