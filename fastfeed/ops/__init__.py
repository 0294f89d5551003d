"""What should happen to an image, as data."""

from fastfeed.ops.convert import Normalize, ToFloat, ToLayout
from fastfeed.ops.decode import Decode
from fastfeed.ops.geometry import CenterCrop, RandomFlip, RandomResizedCrop, Resize

OPS = (Decode, Resize, CenterCrop, RandomResizedCrop, RandomFlip, ToFloat, Normalize, ToLayout)

__all__ = [
    "OPS",
    "CenterCrop",
    "Decode",
    "Normalize",
    "RandomFlip",
    "RandomResizedCrop",
    "Resize",
    "ToFloat",
    "ToLayout",
]
