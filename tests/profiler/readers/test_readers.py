"""Which reader a file is for, what else it can be, and folders of files."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sqlite3
import sys
import tarfile
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from helpers.profiler.nvprofs import training

from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.readers import decompress
from fastfeed.profiler.readers.folders import expand


def zipped(**members: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return held.getvalue()


def tarred() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("run.json"))
    return held.getvalue()


def packets(*fields: bytes) -> bytes:
    """A binary trace of Perfetto of one packet, and another."""
    packet = b"".join(fields)
    return b"\n" + bytes([len(packet)]) + packet + b"\n\x02\x50\x01"


KERNELS = b'"Kind","Agent_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'

FOREIGN = {
    "11_kernel_trace.csv": (
        KERNELS,
        "output of rocprofv3.*record the program with PyTorch's or JAX's own profiler",
    ),
    "11_hip_api_trace.csv": (
        KERNELS.replace(b"Kind", b"Domain").replace(b'"', b""),
        "output of rocprofv3",
    ),
    "11_results.json": (b'{\n "rocprofiler-sdk-tool": [{"metadata": {}}]}', "output of rocprofv3"),
    "11_results.pftrace": (
        packets(b"\x12\x02\x0a\x00", b"\x50\x01"),
        "binary trace of Perfetto.*record with",
    ),
    "chrome.perfetto-trace": (packets(b"\x40\x05", b"\xe2\x03\x00"), "binary trace of Perfetto"),
    "picture.json": (
        b"\x89PNG\r\n\x1a\n" + bytes(99),
        "is a PNG picture, not a trace; pass the profiler's trace",
    ),
    "train": (b"\x7fELF\x02\x01\x01", "is a program or library"),
    "kernels.ncu-rep": (
        b"NVR\x00" + bytes(80),
        "a report of Nsight Compute.*record the run with Nsight Systems",
    ),
    "nsys.parquet": (b"PAR1" + bytes(80), "Parquet.*nsys export --type sqlite"),
    "trace.json": (b"<!DOCTYPE html><html><body>404", "an HTML or XML page, maybe the error page"),
    "checkpoint.pt": (
        zipped(archive__data__pkl=b"x").replace(b"data/pkl", b"data.pkl"),
        "checkpoint saved by PyTorch",
    ),
    "old.pt": (pickle.dumps({"state": [1.5]}), "a Python pickle, maybe a checkpoint"),
    "memory.pickle": (
        pickle.dumps({"segments": [], "device_traces": []}),
        "memory snapshot of PyTorch",
    ),
    "run.tar": (tarred(), "is a tar archive"),
    "run.tar.gz": (gzip.compress(tarred()), "is a tar archive"),
    "two.zip": (zipped(a=b"{}", b=b"{}"), r"zip of 2 files \(a, b\), expected one"),
    "none.zip": (zipped(), "zip of no file"),
    "run.7z": (b"7z\xbc\xaf\x27\x1c" + bytes(20), "a 7-Zip archive; unpack it"),
    "train.log": (
        b"epoch 1 loss 0.3\n" * 9,
        "is text that is not a trace, it begins with 'epoch 1 loss 0.3'",
    ),
    "config.json": (
        b'{"lr": 0.1, "batch": 3}',
        r'JSON without trace events \(it has "lr", "batch"\)',
    ),
    "list.json": (b"[1, 2, 3]", "JSON without trace events"),
    "events.out.tfevents.17.host": (
        b"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\t\x00\x00\xc0\x8f\xb2\x9d\xd9A\x1a\rbrain.Event:2",
        "event file of TensorBoard.*plugins/profile",
    ),
    "lfs.json.gz": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        "run git lfs pull",
    ),
    "zeros.sqlite": (bytes(300), "nothing but zeros"),
    "half.sqlite": (b"SQLite format 3\x00", "SQLite database that cannot be read|cut off"),
    "noise": (bytes(range(128, 256)) * 9, "not a recognized trace, it begins with 80 81"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_else_it_is(tmp_path: Path, name: str) -> None:
    data, words = FOREIGN[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceError, match=words) as caught:
        readers.read(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_other_databases(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE users (id INTEGER)")
        with pytest.raises(
            TraceError, match=r"neither of Nsight Systems nor of nvprof \(tables users\)"
        ):
            readers.read(path)
    with closing(sqlite3.connect(tmp_path / "amd.db")) as database:
        database.execute("CREATE TABLE rocpd_kernel_dispatch_0 (id INTEGER)")
    with pytest.raises(TraceError, match=r"a database of rocprofv3 \(rocpd\), .*; record"):
        readers.read(tmp_path / "amd.db")
    with closing(sqlite3.connect(tmp_path / "new.sqlite")) as database:
        database.execute("PRAGMA user_version = 3")
    with pytest.raises(TraceError, match="without tables: the export did not end"):
        readers.read(tmp_path / "new.sqlite")


def test_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = training().write(tmp_path / "run.nvprof")
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **more: connect(*args, **{**more, "timeout": 0})
    )
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TraceError, match="locked; wait"):
            readers.read(path)


def test_large_files_are_not_read_to_tell(tmp_path: Path) -> None:
    """10 GB of a hole: it is enough to look at the beginning."""
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(TraceError, match="nothing but zeros"):
        readers.detect(path)


def test_special_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "pipe", "not a file but a pipe or device"),
        (Path("/dev/null"), "not a file but a pipe or device"),
        (tmp_path, "is a folder with pipe; pass"),
        (tmp_path / "gone", "there is no .*gone; check the spelling"),
        (tmp_path / "\0", "cannot be the name of a file"),
    ):
        with pytest.raises(TraceError, match=words):
            readers.read(path)
    (tmp_path / "mine").write_bytes(b"{}")
    denied = PermissionError(13, "Permission denied")
    # root may read everything
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(denied))
    with pytest.raises(
        TraceError, match=r"cannot read .*mine: Permission denied; check its permissions"
    ):
        readers.read(tmp_path / "mine")


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "run.json.zst").write_bytes(b"\x28\xb5\x2f\xfd\x24")
    with pytest.raises(
        TraceError, match=r"run.json.zst is packed with zstd.*pip install zstandard"
    ):
        readers.read(tmp_path / "run.json.zst")


def test_zstd(tmp_path: Path) -> None:
    """Frames in a row, and one that is cut off."""
    zstandard = pytest.importorskip(
        "zstandard", reason="pip install zstandard to test what it unpacks"
    )
    whole, path = os.urandom(300_000), tmp_path / "run"
    frames = [
        zstandard.ZstdCompressor().compress(part) for part in (whole[:200_000], whole[200_000:])
    ]
    path.write_bytes(b"".join(frames))
    with decompress.open_stream(path) as stream:
        assert stream.readall() == whole and not stream.damage
    path.write_bytes(frames[0][:150_000])
    with decompress.open_stream(path) as stream:
        got = stream.readall()
        assert whole.startswith(got) and len(got) > 100_000
        assert stream.damage == "the zstd data ends too early; what came before was read"


@pytest.mark.parametrize("pack", ["gzip", "zip"])
def test_cut_streams(tmp_path: Path, pack: str) -> None:
    """What could be read counts, and the stream says why it ended."""
    whole = os.urandom(300_000)
    packed = gzip.compress(whole) if pack == "gzip" else zipped(run=whole)
    path = tmp_path / "run"
    path.write_bytes(packed[:200_000])
    with decompress.open_stream(path) as stream:
        got = b"".join(iter(lambda: stream.read(10_000), b""))
        assert whole.startswith(got) and len(got) > 190_000
        assert stream.damage == f"the {pack} data ends too early; what came before was read"
    assert decompress.head(path, 5) == whole[:5]


def test_lines() -> None:
    held = io.BytesIO(b"one\r\n" + b"x" * 50 + b"\n\nlast")
    assert list(decompress.lines(held, 10)) == [
        b"one",
        b"x" * 10,
        b"",
        b"last",
    ]  # pyright: ignore[reportArgumentType]


CHROME = json.dumps(
    {
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 7}
        ]
    }
)
TIMELINE = '{"fastfeed_timeline": 1, "feed": "f0", "pid": 1, "rank": 0, "host": "", "name": ""}\n'


def fill(root: Path, *names: str, text: str = CHROME) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in expand([root])]


def test_folder_of_ranks(tmp_path: Path) -> None:
    """Several ranks, the feed's timeline next to them, and whatever else a run leaves."""
    fill(tmp_path, "rank1.pt.trace.json", "rank0.pt.trace.json")
    fill(tmp_path, "feed.jsonl", text=TIMELINE)
    fill(tmp_path, "train.log", ".hidden.json", text="hello")
    assert found(tmp_path) == ["rank0.pt.trace.json", "rank1.pt.trace.json", "feed.jsonl"]
    both = expand([tmp_path / "rank1.pt.trace.json", tmp_path])
    assert [path.name for path in both] == [
        "rank1.pt.trace.json",
        "rank0.pt.trace.json",
        "feed.jsonl",
    ]


