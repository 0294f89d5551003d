"""fastfeed keeps training GPUs busy: shards and photographs in, augmented batches out, in any framework.

    feed = fastfeed.Feed(fastfeed.ImageFolder("photos/train"), [fastfeed.RandomResizedCrop(224)], batch=256)
    model.fit(feed.to_keras(), epochs=90)

The names below are all of the public API. Each is loaded when it is first used; importing the package loads nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_PUBLIC = {
    "Affine": "ops",
    "Arrays": "sources",
    "AutoContrast": "ops",
    "Balanced": "order",
    "Batch": "batch",
    "Blocks": "order",
    "Brightness": "ops",
    "Cache": "sources",
    "CenterCrop": "ops",
    "ColorJitter": "ops",
    "Contrast": "ops",
    "Crop": "ops",
    "CutMix": "ops",
    "CutOut": "ops",
    "Decode": "ops",
    "Equalize": "ops",
    "Failure": "faults",
    "FaultPolicy": "faults",
    "Feed": "feed",
    "FeedStats": "stats",
    "FiveCrop": "ops",
    "Function": "ops",
    "Gamma": "ops",
    "GaussianBlur": "ops",
    "GaussianNoise": "ops",
    "GpuDecode": "backends.options",
    "Grayscale": "ops",
    "GridMask": "ops",
    "Hue": "ops",
    "ImageFolder": "sources",
    "Invert": "ops",
    "JPEGCompression": "ops",
    "LUT": "ops",
    "LabelSmoothing": "ops",
    "MDSShards": "sources",
    "Maybe": "ops",
    "MixUp": "ops",
    "Mixture": "sources",
    "Mosaic": "ops",
    "MultiCrop": "ops",
    "Normalize": "ops",
    "OneHot": "ops",
    "OneOf": "ops",
    "Pad": "ops",
    "Perspective": "ops",
    "Plan": "plan",
    "Posterize": "ops",
    "RandomChoice": "ops",
    "RandomCrop": "ops",
    "RandomErasing": "ops",
    "RandomFlip": "ops",
    "RandomResizedCrop": "ops",
    "RawShards": "sources",
    "Repeated": "order",
    "Resize": "ops",
    "Rotate": "ops",
    "Saturation": "ops",
    "Sequential": "ops",
    "Sharpness": "ops",
    "Solarize": "ops",
    "Spec": "spec",
    "Storage": "sources",
    "TFRecords": "sources",
    "Table": "sources",
    "TarShards": "sources",
    "TenCrop": "ops",
    "ToFloat": "ops",
    "ToLayout": "ops",
    "View": "ops",
    "Weighted": "order",
    "World": "world",
    "errors": "errors",
    "load_state": "checkpoint",
    "pin_gpu": "launch",
    "prefetch_to_device": "adapters.anywhere",
    "save_state": "checkpoint",
    "scaling": "scaling",
}

__all__ = [
    "LUT",
    "Affine",
    "Arrays",
    "AutoContrast",
    "Balanced",
    "Batch",
    "Blocks",
    "Brightness",
    "Cache",
    "CenterCrop",
    "ColorJitter",
    "Contrast",
    "Crop",
    "CutMix",
    "CutOut",
    "Decode",
    "Equalize",
    "Failure",
    "FaultPolicy",
    "Feed",
    "FeedStats",
    "FiveCrop",
    "Function",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "GpuDecode",
    "Grayscale",
    "GridMask",
    "Hue",
    "ImageFolder",
    "Invert",
    "JPEGCompression",
    "LabelSmoothing",
    "MDSShards",
    "Maybe",
    "MixUp",
    "Mixture",
    "Mosaic",
    "MultiCrop",
    "Normalize",
    "OneHot",
    "OneOf",
    "Pad",
    "Perspective",
    "Plan",
    "Posterize",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomFlip",
    "RandomResizedCrop",
    "RawShards",
    "Repeated",
    "Resize",
    "Rotate",
    "Saturation",
    "Sequential",
    "Sharpness",
    "Solarize",
    "Spec",
    "Storage",
    "TFRecords",
    "Table",
    "TarShards",
    "TenCrop",
    "ToFloat",
    "ToLayout",
    "View",
    "Weighted",
    "World",
    "__version__",
    "errors",
    "load_state",
    "pin_gpu",
    "prefetch_to_device",
    "save_state",
    "scaling",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fastfeed' has no attribute {name!r}")
    module = importlib.import_module(f"fastfeed.{_PUBLIC[name]}")
    value = module if name == _PUBLIC[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from fastfeed import errors, scaling
    from fastfeed.adapters.anywhere import prefetch_to_device
    from fastfeed.backends.options import GpuDecode
    from fastfeed.batch import Batch
    from fastfeed.checkpoint import load_state, save_state
    from fastfeed.faults import Failure, FaultPolicy
    from fastfeed.feed import Feed
    from fastfeed.launch import pin_gpu
    from fastfeed.ops import (
        LUT,
        Affine,
        AutoContrast,
        Brightness,
        CenterCrop,
        ColorJitter,
        Contrast,
        Crop,
        CutMix,
        CutOut,
        Decode,
        Equalize,
        FiveCrop,
        Function,
        Gamma,
        GaussianBlur,
        GaussianNoise,
        Grayscale,
        GridMask,
        Hue,
        Invert,
        JPEGCompression,
        LabelSmoothing,
        Maybe,
        MixUp,
        Mosaic,
        MultiCrop,
        Normalize,
        OneHot,
        OneOf,
        Pad,
        Perspective,
        Posterize,
        RandomChoice,
        RandomCrop,
        RandomErasing,
        RandomFlip,
        RandomResizedCrop,
        Resize,
        Rotate,
        Saturation,
        Sequential,
        Sharpness,
        Solarize,
        TenCrop,
        ToFloat,
        ToLayout,
        View,
    )
    from fastfeed.order import Balanced, Blocks, Repeated, Weighted
    from fastfeed.plan import Plan
    from fastfeed.sources import (
        Arrays,
        Cache,
        ImageFolder,
        MDSShards,
        Mixture,
        RawShards,
        Storage,
        Table,
        TarShards,
        TFRecords,
    )
    from fastfeed.spec import Spec
    from fastfeed.stats import FeedStats
    from fastfeed.world import World
