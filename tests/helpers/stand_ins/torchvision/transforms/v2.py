"""The transforms of examples/torchvision_v2_ops.py, which draw with the same functions of PyTorch."""

from __future__ import annotations

import torch


class Transform:
    def __init__(self, *args, **options):
        self.args = args


class Compose(Transform):
    def __call__(self, image):
        for transform in self.args[0]:
            image = transform(image)
        return image


class RandomHorizontalFlip(Transform):
    def __call__(self, image):
        return image.flip(-1) if torch.rand(1) < self.args[0] else image


class RandomAffine(Transform):
    """Shifts alone."""

    def __call__(self, image):
        shifts = [int(torch.empty(1).uniform_(-6, 6).item()) for _ in range(2)]
        return image.roll(shifts, (-2, -1))


class ColorJitter(Transform):
    """Brightness, once for each number, in any order."""

    def __call__(self, image):
        for k in torch.randperm(len(self.args)).tolist():
            factor = torch.empty(1).uniform_(1 - self.args[k], 1 + self.args[k])
            image = (image * factor).clamp(0, 255).to(torch.uint8)
        return image


class RandomErasing(Transform):
    def __call__(self, image):
        if torch.rand(1) < self.args[0]:
            top, left = (int(torch.randint(0, side // 2, size=(1,))) for side in image.shape[-2:])
            image = image.clone()
            image[:, top : top + 9, left : left + 9] = 0
        return image


class ToDtype(Transform):
    def __call__(self, image):
        return image.to(self.args[0]) / 255


class Normalize(Transform):
    def __call__(self, image):
        mean, std = (torch.tensor(values)[:, None, None] for values in self.args)
        return (image - mean) / std
