"""Whose is what in exports of Nsight Systems: processes, GPUs behind numbers, ranks, clocks,
losses.
"""

from __future__ import annotations

import struct

import pytest
from helpers.profiler.nsys_databases import Export, gid, payload

from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers.nsys import reader as nsys

pytestmark = pytest.mark.usefixtures("both_ways")


def two(tmp_path, age: str = "2026") -> Export:
    """Two processes, each with a kernel on what it calls device 0."""
    export = Export(tmp_path / "run.sqlite", age)
    for pid in (100, 200):
        export.call(1_000, 1_100, "cudaLaunchKernel_v7000", 1, tid=gid(pid, pid))
        export.kernel(1_200, 2_000, globalPid=gid(pid))
    return export


def gpus(trace: Trace) -> list[tuple[int, str, int]]:
    return [(one.ordinal, one.uuid, one.process) for one in trace.devices]


def test_numbers_of_devices_lead_to_the_gpu(tmp_path):
    export = two(tmp_path)
    for number, uuid in ((0, "GPU-aa"), (1, "bb")):
        export.row("TARGET_INFO_GPU", id=number, name="NVIDIA H200", uuid=uuid)
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=0, pid=100 * (number + 1))
    trace = nsys.read(export.done())
    assert gpus(trace) == [(0, "aa", 0), (0, "bb", 1)] and trace.ops.device.tolist() == [0, 1]


def test_two_processes_on_one_gpu_share_its_row(tmp_path):
    export = two(tmp_path)
    for number in (0, 1):
        export.row("TARGET_INFO_GPU", id=number, name="NVIDIA H200", uuid=f"u{number}")
    for pid in (100, 200):
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=pid)
    trace = nsys.read(export.done())
    assert gpus(trace) == [(0, "u1", -1)] and trace.ops.device.tolist() == [0, 0]


def test_slices_of_one_gpu_are_two_devices(tmp_path):
    export = two(tmp_path)
    export.row("TARGET_INFO_GPU", id=0, name="NVIDIA H200", uuid="whole")
    for pid in (100, 200):
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=pid, uuid=f"MIG-{pid}")
    assert gpus(nsys.read(export.done())) == [(0, "MIG-100", 0), (0, "MIG-200", 1)]


@pytest.mark.parametrize(
    ("machine", "expected"), [(1, [(0, "u0", -1)]), (2, [(0, "", 0), (0, "", 1)])]
)
def test_without_the_mapping_only_a_single_gpu_is_shared_for_sure(tmp_path, machine, expected):
    export = two(tmp_path, "2022")
    for number in range(machine):
        export.row("TARGET_INFO_GPU", id=number, name="Tesla V100", uuid=f"u{number}")
    export.row("TARGET_INFO_GPU", id=9, name="Intel", uuid="00000000-0000-0000-0000-000000000000")
    assert gpus(nsys.read(export.done())) == expected


def test_correlation_ids_are_those_of_a_process(tmp_path):
    export = two(tmp_path)
    trace = nsys.read(export.done())
    owner = [trace.threads[thread].process for thread in trace.calls.thread]
    assert trace.ops.corr.tolist() == trace.calls.corr.tolist() == [1, 1]
    assert trace.ops.process.tolist() == owner == [0, 1]


def test_ops_of_no_named_process_go_to_the_caller(tmp_path):
    export = Export(tmp_path / "run.sqlite", "bare")
    for pid, corr in ((100, 1), (200, 2), (100, 3), (200, 3)):
        export.call(1_000, 1_100, "cudaLaunchKernel_v7000", corr, tid=gid(pid, pid))
    for corr in (2, 1, 3, 4):
        export.kernel(1_200, 2_000, corr=corr)
    trace = nsys.read(export.done())
    assert [trace.processes[at].pid for at in trace.ops.process] == [
        200,
        100,
        0,
        0,
    ]  # 3 is of two, 4 of none


def env(export: Export, **variables: str) -> Export:
    for name, value in variables.items():
        export.row(
            "META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=f'{name}="{value}"'
        )
    return export


def ranks(trace: Trace) -> list[int | None]:
    return [one.rank for one in trace.processes]


def single(path) -> Export:
    export = Export(path)
    export.call(1_000, 1_100, "cudaLaunchKernel_v7000", 1)
    export.kernel(1_200, 2_000)
    return export


def test_rank_of_the_environment_before_that_of_the_name(tmp_path):
    export = env(single(tmp_path / "run_rank3.sqlite"), SLURM_PROCID="6", RANK="5", WORLD_SIZE="8")
    trace = nsys.read(export.done())
    assert ranks(trace) == [5] and trace.metadata["world_size"] == 8


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("run_rank3.sqlite", 3),
        ("a.rank-12.of.sqlite", 12),
        ("rank1_rank2.sqlite", None),
        ("r3.sqlite", None),
        ("run.3.sqlite", None),
        ("frank3.sqlite", None),
    ],
)
def test_rank_of_the_name_where_it_says_rank(tmp_path, name, rank):
    assert ranks(nsys.read(single(tmp_path / name).done())) == [rank]


def test_rank_of_the_main_thread_of_mpi(tmp_path):
    export = two(tmp_path)
    for pid, rank in ((100, 3), (200, 2)):
        export.row("ThreadNames", nameId=export.string(f"MPI Rank {rank}"), globalTid=gid(pid, pid))
    assert ranks(nsys.read(env(export, RANK="9").done())) == [3, 2]


