"""timm's RandAugment, with draws of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

from timm.data.auto_augment import rand_augment_transform


@cache
def policy(config: str) -> Any:
    return rand_augment_transform(config, {"translate_const": 100})


OPS = {"TimmRandAugment": lambda image, op, v: policy(op.config)(image)}
