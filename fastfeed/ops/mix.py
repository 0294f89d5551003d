"""Ops that combine several samples: MixUp, CutMix, Mosaic.

The rows of every global batch are shuffled (`Plan.mixed`), and a sample's partners are its
neighbors there: aligned groups of consecutive positions. Lambda, box and choice come from its own
draws. So the result for a sample does not depend on the number of ranks or a restart, and every
sample has its own lambda, which timm calls the "elem" mode; or all samples of a global batch have
one, from draws by its step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import (
    FrozenOp,
    Kind,
    check_integer,
    check_number,
    check_p,
    check_range,
    need_pixels,
)
from fastfeed.ops.beta import beta
from fastfeed.ops.ranges import check_weights
from fastfeed.spec import Spec

__all__ = ["CutMix", "MixUp", "Mosaic", "RandomChoice"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "MixUp(1.0)",
    "CutMix(1.0)",
    "Mosaic()",
    "RandomChoice([MixUp(1.0), CutMix(1.0)])",
)


AS_IS, BLEND, PASTE, MOSAIC = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class MixPlan:
    """Mixing of n samples. A sample's group is itself (member 0), then its partners."""

    # int64 (n,): AS_IS; BLEND: shares of members 0 and 1; PASTE: member 1 in a box; MOSAIC: four
    # members
    how: np.ndarray
    # float64 (n, group): of each member in the image and in the label; rows sum to 1
    shares: np.ndarray
    # int64 (n, 4): top, left, height, width of PASTE; for MOSAIC row and column of its center, 0, 0
    box: np.ndarray

    def __getitem__(self, rows: Any) -> MixPlan:
        return MixPlan(self.how[rows], self.shares[rows], self.box[rows])


def member_rows(positions: np.ndarray, group: int, first: int) -> np.ndarray:
    """Rows of the members of each position's group, own first, then in order: int64 (n, group).

    positions: in the epoch, int64 (n,); the rows are of an array that begins at epoch position
    `first`, a multiple of `group`.
    """
    begin = positions - positions % group
    turn = (positions - begin)[:, None] + np.arange(group)
    return (begin - first)[:, None] + turn % group


@dataclass(frozen=True, slots=True)
class MixUp(FrozenOp):
    """Blend each image and its label with another sample's as a weighted mean.

    Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2017). Lambda, the sample's own
    share, is drawn per sample from Beta(alpha, alpha). Labels become soft: float32 (n, classes);
    those that are floats already, as with `label_kind="value"` and "multi", are mixed as they are.

    Args:
        alpha (float): Parameter of the beta distribution, in (0, 1000]; below 1 most shares are
            close to 0 or 1. Default: 0.2.
        p (float): Share of samples that are mixed, in [0, 1]. Default: 1.0.
        per (str): "sample", or "batch": one draw for all samples of a global batch, timm's mode
            "batch". Default: "sample".
        off_epoch (int | None): Epoch from which on nothing is mixed, as timm's `mixup_off_epoch`;
            labels stay soft. Default: None.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> source = ff.Arrays(np.zeros((2, 1, 1, 3), np.uint8), [0, 1], classes=("cat", "dog"))
        >>> next(iter(ff.Feed(source, [ff.MixUp()], batch=2))).labels.sum(axis=1)
        array([1., 1.], dtype=float32)
    """

    alpha: float = 0.2
    p: float = 1.0
    per: Literal["sample", "batch"] = "sample"
    off_epoch: int | None = None

    kind: ClassVar[Kind] = "mix"
    draws: ClassVar[int] = 2  # whether, lambda
    group: ClassVar[int] = 2

    def _check(self) -> None:
        _check_when(self)
        _check_alpha(self)
        check_p("MixUp p", self.p)

    def out(self, spec: Spec) -> Spec:
        return _need_size(self, spec)

    def mix_plan(self, u: np.ndarray, size: tuple[Any, Any]) -> MixPlan:
        """The plan for n samples of size (height, width), from draws (n, draws)."""
        is_mixed = u[:, 0] < self.p
        own = np.where(is_mixed, beta(u[:, 1], self.alpha, self.alpha), 1.0)
        return MixPlan(
            np.where(is_mixed, BLEND, AS_IS), _pair(own), np.zeros((len(u), 4), np.int64)
        )