def test_export_next_to_its_report(tmp_path: Path) -> None:
    training().write(tmp_path / "run.sqlite")
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    fill(tmp_path, "run.json")
    fill(tmp_path, "run.csv", text="==1== Profiling result:\n")
    assert found(tmp_path) == ["run.sqlite"]


def test_tensorboard_folder(tmp_path: Path, data: Path) -> None:
    """The XPlane holds all that its Chrome trace does; results of xprof next to it are no
    recordings.
    """
    real = data / "traces" / "xplane" / "jax08_mi300_gemm.xplane.pb"
    if not real.is_file():
        pytest.skip(f"no {real}; set FASTFEED_TEST_DATA to the folder that holds traces/")
    run = tmp_path / "plugins" / "profile" / "2024_01_01"
    fill(run, "host.trace.json", "perfetto_trace.json", "host.overview_page.pb")
    (run / "host.xplane.pb").write_bytes(real.read_bytes())
    assert found(tmp_path) == ["plugins/profile/2024_01_01/host.xplane.pb"]
    again = tmp_path / "plugins" / "profile" / "2024_02_02"
    fill(again, "x.json")
    (again / "host.xplane.pb").write_bytes(real.read_bytes())
    with pytest.raises(
        TraceError, match=r"2 runs: 2024_01_01, 2024_02_02; pass one of them, such as .*2024_02_02"
    ):
        expand([tmp_path])


def test_folders_that_do_not_say_which(tmp_path: Path) -> None:
    fill(tmp_path / "mixed", "a.json")
    training().write(tmp_path / "mixed" / "b.nvprof")
    with pytest.raises(
        TraceError, match=r"several profilers: a.json \(chrome\), b.nvprof \(nvprof\); pass"
    ):
        expand([tmp_path / "mixed"])


def test_folders_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="empty holds no trace, it has no file; pass"):
        expand([tmp_path / "empty"])
    fill(tmp_path / "logs", "a.log", text="hello")
    with pytest.raises(
        TraceError, match=r"logs holds no trace: .*a.log is text that is not a trace"
    ):
        expand([tmp_path / "logs"])
    fill(tmp_path / "logs", "b.log", text="hello")
    with pytest.raises(TraceError, match="logs holds no trace, none of its 2 files is one"):
        expand([tmp_path / "logs"])
