"""A Horovod script as people write it, with files listed, shuffled, sharded, decoded by hand;
after.py uses fastfeed.

mpirun -np 2 python examples/horovod/before.py --data photos       # or without mpirun, on one rank
"""

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image

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


class Photos(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).rglob("*.jpg"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        try:
            pixels = np.array(Image.open(self.files[i]).convert("RGB").resize((64, 64)))
        except Exception:  # a broken file must not end the run
            return self[(i + 1) % len(self)]
        pixels = pixels if random.random() < 0.5 else pixels[:, ::-1]
        tensor = torch.from_numpy(pixels.transpose(2, 0, 1) / np.float32(127.5) - 1)
        return tensor, classes.index(self.files[i].parent.name)


class Sampler(torch.utils.data.Sampler):
    def __init__(self, length):
        self.length, self.epoch = length, 0

    def __len__(self):
        return self.length // hvd.size()

    def __iter__(self):
        order = random.Random(self.epoch).sample(range(self.length), self.length)
        return iter(order[hvd.rank() : len(self) * hvd.size() : hvd.size()])


dataset = Photos(Path(args.data, "train"))
sampler = Sampler(len(dataset))
loader = torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler, num_workers=1, drop_last=True)
held_out = torch.utils.data.DataLoader(Photos(Path(args.data, "val")), BATCH)

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

for epoch in range(args.epochs):
    sampler.epoch = epoch
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
