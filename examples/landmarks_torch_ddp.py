"""Which landmark is it?

PyTorch DistributedDataParallel: bytes to the device, one checkpoint, a resume to the batch.

python examples/landmarks_torch_ddp.py
torchrun --standalone --nproc_per_node 2 examples/landmarks_torch_ddp.py --checkpoint run.pt    #
again: resumes
"""

import argparse
import os

import fastfeed as ff

ff.pin_gpu()  # before PyTorch looks for GPUs

import made  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--size", type=int, default=64, help="height and width, pixels")
parser.add_argument("--checkpoint", help="a file; read first where it exists")
parser.add_argument("--save-every", type=int, default=20, help="steps")
parser.add_argument("--max-steps", type=int, help="end here, as if the machine had gone down")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if "RANK" in os.environ:  # torchrun's
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
world = ff.World.detect()

root = made.photographs(args.data)
train = ff.ImageFolder(root / "train")
val = ff.ImageFolder(root / "val", classes=train.classes)
tensors = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
crops = [ff.RandomResizedCrop(args.size, scale=(0.35, 1)), ff.RandomFlip(), *tensors]
middle = [ff.Resize(args.size * 8 // 7), ff.CenterCrop(args.size), *tensors]
plan = ff.scaling.plan_batch(base_batch=8, base_lr=1e-3, rule="sqrt", warmup_epochs=2)
feed = ff.Feed(train, crops, global_batch=plan.global_batch, seed=0)
held_out = ff.Feed(val, middle, batch=8, shuffle=False, tail="pad", on_bad="mask")
plan.check(feed)
# bytes are copied; floats are made where they are used
loader = feed.to_torch(device, convert="device")
if world.main:
    print(plan, feed, sep="\n")


def block(before: int, filters: int) -> nn.Sequential:
    convolve = nn.Conv2d(before, filters, 3, padding=1, bias=False)
    return nn.Sequential(
        convolve, nn.BatchNorm2d(filters, momentum=0.1), nn.ReLU(), nn.MaxPool2d(2)
    )


torch.manual_seed(0)
head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, len(train.classes))]
net = nn.Sequential(block(3, 32), block(32, 48), block(48, 64), block(64, 96), *head).to(device)
model = nn.parallel.DistributedDataParallel(net) if world.size > 1 else net
optimizer = torch.optim.AdamW(model.parameters(), lr=plan.lr)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, plan.factor(len(feed)))
parts = {"net": net, "optimizer": optimizer, "schedule": schedule, "loader": loader}

done = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint, map_location=device)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    done = saved["done"]
    print(
        f"rank {world.rank} resumes after {done} steps, at epoch {feed.state()['epoch']} step"
        f" {feed.state()['step']}"
    )

last = min(args.epochs * len(feed), args.max_steps or args.epochs * len(feed))
while done < last:
    model.train()
    for images, labels in loader:  # one epoch, or what is left of it
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        done += 1
        if args.checkpoint and world.main and (done % args.save_every == 0 or done == last):
            saved = {"done": done} | {name: part.state_dict() for name, part in parts.items()}
            torch.save(saved, f"{args.checkpoint}.new")
            os.replace(f"{args.checkpoint}.new", args.checkpoint)  # whole, or the one before
        if done == last:
            break

net.eval()
right = torch.zeros(2, device=device)  # correct, seen
with torch.inference_mode():
    for images, labels, *weights in held_out.to_torch(device, convert="device"):
        # 0 for padding and bad files
        weight = weights[0] if weights else torch.ones(len(labels), device=device)
        right += torch.stack([((net(images).argmax(1) == labels) * weight).sum(), weight.sum()])
if world.size > 1:
    torch.distributed.all_reduce(right)
    torch.distributed.destroy_process_group()
if world.main:
    print(
        f"accuracy {right[0] / right[1]:.2f} of {right[1]:.0f} images, chance"
        f" {1 / len(train.classes):.2f}"
    )
    print(feed.stats())
