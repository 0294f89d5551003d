"""CIFAR-10 from arrays in memory, in plain PyTorch on one device.

python examples/cifar_torch.py                                       # made pictures of that shape
python examples/cifar_torch.py --data cifar-10-batches-py            # as downloaded and unpacked
"""

import argparse

import made
import torch
from torch import nn

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="the unpacked folder of CIFAR-10, Python or binary version")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

if args.data:
    # MNIST: ff.Arrays.mnist(...)
    train, test = (
        ff.Arrays.cifar(args.data),
        ff.Arrays.cifar(args.data, "test"),
    )
else:
    train, test = made.pictures(4000, seed=0), made.pictures(1000, seed=1)

values = [ff.Normalize((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)), ff.ToLayout("CHW")]
crops = [
    ff.RandomResizedCrop(32, scale=(0.6, 1)),
    *([ff.RandomFlip()] if args.data else []),
    *values,
]
# the made classes are directions: a flip would change them
feed = ff.Feed(train, crops, batch=args.batch, seed=0)
held_out = ff.Feed(test, values, batch=256, shuffle=False, tail="pad")
loader = feed.to_torch()  # on the GPU where there is one
print(loader)

torch.manual_seed(0)
layers = []
for before, filters in ((3, 32), (32, 64), (64, 128)):
    layers += [
        nn.Conv2d(before, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(
    loader.device
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 4e-3, total_steps=args.epochs * len(loader)
)

# how long training waits for batches; `fastfeed watch` shows it from outside
watch = ff.StepWatch(loader)

for epoch in range(args.epochs):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        watch.step()
    print(f"epoch {epoch}: loss {loss.item():.2f} {watch.values}")

model.eval()
with torch.inference_mode():
    right = sum(
        (model(images).argmax(1) == labels).sum().item() for images, labels in held_out.to_torch()
    )
print(f"accuracy {right / len(test):.2f}, chance 0.10")
print(feed.stats())
