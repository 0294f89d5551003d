"""NVML without a GPU: the calls that fastfeed uses, with what devices and metrics a test wants."""

from __future__ import annotations

from ctypes import c_double, c_uint
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, NO_PERMISSION = 3, 4


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(
            {NOT_SUPPORTED: "Not Supported", NO_PERMISSION: "Insufficient Permissions"}.get(
                value, "Unknown"
            )
        )
        self.value = value


class NVMLLibraryMismatchError(Exception):
    """pynvml's, for a driver older than a call; not an NVMLError."""


class FakeNvml:
    """A machine of equal GPUs.

    gpm: metrics of GPM by id, in NVML's units (percent, MiB/s); None: not supported. A metric that
    is missing has an
    error of its own. refused_after: samples after which GPM answers error 4. mig: instances of each
    device.
    """

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(
        self,
        devices: int = 1,
        gpm: dict[int, float] | None = None,
        refused_after: int | None = None,
        mig: int = 0,
        pids: dict[int, list[int]] | None = None,  # by device
        utilization: int | None = 70,
        jpg: int | None = 5,
        init: int | None = None,
    ) -> None:
        self._devices, self._gpm, self._refused, self._mig, self._pids = (
            devices,
            gpm,
            refused_after,
            mig,
            pids or {},
        )
        self._utilization, self._jpg, self._init = utilization, jpg, init
        self.samples = self.allocated = 0
        self.instances: list[int] = []  # that were sampled

    def nvmlInit(self) -> None:
        if self._init is not None:
            raise NVMLError(self._init)

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return self._devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return SimpleNamespace(index=index, instance=None)

    def nvmlDeviceGetName(self, device: Any) -> str:
        return "NVIDIA H100"

    def nvmlDeviceGetMaxPcieLinkGeneration(self, device: Any) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, device: Any) -> int:
        return 16

    def nvmlDeviceGetComputeRunningProcesses(self, device: Any) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._pids.get(device.index, [])]

    def nvmlGpmQueryDeviceSupport(self, device: Any) -> Any:
        return SimpleNamespace(isSupportedDevice=int(self._gpm is not None))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.allocated += 1
        return SimpleNamespace()

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.allocated -= 1

    def nvmlGpmSampleGet(self, device: Any, sample: Any) -> Any:
        self.samples += 1
        if self._mig:
            raise NVMLError(NOT_SUPPORTED)
        if self._refused is not None and self.samples > self._refused:
            raise NVMLError(NO_PERMISSION)
        return sample

    def nvmlGpmMigSampleGet(self, device: Any, instance: int, sample: Any) -> Any:
        self.instances.append(instance)
        return sample

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        metrics = [
            SimpleNamespace(metricId=c_uint(0), nvmlReturn=0, value=c_double(0)) for _ in range(333)
        ]
        return SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, wanted: Any) -> Any:
        assert wanted.version == 1 and wanted.sample1 is not wanted.sample2
        for metric in wanted.metrics[: wanted.numMetrics]:
            known = self._gpm is not None and metric.metricId in self._gpm
            metric.nvmlReturn = 0 if known else NOT_SUPPORTED
            metric.value = (
                self._gpm[metric.metricId] if known and self._gpm is not None else float("nan")
            )
        return wanted

    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]:
        if not self._mig:
            raise NVMLError(NOT_SUPPORTED)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, k: int) -> Any:
        if k >= self._mig:
            raise NVMLError(6)
        return SimpleNamespace(index=10 * (device.index + 1) + k, instance=k + 1)

    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> int:
        return device.instance

    def nvmlDeviceGetUtilizationRates(self, device: Any) -> Any:
        return SimpleNamespace(gpu=self._known(self._utilization), memory=1)

    def nvmlDeviceGetJpgUtilization(self, device: Any) -> list[int]:
        return [self._known(self._jpg), 167_000]

    def nvmlDeviceGetPcieThroughput(self, device: Any, counter: int) -> int:
        assert counter == 1
        return 1_400_000

    def _known(self, value: int | None) -> int:
        if value is None:
            raise NVMLError(NOT_SUPPORTED)
        return value
