"""A recipe of Keras's preprocessing layers, line by line: what was written there, and what is
written here.

python examples/augmentations_keras.py [--data photos]             # photographs are made where
there is no folder
"""

import argparse
import time
import zlib

import made

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--size", type=int, default=96, help="height and width, pixels")
args = parser.parse_args()

# what keras.layers has, what it is here, and where they differ
RECIPE = [
    (
        "image_dataset_from_directory(..., crop_to_aspect_ratio=True), RandomCrop(size, size)",
        ff.RandomResizedCrop(args.size, scale=(0.5, 1.0)),
        "cut while it is decoded",
    ),
    ('RandomFlip("horizontal")', ff.RandomFlip(), ""),
    ("RandomRotation(15 / 360)", ff.Rotate(15, border="symmetric"), ""),
    (
        "RandomZoom(0.2), RandomTranslation(0.1, 0.1), RandomShear(0.1)",
        ff.Affine(translate=(0.1, 0.1), scale=(0.8, 1.2), shear=6),
        "one resampling",
    ),
    (
        "RandomColorJitter((0, 255), 0.2, 0.2, 0.2, 0.05)",
        ff.ColorJitter(0.2, 0.2, 0.2, 0.05),
        "Keras adds brightness, here it is a factor",
    ),
    ("RandomGrayscale(0.1)", ff.RandomGrayscale(0.1), ""),
    ("RandomGaussianBlur(0.2, 5, 1.0)", ff.Maybe(ff.GaussianBlur(5, (0.1, 1.0)), 0.2), ""),
    ("RandAugment((0, 255), 2, 0.3)", ff.RandAugment(2, 9), "of 30 strengths"),
    ("RandomErasing(0.25)", ff.RandomErasing(0.25, fill="noise"), ""),
    ("Rescaling(1 / 127.5, offset=-1)", ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ""),
    ("MixUp(0.2)  # on batches", ff.MixUp(0.2), "a share per sample"),
    (
        "keras.losses.CategoricalCrossentropy(label_smoothing=0.1)",
        ff.LabelSmoothing(0.1),
        "one of both",
    ),
]
ops = [op for _, op, _ in RECIPE]


def bytes_of(ranks: int) -> dict[tuple[int, int], int]:
    """(step, sample id) -> checksum of what its trainer gets."""
    rows = {}
    for rank in range(ranks):
        with ff.Feed(
            source, ops, global_batch=16, seed=7, tail="pad", world=ff.World(rank, ranks)
        ) as feed:
            for batch in feed:
                for id, image, weight in zip(batch.ids, batch.images, batch.weights, strict=True):
                    if weight:  # no padding
                        rows[batch.step, int(id)] = zlib.crc32(image.tobytes())
    return rows


for there, here, differs in RECIPE:
    print(f"{there}\n    {here!r}{f'  # {differs}' if differs else ''}")

source = ff.ImageFolder(made.photographs(args.data) / "train")
feed = ff.Feed(source, ops, batch=16, seed=7)
print(f"\n{feed}\n")
began, count = time.monotonic(), 0
for batch in feed:  # model.fit(feed.to_keras()) gets the same
    count += len(batch)
print(
    f"images {batch.images.shape} {batch.images.dtype}, labels {batch.labels.shape}"
    f" {batch.labels.dtype}"
)
print(f"{count / (time.monotonic() - began):.0f} images/s")
feed.close()
# there, the order of batches decides which random numbers a photograph gets
print("one rank and four give every photograph the same bytes:", bytes_of(1) == bytes_of(4))