def test_a_launcher_of_ranks_has_none(tmp_path):
    assert ranks(nsys.read(env(two(tmp_path), RANK="0").done())) == [None, None]


def nccl(export: Export) -> None:
    fields = (("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12))
    for at, (name, kind, offset) in enumerate(fields):
        export.row(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            domainId=1,
            schemaId=50,
            idx=at,
            type=kind,
            name=name,
            offset=offset,
        )
    for at, (name, kind, offset) in enumerate(
        (("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8))
    ):
        export.row(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            domainId=1,
            schemaId=51,
            idx=at,
            type=kind,
            name=name,
            offset=offset,
        )


def test_ranks_and_messages_as_nccl_tells_them(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    nccl(export)
    for pid, rank in ((100, 1), (200, 0)):
        tid = gid(pid, pid)
        export.nvtx(
            10,
            20,
            "ncclCommInitRank",
            globalTid=tid,
            domainId=1,
            binaryData=payload(1, 50, struct.pack("<Qii", 0xABC, 2, rank)),
        )
        export.nvtx(
            900,
            1_200,
            "ncclAllReduce",
            globalTid=tid,
            domainId=1,
            binaryData=payload(1, 51, struct.pack("<QQ", 0xABC, 4096)),
        )
        export.call(1_000, 1_100, "cuLaunchKernelEx", 1, tid=tid)
        export.kernel(1_300, 2_000, "ncclDevKernel_AllReduce", 1, globalPid=gid(pid))
        export.kernel(2_100, 2_200, "gemm", 2, globalPid=gid(pid))
        # two sends in a group: what launches them is the end of the group
        for at in (3_000, 3_100):
            export.nvtx(
                at,
                at + 50,
                "ncclSend",
                globalTid=tid,
                domainId=1,
                binaryData=payload(1, 51, struct.pack("<QQ", 0xABC, 100)).hex(),
            )
        export.call(3_300, 3_400, "cuLaunchKernelEx", 3, tid=tid)
        export.kernel(3_500, 3_600, "ncclDevKernel_SendRecv", 3, globalPid=gid(pid))
    trace = nsys.read(export.done())
    assert ranks(trace) == [1, 0]
    told = [
        (trace.name(group), size)
        for group, size in zip(trace.ops.group, trace.ops.bytes.tolist(), strict=True)
    ]
    assert told == [("0xabc", 4096), ("", -1), ("0xabc", 200)] * 2
    assert (trace.ops.seq == -1).all()


@pytest.mark.parametrize(
    "blob", [b"", b"\1\2", payload(9, 9, b"x" * 8), payload(1, 51, b"\0" * 4), "zz", '{"a": [']
)
def test_payloads_that_cannot_be_read_say_nothing(tmp_path, blob):
    export = single(tmp_path / "run.sqlite")
    nccl(export)
    export.nvtx(900, 1_200, "ncclAllReduce", domainId=1, binaryData=blob)
    export.kernel(1_300, 2_000, "ncclDevKernel_AllReduce", 1)
    trace = nsys.read(export.done())
    assert (trace.ops.group == -1).all() and (trace.ops.bytes == -1).all()


def test_what_the_file_says_of_itself(tmp_path):
    export = env(single(tmp_path / "run.sqlite"), HOME="/root")
    for name, value in (
        ("EXPORT_PRODUCT_VERSION", "2026.1.1"),
        ("EXPORT_SCHEMA_VERSION", "3.24.14"),
    ):
        export.row("META_DATA_EXPORT", name=name, value=value)
    for name, value in (("CpuCores", "18"), ("Hostname", "node7")):
        export.row("TARGET_INFO_SYSTEM_ENV", name=name, value=value)
    trace = nsys.read(export.done())
    assert trace.origin.version == "2026.1.1 schema 3.24.14" and trace.processes[0].host == "node7"
    assert trace.metadata["cpu_count"] == 18


@pytest.mark.parametrize(
    ("shift", "normal", "wall"),
    [("0", "false", 10**18), ("25", "false", 10**18 - 25), ("0", "true", 0)],
)
def test_an_export_can_shift_its_times(tmp_path, shift, normal, wall):
    export = single(tmp_path / "run.sqlite")
    export.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18)
    export.row("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_SHIFT", value=shift)
    export.row("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value=normal)
    assert nsys.read(export.done()).origin.wall_ns == wall


@pytest.mark.parametrize(
    ("text", "dropped", "noted"),
    [
        ("1,234 CUDA events were dropped", 1_234, True),
        ("CUDA device 0: 17 events were lost", 17, True),
        ("CUPTI buffer overflow", 1, True),
        ("Not all CUDA events might have been collected.", 1, True),
        ("Not all NVTX events might have been collected.", 0, True),
        ("Dropped CUPTI records: 0", 0, False),
        ("Number of CUDA events collected: \t12.", 0, False),
        ("Profiling has started.", 0, False),
    ],
)
def test_lost_records(tmp_path, text, dropped, noted):
    export = single(tmp_path / "run.sqlite")
    export.row("DIAGNOSTIC_EVENT", timestamp=0, source=1, severity=1, text=text)
    origin = nsys.read(export.done()).origin
    assert origin.dropped == dropped and bool(origin.notes) == noted
