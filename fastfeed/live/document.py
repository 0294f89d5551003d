"""The JSON document that `fastfeed watch --json` prints.

The schema is documented in docs/watching.md; fields are only ever added.
"""

from __future__ import annotations

from typing import Any

from fastfeed.live.rates import WAITING, Rates
from fastfeed.live.watch import BUCKET_S, LONG_S, SHORT_S, FeedRow, FeedTable, lasts_about

VERSION = 1


def document(view: FeedTable) -> dict[str, Any]:
    """Values that fit into JSON.

    Figures are grouped by how they are known: exact, framework, estimate.
    """
    return {
        "fastfeed_watch": VERSION,
        "time": round(view.wall_s, 3),
        "feeds": [_feed(row) for row in view.rows],
        "notes": list(view.notes),
    }


def _feed(row: FeedRow) -> dict[str, Any]:
    identity = row.page_file.page.identity
    counters = row.page_file.page.counters
    short = row.short
    long = row.long
    names = (
        "host",
        "pid",
        "feed",
        "name",
        "rank",
        "world",
        "source",
        "samples",
        "batch",
        "steps",
        "threads",
        "prefetch",
    )
    ready = None if short is None or identity.get("prefetch") is None else short.ready
    return {
        **{name: identity.get(name) for name in names},
        "alive": row.page_file.alive,
        "state": row.judgment.state.value,
        "reason": row.judgment.reason,
        "remedy": row.remedy,
        "exact": {
            "epoch": counters["epoch"],
            "step": counters["step"],
            "images": counters["images"],
            "batches": counters["batches"],
            "wait_seconds": counters["wait_ns"] / 1e9,
            "consumer_seconds": counters["consumer_ns"] / 1e9,
            "bad": counters["bad"],
            "read_bytes": counters["read_bytes"],
            "retries": counters["retries"],
            "read_bytes_per_second": _rounded(short, "read_rate"),
            "window_seconds": _rounded(short, "seconds"),
            "wait": _rounded(short, "wait"),
            "wait_10s": _rounded(short, "wait") if lasts_about(short, SHORT_S) else None,
            "wait_60s": _rounded(long, "wait") if lasts_about(long, LONG_S) else None,
            "need_images_per_second": _rounded(short, "need"),
            "delivered_images_per_second": _rounded(short, "delivered"),
            "ready_batches": None if ready is None else round(ready, 2),
            "stage_ms_per_image": (
                {} if short is None else {k: round(v, 4) for k, v in short.stage_ms.items()}
            ),
        },
        "waiting": _waiting(row),
        "history": {"seconds": BUCKET_S, "wait": [_digits(share) for share in row.waits]},
        "framework": {"step_ms": _rounded(short, "framework_step_ms")},
        "estimate": {
            "capacity_images_per_second": _rounded(short, "capacity"),
            "cpu_cores": _digits(row.cpu.cores),
            "cpu_cores_usable": row.cpu.usable,
            "cpu_cores_of_others": _digits(row.cpu.others),
            "cpu_throttled": _digits(row.cpu.throttled),
            "exposed_wait_10s": _digits(row.exposed) if lasts_about(short, SHORT_S) else None,
            "gpu": None if row.gpu is None else _gpu(row),
        },
    }


def _waiting(row: FeedRow) -> dict[str, Any] | None:
    """Seconds that the trainer has waited for its next batch, and the stage that batch is at."""
    if row.reading.ended or row.reading.page.counters["phase"] != WAITING:
        return None
    stage, place = row.reading.page.doing
    at_ns = row.reading.doing_ns if stage else None
    return {
        "seconds": round(row.reading.since / 1e9, 3),
        "stage": stage or None,
        "place": place or None,
        "stage_seconds": None if at_ns is None else round(at_ns / 1e9, 3),
    }


def _gpu(row: FeedRow) -> dict[str, Any]:
    gpu = row.gpu
    assert gpu is not None
    return {
        "index": gpu.index,
        "instance": gpu.instance,
        "name": gpu.name,
        "by": gpu.by,
        "sm": _digits(gpu.sm),
        "dram": _digits(gpu.dram),
        "nvdec": _digits(gpu.nvdec),
        "nvjpg": _digits(gpu.nvjpg),
        "pcie_rx_bytes_per_second": _digits(gpu.pcie_rx),
    }


def _rounded(window: Rates | None, name: str) -> float | None:
    return None if window is None else _digits(getattr(window, name))


def _digits(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
