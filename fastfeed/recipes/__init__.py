"""Proven lists of ops: print one, edit it, pass it on.

    ops = fastfeed.recipes.imagenet_train(224)
    ops.insert(2, fastfeed.RandAugment())
    feed = fastfeed.Feed(source, ops, batch=256)

They end with float32 HWC, as Keras and JAX take it; add `ToLayout("CHW")` for PyTorch. A `policy`
is any op that changes pixels, or several of them in a `Sequential`.
"""

from fastfeed.recipes.classification import (
    cifar_train,
    deit3_train,
    face_train,
    imagenet_eval,
    imagenet_train,
    reid_train,
    stock_photo_train,
)
from fastfeed.recipes.objects import mask2former_train, ssd_train, yolo_train
from fastfeed.recipes.pretraining import (
    byol_train,
    clip_train,
    dinov2_train,
    mae_train,
    sdxl_train,
    simclr_train,
)

__all__ = [
    "byol_train",
    "cifar_train",
    "clip_train",
    "deit3_train",
    "dinov2_train",
    "face_train",
    "imagenet_eval",
    "imagenet_train",
    "mae_train",
    "mask2former_train",
    "reid_train",
    "sdxl_train",
    "simclr_train",
    "ssd_train",
    "stock_photo_train",
    "yolo_train",
]
