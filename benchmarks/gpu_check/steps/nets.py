"""Training steps by framework and net; tiny ones on a processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

_CLASSES = 1000
_STAGES = (  # (channels, blocks, stride) of ResNet-50
    (64, 3, 1),
    (128, 4, 2),
    (256, 6, 2),
    (512, 3, 2),
)

Step = Callable[[Any], None]


def torch_net(name: str, batch: int, stand_in: bool) -> Step:
    """One step of ResNet-18, ResNet-50 or ViT-B/16 on float32 (n, height, width, 3): bf16, channels
    last.
    """
    if stand_in:
        return _torch_steps(tiny_torch(), batch, "cpu")
    try:
        from torchvision import models
    except ImportError:
        if name == "resnet50":
            return torch_step(batch)
        raise
    make = {"resnet18": models.resnet18, "resnet50": models.resnet50, "vit_b": models.vit_b_16}[
        name
    ]
    return _torch_steps(make(weights=None), batch, "cuda")


def tiny_torch() -> Any:
    """A net for a processor."""
    from torch import nn

    layers = (
        nn.Conv2d(3, 4, 7, 8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 1000),
    )
    return nn.Sequential(*layers)


class PlainSgd:
    """For stand-ins: the first step of an optimizer of PyTorch's imports its compiler, which takes
    two seconds.
    """

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._parameters = list(parameters)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        for parameter in self._parameters:
            parameter.data.sub_(0.01 * parameter.grad)


def _torch_steps(model: Any, batch: int, where: str) -> Step:
    import torch

    torch.backends.cudnn.benchmark = True
    model = model.to(where, memory_format=torch.channels_last)
    optimizer = (
        PlainSgd(model.parameters())
        if where == "cpu"
        else torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    )
    labels = torch.randint(0, 1000, (batch,), device=where)

    def step(images: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(where, dtype=torch.bfloat16):
            scores = model(images.permute(0, 3, 1, 2))  # in memory already channels last
            loss = torch.nn.functional.cross_entropy(scores, labels[: len(images)])
        loss.backward()
        optimizer.step()

    return step


def jax_net(name: str, batch: int, stand_in: bool) -> tuple[Step, Callable[[], Any]]:
    """(a step of ResNet-18, ResNet-50 or ViT-B/16 in JAX on float32 (n, height, width, 3), what
    waits for it).
    """
    import jax

    from benchmarks.gpu_check.steps.feeds import SIDE, TINY
    from benchmarks.gpu_check.steps.jax_nets import NETS, TINY_NETS, trainer

    state, update, labels = trainer(
        (TINY_NETS if stand_in else NETS)[name], batch, TINY if stand_in else SIDE
    )

    def step(images: Any) -> None:
        nonlocal state
        state, _ = update(state, images, labels)

    return step, lambda: jax.block_until_ready(state)


def keras_model(name: str, backend: str, stand_in: bool) -> Any:
    """A compiled ResNet-50 or ViT-B/16 on this backend."""
    os.environ["KERAS_BACKEND"] = backend
    import keras

    if not stand_in:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    if name == "vit_b":
        model = _keras_vit(64, 1, 8, 1, 16) if stand_in else _keras_vit()
    elif not stand_in:
        model = keras.applications.ResNet50(weights=None, input_shape=(224, 224, 3))
    else:
        layers = [
            keras.layers.Input((None, None, 3)),
            keras.layers.Conv2D(4, 7, 8),
            keras.layers.GlobalAveragePooling2D(),
        ]
        model = keras.Sequential([*layers, keras.layers.Dense(1000, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def _keras_vit(
    side: int = 224, layers: int = 12, width: int = 768, heads: int = 12, patch: int = 16
) -> Any:
    """ViT-B/16, whose encoder normalizes first. keras.applications has none."""
    import keras
    from keras.layers import (
        Add,
        Conv2D,
        Dense,
        Input,
        LayerNormalization,
        MultiHeadAttention,
        Reshape,
    )

    class Tokens(keras.layers.Layer):
        """A token for the class in front, and where each lies."""

        def build(self, shape: tuple[int, ...]) -> None:
            self.first = self.add_weight(shape=(1, 1, shape[2]), initializer="zeros", name="first")
            self.place = self.add_weight(
                shape=(1, shape[1] + 1, shape[2]), initializer="random_normal", name="place"
            )

        def call(self, x: Any) -> Any:
            first = keras.ops.broadcast_to(
                self.first, (keras.ops.shape(x)[0], 1, self.first.shape[2])
            )
            return keras.ops.concatenate([keras.ops.cast(first, x.dtype), x], 1) + keras.ops.cast(
                self.place, x.dtype
            )

    images = Input((side, side, 3))
    x = Conv2D(width, patch, patch)(images)
    x = Tokens()(Reshape((-1, width))(x))
    for _ in range(layers):
        y = LayerNormalization(epsilon=1e-6)(x)
        x = Add()([x, MultiHeadAttention(heads, width // heads)(y, y)])
        y = Dense(4 * width, activation="gelu")(LayerNormalization(epsilon=1e-6)(x))
        x = Add()([x, Dense(width)(y)])
    x = LayerNormalization(epsilon=1e-6)(x)[:, 0]
    return keras.Model(images, Dense(1000, activation="softmax", dtype="float32")(x))


def torch_step(batch: int, where: str = "cuda") -> Callable[[Any], None]:
    """One training step of ResNet-50 on images float32 (n, height, width, 3): bf16, channels last,
    SGD. Queues only.
    """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, given: int, width: int, stride: int) -> None:
            super().__init__()
            out = 4 * width
            self.body = nn.Sequential(
                *(
                    nn.Conv2d(given, width, 1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ),
                *(
                    nn.Conv2d(width, width, 3, stride, 1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ),
                *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
            )
            short = nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            self.short = short if stride > 1 or given != out else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.short(x))

    layers: list[Any] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    given = 64
    for width, blocks, stride in _STAGES:
        for number in range(blocks):
            layers.append(Block(given, width, stride if number == 0 else 1))
            given = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, _CLASSES)]
    device = torch.device(where)
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(*layers).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(0, _CLASSES, (batch,), device=device)

    def step(images: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(where, dtype=torch.bfloat16):
            scores = model(images.permute(0, 3, 1, 2))  # in memory already channels last
            loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()

    return step
