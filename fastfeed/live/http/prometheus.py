"""What `fastfeed watch --prometheus` serves, in text format 0.0.4.

HELP says how each figure is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastfeed.live.states import State
from fastfeed.live.watch import Row, View
from fastfeed.printable import printable

__all__ = ["CONTENT_TYPE", "metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Value = Callable[[Row], float | None]


def _counter(name: str, scale: float = 1.0) -> _Value:
    return lambda row: row.found.page.counters[name] * scale


def _short(name: str) -> _Value:
    return lambda row: getattr(row.short, name) if row.short is not None else None


def _gpu(name: str) -> _Value:
    return lambda row: getattr(row.gpu, name) if row.gpu is not None else None


def _ready(row: Row) -> float | None:
    ahead = row.found.page.identity.get("prefetch") is not None
    return row.short.ready if row.short is not None and ahead else None


def _throttled(row: Row) -> float | None:
    return row.cpu.throttled


# name -> type, help, value
_METRICS: dict[str, tuple[str, str, _Value]] = {
    "fastfeed_images_total": ("counter", "Images delivered (exact)", _counter("images")),
    "fastfeed_batches_total": ("counter", "Batches delivered (exact)", _counter("batches")),
    "fastfeed_wait_seconds_total": (
        "counter",
        "Time waiting for batches (exact)",
        _counter("wait_ns", 1e-9),
    ),
    "fastfeed_consumer_seconds_total": (
        "counter",
        "Time that the trainer spent between batches (exact)",
        _counter("consumer_ns", 1e-9),
    ),
    "fastfeed_bad_samples_total": ("counter", "Bad samples (exact)", _counter("bad")),
    "fastfeed_read_bytes_total": (
        "counter",
        "Bytes of samples read (exact)",
        _counter("read_bytes"),
    ),
    "fastfeed_retries_total": (
        "counter",
        "Reads and requests that were repeated (exact)",
        _counter("retries"),
    ),
    "fastfeed_framework_steps_total": (
        "counter",
        "Steps timed by a callback (framework)",
        _counter("framework_steps"),
    ),
    "fastfeed_framework_seconds_total": (
        "counter",
        "Their time (framework)",
        _counter("framework_ns", 1e-9),
    ),
    "fastfeed_epoch": ("gauge", "Epoch of the next batch (exact)", _counter("epoch")),
    "fastfeed_step": ("gauge", "Step of the next batch (exact)", _counter("step")),
    "fastfeed_window_seconds": (
        "gauge",
        "How long ratios and rates are of (exact)",
        _short("seconds"),
    ),
    "fastfeed_wait_ratio": (
        "gauge",
        "Share of the window spent waiting for batches (exact)",
        _short("wait"),
    ),
    "fastfeed_need_images_per_second": (
        "gauge",
        "Rate of a trainer that never waits (exact)",
        _short("need"),
    ),
    "fastfeed_delivered_images_per_second": (
        "gauge",
        "Rate that it got (exact)",
        _short("delivered"),
    ),
    "fastfeed_ready_batches": (
        "gauge",
        "Batches ready when one was requested, mean (exact)",
        _ready,
    ),
    "fastfeed_capacity_images_per_second": (
        "gauge",
        "Rate that the threads could make (estimate)",
        _short("capacity"),
    ),
    "fastfeed_cpu_cores": (
        "gauge",
        "Cores busy with the process (estimate)",
        lambda row: row.cpu.cores,
    ),
    "fastfeed_cpu_usable_cores": (
        "gauge",
        "Cores that it may use (estimate)",
        lambda row: row.cpu.usable,
    ),
    "fastfeed_cpu_throttled_ratio": (
        "gauge",
        "Share of quota periods cut short (estimate)",
        _throttled,
    ),
    "fastfeed_exposed_wait_ratio": (
        "gauge",
        "Share of the window that it waited while the GPU idled (estimate)",
        lambda row: row.exposed,
    ),
    "fastfeed_gpu_sm_ratio": (
        "gauge",
        "Share of time in which the GPU worked (estimate)",
        _gpu("sm"),
    ),
    "fastfeed_gpu_nvjpg_ratio": (
        "gauge",
        "Share of time of its busiest JPEG engine (estimate)",
        _gpu("nvjpg"),
    ),
    "fastfeed_gpu_nvdec_ratio": (
        "gauge",
        "Share of time of its busiest video decoder (estimate)",
        _gpu("nvdec"),
    ),
    "fastfeed_gpu_dram_ratio": ("gauge", "Share of its memory bandwidth (estimate)", _gpu("dram")),
    "fastfeed_gpu_pcie_rx_bytes_per_second": (
        "gauge",
        "Bytes per second to the GPU (estimate)",
        _gpu("pcie_rx"),
    ),
}


def metrics(view: View) -> str:
    """All rows. A figure that is not known has no sample."""
    lines: list[str] = []
    for name, (kind, text, value) in _METRICS.items():
        lines += [f"# HELP {name} {text}.", f"# TYPE {name} {kind}"]
        for row in view.rows:
            number = value(row)
            if number is not None:
                lines.append(f"{name}{{{_labels(row)}}} {number:.9g}")
    lines += [
        "# HELP fastfeed_state 1 for the state that the feed is in.",
        "# TYPE fastfeed_state gauge",
    ]
    for row in view.rows:
        lines += [f"fastfeed_state{{{_labels(row)},{entry}}} {on}" for entry, on in _states(row)]
    name = "fastfeed_stage_seconds_total"
    lines += [f"# HELP {name} Thread time by stage (exact).", f"# TYPE {name} counter"]
    for row in view.rows:
        for stage, (_, ns) in row.found.page.stages.items():
            lines.append(f'{name}{{{_labels(row)},stage="{_escaped(stage)}"}} {ns / 1e9:.9g}')
    return "\n".join(lines) + "\n"


def _states(row: Row) -> Iterator[tuple[str, int]]:
    for state in State:
        yield f'state="{state.value}"', int(state is row.judgment.state)


def _labels(row: Row) -> str:
    names = ("host", "pid", "feed", "name", "rank")
    return ",".join(
        f'{name}="{_escaped(str(row.found.page.identity.get(name, "")))}"' for name in names
    )


def _escaped(text: str) -> str:
    """What the format wants escaped; of other control characters a terminal that shows the text
    might be steered.
    """
    lines = [
        printable(line, None).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")
    ]
    return "\\n".join(lines)
