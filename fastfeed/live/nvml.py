"""Estimates of GPU use from NVML.

GPM on Hopper and later, the older calls elsewhere.

GPM counts SM, DRAM, PCIe and every engine between two samples, which should be more than 100 ms
apart. It shares hardware counters with DCGM, and unprivileged containers may lose it after minutes
(error 4): then the older calls take over, and `notes` say so. Ids of metrics: nvidia-ml-py 13.615.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

_SM = 2
_DRAM = 10
_PCIE_RX = 21
_NVDEC = range(30, 38)
_NVJPG = range(40, 48)
_METRICS = (_SM, _DRAM, _PCIE_RX, *_NVDEC, *_NVJPG)
_RX = 1  # counter of nvmlDeviceGetPcieThroughput
# bytes/s of a lane by generation
_LANE = {
    1: 0.25e9,
    2: 0.5e9,
    3: 0.985e9,
    4: 1.969e9,
    5: 3.938e9,
    6: 7.563e9,
}


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU, or one instance of a divided one (MIG). Shares are 0..1; None: not known."""

    index: int
    name: str
    by: str  # "GPM" or "utilization", which is coarser: one kernel at a time counts as busy
    instance: int | None = None
    sm: float | None = None
    dram: float | None = None
    nvdec: float | None = None  # the busiest engine
    nvjpg: float | None = None
    pcie_rx: float | None = None  # bytes/s to the device
    pcie_limit: float | None = None
    pids: tuple[int, ...] = ()


@dataclass(slots=True)
class _Unit:
    """One sampled unit: a device, or an instance of one."""

    device: Any
    handle: Any  # of the instance, or the device again
    use: GpuUse
    gpm: bool
    last: Any = None  # sample of GPM
    glanced: Any = None  # that of the last glance


