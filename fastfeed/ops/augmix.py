"""AugMix: several short chains of random ops, blended with each other and with the image itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import ByteOp, check_flag, check_integer, is_number
from fastfeed.ops.beta import beta, dirichlet
from fastfeed.ops.policy_space import MIX, NAMES, PolicyDraw, pick
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.warp import check_look

__all__ = ["AugMix"]

SHOWCASE = ("AugMix(6)",)  # examples that `fastfeed show --ops` draws

# levels of strength; maximum ops in a chain of random length
_BINS = 10
_DEEPEST = 3
_MILD = ("Brightness", "Color", "Contrast", "Sharpness")
_ALL = tuple(name for name in NAMES if name != "Identity")
# as in the paper, without the ops that its robustness benchmark uses
_FEW = tuple(name for name in _ALL if name not in _MILD)


@dataclass(frozen=True, slots=True)
class AugMix(ByteOp):
    """Blend the image with augmented versions of it, each made by a short chain of random ops.

    Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and
    Uncertainty" (2019), with the ops and strengths of torchvision's `AugMix`; the blend is rounded,
    where torchvision truncates it. The image's own share is from Beta(alpha, alpha); the versions
    share the rest by Dirichlet(alpha, ...).

    Args:
        severity (int): Strengths are drawn from the lowest `severity` of ten levels, in [1, 10].
            Default: 3.
        mixture_width (int): Versions, in [1, 16]. Default: 3.
        chain_depth (int): Ops in a chain, in [1, 16]; -1 draws one to three. Default: -1.
        alpha (float): Parameter of both distributions, in [0.01, 50]; higher means more equal
            shares. Default: 1.0.
        all_ops (bool): Include brightness, color, contrast and sharpness. Default: True.
        filter (str): For ops that move pixels, "bilinear" or "nearest". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.AugMix(severity=6).mixture_width
        3
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)

    def _check(self) -> None:
        check_integer("AugMix severity", self.severity, 1, 10, "3 is usual")
        check_integer("AugMix mixture_width", self.mixture_width, 1, 16, "3 is usual")
        if type(self.chain_depth) is not int or self.chain_depth != -1:
            check_integer("AugMix chain_depth", self.chain_depth, 1, 16, "-1 draws one to three")
        if not is_number(self.alpha) or not 0.01 <= self.alpha <= 50:
            raise ConfigError.of(
                "AugMix alpha", "a number in [0.01, 50]", self.alpha, "1.0 is usual"
            )
        check_flag("AugMix all_ops", self.all_ops)
        check_look(self)

    @property
    def draws(self) -> int:
        """Random numbers per sample.

        The shares; the length of each chain; then the choice, strength and direction of each op in
        a chain.
        """
        return self.mixture_width * (1 + (self.chain_depth < 0) + 3 * self._depth)

    @property
    def chain(self) -> tuple[Layer, ...]:
        """The layers of each of the chains."""
        return (MIX.layer(self._names, self.filter, self.fill),) * self._depth

    @property
    def _names(self) -> tuple[str, ...]:
        return _ALL if self.all_ops else _FEW

    @property
    def _depth(self) -> int:
        return _DEEPEST if self.chain_depth < 0 else self.chain_depth

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
        """Shares of the blend and choices of the chains.

        shares: float64 (n, 1 + mixture_width), the image's own first; chains: per version one
        Choices per layer.
        """
        width = self.mixture_width
        own = beta(u[:, 0], self.alpha, self.alpha)[:, None]
        shares = np.concatenate(
            [own, (1 - own) * dirichlet(u[:, 1:width], self.alpha, width)], axis=1
        )
        each = np.split(u[:, width:], width, axis=1)
        return {"shares": shares, "chains": tuple(self._chain(columns, sizes) for columns in each)}

    def _chain(self, u: np.ndarray, sizes: np.ndarray) -> tuple[Choices, ...]:
        names = self._names
        depth = np.full(len(u), self._depth, np.int64)
        if self.chain_depth < 0:
            depth = 1 + pick(u[:, 0], _DEEPEST)
            u = u[:, 1:]
        choices = []
        for k in range(self._depth):
            which, strength, direction = u[:, 3 * k : 3 * k + 3].T
            name = np.where(k < depth, pick(which, len(names)), -1)
            selection = PolicyDraw(name, pick(strength, self.severity), direction < 0.5)
            choices.append(MIX.choose(names, self, selection, _BINS, sizes))
        return tuple(choices)
