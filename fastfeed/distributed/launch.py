"""Pins one GPU to each process, before a framework looks for GPUs."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, MutableMapping

from fastfeed.arguments import checked
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.gpu_support import runs_on_gpu

NAME = "CUDA_VISIBLE_DEVICES"
ENTRY = re.compile(r"[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+")


@checked
@runs_on_gpu("ranks")
def pin_gpu(
    world: World | None = None, environ: MutableMapping[str, str] = os.environ
) -> str | None:
    """Show this process only the GPU of its local rank, before a framework looks for GPUs.

    Takes one of the visible GPUs; if a launcher shows only one already, nothing changes. Frameworks
    then call it GPU 0.

    Args:
        world (World | None): The ranks. Default: None, what the launcher's environment says.
        environ (MutableMapping[str, str]): Where CUDA_VISIBLE_DEVICES is read and set. Default:
            os.environ.

    Returns:
        The entry of CUDA_VISIBLE_DEVICES; None without GPUs.

    Raises:
        ConfigError: If there are fewer GPUs than processes on this machine, or CUDA is initialized
            in this process already, as `torch.cuda.is_available()` does.

    Example:
        >>> world = ff.World(rank=1, size=2, local_rank=1, local_size=2)
        >>> ff.pin_gpu(world, environ={"CUDA_VISIBLE_DEVICES": "4,5"})
        '5'
    """
    world = World.detect(environ) if world is None else world
    visible = environ.get(NAME)
    if visible is None:
        pinned = str(world.local_rank)
    else:
        entries = _entries(visible)
        if len(entries) < 2:
            return entries[0] if entries else None
        if len(entries) < world.local_size:
            raise ConfigError(
                f"{NAME} must list 1 GPU, or one for each of the {world.local_size} processes on"
                f" this machine, got {len(entries)}: {visible!r}; start {len(entries)} processes"
                " per machine, or list more GPUs",
                field=NAME,
            )
        pinned = entries[world.local_rank]
    initializer = next((name for name, has_started in CUDA_CHECKS.items() if has_started()), None)
    if initializer is not None:
        raise ConfigError(
            f"pin_gpu must come before CUDA is initialized, got a process in which {initializer}"
            " has done so; call fastfeed.pin_gpu() first, above the imports of frameworks"
        )
    environ[NAME] = pinned
    return pinned


def _entries(text: str) -> list[str]:
    """Entries as CUDA parses them: the first invalid one, such as -1, ends the list."""
    entries = [entry.strip() for entry in text.split(",")]
    invalid = (i for i, entry in enumerate(entries) if not ENTRY.fullmatch(entry))
    return entries[: next(invalid, len(entries))]


def _torch() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and cuda.is_initialized()


def _jax() -> bool:
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", {})
    return not {"cuda", "gpu"}.isdisjoint(backends)


def _tensorflow() -> bool:
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    return any(
        device.device_type == "GPU" for device in getattr(context, "_physical_devices", None) or ()
    )


def _driver() -> bool:
    """True if any library has initialized the driver.

    Before that, cuDeviceGetCount returns CUDA_ERROR_NOT_INITIALIZED.
    """
    try:
        # only if it is in this process already
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # no such flags elsewhere than on Linux
        return False
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0


# name -> has it initialized CUDA in this process? Inspects imported modules, imports nothing.
CUDA_CHECKS: dict[str, Callable[[], bool]] = {
    "PyTorch": _torch,
    "JAX": _jax,
    "TensorFlow": _tensorflow,
    "the CUDA driver": _driver,
}
