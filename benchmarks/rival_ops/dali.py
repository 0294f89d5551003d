"""DALI on the processor, one thread: a graph per op, whose parameters are drawn in it as its
documentation advises.

What handing images in and out costs is measured too ("nothing"), and taken off by who compares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from nvidia.dali.auto_aug import auto_augment, rand_augment, trivial_augment

between = fn.random.uniform


def factor(amount: float) -> Any:
    return between(range=[1 - amount, 1 + amount])


def looked_up(image: Any, op: Any) -> Any:
    return fn.cast(
        fn.lookup_table(image, keys=list(range(256)), values=[float(v) for v in op.table]),
        dtype=types.UINT8,
    )


def erased(image: Any, op: Any) -> Any:
    if op.fill == "noise":
        return None
    size = between(range=[0.2, 0.55], shape=2)
    return fn.erase(
        image,
        anchor=between(range=[0, 0.45], shape=2),
        shape=size,
        axes=[0, 1],
        normalized=True,
        fill_value=0,
    )


def cut(image: Any, op: Any) -> Any:
    anchor = between(range=[-op.size / 2, 224 - op.size / 2], shape=2)
    return fn.erase(image, anchor=anchor, shape=[op.size, op.size], axes=[0, 1], fill_value=0)


def affine(image: Any, op: Any) -> Any:
    turned = fn.transforms.rotation(
        angle=between(range=[-op.degrees, op.degrees]), center=[112, 112]
    )
    sheared = fn.transforms.shear(
        turned, angles=between(range=[-10, 10], shape=2), center=[112, 112]
    )
    moved = fn.transforms.translation(sheared, offset=between(range=[-22, 22], shape=2))
    return fn.warp_affine(
        image, moved, inverse_map=False, fill_value=0, interp_type=types.INTERP_LINEAR
    )


def rotated(image: Any, op: Any) -> Any:
    angle = between(range=[-op.degrees, op.degrees])
    return fn.rotate(
        image, angle=angle, keep_size=True, fill_value=0, interp_type=types.INTERP_LINEAR
    )


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda image, op: image,
    "Brightness": lambda image, op: fn.brightness(image, brightness=factor(0.4)),
    "Contrast": lambda image, op: fn.contrast(image, contrast=factor(0.4)),
    "Saturation": lambda image, op: fn.saturation(image, saturation=factor(0.4)),
    "Hue": lambda image, op: fn.hue(image, hue=between(range=[-36, 36])),
    "ColorJitter": lambda image, op: fn.color_twist(
        image,
        brightness=factor(0.4),
        contrast=factor(0.4),
        saturation=factor(0.4),
        hue=between(range=[-36, 36]),
    ),
    "Grayscale": lambda image, op: fn.saturation(image, saturation=0.0),
    "Equalize": lambda image, op: fn.equalize(image),
    "Invert": lambda image, op: fn.cast(255 - image, dtype=types.UINT8),
    "LUT": looked_up,
    "GaussianBlur": lambda image, op: fn.gaussian_blur(
        image, window_size=op.taps, sigma=between(range=op.sigma)
    ),
    "GaussianNoise": lambda image, op: fn.noise.gaussian(image, stddev=between(range=op.sigma)),
    "JPEGCompression": lambda image, op: fn.jpeg_compression_distortion(
        image, quality=fn.random.uniform(range=list(op.quality), dtype=types.INT32)
    ),
    "RandomErasing": erased,
    "CutOut": cut,
    "GridMask": lambda image, op: fn.grid_mask(
        image, tile=fn.random.uniform(range=list(op.unit), dtype=types.INT32), ratio=1 - op.keep
    ),
    "Rotate": rotated,
    "Affine": affine,
    "RandomFlip": lambda image, op: fn.flip(image, horizontal=1),
    "RandAugment": lambda image, op: rand_augment.rand_augment(image, n=2, m=9, shape=(224, 224)),
    "TrivialAugmentWide": lambda image, op: trivial_augment.trivial_augment_wide(
        image, shape=(224, 224)
    ),
    "AutoAugment": lambda image, op: auto_augment.auto_augment(image, shape=(224, 224)),
}


def runner(name: str, op: Any, images: list[np.ndarray]) -> Callable[[], int] | None:
    """Who runs all images through a graph, as one batch; None where there is no such op, or not
    this kind of it.
    """
    if name not in OPS:
        return None
    made = []

    @pipeline_def(
        batch_size=len(images),
        num_threads=1,
        device_id=None,
        seed=0,
        prefetch_queue_depth=1,
        exec_async=False,
        exec_pipelined=False,
        enable_conditionals=True,
    )
    def graph() -> Any:
        given = fn.external_source(lambda: images, layout="HWC")
        done = OPS[name](given, op)
        made.append(done)
        return given if done is None else done

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = graph()
    if made[0] is None:
        return None
    pipeline.build()

    def run() -> int:
        pipeline.run()
        return len(images)

    return run
