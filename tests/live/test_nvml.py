"""GPUs that are not there: every way in which NVML answers, or does not."""

import pynvml
import pytest
from helpers.fake_nvml import FakeNvml, NVMLLibraryMismatchError

from fastfeed.live.nvml import Gpus

GPM = {2: 71.0, 10: 40.0, 21: 1400.0, 30: 3.0, 31: 8.0, 40: 10.0, 41: 95.0}


def test_gpm():
    nvml = FakeNvml(gpm=GPM, pids={0: [4711]})
    gpus = Gpus(nvml)
    (first,) = gpus.sample()
    assert (first.by, first.sm, first.nvjpg) == ("GPM", None, None)  # nothing to compare with yet
    (use,) = gpus.sample()
    assert (use.sm, use.dram, use.nvdec, use.nvjpg) == pytest.approx((0.71, 0.4, 0.08, 0.95))
    assert use.pcie_rx == pytest.approx(1400 * 2**20)
    assert use.pcie_limit == pytest.approx(63e9, rel=0.01)
    assert use.pids == (4711,)
    assert not gpus.notes
    for _ in range(20):
        gpus.sample()
    assert nvml.allocated == 1  # samples are freed
    gpus.close()
    assert nvml.allocated == 0


def test_metrics_that_a_gpu_lacks_are_not_known():
    gpus = Gpus(FakeNvml(gpm={2: 50.0}))
    gpus.sample()
    (use,) = gpus.sample()
    assert (use.sm, use.nvjpg, use.nvdec, use.pcie_rx) == (0.5, None, None, None)


def test_older_gpus():
    (use,) = Gpus(FakeNvml()).sample()
    assert (use.by, use.sm, use.nvjpg, use.pcie_rx) == ("utilization", 0.7, 0.05, 1.4e9)
    (use,) = Gpus(FakeNvml(utilization=None, jpg=None)).sample()
    assert (use.sm, use.nvjpg) == (None, None)


def test_permission_that_is_lost_after_minutes():
    nvml = FakeNvml(gpm=GPM, refused_after=3)
    gpus = Gpus(nvml)
    by = [gpus.sample()[0].by for _ in range(6)]
    assert by == ["GPM"] * 3 + ["utilization"] * 3
    assert gpus.sample()[0].sm == 0.7
    (note,) = gpus.notes
    assert "Insufficient Permissions" in note
    assert nvml.allocated == 0


def test_instances_of_a_divided_gpu():
    nvml = FakeNvml(gpm=GPM, mig=2, pids={11: [4711]})
    gpus = Gpus(nvml)
    gpus.sample()
    uses = gpus.sample()
    assert [(use.index, use.instance, use.sm) for use in uses] == [(0, 1, 0.71), (0, 2, 0.71)]
    assert nvml.instances == [1, 2, 1, 2]
    assert uses[1].pids == (4711,)


def test_a_divided_gpu_without_gpm_is_not_known():
    gpus = Gpus(FakeNvml(mig=2))
    assert all(use.sm is None for use in gpus.sample())
    assert "MIG" in gpus.notes[0]


def test_no_driver_and_no_module():
    gpus = Gpus(FakeNvml(init=999))
    assert gpus.sample() == []
    assert "no NVIDIA driver answers" in gpus.notes[0]
    gpus.close()
    gpus = Gpus("a_module_that_is_not_there")
    assert "nvidia-ml-py is not installed" in gpus.notes[0]
    assert gpus.sample() == []


def test_a_driver_older_than_a_call(monkeypatch):
    def too_old(self, device):
        raise NVMLLibraryMismatchError(
            "Unversioned function called and the pyNVML version does not match the NVML lib version"
        )

    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetComputeRunningProcesses", too_old)
    (use,) = Gpus(FakeNvml()).sample()
    assert use.pids == () and use.sm is not None


def test_the_fake_has_the_calls_of_the_module():
    for name in dir(FakeNvml):
        if name.startswith(("nvml", "c_nvml", "NVML")):
            assert hasattr(pynvml, name), name
    assert pynvml.NVML_GPM_METRICS_GET_VERSION == FakeNvml.NVML_GPM_METRICS_GET_VERSION
    ids = {
        2: "SM_UTIL",
        10: "DRAM_BW_UTIL",
        21: "PCIE_RX_PER_SEC",
        30: "NVDEC_0_UTIL",
        47: "NVJPG_7_UTIL",
    }
    for id, name in ids.items():
        assert getattr(pynvml, f"NVML_GPM_METRIC_{name}") == id