@dataclass(frozen=True, slots=True)
class CutMix(FrozenOp):
    """Replace a box of each image by the same box of another sample, and mix labels by area.

    Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers" (2019). The box has
    the image's shape and 1 - lambda of its area, lambda from Beta(alpha, alpha); its center is
    anywhere, and the part outside the image is cut off and not counted: as torchvision's
    `v2.CutMix`, but drawn per sample. Labels become soft: float32 (n, classes); those that are
    floats already, as with `label_kind="value"` and "multi", are mixed as they are.

    Args:
        alpha (float): Parameter of the beta distribution, in (0, 1000]; at 1 all areas are equally
            likely. Default: 1.0.
        p (float): Share of samples that are mixed, in [0, 1]. Default: 1.0.
        per (str): "sample", or "batch": one draw for all samples of a global batch, timm's mode
            "batch". Default: "sample".
        off_epoch (int | None): Epoch from which on nothing is mixed, as timm's `mixup_off_epoch`;
            labels stay soft. Default: None.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> source = ff.Arrays(np.zeros((2, 8, 8, 3), np.uint8), [0, 1], classes=("cat", "dog"))
        >>> next(iter(ff.Feed(source, [ff.CutMix()], batch=2))).labels.sum(axis=1)
        array([1., 1.], dtype=float32)
    """

    alpha: float = 1.0
    p: float = 1.0
    per: Literal["sample", "batch"] = "sample"
    off_epoch: int | None = None

    kind: ClassVar[Kind] = "mix"
    draws: ClassVar[int] = 4  # whether, lambda, a place
    group: ClassVar[int] = 2

    def _check(self) -> None:
        _check_when(self)
        _check_alpha(self)
        check_p("CutMix p", self.p)

    def out(self, spec: Spec) -> Spec:
        return _need_size(self, spec)

    def mix_plan(self, u: np.ndarray, size: tuple[Any, Any]) -> MixPlan:
        """The plan for n samples of size (height, width), from draws (n, draws)."""
        is_mixed = u[:, 0] < self.p
        half = 0.5 * np.sqrt(1 - beta(u[:, 1], self.alpha, self.alpha))
        box = np.zeros((len(u), 4), np.int64)
        area = np.ones(len(u))
        for axis, length in enumerate(size):
            center = np.floor(u[:, 2 + axis] * length)
            reach = np.floor(half * length)
            begin = np.maximum(center - reach, 0)
            end = np.minimum(center + reach, length)
            box[:, axis] = begin
            box[:, 2 + axis] = end - begin
            area = area * (end - begin) / length
        is_mixed &= area > 0
        box[~is_mixed] = 0
        return MixPlan(
            np.where(is_mixed, PASTE, AS_IS), _pair(np.where(is_mixed, 1 - area, 1.0)), box
        )


@dataclass(frozen=True, slots=True)
class Mosaic(FrozenOp):
    """Combine four samples around a random point of one canvas.

    Bochkovskiy et al., "YOLOv4" (2020). Images keep their scale and are cropped to the part that
    would lie there if all four met at that point, as in keras-cv's `Mosaic`. The sample itself is
    at the top left, the others follow row by row. Labels are mixed by area and become soft: float32
    (n, classes).

    Args:
        p (float): Share of samples that are mixed, in [0, 1]. Default: 1.0.
        center (tuple[float, float]): Where the point may lie, lowest and highest share of height
            and of width, in [0, 1]. Default: (0.25, 0.75).
        per (str): "sample", or "batch": one draw for all samples of a global batch, timm's mode
            "batch". Default: "sample".
        off_epoch (int | None): Epoch from which on nothing is mixed, as timm's `mixup_off_epoch`;
            labels stay soft. Default: None.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> images = np.arange(4, dtype=np.uint8).repeat(4).reshape(4, 2, 2, 1)
        >>> source = ff.Arrays(images, [0, 1, 2, 3], classes=("a", "b", "c", "d"))
        >>> feed = ff.Feed(source, [ff.Mosaic(center=(0.5, 0.5))], batch=4, shuffle=False)
        >>> batch = next(iter(feed))
        >>> batch.ids, batch.images[0, :, :, 0]
        (array([1, 3, 0, 2]), array([[1, 3],
               [0, 2]], dtype=uint8))
    """

    p: float = 1.0
    center: tuple[float, float] = (0.25, 0.75)
    per: Literal["sample", "batch"] = "sample"
    off_epoch: int | None = None

    kind: ClassVar[Kind] = "mix"
    draws: ClassVar[int] = 3  # whether, a place
    group: ClassVar[int] = 4

    def _check(self) -> None:
        _check_when(self)
        check_p("Mosaic p", self.p)
        check_range(
            "Mosaic center", self.center, 0, 1, "it is (low, high), as shares of height and width"
        )

    def out(self, spec: Spec) -> Spec:
        return _need_size(self, spec)

    def mix_plan(self, u: np.ndarray, size: tuple[Any, Any]) -> MixPlan:
        """The plan for n samples of size (height, width), from draws (n, draws)."""
        is_mixed = u[:, 0] < self.p
        low, high = self.center
        box = np.zeros((len(u), 4), np.int64)
        for axis, length in enumerate(size):
            box[:, axis] = np.where(
                is_mixed, np.rint((low + u[:, 1 + axis] * (high - low)) * length), 0
            )
        top = box[:, 0] / size[0]
        left = box[:, 1] / size[1]
        areas = [top * left, top * (1 - left), (1 - top) * left, (1 - top) * (1 - left)]
        shares = np.where(is_mixed[:, None], np.stack(areas, axis=1), np.eye(1, 4))
        return MixPlan(np.where(is_mixed, MOSAIC, AS_IS), shares, box)


