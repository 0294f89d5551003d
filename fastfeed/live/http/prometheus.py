"""Metrics of `fastfeed watch --prometheus`; their help says how each figure is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from fastfeed.live.states import State
from fastfeed.live.watch import FeedRow, FeedTable
from fastfeed.printable import printable

_LABELS = ["host", "pid", "feed", "name", "rank"]
_Value = Callable[[FeedRow], float | None]


def _counter(name: str, scale: float = 1.0) -> _Value:
    return lambda row: row.page_file.page.counters[name] * scale


def _short(name: str) -> _Value:
    return lambda row: getattr(row.short, name) if row.short is not None else None


def _gpu(name: str) -> _Value:
    return lambda row: getattr(row.gpu, name) if row.gpu is not None else None


def _cpu(name: str) -> _Value:
    return lambda row: getattr(row.cpu, name)


def _ready(row: FeedRow) -> float | None:
    ahead = row.page_file.page.identity.get("prefetch") is not None
    return row.short.ready if row.short is not None and ahead else None


# name -> help, value; those that end in _total are counters
_METRICS: dict[str, tuple[str, _Value]] = {
    "images_total": ("Images delivered (exact)", _counter("images")),
    "batches_total": ("Batches delivered (exact)", _counter("batches")),
    "wait_seconds_total": ("Time waiting for batches (exact)", _counter("wait_ns", 1e-9)),
    "consumer_seconds_total": (
        "Time that the trainer spent between batches (exact)",
        _counter("consumer_ns", 1e-9),
    ),
    "bad_samples_total": ("Bad samples (exact)", _counter("bad")),
    "read_bytes_total": ("Bytes of samples read (exact)", _counter("read_bytes")),
    "retries_total": ("Reads and requests that were repeated (exact)", _counter("retries")),
    "framework_steps_total": ("Steps timed by a callback (framework)", _counter("framework_steps")),
    "framework_seconds_total": ("Their time (framework)", _counter("framework_ns", 1e-9)),
    "epoch": ("Epoch of the next batch (exact)", _counter("epoch")),
    "step": ("Step of the next batch (exact)", _counter("step")),
    "window_seconds": ("How long ratios and rates are of (exact)", _short("seconds")),
    "wait_ratio": ("Share of the window spent waiting for batches (exact)", _short("wait")),
    "need_images_per_second": ("Rate of a trainer that never waits (exact)", _short("need")),
    "delivered_images_per_second": ("Rate that it got (exact)", _short("delivered")),
    "ready_batches": ("Batches ready when one was requested, mean (exact)", _ready),
    "capacity_images_per_second": (
        "Rate that the threads could make (estimate)",
        _short("capacity"),
    ),
    "cpu_cores": ("Cores busy with the process (estimate)", _cpu("cores")),
    "cpu_usable_cores": ("Cores that it may use (estimate)", _cpu("usable")),
    "cpu_throttled_ratio": ("Share of quota periods cut short (estimate)", _cpu("throttled")),
    "exposed_wait_ratio": (
        "Share of the window that it waited while the GPU idled (estimate)",
        lambda row: row.exposed,
    ),
    "gpu_sm_ratio": ("Share of time in which the GPU worked (estimate)", _gpu("sm")),
    "gpu_nvjpg_ratio": ("Share of time of its busiest JPEG engine (estimate)", _gpu("nvjpg")),
    "gpu_nvdec_ratio": ("Share of time of its busiest video decoder (estimate)", _gpu("nvdec")),
    "gpu_dram_ratio": ("Share of its memory bandwidth (estimate)", _gpu("dram")),
    "gpu_pcie_rx_bytes_per_second": ("Bytes per second to the GPU (estimate)", _gpu("pcie_rx")),
}


def metrics(view: FeedTable) -> str:
    """All rows of a view in text format; an unknown figure has no sample."""
    return generate_latest(_Collector(view)).decode()  # type: ignore[arg-type]


class _Collector:
    def __init__(self, view: FeedTable) -> None:
        self.rows = [(row, _label_values(row)) for row in view.rows]

    def collect(self) -> Iterator[Any]:
        """All metrics with their samples, in the form that the client's registry expects."""
        for name, (text, value) in _METRICS.items():
            metric = _family(name, text)
            for row, labels in self.rows:
                number = value(row)
                if number is not None:
                    metric.add_metric(labels, number)
            yield metric
        metric = _family("state", "1 for the state that the feed is in", "state")
        for row, labels in self.rows:
            for state in State:
                metric.add_metric([*labels, state.value], state is row.judgment.state)
        yield metric
        metric = _family("stage_seconds_total", "Thread time by stage (exact)", "stage")
        for row, labels in self.rows:
            for stage, (_, ns) in row.page_file.page.stages.items():
                metric.add_metric([*labels, _escaped(stage)], ns / 1e9)
        yield metric


def _family(name: str, text: str, *more: str) -> Any:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(f"fastfeed_{name}", f"{text}.", labels=[*_LABELS, *more])


def _label_values(row: FeedRow) -> list[str]:
    return [_escaped(str(row.page_file.page.identity.get(name, ""))) for name in _LABELS]


def _escaped(text: str) -> str:
    """Text whose control characters cannot steer a terminal that shows it."""
    return "\n".join(printable(line, None) for line in text.split("\n"))
