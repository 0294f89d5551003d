"""Real against synthetic on 1, 2, 4 and 8 GPUs of one machine: speed-up and efficiency per count.

    python -m benchmarks.gpu_check.parts.scaling FOLDER                      on all GPUs that are here
    python -m benchmarks.gpu_check.parts.scaling FOLDER --stand-in --gpus 1,2   processes on the
    processor, by gloo

Each count starts one process per GPU, with the environment that torchrun sets, so ranks, cores and
GPUs are found as in a real job. ResNet-50 under DistributedDataParallel; a rank decodes its own
photographs with its share of the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COUNTS = (1, 2, 4, 8)
_EPOCH = 50  # steps at least: the first batches of an epoch are waited for
_ROUNDS = ("synthetic", "real", "real", "synthetic")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="JPEGs")
    parser.add_argument(
        "--gpus", help="numbers of GPUs, such as 1,2,4,8; by default those that are here"
    )
    parser.add_argument("--seconds", type=float, default=300, help="for all of it")
    parser.add_argument("--stand-in", action="store_true", help="processes on the processor, tiny")
    parser.add_argument("--rank-out", type=Path, help=argparse.SUPPRESS)  # this is a rank
    options = parser.parse_args()
    if options.rank_out:
        _rank(options.folder, options.stand_in, options.rank_out)
        return
    counts = [int(n) for n in options.gpus.split(",")] if options.gpus else counts_here()
    told = measured(options.folder, counts, options.stand_in, options.seconds)
    print(json.dumps(told, indent=1))
    if wrong := failed(told):
        sys.exit(f"scaling: {'; '.join(wrong)}")


def counts_here() -> list[int]:
    """1, 2, 4, 8, as far as there are GPUs."""
    import torch

    return [n for n in COUNTS if n <= torch.cuda.device_count()]


def measured(folder: Path, counts: Sequence[int], stand_in: bool, seconds: float) -> dict[str, Any]:
    """By count: images/s over all ranks, real / synthetic; then speed-up and efficiency.

    What fails is said.
    """
    rows: dict[int, dict[str, Any]] = {}
    until = time.monotonic() + seconds
    for number, count in enumerate(counts):
        left = until - time.monotonic()
        try:  # one that hangs must not cost the others
            rows[count] = _count(
                folder, count, stand_in, left if number == len(counts) - 1 else 0.6 * left
            )
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            rows[count] = {"error": str(error)[:500]}
    told = {
        "where": "stand-in: processes on the processor; no figure of a GPU" if stand_in else "GPUs"
    }
    return told | {"by count": summary(rows)}


def summary(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Speed-up over one GPU, and that divided by their number, for real and synthetic."""
    one = rows.get(1, {})
    found = {}
    for count, row in rows.items():
        more = {}
        for name in ("synthetic", "real"):
            if row.get(name) and one.get(name):
                more[f"{name} speed-up"] = round(row[name] / one[name], 3)
                more[f"{name} efficiency"] = round(row[name] / one[name] / count, 3)
        if row.get("synthetic"):
            more["real / synthetic"] = round(row["real"] / row["synthetic"], 4)
        found[str(count)] = row | more
    return found


def failed(told: dict[str, Any]) -> list[str]:
    """What is wrong, by count."""
    return [
        f"{count} ranks: {row['error']}"
        for count, row in told["by count"].items()
        if "error" in row
    ]


