"""Ray Train: the example of its guide to PyTorch on a feed, which resumes at the next batch after
workers or nodes were lost, with as many workers as are left.

python examples/ray_train_torch.py                               # pip install 'ray[train]' torch
"""

import argparse
import os
import tempfile

import made
import ray.train.torch
import torch
from torch import nn

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--workers", type=int, default=2, help="processes; fewer where nodes are lost")
parser.add_argument("--gpus", action="store_true", help="one GPU for each worker")
parser.add_argument(
    "--storage", default=".fastfeed-demo/ray", help="a folder of all nodes, or s3://"
)
parser.add_argument("--save-every", type=int, default=25, help="steps")

values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]


def network():
    torch.manual_seed(0)
    layers = []
    for before, filters in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


def train(config):
    # its rank is that of the worker; workers that replace lost ones share the same global batches
    feed = ff.Feed(made.pictures(4000, seed=0), crops, global_batch=64, seed=0)
    loader = feed.to_torch(ray.train.torch.get_device())
    model = ray.train.torch.prepare_model(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    net = getattr(model, "module", model)
    parts = {"net": net, "optimizer": optimizer, "loader": loader}
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "state.pt"), weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    while feed.state()["epoch"] < config["epochs"]:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state = loader.state_dict()
            if state["step"] % config["save_every"] == 0:
                report({"loss": loss.item(), **state}, parts)


def report(metrics, parts):
    """All workers call it; the first one has the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            saved = {name: part.state_dict() for name, part in parts.items()}
            torch.save(saved, os.path.join(folder, "state.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint)


def main():
    args = parser.parse_args()
    storage = args.storage if "://" in args.storage else os.path.abspath(args.storage)
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"epochs": args.epochs, "save_every": args.save_every},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, args.workers), use_gpu=args.gpus),
        run_config=ray.train.RunConfig(
            storage_path=storage,
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    net = network().eval()
    with result.checkpoint.as_directory() as folder:
        net.load_state_dict(torch.load(os.path.join(folder, "state.pt"), weights_only=True)["net"])
    right = seen = 0
    held_out = ff.Feed(made.pictures(1000, seed=1), values, batch=100, shuffle=False)
    with torch.inference_mode():
        for images, labels in held_out.to_torch("cpu"):
            right += int((net(images).argmax(1) == labels).sum())
            seen += len(labels)
    print(f"accuracy {right / seen:.2f}, chance 0.10")
    print(held_out.stats())


if __name__ == "__main__":
    main()
