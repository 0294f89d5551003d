"""One rank of a run of DistributedDataParallel: trains to the end, or until it is told to kill
itself.

Folder: checkpoint.pt (weights, optimizer, position in the data), every second step, by rank 0;
seen-<rank>.jsonl, what this rank was given; weights-<rank>.json, at the end. In die.json: {"rank":
1, "position": [epoch, step]}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import ranks_at_work as at_work
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

TIMEOUT_S = 20


def die_here(folder: Path, rank: int, position: list[int]) -> None:
    flag = folder / "die.json"
    if flag.exists() and json.loads(flag.read_text()) == {"rank": rank, "position": position}:
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    rank, size = dist.get_rank(), dist.get_world_size()
    linear = torch.nn.Linear(at_work.PIXELS, at_work.SAMPLES)
    for parameter, value in zip(linear.parameters(), at_work.start(), strict=True):
        parameter.data.copy_(torch.from_numpy(value.T))
    net = DistributedDataParallel(linear)
    optimizer = torch.optim.SGD(net.parameters(), at_work.RATE, momentum=at_work.MOMENTUM)
    with (
        at_work.feed(at_work.UNEVEN_BATCH) as data,
        (folder / f"seen-{rank}.jsonl").open("a") as log,
    ):
        loader = data.to_torch("cpu")
        checkpoint = folder / "checkpoint.pt"
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            net.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["data"])
        dist.barrier()  # all have read it before rank 0 writes another
        while loader.state_dict()["epoch"] < at_work.EPOCHS:
            position = [loader.state_dict()[name] for name in ("epoch", "step")]
            for images, labels in loader:
                die_here(folder, rank, position)
                log.write(json.dumps([position, labels.tolist()]) + "\n")
                log.flush()
                # the sum over all ranks, though DDP divides by their number and their batches
                # differ in length
                loss = (
                    cross_entropy(net(images.flatten(1)), labels, reduction="sum")
                    * size
                    / at_work.UNEVEN_BATCH
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                position = [loader.state_dict()[name] for name in ("epoch", "step")]
                if rank == 0 and position[1] % 2 == 0:
                    saved = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(saved | {"data": loader.state_dict()}, folder / "new.pt")
                    (folder / "new.pt").rename(checkpoint)
    told = {"kernel": linear.weight.T.tolist(), "bias": linear.bias.tolist()}
    (folder / f"weights-{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()
    # what is left of DistributedDataParallel keeps gloo's threads, which rarely abort a process
    # that takes itself down (PyTorch issue 190489)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
