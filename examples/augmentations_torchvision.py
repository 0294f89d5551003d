"""A torchvision recipe, line by line: what was written there, and what is written here.

python examples/augmentations_torchvision.py [--data photos]       # photographs are made where
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

# what torchvision.transforms.v2 has, and what it is here
RECIPE = [
    ("v2.RandomResizedCrop(size, antialias=True)", ff.RandomResizedCrop(args.size)),
    ("v2.RandomHorizontalFlip(0.5)", ff.RandomFlip(0.5)),
    (
        "v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8)",
        ff.Maybe(ff.ColorJitter(0.4, 0.4, 0.4, 0.1), 0.8),
    ),
    ("v2.RandomGrayscale(0.2)", ff.RandomGrayscale(0.2)),
    (
        "v2.RandomApply([v2.GaussianBlur(23, (0.1, 2.0))], 0.5)",
        ff.Maybe(ff.GaussianBlur(23, (0.1, 2.0)), 0.5),
    ),
    ("v2.RandomSolarize(128, 0.1)", ff.Maybe(ff.Solarize(128), 0.1)),
    ("v2.RandomRotation(15, v2.InterpolationMode.BILINEAR)", ff.Rotate(15)),
    ("v2.RandAugment(2, 9)", ff.RandAugment(2, 9)),
    (
        "v2.RandomErasing(0.1)  # behind Normalize, 0 is the mean",
        ff.RandomErasing(0.1, fill=(124, 116, 104)),
    ),
    ("v2.ToImage(), v2.ToDtype(torch.float32, scale=True)", ff.ToFloat()),
    ("v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))", ff.Normalize.imagenet()),
    ("  # channels come first", ff.ToLayout("CHW")),
    (
        "v2.RandomChoice([v2.MixUp(alpha=0.8), v2.CutMix()])  # batches",
        ff.RandomChoice([ff.MixUp(0.8), ff.CutMix()]),
    ),
]
ops = [op for _, op in RECIPE]


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


for there, here in RECIPE:
    print(f"{there}\n    {here!r}")

source = ff.ImageFolder(made.photographs(args.data) / "train")
feed = ff.Feed(source, ops, batch=16, seed=7)
print(f"\n{feed}\n")
began, count = time.monotonic(), 0
for images, labels in feed.to_torch("cpu"):
    count += len(images)
    said = (
        f"images {tuple(images.shape)} {images.dtype}, labels {tuple(labels.shape)} {labels.dtype}"
    )
print(said)
print(f"{count / (time.monotonic() - began):.0f} images/s")
feed.close()
# there, workers and ranks decide which random numbers a photograph gets
print("one rank and four give every photograph the same bytes:", bytes_of(1) == bytes_of(4))
