"""Augmentation policies: which ops run on a sample, and at which strength, is drawn per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import ByteOp, check_integer
from fastfeed.ops.policies import POLICIES
from fastfeed.ops.policy_space import (
    NAMES,
    RAND,
    WIDE,
    PolicyDraw,
    pick,
)
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.timm_policy import TimmRandAugment
from fastfeed.ops.warp import check_look

__all__ = ["AutoAugment", "RandAugment", "TrivialAugmentWide"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "RandAugment(2, 12)",
    "TrivialAugmentWide()",
    'AutoAugment("imagenet")',
)

_BINS = "the levels between which strength is divided; 31 is usual"


@dataclass(frozen=True, slots=True)
class RandAugment(ByteOp):
    """Apply `num_ops` random ops to each sample, all at the same strength.

    Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space"
    (2019), with the strengths of torchvision's `RandAugment`. Drawn from fourteen: identity,
    shears, translations, rotation, brightness, color, contrast, sharpness, posterize, solarize,
    autocontrast, equalize; directions are random.

    Args:
        num_ops (int): Ops in sequence, in [1, 16]. Default: 2.
        magnitude (int): Level of strength, in [0, bins). Default: 9.
        bins (int): Levels between no and full strength, in [2, 1000]. Default: 31.
        filter (str): For ops that move pixels, "nearest" or "bilinear". Default: "nearest".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.RandAugment(num_ops=2, magnitude=12)
        RandAugment(num_ops=2, magnitude=12, bins=31, filter='nearest', fill=(0, 0, 0))
    """

    num_ops: int = 2
    magnitude: int = 9
    bins: int = 31
    filter: str = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)

    def _check(self) -> None:
        check_integer("RandAugment num_ops", self.num_ops, 1, 16, "2 is usual")
        check_integer("RandAugment bins", self.bins, 2, 1000, _BINS)
        check_integer(
            "RandAugment magnitude",
            self.magnitude,
            0,
            self.bins - 1,
            f"it is one of bins={self.bins} levels, 9 is usual",
        )
        check_look(self)

    @classmethod
    def from_timm(cls, config: str) -> TimmRandAugment:
        """The RandAugment that timm makes of a text, whose ops and strengths are other ones.

        Args:
            config (str): As timm's `auto_augment=` and `--aa`.

        Returns:
            The op.

        Raises:
            ConfigError: If the text is none of timm's RandAugment.

        Example:
            >>> ff.RandAugment.from_timm("rand-m9-mstd0.5-inc1").config
            'rand-m9-mstd0.5-inc1'
        """
        return TimmRandAugment(config)

    @property
    def draws(self) -> int:
        """Random numbers per sample: op and direction for each of `num_ops`."""
        return 2 * self.num_ops

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (RAND.layer(NAMES, self.filter, self.fill),) * self.num_ops

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        n = len(sizes)
        # of the first layer, then of the next
        which = u[:, 0::2].T.reshape(-1)
        minus = u[:, 1::2].T.reshape(-1)
        level = np.full(len(which), self.magnitude, np.int64)
        selection = PolicyDraw(pick(which, len(NAMES)), level, minus < 0.5)
        every = np.tile(sizes, (self.num_ops, 1))
        choices = RAND.choose(NAMES, self, selection, self.bins, every)
        return [choices[k * n : (k + 1) * n] for k in range(self.num_ops)]


@dataclass(frozen=True, slots=True)
class TrivialAugmentWide(ByteOp):
    """Apply one random op to each sample, at a random strength; there is nothing to tune.

    Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (2021),
    with the strengths of torchvision's `TrivialAugmentWide`. Drawn from `RandAugment`'s fourteen
    ops, over wider ranges of strength.

    Args:
        bins (int): Levels between no and full strength, in [2, 1000]. Default: 31.
        filter (str): For ops that move pixels, "nearest" or "bilinear". Default: "nearest".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.TrivialAugmentWide(filter="bilinear")
        TrivialAugmentWide(bins=31, filter='bilinear', fill=(0, 0, 0))
    """

    bins: int = 31
    filter: str = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)

    draws: ClassVar[int] = 3  # op, strength, direction

    def _check(self) -> None:
        check_integer("TrivialAugmentWide bins", self.bins, 2, 1000, _BINS)
        check_look(self)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (WIDE.layer(NAMES, self.filter, self.fill),)

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        selection = PolicyDraw(pick(u[:, 0], len(NAMES)), pick(u[:, 1], self.bins), u[:, 2] < 0.5)
        return [WIDE.choose(NAMES, self, selection, self.bins, sizes)]


@dataclass(frozen=True, slots=True)
class AutoAugment(ByteOp):
    """Apply one of 25 learned pairs of ops to each sample, each op with its own probability.

    Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data" (2018), with
    torchvision's strengths; directions are random.

    Args:
        policy (str): The data set that the pairs were learned on: "imagenet", "cifar10" or "svhn".
            Default: "imagenet".
        filter (str): For ops that move pixels, "nearest" or "bilinear". Default: "nearest".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.AutoAugment("cifar10")
        AutoAugment(policy='cifar10', filter='nearest', fill=(0, 0, 0))
    """

    policy: str = "imagenet"
    filter: str = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)

    draws: ClassVar[int] = 5  # pair, whether to apply each op, directions

    def _check(self) -> None:
        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise ConfigError.of("AutoAugment policy", f"one of {', '.join(POLICIES)}", self.policy)
        check_look(self)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(RAND.layer(self._names(k), self.filter, self.fill) for k in (0, 1))

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        pairs = POLICIES[self.policy]
        choices = []
        pair = pick(u[:, 0], len(pairs))
        for k in (0, 1):
            names = self._names(k)
            index = np.array([names.index(steps[k][0]) for steps in pairs], np.int64)[pair]
            applied = u[:, 1 + k] < np.array([steps[k][1] for steps in pairs])[pair]
            level = np.array([steps[k][2] or 0 for steps in pairs], np.int64)[pair]
            selection = PolicyDraw(np.where(applied, index, -1), level, u[:, 3 + k] < 0.5)
            choices.append(RAND.choose(names, self, selection, 10, sizes))
        return choices

    def _names(self, k: int) -> tuple[str, ...]:
        """Names of all ops that may be the k-th of a pair."""
        return tuple(sorted({steps[k][0] for steps in POLICIES[self.policy]}))
