"""Rotation, affine and perspective warps of images of a fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import (
    FrozenOp,
    Kind,
    check_fill,
    check_flag,
    check_p,
    check_range,
    is_number,
    need_movable,
)
from fastfeed.ops.ranges import count_random, degree_range, spread
from fastfeed.spec import Spec

__all__ = ["Affine", "Perspective", "Rotate"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Rotate(30)",
    "Affine(20, (0.15, 0.15), (0.7, 1.3), 15)",
    "Perspective(0.6, p=1.0)",
)

WARP_FILTERS = ("bilinear", "nearest")
WARP_BORDERS = ("constant", "edge", "reflect", "symmetric")

Range = tuple[float, float]


def affine_matrices(
    angle: Any = 0.0,
    translate: Any = (0.0, 0.0),
    scale: Any = 1.0,
    shear_x: Any = 0.0,
    shear_y: Any = 0.0,
    center: Any = (0.0, 0.0),
) -> np.ndarray:
    """Output-to-input matrices: float64 (n, 3, 3), on columns (x, y, 1); pixel centers are at +0.5.

    Degrees (an angle > 0 turns clockwise), pixels for `translate` and `center`: (x, y), or (n, 2).
    A scalar applies to all. The image is sheared along x, along y, scaled, turned about `center`,
    then moved: torchvision's `_get_inverse_affine_matrix`, term by term.
    """
    turn = np.radians(angle)
    sx = np.radians(shear_x)
    sy = np.radians(shear_y)
    (tx, ty), (cx, cy) = (
        np.moveaxis(np.asarray(pair, np.float64), -1, 0) for pair in (translate, center)
    )
    turn, sx, sy, scale, tx, ty, cx, cy = np.broadcast_arrays(turn, sx, sy, scale, tx, ty, cx, cy)
    a = np.cos(turn - sy) / np.cos(sy)
    b = -np.cos(turn - sy) * np.tan(sx) / np.cos(sy) - np.sin(turn)
    c = np.sin(turn - sy) / np.cos(sy)
    d = -np.sin(turn - sy) * np.tan(sx) / np.cos(sy) + np.cos(turn)
    matrix = np.zeros((*np.shape(a), 3, 3))
    matrix[..., 0, 0] = d / scale
    matrix[..., 0, 1] = -b / scale
    matrix[..., 1, 0] = -c / scale
    matrix[..., 1, 1] = a / scale
    for row, middle in ((0, cx), (1, cy)):
        matrix[..., row, 2] = (
            matrix[..., row, 0] * (-cx - tx) + matrix[..., row, 1] * (-cy - ty) + middle
        )
    matrix[..., 2, 2] = 1.0
    return matrix.reshape(-1, 3, 3)


def check_look(op: Any) -> None:
    """Raise ConfigError for an unknown interpolation or border, or a fill that is no color."""
    name = type(op).__name__
    if op.filter not in WARP_FILTERS:
        raise ConfigError.of(f"{name} filter", f"one of {', '.join(WARP_FILTERS)}", op.filter)
    check_fill(f"{name} fill", op.fill)
    border = getattr(op, "border", WARP_BORDERS[0])
    if border not in WARP_BORDERS:
        raise ConfigError.of(f"{name} border", f"one of {', '.join(WARP_BORDERS)}", border)


class WarpOp(FrozenOp):
    """Base class of ops that move pixels of images of one size, between each other."""

    __slots__ = ()

    kind: ClassVar[Kind] = "change"

    def out(self, spec: Spec) -> Spec:
        return need_movable(self, spec)


@dataclass(frozen=True, slots=True)
class Rotate(WarpOp):
    """Rotate by a random angle, about the center or a given point.

    As torchvision's `RandomRotation`. A batch has images of one size, so `expand` makes room for
    every angle of the range; for one angle the size is torchvision's.

    Args:
        degrees (float | tuple[float, float]): A number d draws angles from -d to d; a pair is the
            range itself, both in [-360, 360]. Above 0 is counterclockwise.
        filter (str): "bilinear" or "nearest". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).
        border (str): Pixels outside the image: "constant" (`fill`), "edge" (the outermost pixel),
            "reflect" (dcb|abcd|cba) or "symmetric" (cba|abcd|dcb). Default: "constant".
        expand (bool): Enlarge the canvas so that no corner is cut off at any angle, instead of
            keeping the size. Default: False.
        center (tuple[float, float] | None): (x, y) of the fixed point, in pixels from the top left
            corner. Default: None, the center of the image.

    Raises:
        ConfigError: If a field is out of range, or both `expand` and `center` are set.

    Example:
        >>> image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Rotate((90, 90), filter="nearest")], batch=1)
        >>> next(iter(feed)).images[0, :, :, 0]
        array([[2, 5, 8],
               [1, 4, 7],
               [0, 3, 6]], dtype=uint8)
    """

    degrees: float | Range
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)
    border: str = "constant"
    expand: bool = False
    center: tuple[float, float] | None = None

    def _check(self) -> None:
        degree_range("Rotate", self.degrees)
        check_look(self)
        check_flag("Rotate expand", self.expand)
        if self.center is not None:
            must = "(x, y) in [-65535, 65535] pixels, or None"
            _check_pair(
                "Rotate center", self.center, must, -65_535, 65_535, "write center=(112, 112)"
            )
            if self.expand:
                raise ConfigError.of("Rotate center", "None with expand=True", self.center)

    @property
    def draws(self) -> int:
        """Random numbers per sample: one, unless the angle is fixed."""
        return count_random([degree_range("Rotate", self.degrees)])

    def out(self, spec: Spec) -> Spec:
        need_movable(self, spec)
        if not self.expand:
            return spec
        height, width = self._canvas(np.array([spec.size]))[0].tolist()
        if max(height, width) > 65_535:
            raise SpecError(
                f"{self!r} makes {height} x {width} pixels of {spec}, more than 65535 a side;"
                " put Resize before it"
            )
        return spec.with_size(height, width)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        (angle,) = spread([degree_range("Rotate", self.degrees)], u, len(sizes))
        middle = sizes[:, ::-1] / 2 if self.center is None else self.center
        matrix = affine_matrices(-angle, center=middle)
        if not self.expand:
            return {"matrix": matrix}
        canvas = self._canvas(sizes)
        shift = (sizes - canvas)[:, ::-1, None] / 2  # of a point before it is turned
        matrix[:, :2, 2:] += matrix[:, :2, :2] @ shift
        return {"matrix": matrix, "size": canvas}

    def _canvas(self, sizes: np.ndarray) -> np.ndarray:
        """Height and width that hold images of these sizes at every angle: int64 (n, 2)."""
        low, high = degree_range("Rotate", self.degrees)
        # longest where a diagonal is level or upright, if the range has such an angle
        diagonal = np.degrees(np.arctan2(sizes[:, :1], sizes[:, 1:]))
        steep = np.concatenate([diagonal, -diagonal, 90 - diagonal, diagonal - 90], axis=1)
        steep = (steep[:, :, None] + np.arange(-360, 541, 180)).reshape(len(sizes), -1)
        angles = np.radians(np.clip(steep, low, high))  # ends of the range among them
        cos = np.abs(np.cos(angles))
        sin = np.abs(np.sin(angles))
        height = sizes[:, :1]
        width = sizes[:, 1:]
        extents = np.stack([height * cos + width * sin, width * cos + height * sin], axis=-1)
        extent = extents.max(axis=1)
        # as Pillow: whole pixels on either side, unless the image was turned by right angles
        last = np.ceil((sizes + extent) / 2)
        first = np.floor((sizes - extent) / 2)
        whole = np.abs(extent - np.rint(extent)) < 1e-6
        return np.where(whole, np.rint(extent), last - first).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Affine(WarpOp):
    """Rotate, translate, scale and shear by random amounts; the size stays.

    As torchvision's `RandomAffine`.

    Args:
        degrees (float | tuple[float, float]): A number d draws angles from -d to d; a pair is the
            range itself, in [-360, 360]. Above 0 is clockwise. Default: 0.0.
        translate (tuple[float, float]): Largest shift, as shares of width and height, in [0, 1];
            rounded to whole pixels. Default: (0.0, 0.0).
        scale (tuple[float, float]): Lowest and highest factor, in [0.001, 1000]. Default: (1.0,
            1.0).
        shear (float | tuple[float, ...]): Degrees in [-89, 89]. A number s draws from -s to s along
            x; two numbers are the range along x, four the ranges along x and y. Default: 0.0.
        filter (str): "bilinear" or "nearest". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).
        border (str): Pixels outside the image: "constant" (`fill`), "edge" (the outermost pixel),
            "reflect" (dcb|abcd|cba) or "symmetric" (cba|abcd|dcb). Default: "constant".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.Affine(degrees=15, translate=(0.1, 0.1), scale=(0.8, 1.2)).filter
        'bilinear'
    """

    degrees: float | Range = 0.0
    translate: Range = (0.0, 0.0)
    scale: Range = (1.0, 1.0)
    shear: float | Range | tuple[float, float, float, float] = 0.0
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)
    border: str = "constant"

    def _check(self) -> None:
        check_look(self)
        must = "two shares in [0, 1], of width and height"
        _check_pair("Affine translate", self.translate, must, 0, 1, "write translate=(0.1, 0.1)")
        low, _ = check_range("Affine scale", self.scale, 0.0, 1000.0, "write scale=(0.8, 1.2)")
        if low < 0.001:
            raise ConfigError.of(
                "Affine scale", "in [0.001, 1000]", self.scale, "write scale=(0.8, 1.2)"
            )
        self._ranges()

    @property
    def draws(self) -> int:
        """Random numbers per sample: one for each amount that is random."""
        return count_random(self._ranges())

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        angle, across, down, scale, shear_x, shear_y = spread(self._ranges(), u, len(sizes))
        move = np.rint(np.stack([across, down], axis=1) * sizes[:, ::-1])
        return {"matrix": affine_matrices(angle, move, scale, shear_x, shear_y, sizes[:, ::-1] / 2)}

    def _ranges(self) -> list[Range]:
        shear = self.shear
        hint = "write shear=10, (-10, 10) or (-10, 10, -5, 5)"
        if isinstance(shear, tuple) and len(shear) == 4:
            along = [
                check_range("Affine shear", pair, -89, 89, hint) for pair in (shear[:2], shear[2:])
            ]
        else:
            along = [degree_range("Affine shear", shear, 89, hint), (0.0, 0.0)]
        x, y = self.translate
        return [degree_range("Affine", self.degrees), (-x, x), (-y, y), self.scale, *along]


@dataclass(frozen=True, slots=True)
class Perspective(WarpOp):
    """Distort the perspective with a probability: each corner moves inward by a random amount.

    As torchvision's `RandomPerspective.get_params`: whole pixels, from corners at pixel indices.
    Corners that would fold the image over (distortion near 1, or sides of one or two pixels) leave
    it as it is.

    Args:
        distortion (float): Largest shift of a corner, as a share of half a side, in [0, 1].
            Default: 0.5.
        p (float): Probability that a sample is distorted, in [0, 1]. Default: 0.5.
        filter (str): "bilinear" or "nearest". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).
        border (str): Pixels outside the image: "constant" (`fill`), "edge" (the outermost pixel),
            "reflect" (dcb|abcd|cba) or "symmetric" (cba|abcd|dcb). Default: "constant".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.Perspective(0.3, p=1.0)
        Perspective(distortion=0.3, p=1.0, filter='bilinear', fill=(0, 0, 0), border='constant')
    """

    distortion: float = 0.5
    p: float = 0.5
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)
    border: str = "constant"

    def _check(self) -> None:
        check_p("Perspective distortion", self.distortion)
        check_p("Perspective p", self.p)
        check_look(self)

    @property
    def draws(self) -> int:
        """Random numbers per sample: two per corner, and one more if p < 1."""
        return 0 if self.p == 0 or self.distortion == 0 else 9 if self.p < 1 else 8

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        n = len(sizes)
        matrix = np.tile(np.eye(3), (n, 1, 1))
        if not self.draws:
            return {"matrix": matrix}
        sides = sizes[:, None, ::-1].astype(np.float64)  # (n, 1, 2): width, height
        reach = np.floor(self.distortion * (sides // 2)) + 1
        inward = np.floor(u[:, :8].reshape(n, 4, 2) * reach)
        # right, bottom: of the corners in turn
        far = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], bool)
        corners = np.where(far, sides - reach + inward, inward)
        used = _convex(corners) & (sizes > 1).all(axis=1)
        if self.draws == 9:
            used &= u[:, 8] < self.p
        matrix[used] = _from_corners(corners[used], sides[used, 0] - 1)
        return {"matrix": matrix}


def _from_corners(corners: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Matrices that map corners (n, 4, 2) to rectangles from 0 to sides (n, 2).

    Corners are clockwise from the top left.

    The unit square to a quadrilateral in closed form (Heckbert, "Fundamentals of Texture Mapping
    and Image Warping", 1989, section 2.2.3), inverted; torchvision's `_get_perspective_coeffs`
    finds the same by least squares.
    """
    p0, p1, p2, p3 = corners.transpose(1, 0, 2)
    d1 = p1 - p2
    d2 = p3 - p2
    d3 = p0 - p1 + p2 - p3
    below = _cross(d1, d2)
    g = (_cross(d3, d2) / below)[:, None]
    h = (_cross(d1, d3) / below)[:, None]
    forward = np.empty((len(corners), 3, 3))
    forward[:, :2, 0] = p1 - p0 + g * p1
    forward[:, :2, 1] = p3 - p0 + h * p3
    forward[:, :2, 2] = p0
    forward[:, 2, :] = np.concatenate([g, h, np.ones_like(g)], axis=1)
    matrix = np.linalg.inv(forward)
    matrix[:, :2] *= sides[:, :, None]
    return matrix  # third row: 1 at the first corner. The last number alone may be 0


def _convex(corners: np.ndarray) -> np.ndarray:
    edges = np.roll(corners, -1, axis=1) - corners
    return np.all(_cross(edges, np.roll(edges, -1, axis=1)) > 0, axis=1)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _check_pair(name: str, pair: Any, must: str, low: float, high: float, hint: str) -> None:
    numbers = isinstance(pair, tuple) and all(map(is_number, pair))
    if not numbers or len(pair) != 2 or not all(low <= v <= high for v in pair):
        raise ConfigError.of(name, must, pair, hint)
