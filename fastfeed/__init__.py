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
    "Arrays": "sources",
    "Balanced": "order",
    "Batch": "batch",
    "Blocks": "order",
    "Cache": "sources",
    "CenterCrop": "ops",
    "Decode": "ops",
    "Failure": "faults",
    "FaultPolicy": "faults",
    "Feed": "feed",
    "FeedStats": "stats",
    "GpuDecode": "backends.options",
    "ImageFolder": "sources",
    "MDSShards": "sources",
    "Mixture": "sources",
    "Normalize": "ops",
    "Plan": "plan",
    "RandomFlip": "ops",
    "RandomResizedCrop": "ops",
    "RawShards": "sources",
    "Repeated": "order",
    "Resize": "ops",
    "Spec": "spec",
    "Storage": "sources",
    "TFRecords": "sources",
    "Table": "sources",
    "TarShards": "sources",
    "ToFloat": "ops",
    "ToLayout": "ops",
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
    "Arrays",
    "Balanced",
    "Batch",
    "Blocks",
    "Cache",
    "CenterCrop",
    "Decode",
    "Failure",
    "FaultPolicy",
    "Feed",
    "FeedStats",
    "GpuDecode",
    "ImageFolder",
    "MDSShards",
    "Mixture",
    "Normalize",
    "Plan",
    "RandomFlip",
    "RandomResizedCrop",
    "RawShards",
    "Repeated",
    "Resize",
    "Spec",
    "Storage",
    "TFRecords",
    "Table",
    "TarShards",
    "ToFloat",
    "ToLayout",
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
        CenterCrop,
        Decode,
        Normalize,
        RandomFlip,
        RandomResizedCrop,
        Resize,
        ToFloat,
        ToLayout,
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
