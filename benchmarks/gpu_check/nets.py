"""What is trained in `steps`: ResNet-50 in PyTorch, a small convolutional net in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["jax_step", "torch_step"]

_CLASSES = 1000
# (channels, blocks, stride) of ResNet-50
_STAGES = (
    (64, 3, 1),
    (128, 4, 2),
    (256, 6, 2),
    (512, 3, 2),
)


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


def jax_step(
    batch: int, widths: tuple[int, ...] = (64, 128, 256, 512)
) -> tuple[Callable[[Any], None], Any]:
    """(one training step on images float32 (n, height, width, 3), a function that waits for all).

    Queues only.
    """
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), len(widths) + 1)
    weights, given = [], 3
    for key, width in zip(keys, widths, strict=False):
        weights.append(jax.random.normal(key, (3, 3, given, width)) * (2 / (9 * given)) ** 0.5)
        given = width
    weights.append(jax.random.normal(keys[-1], (given, _CLASSES)) * 0.01)
    # tied to it, as batches of a feed are: otherwise it would be compiled once for either
    here = jax.devices()[0]
    weights, labels = jax.device_put((weights, jnp.arange(batch) % _CLASSES), here)

    def loss(weights: list[Any], images: Any) -> Any:
        x = images.astype(jnp.bfloat16)
        for kernel in weights[:-1]:
            half, layout = kernel.astype(jnp.bfloat16), ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, half, (2, 2), "SAME", dimension_numbers=layout)
            x = jax.nn.relu(x)
        scores = x.mean((1, 2)).astype(jnp.float32) @ weights[-1]
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()

    @jax.jit
    def update(weights: list[Any], images: Any) -> list[Any]:
        grads = jax.grad(loss)(weights, images)
        return [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]

    state = [weights]

    def step(images: Any) -> None:
        state[0] = update(state[0], images)

    return step, lambda: jax.block_until_ready(state[0])
