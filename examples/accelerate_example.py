"""Hugging Face Accelerate: prepare model and optimizer, not the feed, which has found its rank
already.

python examples/accelerate_example.py
accelerate launch --num_processes 2 --cpu examples/accelerate_example.py --folder run     # again:
resumes
"""

import argparse
from pathlib import Path

import made
import torch
from accelerate import Accelerator
from torch import nn

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--folder", help="checkpoints; the newest is read first where there is one")
parser.add_argument("--max-steps", type=int, help="end here, as if the machine had gone down")
args = parser.parse_args()

accelerator = Accelerator()
values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]
feed = ff.Feed(made.pictures(4000, seed=0), crops, global_batch=64, seed=0)
held_out = ff.Feed(made.pictures(1000, seed=1), values, batch=128, shuffle=False, tail="pad")
loader = feed.to_torch(accelerator.device)

torch.manual_seed(0)
layers = []
for before, filters in ((3, 32), (32, 64), (64, 128)):
    layers += [
        nn.Conv2d(before, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
accelerator.register_for_checkpointing(loader)  # its position is saved and loaded with the rest

if args.folder and Path(args.folder, "state").is_dir():
    accelerator.load_state(str(Path(args.folder, "state")))
    accelerator.print(f"resumes at epoch {feed.state()['epoch']} step {feed.state()['step']}")

left = args.max_steps or -1
while feed.state()["epoch"] < args.epochs and left:
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        left -= 1
        if args.folder and (feed.state()["step"] % 20 == 0 or not left):
            accelerator.save_state(str(Path(args.folder, "state")))
        if not left:
            break

model.eval()
right = torch.zeros(2, device=accelerator.device)  # correct, seen
with torch.inference_mode():
    for images, labels, *weights in held_out.to_torch(accelerator.device):
        # 0 for padding
        weight = weights[0] if weights else torch.ones(len(labels), device=accelerator.device)
        right += torch.stack([((model(images).argmax(1) == labels) * weight).sum(), weight.sum()])
right = accelerator.reduce(right)
accelerator.print(f"accuracy {right[0] / right[1]:.2f} of {right[1]:.0f} images, chance 0.10")
accelerator.print(feed.stats())
accelerator.end_training()
