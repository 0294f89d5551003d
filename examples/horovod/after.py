"""before.py with its data loading given to fastfeed, which finds the ranks by itself: see `diff
before.py after.py`.

mpirun -np 2 python examples/horovod/after.py --data photos       # or without mpirun, on one rank
"""

import argparse
from pathlib import Path

import torch

import fastfeed as ff

try:
    import horovod.torch as hvd
except ImportError:
    import hvd  # a stand-in of ours; see there

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=14)
args = parser.parse_args()

hvd.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
device = "cuda" if torch.cuda.is_available() else "cpu"

classes = sorted(path.name for path in Path(args.data, "train").iterdir())
BATCH = 8


values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
train = ff.ImageFolder(Path(args.data, "train"), classes=classes)
val = ff.ImageFolder(Path(args.data, "val"), classes=classes)
feed = ff.Feed(train, [ff.Resize((64, 64)), ff.RandomFlip(), *values], batch=BATCH, seed=0)
loader = feed.to_torch()
alone = ff.World()  # every rank evaluates everything, as before
held_out = ff.Feed(
    val, [ff.Resize((64, 64)), *values], batch=BATCH, shuffle=False, tail="pad", world=alone
).to_torch()

torch.manual_seed(0)
layers = []
for before, filters in ((3, 32), (32, 48), (48, 64), (64, 96)):
    layers += [
        torch.nn.Conv2d(before, filters, 3, padding=1),
        torch.nn.BatchNorm2d(filters),
        torch.nn.ReLU(),
    ]
    layers += [torch.nn.MaxPool2d(2)]
head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(96, len(classes))]
model = torch.nn.Sequential(*layers, *head).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

for _ in range(args.epochs):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()

model.eval()
right, seen = 0, 0
with torch.inference_mode():
    for images, labels in held_out:
        right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
        seen += len(labels)
accuracy = hvd.allreduce(torch.tensor(right / seen))
if hvd.rank() == 0:
    print(f"accuracy {accuracy:.2f}, chance {1 / len(classes):.2f}")
    print(feed.stats())
