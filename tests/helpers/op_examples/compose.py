"""Examples of ops made of others, for the laws of every op."""

from __future__ import annotations

from fastfeed.ops.color import Brightness
from fastfeed.ops.compose import Maybe, OneOf, Sequential
from fastfeed.ops.crops import CenterCrop
from fastfeed.ops.geometry import RandomFlip, Resize
from fastfeed.ops.levels import Equalize, Invert, Solarize
from helpers.meaning import ROUNDED

FLIP = RandomFlip(0.4, "both")

EXAMPLES = {
    Maybe: [
        Maybe(FLIP),
        Maybe(Brightness(0.5), 0.25),
        Maybe(OneOf([Sequential([FLIP, Invert()]), Solarize((64, 200))]), 0.8),
    ],
    OneOf: [
        OneOf([FLIP, RandomFlip(0.7, "both")]),
        OneOf([Brightness(0.4), FLIP, Sequential([FLIP, Equalize()])], weights=[1, 2, 0.5]),
    ],
    Sequential: [
        Sequential([Resize((24, 20)), FLIP, CenterCrop(16)]),
        Sequential([FLIP, Maybe(Brightness((0.2, 0.8)), 0.75)]),
    ],
}
ON_DALI = {Maybe: ROUNDED, OneOf: ROUNDED, Sequential: ROUNDED}
