"""Traces of several ranks, one file each, as PyTorch's profiler writes them under
DistributedDataParallel with NCCL.

Every step of a rank: it waits for its loader, launches its forward and backward pass, and an
all-reduce kernel that runs from when this rank arrives until shortly after the last one did. All
leave together; clocks differ by rank.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from helpers.profiler.kineto_files import BASE, PID, event, kernel, launch, meta, write

_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_SENT = 300  # microseconds of a collective once all ranks are there
_LAUNCH = 20  # microseconds from the call to the kernel

# rank, step -> microseconds waiting for the loader, and computing
Parts = Callable[[int, int], tuple[int, int]]


def nccl_run(
    folder: Path, ranks: int, parts: Parts, steps: int = 24, skew: int = 7_000
) -> list[Path]:
    """One file per rank; clocks of neighboring ranks are `skew` microseconds apart."""
    draws = np.random.default_rng(5)
    now = np.full(ranks, 1000)
    events: list[list[dict[str, Any]]] = [_about(rank) for rank in range(ranks)]
    for step in range(steps):
        begins = now.copy()
        loads, computes = (
            np.array([parts(rank, step)[k] for rank in range(ranks)]) for k in (0, 1)
        )
        arrive = begins + loads + _LAUNCH + computes
        leave = arrive.max() + _SENT + draws.integers(0, 3, ranks)
        for rank in range(ranks):
            shift = rank * skew
            made, loaded = events[rank], int(begins[rank] + loads[rank]) + shift
            corr = 2 * step + 1
            length = int(leave[rank] - begins[rank])
            made.append(_annotation(f"ProfilerStep#{step}", int(begins[rank]) + shift, length))
            made.append(_annotation(_LOADER, int(begins[rank]) + shift, max(int(loads[rank]), 1)))
            made += [launch(corr, loaded), kernel(corr, loaded + _LAUNCH, int(computes[rank]))]
            made += [
                launch(corr + 1, loaded + 8),
                _all_reduce(corr + 1, step, ranks, arrive[rank], leave[rank], shift),
            ]
            # the loss is read: the host waits until all of it is done
            waits = int(leave[rank]) + shift - (loaded + 30)
            made.append(
                event(
                    "cuda_runtime",
                    "cudaStreamSynchronize",
                    loaded + 30,
                    waits,
                    cbid=131,
                    correlation=0,
                )
            )
        now = leave.astype(int) + 5
    files = []
    for rank, made in enumerate(events):
        about = {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": 1}
        gpu = [{"id": rank, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}]
        path = folder / f"rank{rank}.pt.trace.json.gz"
        host = {"host_name": "node1", "baseTimeNanoseconds": BASE}
        files.append(write(path, made, distributedInfo=about, deviceProperties=gpu, **host))
    return files


def _about(rank: int) -> list[dict[str, Any]]:
    return [
        meta("process_name", PID, "python"),
        meta("process_labels", PID, "CPU"),
        meta("process_labels", rank, "GPU"),
    ]


def _annotation(name: str, start: int, length: int) -> dict[str, Any]:
    return event("user_annotation", name, start, length)


def _all_reduce(
    corr: int, number: int, ranks: int, arrive: Any, leave: Any, shift: int
) -> dict[str, Any]:
    told = {
        "Collective name": "allreduce",
        "In msg nelems": 25_557_032,
        "Out msg nelems": 25_557_032,
    }
    told |= {"Group size": ranks, "dtype": "Float", "Process Group Name": "0", "Seq": number}
    start = int(arrive) + shift
    return kernel(corr, start, int(leave - arrive), _ALL_REDUCE, stream=20, **told)
