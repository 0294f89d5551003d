"""Each local rank sees one GPU of those visible; what launchers have narrowed down stays; too late
is an error.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest
from helpers.needs import require

import fastfeed as ff
from fastfeed.distributed import launch
from fastfeed.errors import ConfigError

NAME = "CUDA_VISIBLE_DEVICES"
UUIDS = [f"GPU-8932f937-d72c-4106-c12f-20bd9faed9f{i}" for i in range(4)]
CUDA_CHECKS = launch.CUDA_CHECKS
MIGS = [
    "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0",
    "MIG-41b3a8c7-0c0a-5d6a-9d1e-0f4f35b0d4d6",
]


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have used a GPU."""
    monkeypatch.setattr(launch, "CUDA_CHECKS", {})


def world(local: int, of: int) -> ff.World:
    return ff.World(local, of, local, of)


def pin(visible: str | None, place: ff.World) -> tuple[str | None, str | None]:
    """What is returned, and what the variable is then."""
    environ = {} if visible is None else {NAME: visible}
    return ff.pin_gpu(place, environ), environ.get(NAME)


@pytest.mark.parametrize(
    ("visible", "local", "of", "pinned"),
    [
        (None, 0, 1, "0"),
        (None, 3, 4, "3"),
        ("0,1,2,3", 2, 4, "2"),
        ("4,5,6,7", 2, 4, "6"),  # a share of the machine
        (" 4, 5 ", 1, 2, "5"),
        ("0,1,2,3", 1, 2, "1"),  # more than needed
        (",".join(UUIDS), 3, 4, UUIDS[3]),
        ("GPU-8932,GPU-41b3", 1, 2, "GPU-41b3"),  # shortened, as CUDA allows
        (",".join(MIGS), 0, 2, MIGS[0]),
        (",".join(MIGS), 1, 2, MIGS[1]),
        ("0,2,-1,1", 1, 2, "2"),  # CUDA's own example: what follows -1 is not visible
    ],
)
def test_pins_the_entry_of_the_local_rank(visible, local, of, pinned):
    assert pin(visible, world(local, of)) == (pinned, pinned)


@pytest.mark.parametrize("visible", ["5", UUIDS[0], MIGS[1], "3,-1,2"])
def test_one_visible_gpu_is_left_alone(visible):
    # srun --gpus-per-task=1 and CUDA_VISIBLE_DEVICES=$LOCAL_RANK in a wrapper script
    for local in range(4):
        assert pin(visible, world(local, 4)) == (visible.split(",")[0], visible)


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles", "-1,0,1"])
def test_no_visible_gpu_stays_none(visible):
    assert pin(visible, world(1, 2)) == (None, visible)


def test_ranks_of_a_machine_get_gpus_of_their_own_and_a_second_call_changes_nothing():
    environs = [{NAME: "7,5,3,1"} for _ in range(4)]
    assert [ff.pin_gpu(world(i, 4), environ) for i, environ in enumerate(environs)] == [
        "7",
        "5",
        "3",
        "1",
    ]
    assert [ff.pin_gpu(world(i, 4), environ) for i, environ in enumerate(environs)] == [
        "7",
        "5",
        "3",
        "1",
    ]


def test_the_launcher_tells_which(monkeypatch):
    environ = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert ff.pin_gpu(environ=environ) == environ[NAME] == "1"
    for name, value in (environ | {NAME: "2,3,6,7"}).items():
        monkeypatch.setenv(name, value)
    assert ff.pin_gpu() == "3"


def test_too_few_gpus():
    with pytest.raises(ConfigError) as caught:
        pin("0,1", world(1, 4))
    assert (
        str(caught.value)
        == "CUDA_VISIBLE_DEVICES must list 1 GPU, or one for each of the 4 processes on this"
        " machine, got 2: '0,1'; start 2 processes per machine, or list more GPUs"
    )


def cuda_in(name: str, monkeypatch: pytest.MonkeyPatch, initialized: bool) -> None:
    """As if a framework were imported, and had made use of a GPU or not."""
    if name == "PyTorch":
        module = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: initialized))
        monkeypatch.setitem(sys.modules, "torch", module)  # type: ignore[arg-type]
    elif name == "JAX":
        module = SimpleNamespace(
            _backends={"cpu": object()} | ({"cuda": object()} if initialized else {})
        )
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", module)  # type: ignore[arg-type]
    elif name == "TensorFlow":
        kinds = ["CPU", "GPU"] if initialized else ["CPU"]
        devices = [SimpleNamespace(device_type=kind) for kind in kinds]
        module = SimpleNamespace(_context=SimpleNamespace(_physical_devices=devices))
        monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", module)  # type: ignore[arg-type]
    else:
        answer = 0 if initialized else 3  # CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED
        driver = SimpleNamespace(cuDeviceGetCount=lambda count: answer)
        monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: driver)


@pytest.mark.parametrize("name", CUDA_CHECKS)
def test_too_late(name, monkeypatch):
    monkeypatch.setattr(launch, "CUDA_CHECKS", {name: CUDA_CHECKS[name]})
    cuda_in(name, monkeypatch, initialized=False)
    assert pin("0,1", world(1, 2)) == ("1", "1")
    cuda_in(name, monkeypatch, initialized=True)
    environ = {NAME: "0,1"}
    with pytest.raises(ConfigError) as caught:
        ff.pin_gpu(world(1, 2), environ)
    assert (
        str(caught.value)
        == f"pin_gpu must come before CUDA is initialized, got a process in which {name} has done"
        " so; "
        "call fastfeed.pin_gpu() first, above the imports of frameworks"
    )
    assert environ == {NAME: "0,1"}
    assert pin("1", world(1, 2)) == ("1", "1")  # nothing to change, so never too late


# what uses no GPU, and where its state is looked at
FRAMEWORKS = {
    "torch": "import torch; torch.zeros(1); assert not torch.cuda.is_initialized()",
    "jax": (
        "import jax; jax.devices('cpu'); assert 'cpu' in"
        " sys.modules['jax._src.xla_bridge']._backends"
    ),
    "tensorflow": (
        "import tensorflow as tf; tf.config.list_physical_devices()\n"
        "assert sys.modules['tensorflow.python.eager.context']._context._physical_devices"
    ),
}


@pytest.mark.parametrize(
    "package",
    ["jax", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch", "tensorflow"))],
)
def test_frameworks_that_use_no_gpu_are_not_too_late(package, python):
    """The real ones: the names that are looked at exist."""
    require(package)
    code = (
        f"import sys, warnings; warnings.simplefilter('ignore')\n{FRAMEWORKS[package]}\nimport"
        " fastfeed\n"
    )
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = python(
        f"{code}print(fastfeed.pin_gpu(fastfeed.World(1, 2, 1, 2), {{'{NAME}': '0,1'}}))", **hidden
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_pinning_imports_no_framework(python):
    done = python(
        "import sys, fastfeed\nfastfeed.pin_gpu()\nloaded = [m for m in ['torch', 'jax',"
        " 'tensorflow', 'numpy', 'nvidia'] if m in sys.modules]\nassert not loaded, loaded\n"
    )
    assert done.returncode == 0, done.stderr


def test_main_is_rank_0_of_all():
    assert ff.World().main
    assert [ff.World(rank, 4, rank % 2, 2).main for rank in range(4)] == [True, False, False, False]
