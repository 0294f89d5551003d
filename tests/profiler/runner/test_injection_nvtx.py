"""Under nsys the recorder marks steps and waits for the DataLoader, as a library of NVTX's protocol
sees it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import environment
from helpers.profiler import fake_nsys, fake_torch

from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import RecordingSettings

# What a profiler's library does (nvtx3/nvtxDetail/nvtxInit.h): asks for the tables of functions,
# and writes its own.
LIBRARY = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*GetTable)(int module, void ****table, unsigned *size);
struct Callbacks { size_t size; GetTable get_table; };
struct Version { size_t size; uint32_t version, reserved; void (*set)(uint32_t); };

static FILE *out;
static int push(const char *name) { fprintf(out, "push %s\n", name); fflush(out); return 0; }
static int pop(void) { fprintf(out, "pop\n"); fflush(out); return 0; }
static uint64_t start(const char *name) { fprintf(out, "start %s\n", name); fflush(out); return 41; }
static void end(uint64_t range) { fprintf(out, "end %d\n", (int)range); fflush(out); }

int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
    const struct Version *version = get(3);
    const struct Callbacks *callbacks = get(1);
    void ***table;
    unsigned size;
    if (version->version < 2 || version->size != sizeof *version || callbacks->size != sizeof *callbacks) return 0;
    version->set(2);
    for (int module = 2; module <= 6; module++)
        if (!callbacks->get_table(module, &table, &size)) return 0;
    if (!callbacks->get_table(1, &table, &size) || size != 16 || table[16]) return 0;
    out = fopen(getenv("NVTX_OUT"), "w");
    *table[5] = start; *table[7] = end; *table[9] = push; *table[11] = pop;
    return 1;
}
"""
TRAIN = """
    import torch
    from torch.utils.data import DataLoader
    optimizer = torch.optim.Optimizer()
    for batch in DataLoader(range(2)):
        optimizer.step()
    print("trained")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    fake_torch.install(tmp_path / "site")
    return tmp_path


def train(here: Path, **environ: str) -> tuple[str, ...]:
    """Notes of a run under the stand-in for nsys."""
    command = (sys.executable, "-c", textwrap.dedent(TRAIN))
    settings = RecordingSettings(
        command, here / "out", "nsys", nsys=fake_nsys.install(here / "nsys")
    )
    done = record(settings, environment(PYTHONPATH=str(here / "site"), **environ))
    assert done.code == 0 and len(done.traces) == 1
    return done.notes


def library(here: Path) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (here / "nvtx.c").write_text(LIBRARY)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", here / "nvtx.so", here / "nvtx.c"], check=True
    )
    return str(here / "nvtx.so")


def test_marks_steps_and_waits_for_the_loader(here: Path):
    # nsys sets this variable in the process that it starts; outside of it, the run would count as
    # profiled already
    (here / "site" / "sitecustomize.py").write_text("")
    path = library(here)
    starter = here / "site" / "torch" / "__init__.py"
    starter.write_text(
        f"import os\nos.environ['NVTX_INJECTION64_PATH'] = {path!r}\n{starter.read_text()}"
    )
    assert train(here, NVTX_OUT=str(here / "ranges")) == ()
    wait = "push enumerate(DataLoader)#_BaseDataLoaderIter.__next__\npop\n"
    steps = "start ProfilerStep#1\n", "end 41\nstart ProfilerStep#2\n"
    assert (here / "ranges").read_text() == f"{wait}{steps[0]}{wait}{steps[1]}{wait}end 41\n"


def test_a_program_runs_where_nothing_takes_ranges(here: Path, capfd: pytest.CaptureFixture[str]):
    (note,) = train(here)
    assert (
        note
        == "steps and loaders are not marked: NVTX_INJECTION64_PATH, which names the library of"
        " nsys, is not set"
    )
    assert capfd.readouterr().out == "trained\n"