def _count(folder: Path, count: int, stand_in: bool, seconds: float) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as out:
        started: list[subprocess.Popen[bytes]] = []
        until = time.monotonic() + seconds
        try:
            for rank in range(count):
                own = {
                    "RANK": rank,
                    "LOCAL_RANK": rank,
                    "WORLD_SIZE": count,
                    "LOCAL_WORLD_SIZE": count,
                }
                own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                command = [sys.executable, "-m", "benchmarks.gpu_check.parts.scaling", str(folder)]
                command += ["--rank-out", f"{out}/{rank}.json", *["--stand-in"] * stand_in]
                log = Path(out, f"{rank}.log").open("wb")  # noqa: SIM115  # the child's
                environ = os.environ | {name: str(value) for name, value in own.items()}
                started.append(
                    subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)
                )
                log.close()
            codes = [child.wait(max(1.0, until - time.monotonic())) for child in started]
        finally:
            for child in started:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        for rank, code in enumerate(codes):
            if code:
                said = Path(out, f"{rank}.log").read_text(errors="replace").strip().splitlines()
                raise RuntimeError(
                    f"rank {rank} of {count} ended with {code}:"
                    f" {said[-1] if said else 'it printed nothing'}"
                )
        ranks = [json.loads(Path(out, f"{rank}.json").read_text()) for rank in range(count)]
    return {
        **{
            name: round(sum(statistics.median(rank[name]) for rank in ranks), 1)
            for name in ("synthetic", "real")
        },
        "slowest rank, real": round(min(statistics.median(rank["real"]) for rank in ranks), 1),
        "threads per rank": ranks[0]["threads"],
    }


def _rank(folder: Path, stand_in: bool, out: Path) -> None:
    """One rank: rates of its own, in rounds that all ranks take together."""
    import torch
    from torch import distributed

    from benchmarks.gpu_check.parts import bare

    bare.fill()
    import fastfeed as ff
    from benchmarks.gpu_check.steps.nets import PlainSgd, tiny_torch

    local = int(os.environ["LOCAL_RANK"])
    if not stand_in:
        torch.cuda.set_device(local)
    distributed.init_process_group("gloo" if stand_in else "nccl")
    device = "cpu" if stand_in else f"cuda:{local}"
    batch, seconds = (8, 0.05) if stand_in else (256, 4.0)
    if stand_in:
        model: Any = tiny_torch()
    else:
        from torchvision import models

        model = models.resnet50(weights=None)
    model = model.to(device, memory_format=torch.channels_last)
    # DDP's imports take longer than all that eight stand-ins compute: they average by hand
    net: Any = model
    if not stand_in:
        net = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local])
    optimizer = (
        PlainSgd(net.parameters()) if stand_in else torch.optim.SGD(net.parameters(), lr=0.01)
    )
    labels = torch.zeros(batch, dtype=torch.int64, device=device)
    still = torch.randn(batch, 224, 224, 3, device=device)
    ops = [ff.RandomResizedCrop(224), ff.RandomFlip(), ff.Normalize.imagenet()]
    source = ff.ImageFolder(folder, labeled=False, progress=False)
    often = ff.Repeated(-(-_EPOCH * batch * distributed.get_world_size() // len(source)))
    feed = ff.Feed(source, ops, batch=batch, shuffle=often)

    def step(images: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu" if stand_in else "cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(images.permute(0, 3, 1, 2)), labels)
        loss.backward()
        for parameter in net.parameters() if stand_in else ():
            distributed.all_reduce(parameter.grad)
        optimizer.step()

    def wait() -> None:
        if not stand_in:
            torch.cuda.synchronize()
        distributed.barrier()

    def forever() -> Any:
        epochs = feed.to_torch(device)
        while True:
            for images, *_ in epochs:
                yield images

    batches = forever()
    for _ in range(4):
        step(next(batches))
    steps = torch.zeros(1, device=device)
    wait()
    start = time.perf_counter()
    for _ in range(4):
        step(still)
    wait()
    steps[0] = max(4, int(4 * seconds / (time.perf_counter() - start)))
    # as many on every rank, or they would wait for each other for ever
    distributed.broadcast(steps, 0)
    rates: dict[str, Any] = {"synthetic": [], "real": [], "threads": feed.stats().threads}
    for name in _ROUNDS:
        wait()
        start = time.perf_counter()
        for _ in range(int(steps[0])):
            step(next(batches) if name == "real" else still)
        wait()
        rates[name].append(batch * int(steps[0]) / (time.perf_counter() - start))
    batches.close()
    feed.close()
    out.write_text(json.dumps(rates))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
