"""Albumentations inside a feed: images, boxes and masks through one Compose, seeded per sample.

python examples/albumentations_ops.py          # pip install albumentations
"""

import copy
import os
import threading
import zlib

import numpy as np

import fastfeed as ff

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it asks PyPI for its version otherwise
import albumentations as A


class Seeded:
    """A Compose as a function for `ff.Function`, seeded by the sample's random number.

    A Compose keeps random generators that threads cannot share, so each thread has a copy.
    """

    def __init__(self, transform):
        self.transform = transform
        self.copies = {}

    def __call__(self, image, numbers, boxes, box_labels, masks):
        thread = threading.get_ident()
        if thread not in self.copies:
            self.copies[thread] = copy.deepcopy(self.transform)
        transform = self.copies[thread]
        transform.set_random_seed(int(numbers[0] * 2**32))
        result = transform(image=image, bboxes=boxes, box_labels=box_labels, mask=masks)
        return {
            "image": result["image"],
            "boxes": result["bboxes"],
            "box_labels": result["box_labels"],
            "masks": result["mask"],
        }


def rectangles(count):
    """Dark noise with one bright rectangle each, its box, and a mask that is 1 on it."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, (count, 96, 96, 3), dtype=np.uint8)
    masks = np.zeros((count, 96, 96), np.uint8)
    corners = np.concatenate([rng.integers(8, 40, (count, 2)), rng.integers(56, 88, (count, 2))], 1)
    for image, mask, (left, top, right, bottom) in zip(images, masks, corners, strict=True):
        image[top:bottom, left:right] = 255
        mask[top:bottom, left:right] = 1
    labels = np.zeros((count, 1), np.int64)
    return ff.Objects(ff.Arrays(images), boxes=corners[:, None], labels=labels, masks=list(masks))


transform = A.Compose(
    [
        A.RandomSizedBBoxSafeCrop(64, 64),
        A.HorizontalFlip(p=0.5),
        A.Affine(translate_percent=0.1, p=0.5),
        A.RandomBrightnessContrast(0.1, 0.1, p=0.5),
    ],
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["box_labels"], clip=True),
)
augment = ff.Function(
    Seeded(transform),
    draws=1,
    fields=("boxes", "box_labels", "masks"),
    returns=ff.Spec((64, 64, 3), "uint8", "HWC"),
)
source = rectangles(64)


def checksums(ranks, threads):
    """(step, sample id) -> checksum of the image, boxes and mask that its trainer gets."""
    rows = {}
    for rank in range(ranks):
        with ff.Feed(
            source,
            [augment, ff.ToFloat()],
            global_batch=16,
            seed=7,
            world=ff.World(rank, ranks),
            threads=threads,
        ) as feed:
            for batch in feed:
                for row, id in enumerate(batch.ids.tolist()):
                    parts = batch.images[row], batch.objects.boxes[row], batch.masks[row]
                    data = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
                    rows[batch.step, id] = zlib.crc32(data)
    return rows


with ff.Feed(source, [augment, ff.ToFloat()], batch=16, seed=7) as feed:
    print(feed)
    for batch in feed:
        bright = batch.images.mean(-1) > 0.6
        share = (bright == (batch.masks == 1)).mean()
        widths = (batch.objects.boxes[:, 0, 2] - batch.objects.boxes[:, 0, 0]).round()
    print(f"the mask is right for {share:.1%} of the pixels; widths of boxes: {widths[:6]}")
print("the same bytes at any number of ranks and threads:", checksums(1, 1) == checksums(4, 3))
