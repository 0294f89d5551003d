"""Before and after: a network restores faded photographs, trained on pairs from two folders.

python examples/pairs_torch.py                                   # made photographs, faded here
python examples/pairs_torch.py --before scans --after restored   # yours: the same names in both
"""

import argparse
from pathlib import Path

import made
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import nn

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ of photographs, which are faded")
parser.add_argument("--before", help="a folder of images")
parser.add_argument("--after", help="a folder of what they should become, with the same names")
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()


def faded(photos: Path) -> Path:
    """A folder of the same photographs, darker and with less color."""
    folder = photos.parent.resolve().with_name("faded-photos")
    for path in sorted(photos.rglob("*.jpg")):
        target = folder / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            image = ImageOps.exif_transpose(Image.open(path)).convert(
                "RGB"
            )  # upright, as in a feed
        except (OSError, Image.DecompressionBombError):  # broken on purpose: no pair of them
            target.write_bytes(path.read_bytes())
            continue
        image = ImageEnhance.Color(image).enhance(0.4)
        ImageEnhance.Brightness(image).enhance(0.5).save(target, quality=95)
    return folder


if args.before and args.after:
    before, after = Path(args.before), Path(args.after)
else:
    after = made.photographs(args.data) / "train"
    before = faded(after)

folders = {"before": before, "after": after}
sources = {name: ff.ImageFolder(folder, labeled=False) for name, folder in folders.items()}
pairs = ff.Together(sources, by="name")
sides = ff.split(pairs, {"train": 0.8, "val": 0.2}, seed=0)

# one list for both: the same crop and flip of either image
ops = [ff.RandomResizedCrop(64, scale=(0.3, 1.0)), ff.RandomFlip()]
ends = [ff.ToFloat(), ff.ToLayout("CHW")]
feed = ff.Feed(sides["train"], [*ops, *ends], batch=16, seed=0)
held_out = ff.Feed(sides["val"], [ff.Resize((64, 64)), *ends], batch=8, shuffle=False, tail="pad")
print(feed)
loader = feed.to_torch(yields=("before", "after"))

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 3, 1))
model.to(loader.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(args.epochs):
    for faded_images, images in loader:
        loss = nn.functional.l1_loss(faded_images + model(faded_images), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: mean difference {loss.item():.3f}")


def close(found: torch.Tensor, images: torch.Tensor) -> float:
    """The share of values that are off by less than 1/20."""
    return ((found - images).abs() < 0.05).float().mean().item()


with torch.inference_mode():
    shares = [
        (close(old + model(old), new), close(old, new))
        for old, new in held_out.to_torch(yields=("before", "after"))
    ]
restored, unchanged = (sum(column) / len(shares) for column in zip(*shares, strict=True))
print(f"accuracy {restored:.2f} of values within 0.05, chance {unchanged:.2f}")
print(feed.stats())
