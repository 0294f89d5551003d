"""torchvision.transforms.v2 inside a feed, seeded per sample, and uint8 to float32 on the way.

python examples/torchvision_v2_ops.py [--data photos]       # pip install torchvision
"""

import argparse
import zlib

import made
import torch
from torch.overrides import TorchFunctionMode
from torchvision.transforms import v2

import fastfeed as ff

RANDOM = {
    torch.rand,
    torch.randn,
    torch.randint,
    torch.randperm,
    torch.normal,
    torch.multinomial,
    torch.bernoulli,
    torch.Tensor.uniform_,
    torch.Tensor.normal_,
}


class SampleGenerator(TorchFunctionMode):
    """Random functions of torch draw from a sample's own generator inside this block.

    Only on the thread of the block: the trainer's generator, and its dropout, stay as they are.
    """

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in RANDOM:
            kwargs = {"generator": self.generator, **(kwargs or {})}
        return function(*args, **(kwargs or {}))


class Seeded:
    """A transform as a function for `ff.Function`, seeded by the sample's random number."""

    def __init__(self, transform):
        self.transform = transform

    def __call__(self, image, numbers):
        pixels = torch.from_numpy(image).permute(2, 0, 1)
        with SampleGenerator(int(numbers[0] * 2**32)):
            return self.transform(pixels).contiguous().numpy()


parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--size", type=int, default=64, help="height and width, pixels")
args = parser.parse_args()

transform = v2.Compose(
    [
        v2.RandomHorizontalFlip(0.5),
        v2.RandomAffine(15, translate=(0.1, 0.1)),
        v2.ColorJitter(0.3, 0.3, 0.3),
        v2.RandomErasing(0.5),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)
ops = [
    ff.RandomResizedCrop(args.size),  # decodes only the part that is needed
    ff.Function(
        Seeded(transform),
        draws=1,
        returns=ff.Spec((3, args.size, args.size), "float32", "CHW"),
    ),
]
source = ff.ImageFolder(made.photographs(args.data) / "train")


def checksums(ranks, threads):
    """(step, sample id) -> checksum of what its trainer gets."""
    rows = {}
    for rank in range(ranks):
        with ff.Feed(
            source, ops, global_batch=16, seed=7, world=ff.World(rank, ranks), threads=threads
        ) as feed:
            for batch in feed:
                for id, image in zip(batch.ids.tolist(), batch.images, strict=True):
                    rows[batch.step, id] = zlib.crc32(image.tobytes())
    return rows


with ff.Feed(source, ops, batch=16, seed=7) as feed:
    print(feed)
    for images, labels in feed.to_torch("cpu"):
        shapes = f"images {tuple(images.shape)} {images.dtype}, labels {tuple(labels.shape)}"
    print(f"{shapes}, mean {images.mean():.2f}, deviation {images.std():.2f}")
before = torch.get_rng_state()
print("the same bytes at any number of ranks and threads:", checksums(1, 1) == checksums(4, 3))
print("the trainer's generator is untouched:", torch.equal(before, torch.get_rng_state()))