class Gpus:
    """Samples all GPUs. Never raises: without NVML it has no GPUs, and `notes` say why."""

    def __init__(self, nvml: Any = "pynvml") -> None:
        """Find all GPUs; `nvml` is the module, or its name."""
        self.notes: list[str] = []
        self._units: list[_Unit] = []
        self._nvml: Any = None
        try:
            self._nvml = import_module(nvml) if isinstance(nvml, str) else nvml
            self._nvml.nvmlInit()
        except ImportError:
            self._nvml = None
            self.notes.append("GPUs are not shown: nvidia-ml-py is not installed")
            return
        except self._nvml.NVMLError as error:
            self.notes.append(f"GPUs are not shown: no NVIDIA driver answers ({error})")
            self._nvml = None
            return
        for index in range(self._get(self._nvml.nvmlDeviceGetCount) or 0):
            device = self._get(self._nvml.nvmlDeviceGetHandleByIndex, index)
            if device is not None:
                self._units += self._parts(index, device)

    def _parts(self, index: int, device: Any) -> list[_Unit]:
        nvml = self._nvml
        support = self._get(nvml.nvmlGpmQueryDeviceSupport, device)
        gpm = bool(support is not None and support.isSupportedDevice)
        use = GpuUse(
            index,
            self._name(device),
            "GPM" if gpm else "utilization",
            pcie_limit=self._link(device),
        )
        mode = self._get(nvml.nvmlDeviceGetMigMode, device)
        if not mode or not mode[0]:
            return [_Unit(device, device, use, gpm)]
        parts = []
        for k in range(self._get(nvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0):
            handle = self._get(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, k)
            instance = (
                None if handle is None else self._get(nvml.nvmlDeviceGetGpuInstanceId, handle)
            )
            if instance is not None:
                parts.append(_Unit(device, handle, replace(use, instance=instance), gpm))
        if parts and not gpm:
            self.notes.append(
                f"GPU {index} is divided (MIG) and has no GPM: the use of its instances is not"
                " known"
            )
        return parts

    def sample(self) -> list[GpuUse]:
        """The use since the last call; the first one has nothing to compare with under GPM."""
        return [self._sample(unit) for unit in self._units]

    def glance(self) -> dict[tuple[int, int | None], float | None]:
        """Share of time in which multiprocessors worked since the last glance, by (index, instance).

        Only units with GPM are included.
        """
        return {
            (unit.use.index, unit.use.instance): None if value is None else value / 100
            for unit in self._units
            if unit.gpm
            for value in [self._gpm(unit, (_SM,), "glanced").get(_SM)]
        }

    @property
    def has_gpm(self) -> bool:
        """True if any GPU supports GPM."""
        return any(unit.gpm for unit in self._units)

    def close(self) -> None:
        """Free all samples and shut NVML down."""
        if self._nvml is None:
            return
        for unit in self._units:
            self._free(unit)
        self._get(self._nvml.nvmlShutdown)
        self._units = []

    def _sample(self, unit: _Unit) -> GpuUse:
        processes = self._get(self._nvml.nvmlDeviceGetComputeRunningProcesses, unit.handle) or []
        use = replace(unit.use, pids=tuple(process.pid for process in processes))
        if unit.gpm:
            values = self._gpm(unit)
            if unit.gpm:
                share = {id: value / 100 for id, value in values.items() if id != _PCIE_RX}
                rx = values.get(_PCIE_RX)
                return replace(
                    use,
                    sm=share.get(_SM),
                    dram=share.get(_DRAM),
                    nvdec=max((share[id] for id in _NVDEC if id in share), default=None),
                    nvjpg=max((share[id] for id in _NVJPG if id in share), default=None),
                    pcie_rx=None if rx is None else rx * 2**20,  # MiB/s
                )
            unit.use = replace(unit.use, by="utilization")
            use = replace(use, by="utilization")
        if unit.use.instance is not None:
            return use  # the older calls know whole devices only
        utilization = self._get(self._nvml.nvmlDeviceGetUtilizationRates, unit.device)
        jpg = self._get(self._nvml.nvmlDeviceGetJpgUtilization, unit.device)
        rx = self._get(self._nvml.nvmlDeviceGetPcieThroughput, unit.device, _RX)  # KB/s
        return replace(
            use,
            sm=None if utilization is None else utilization.gpu / 100,
            nvjpg=None if not jpg else jpg[0] / 100,
            pcie_rx=None if rx is None else rx * 1e3,
        )

    def _free(self, unit: _Unit) -> None:
        for held in (unit.last, unit.glanced):
            if held is not None:
                self._get(self._nvml.nvmlGpmSampleFree, held)
        unit.last = unit.glanced = None

    def _gpm(
        self, unit: _Unit, ids: Sequence[int] = _METRICS, attribute: str = "last"
    ) -> dict[int, float]:
        """The metrics that this GPU has, since the last sample; turns GPM off if it is refused."""
        nvml = self._nvml
        before = getattr(unit, attribute)
        sample = None
        try:
            sample = nvml.nvmlGpmSampleAlloc()
            if unit.use.instance is None:
                nvml.nvmlGpmSampleGet(unit.device, sample)
            else:
                nvml.nvmlGpmMigSampleGet(unit.device, unit.use.instance, sample)
            setattr(unit, attribute, sample)
            if before is None:
                return {}
            wanted = nvml.c_nvmlGpmMetricsGet_t()
            wanted.version = nvml.NVML_GPM_METRICS_GET_VERSION
            wanted.numMetrics = len(ids)
            wanted.sample1 = before
            wanted.sample2 = sample
            for k, id in enumerate(ids):
                wanted.metrics[k].metricId = id
            nvml.nvmlGpmMetricsGet(wanted)
            self._get(nvml.nvmlGpmSampleFree, before)
            metrics = [wanted.metrics[k] for k in range(len(ids))]
            return {
                m.metricId: m.value for m in metrics if m.nvmlReturn == 0 and m.value == m.value
            }
        except nvml.NVMLError as error:
            if sample is not None and getattr(unit, attribute) is not sample:
                self._get(nvml.nvmlGpmSampleFree, sample)
            elif before is not None and getattr(unit, attribute) is sample:
                self._get(nvml.nvmlGpmSampleFree, before)
            unit.gpm = False
            self._free(unit)
            self.notes.append(
                f"GPU {unit.use.index}: GPM no longer answers ({error}); its figures now come from"
                " coarser calls"
            )
            return {}

    def _name(self, device: Any) -> str:
        name = self._get(self._nvml.nvmlDeviceGetName, device) or "GPU"
        return name.decode() if isinstance(name, bytes) else name

    def _link(self, device: Any) -> float | None:
        generation = self._get(self._nvml.nvmlDeviceGetMaxPcieLinkGeneration, device)
        width = self._get(self._nvml.nvmlDeviceGetCurrPcieLinkWidth, device)
        return _LANE[generation] * width if generation in _LANE and width else None

    def _get(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Result of a call; None if it is unsupported or unknown to this driver."""
        try:
            return call(*arguments)
        except (
            self._nvml.NVMLError,
            getattr(self._nvml, "NVMLLibraryMismatchError", self._nvml.NVMLError),
        ):
            return None
