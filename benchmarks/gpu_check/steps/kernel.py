"""The native extension alone, in host memory: images/s and processor time by threads, on both sets,
and with policies.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check.steps.feeds import (
    OPS,
    POLICIES,
    THREADS,
    endless,
    feed,
    rate,
    threads_here,
)


def run(context: Any) -> None:
    folders = context.setting().sets
    most = threads_here(context.stand_in)[-1]
    runs = [
        (f"{name}, plain", folder, OPS, threads_here(context.stand_in))
        for name, folder in folders.items()
    ]
    first = next(iter(folders.values()))
    runs[1:1] = [
        (f"imagenet, {name}", first, ops, [n for n in (4, 16) if n <= most] or [most])
        for name, ops in POLICIES.items()
    ]
    seconds = (
        0.15
        if context.stand_in
        else min(3.0, 0.7 * context.seconds / sum(len(run[3]) for run in runs))
    )
    for name, folder, ops, counts in runs:
        found: dict[str, Any] = {}
        for threads in counts[::-1]:  # the headline first
            if context.skips(f"{name}, {threads} threads", 1.5 * seconds):
                continue
            batch = 8 if context.stand_in else 32 if name.startswith("stock") else 256
            with feed(folder, batch, threads, ops=ops) as made:
                batches = endless(made)
                found[str(threads)] = rate(lambda b=batches: len(next(b)), seconds)
                batches.close()
            context.note(name, dict(sorted(found.items(), key=lambda row: int(row[0]))))
    context.note(
        "counts",
        f"of {THREADS}, those for which there are cores; batch 256, 32 for 12 megapixels, 8 in a"
        " stand-in",
    )
