"""torchft: replicas that come and go; one that joins gets the feed's position with the weights.

python examples/torchft_example.py                     # pip install torchft; two replicas in threads
"""

import argparse
import threading
from datetime import timedelta

import made
import torch
from torch import nn
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--joins-at", type=int, default=20, help="step at which the second one starts")
args = parser.parse_args()
REPLICAS = 2
values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
source = made.pictures(2000, seed=0)
joins = threading.Event()
healed = []


class Batches:
    """Epoch after epoch; begins again where a peer is when torchft restores it."""

    def __init__(self, loader):
        self.loader = loader
        self.epoch = iter(())

    def restore(self, state):
        self.loader.load_state_dict(state)
        self.epoch = iter(self.loader)
        healed.append((state["epoch"], state["step"]))

    def __next__(self):
        for batch in self.epoch:
            return batch
        self.epoch = iter(self.loader)
        return next(self.epoch)


def train(replica, lighthouse):
    torch.manual_seed(replica)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    # its part of the samples is that of its number, with or without the others
    world = ff.World(replica, REPLICAS, replica, REPLICAS)
    crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]
    feed = ff.Feed(source, crops, batch=32, seed=0, world=world)
    batches = Batches(feed.to_torch("cpu"))
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
        load_state_dict=lambda state: (
            model.load_state_dict(state["model"]),
            optimizer.load_state_dict(state["optimizer"]),
        ),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        use_async_quorum=False,
        replica_id=f"replica{replica}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
    )
    manager.register_state_dict_fn("data", batches.restore, batches.loader.state_dict)
    while manager.current_step() < args.steps:
        manager.start_quorum()
        images, labels = next(batches)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        if manager.should_commit():
            optimizer.step()
        if manager.current_step() == args.joins_at:
            joins.set()
    manager.shutdown(wait=False)
    return model, feed


def replica(number, lighthouse, results):
    if number:
        joins.wait()
    results[number] = train(number, lighthouse)


lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=200)
results = {}
threads = [
    threading.Thread(target=replica, args=(number, lighthouse.address(), results))
    for number in range(REPLICAS)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
lighthouse.shutdown()
ends = [(feed.state()["epoch"], feed.state()["step"]) for _, feed in results.values()]
print(f"joined at epoch and step {healed}, ended at {ends}")
model, feed = results[1]
model.eval()
right = seen = 0
with torch.inference_mode():
    for images, labels in ff.Feed(made.pictures(1000, seed=1), values, batch=100).to_torch("cpu"):
        right += int((model(images).argmax(1) == labels).sum())
        seen += len(labels)
print(f"accuracy {right / seen:.2f}, chance 0.10")
print(feed.stats())
