"""FSDP2 and tensor parallelism: processes of one mesh, of which some read the same samples, and a
checkpoint of PyTorch's distributed kind with the feed's position inside.

torchrun --standalone --nproc_per_node 4 examples/fsdp_torch.py --checkpoint run   # again: resumes
"""

import argparse
from pathlib import Path

import made
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--checkpoint", required=True, help="folder; read first where it is one")
parser.add_argument("--tensor-parallel", type=int, default=2, help="processes of a sample")
parser.add_argument("--max-steps", type=int, help="end here, as if the machine had gone down")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
ff.pin_gpu()
dist.init_process_group()
shape = dist.get_world_size() // args.tensor_parallel, args.tensor_parallel
mesh = init_device_mesh(device, shape, mesh_dim_names=("dp", "tp"))
world = ff.World.of_mesh(mesh, "dp")

values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]
feed = ff.Feed(made.pictures(4000, seed=0), crops, global_batch=64, seed=0, world=world)
loader = feed.to_torch()

torch.manual_seed(0)
layers = []
for before, filters in ((3, 32), (32, 64), (64, 64)):
    layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
head = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10))
model = nn.Sequential(*layers, nn.Flatten(), head).to(device)
parallelize_module(head, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)


def state():
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "data": loader}


if Path(args.checkpoint, ".metadata").is_file():
    saved = state()
    dcp.load(saved, checkpoint_id=args.checkpoint)
    set_state_dict(
        model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
    )
    if dist.get_rank() == 0:
        print(f"resumes at epoch {feed.state()['epoch']} step {feed.state()['step']}")

left = args.max_steps or -1
while feed.state()["epoch"] < args.epochs and left:
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        left -= 1
        if not left:
            break
dcp.save(state(), checkpoint_id=args.checkpoint)

model.eval()
held_out = ff.Feed(made.pictures(1000, seed=1), values, batch=100, shuffle=False, world=world)
right = torch.zeros(2, device=device)  # correct, seen; those of a mesh's column count once each
with torch.no_grad():
    for images, labels in held_out.to_torch():
        found = (model(images).argmax(1) == labels).sum()
        right += torch.tensor([float(found), float(len(labels))], device=device)
dist.all_reduce(right)
if dist.get_rank() == 0:
    print(world)
    print(f"accuracy {right[0] / right[1]:.2f}, chance 0.10")
    print(feed.stats())
dist.destroy_process_group()
