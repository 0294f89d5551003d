"""Is it the input? Measured with a training step of your own, in PyTorch.

python examples/prove_torch.py --seconds 30
python examples/prove_torch.py --html proof.html
"""

import argparse
from pathlib import Path

import made
import torch
from torch import nn

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with train/<class>/ of photographs")
parser.add_argument("--seconds", type=float, default=10)
parser.add_argument("--html", help="also write the report as a page")
args = parser.parse_args()

ops = [ff.RandomResizedCrop(96), ff.RandomFlip(), ff.Normalize.imagenet(), ff.ToLayout("CHW")]
feed = ff.Feed(ff.ImageFolder(made.photographs(args.data) / "train"), ops, batch=16, seed=0)
loader = feed.to_torch()  # on the GPU where there is one

model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=4),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
)
model.to(loader.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step(batch):
    images, labels = batch
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


proof = ff.prove(step, loader, seconds=args.seconds)
print(proof)
print(
    f"a faster feed could gain {proof.gain:.0%} at most; the weights of this model are"
    " meaningless now"
)
if args.html:
    Path(args.html).write_text(proof.html())
