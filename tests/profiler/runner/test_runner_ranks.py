"""Launchers: where their ranks' programs begin, and one recording for each rank."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import environment
from helpers.profiler import fake_nsys

from fastfeed.profiler.runner.output_folder import free_folder
from fastfeed.profiler.runner.session import detect_launcher, interpreter, record
from fastfeed.profiler.runner.settings import RecordingSettings, launcher_rank

pytestmark = pytest.mark.slow

RANK = """
import os, sys
rank = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
open(f"{sys.argv[1]}/ran{rank}", "w").write(" ".join(sys.argv[2:]))
sys.exit(int(sys.argv[3]) if rank == "1" else 0)
"""


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("mpirun -np 4 python train.py -n 3", ["python"]),
        (
            (
                "mpirun --allow-run-as-root --oversubscribe -np 4 -x PATH --mca btl tcp --bind-to"
                " core python t.py"
            ),
            ["python"],
        ),
        ("mpiexec -n 2 python a.py : -n 2 sh b.sh", ["python", "sh"]),
        ("mpiexec.hydra -genv A 1 -ppn 2 -n 4 python t.py", ["python"]),
        ("srun -n4 --gpus-per-task=1 --cpu-bind none -u -l --mpi=pmix python -m train", ["python"]),
        (
            "srun --ntasks 4 --label --exclusive --kill-on-bad-exit=1 python t.py --time 3",
            ["python"],
        ),
        ("horovodrun -np 8 -H localhost:8 --verbose python t.py", ["python"]),
        ("mpirun -np 4 ./nothing/here", []),
        ("mpirun --unheard-of python t.py", []),
        ("srun --multi-prog ranks.conf", []),
        ("mpirun", []),
    ],
)
def test_knows_where_programs_begin(command: str, programs: list[str]):
    words = command.split()
    found = detect_launcher(words)
    assert found is not None
    assert [words[index] for index in found.programs] == programs
    assert found.by == ("program" if programs else "whole")
    wrapped = found.wrapped(words, ["record", "this"])
    assert [wrapped[at - 1] for at, word in enumerate(wrapped) if word in programs] == [
        "this"
    ] * len(programs)
    assert [word for word in wrapped if word not in ("record", "this")] == words


@pytest.mark.parametrize(
    ("command", "by"),
    [
        ("torchrun --nproc-per-node 4 train.py", "interpreter"),
        ("python -u -m torch.distributed.run --standalone train.py", "interpreter"),
        ("python3.11 -m torch.distributed.launch train.py", "interpreter"),
        ("torchrun --no-python ./train.sh", "whole"),
        ("accelerate launch train.py", "whole"),
        ("deepspeed train.py", "whole"),
        ("python train.py -m torch.distributed.run", None),
        ("python -c mpirun", None),
        ("./train.sh", None),
    ],
)
def test_knows_launchers(command: str, by: str | None):
    found = detect_launcher(command.split())
    assert (found and found.by) == by


def test_ranks_have_the_interpreter_of_their_launcher(tmp_path: Path):
    script = tmp_path / "torchrun"
    script.write_text(f"#!{sys.executable}\nimport torch\n")
    assert interpreter([str(script)]) == sys.executable
    assert interpreter(["python3", "-m", "torch.distributed.run"]) == shutil.which("python3")
    script.write_text("#!/usr/bin/env python3\n")
    assert interpreter([str(script)]) == shutil.which("python3")


def test_finds_its_rank():
    assert launcher_rank({}) is None and launcher_rank({"RANK": "x"}) is None
    assert (
        launcher_rank({"RANK": "3", "SLURM_PROCID": "0"}) == 3
    )  # torchrun in a job: the inner one
    assert launcher_rank({"SLURM_PROCID": "5"}) == 5


def test_ranks_agree_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert free_folder({}) == tmp_path / "fastfeed-profile"
    (tmp_path / "fastfeed-profile").mkdir()
    assert free_folder({}) == tmp_path / "fastfeed-profile-2"
    for rank in "01":
        assert free_folder({"RANK": rank}) == tmp_path / "fastfeed-profile"
        assert (
            free_folder({"SLURM_PROCID": rank, "SLURM_JOB_ID": "812"})
            == tmp_path / "fastfeed-profile-812"
        )


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(RANK)
    return path


def test_mpirun_records_each_rank(train: Path, tmp_path: Path):
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun; install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin)")
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np"]
    done = _recorded(
        [*launch, "3", sys.executable, str(train), str(tmp_path), "a b", "0"], tmp_path
    )
    assert done.code == 0
    assert [path.name for path in done.traces] == [f"rank{rank}.nsys-rep" for rank in range(3)]
    assert (tmp_path / "ran1").read_text() == "a b 0"
    (tmp_path / "again").mkdir()
    assert _recorded([*launch, "1", "sh", "-c", "exit 9"], tmp_path / "again").code == 9


def test_torchrun_records_each_rank(train: Path, tmp_path: Path):
    torchrun = shutil.which("torchrun", path=str(Path(sys.executable).parent))
    if torchrun is None:
        pytest.skip("no torchrun; make test TORCH=torch==2.13.0")
    command = [
        torchrun,
        "--standalone",
        "--nproc-per-node",
        "2",
        str(train),
        str(tmp_path),
        "x",
        "0",
    ]
    done = _recorded(command, tmp_path)
    assert done.code == 0
    assert [path.name for path in done.traces] == ["rank0.nsys-rep", "rank1.nsys-rep"]
    assert (tmp_path / "ran1").read_text() == "x 0"


def test_what_a_rank_has_to_tell_is_told_once(tmp_path: Path):
    """A launcher by name: starts two ranks in turn."""
    launcher = tmp_path / "mpirun"
    launcher.write_text('#!/bin/sh\nshift 2\nRANK=0 "$@" && RANK=1 exec "$@"\n')
    launcher.chmod(0o755)
    done = _recorded([str(launcher), "-np", "2", "true"], tmp_path, starts=False)
    assert done.code == 0 and done.traces == ()
    assert [note.partition(":")[0] for note in done.notes] == ["rank0", "rank1"]
    assert all(note.endswith("it ran without a profiler") for note in done.notes)
    assert not list((tmp_path / "out").iterdir())


def test_one_recording_of_a_launcher_that_is_not_understood(tmp_path: Path):
    launcher = tmp_path / "deepspeed"
    launcher.write_text("#!/bin/sh\nexit 4\n")
    launcher.chmod(0o755)
    done = _recorded([str(launcher), "train.py"], tmp_path)
    assert done.code == 4 and [path.name for path in done.traces] == ["trace.nsys-rep"]
    assert done.notes == ("all processes that deepspeed starts here are in one recording",)


def test_inside_a_rank_the_recording_has_its_number(tmp_path: Path):
    environ = environment(RANK="2", WORLD_SIZE="4")
    settings = RecordingSettings(
        ("true",), tmp_path / "out", nsys=fake_nsys.install(tmp_path / "nsys")
    )
    assert [path.name for path in record(settings, environ).traces] == ["rank2.nsys-rep"]
    other = record(settings, environ | {"RANK": "0"})
    assert [path.name for path in other.traces] == ["rank0.nsys-rep"]
    assert (tmp_path / "out" / "rank2.nsys-rep").exists()  # another rank's is left alone


def _recorded(command: list[str], folder: Path, **settings: object):
    nsys = fake_nsys.install(folder / "nsys", **settings)
    environ = environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return record(RecordingSettings(tuple(command), folder / "out", nsys=nsys), environ)


def test_machines_of_one_job_leave_each_others_ranks_alone(tmp_path: Path):
    launcher, out = tmp_path / "mpirun", tmp_path / "out"
    launcher.write_text('#!/bin/sh\nshift 2\nRANK=4 exec "$@"\n')
    launcher.chmod(0o755)
    out.mkdir()
    nsys = fake_nsys.install(tmp_path / "nsys")
    settings = RecordingSettings((str(launcher), "-np", "1", "true"), out, nsys=nsys)
    for machines, left in (("2", ["rank3.nsys-rep", "rank4.nsys-rep"]), ("1", ["rank4.nsys-rep"])):
        (out / "rank3.nsys-rep").write_bytes(fake_nsys.REPORT)
        record(settings, environment(SLURM_NNODES=machines, SLURM_PROCID="0"))
        assert sorted(path.name for path in out.iterdir()) == left
