"""timm's loader with one line changed: the arguments stay, the workers go.

python examples/timm_example.py                              # made photographs, a small model
python examples/timm_example.py --data photos --model resnet18      # pip install timm
"""

import argparse
import importlib

import made
import torch
from torch import nn

import fastfeed as ff
from fastfeed.timm import create_loader  # from timm.data import create_loader

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--model", help="one of timm's; default: a small network")
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()
root = made.photographs(args.data)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# or timm's own: create_dataset("", root=root / "train")
dataset_train, dataset_eval = (ff.ImageFolder(root / side) for side in ("train", "val"))
common = {"input_size": (3, 64, 64), "batch_size": 16, "device": device}
loader_train = create_loader(
    dataset_train,
    **common,
    is_training=True,
    scale=(0.5, 1),
    color_jitter=0.2,
    re_prob=0.1,
    re_mode="pixel",
    interpolation="random",
    num_workers=4,
)
loader_eval = create_loader(dataset_eval, **common, crop_pct=1.0, crop_mode="squash")

torch.manual_seed(0)
if args.model:
    create_model = importlib.import_module("timm").create_model
    model = create_model(args.model, num_classes=len(dataset_train.classes)).to(device)
else:
    layers = []
    for before, filters in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.BatchNorm2d(filters)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, len(dataset_train.classes))]
    model = nn.Sequential(*layers, *head).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for _ in range(args.epochs):
    model.train()
    for images, labels in loader_train:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model.eval()
right = seen = 0
with torch.inference_mode():
    for images, labels in loader_eval:
        right += int((model(images).argmax(1) == labels).sum())
        seen += len(labels)
print(f"accuracy {right / seen:.2f} of {seen} images, chance {1 / len(dataset_train.classes):.2f}")