@dataclass(frozen=True, slots=True)
class RandomChoice(FrozenOp):
    """Apply one of several mixing ops to each sample, as most recipes for vision transformers do.

    It chooses among ops that combine samples; `OneOf` chooses among ops that change one image.

    Args:
        ops (Sequence[Op]): `MixUp`, `CutMix`, `Mosaic`; at least one.
        weights (Sequence[float] | None): Relative frequencies, one number >= 0 per op and not all
            0. Default: None, all equally likely.
        per (str): "sample", or "batch": one draw for all samples of a global batch, timm's mode
            "batch". Default: "sample".
        off_epoch (int | None): Epoch from which on nothing is mixed, as timm's `mixup_off_epoch`;
            labels stay soft. Default: None.

    Raises:
        ConfigError: If `ops` or `weights` are none of these.

    Example:
        >>> ff.RandomChoice([ff.MixUp(0.8), ff.CutMix(1.0)], weights=[1, 3]).weights
        (1, 3)
    """

    ops: Sequence[Any]
    weights: Sequence[float] | None = None
    per: Literal["sample", "batch"] = "sample"
    off_epoch: int | None = None

    kind: ClassVar[Kind] = "mix"

    def _check(self) -> None:
        _check_when(self)
        for op in self.ops if isinstance(self.ops, tuple) and self.ops else (None,):
            if getattr(op, "kind", None) != "mix" or isinstance(op, type):
                got = self.ops if op is None else op
                raise ConfigError.of(
                    "RandomChoice ops",
                    "a list of MixUp(), CutMix(), Mosaic()",
                    got,
                    "OneOf([...]) chooses among ops that change one image",
                )
            if (getattr(op, "per", ""), getattr(op, "off_epoch", 0)) != ("sample", None):
                raise ConfigError.of(
                    "RandomChoice ops",
                    "ops without per and off_epoch",
                    op,
                    "write RandomChoice([...], per=..., off_epoch=...)",
                )
        if self.weights is not None:
            check_weights("RandomChoice", self.weights, len(self.ops))

    @property
    def draws(self) -> int:
        """The choice, and the draws of the chosen op."""
        return 1 + max(op.draws for op in self.ops)

    @property
    def group(self) -> int:
        """The largest of its ops' groups."""
        return max(op.group for op in self.ops)

    def out(self, spec: Spec) -> Spec:
        for op in self.ops:
            op.out(spec)
        return spec

    def mix_plan(self, u: np.ndarray, size: tuple[Any, Any]) -> MixPlan:
        """The plan for n samples of size (height, width), from draws (n, draws)."""
        edges = np.cumsum(
            np.ones(len(self.ops)) if self.weights is None else np.array(self.weights, np.float64)
        )
        # from the right, and not at the last edge: an op of weight 0 is never chosen
        choice = np.searchsorted(edges[:-1] / edges[-1], u[:, 0], side="right")
        n = len(u)
        group = self.group
        how = np.zeros(n, np.int64)
        shares = np.zeros((n, group))
        box = np.zeros((n, 4), np.int64)
        for i, op in enumerate(self.ops):
            chosen = choice == i
            plan = op.mix_plan(u[:, 1 : 1 + op.draws], size)
            how[chosen], box[chosen] = plan.how[chosen], plan.box[chosen]
            shares[chosen, : op.group] = plan.shares[chosen]
        return MixPlan(how, shares, box)


def plan_of_batch(
    op: Any, draw: Callable[[np.ndarray], np.ndarray], keys: np.ndarray, at: Any, size: Any
) -> MixPlan:
    """The plan for samples of one batch.

    draw: random numbers (n, draws) by keys int64 (n,); keys: of the samples; at: its epoch and
    step; size: (height, width) of all images.
    """
    if op.off_epoch is not None and at.epoch >= op.off_epoch:
        shares = np.eye(1, op.group).repeat(len(keys), axis=0)
        return MixPlan(np.full(len(keys), AS_IS), shares, np.zeros((len(keys), 4), np.int64))
    drawn = draw(keys) if op.per == "sample" else draw(np.full(len(keys), at.step))
    return op.mix_plan(drawn, size)


def _pair(share: np.ndarray) -> np.ndarray:
    return np.stack([share, 1 - share], axis=1)


def _need_size(op: Any, spec: Spec) -> Spec:
    name = type(op).__name__
    if spec.encoded:
        need_pixels(op, spec)
    if not spec.fixed:
        raise SpecError(
            f"{name} needs images of one size, got {spec}; put Resize((height, width)),"
            " CenterCrop(size) or RandomResizedCrop(size) before it"
        )
    return spec


def _check_when(op: Any) -> None:
    name = type(op).__name__
    epoch = op.off_epoch
    if op.per not in ("sample", "batch"):
        raise ConfigError.of(f"{name} per", '"sample" or "batch"', op.per)
    if epoch is not None:
        check_integer(f"{name} off_epoch", epoch, 0, more=" or None")


def _check_alpha(op: Any) -> None:
    hint = "it is the parameter of Beta(alpha, alpha), such as 0.2; to mix nothing leave the op out"
    check_number(f"{type(op).__name__} alpha", op.alpha, 0, 1000, hint, "(]")
