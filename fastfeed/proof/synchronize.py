"""Waits until the devices of all frameworks in this process have nothing left to do.

Imports none of them.
"""

from __future__ import annotations

import sys
from typing import Any


def synchronize() -> None:
    """Wait by `cuda.synchronize`, JAX's live arrays and TensorFlow's `sync_devices`."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        # a trainer's device need not be this thread's; a call for one that is not in use would make
        # a context there
        used = {
            cuda.current_device(),
            *(i for i in range(cuda.device_count()) if cuda.memory_reserved(i)),
        }
        for device in used:
            cuda.synchronize(device)
    if getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):  # it has computed
        jax: Any = sys.modules["jax"]
        for array in jax.live_arrays():
            if not array.is_deleted():
                array.block_until_ready()
    tf: Any = sys.modules.get("tensorflow")
    if tf is not None and hasattr(tf, "test") and tf.config.list_logical_devices("GPU"):
        tf.test.experimental.sync_devices()


def uses_gpu() -> bool:
    """True if a framework of this process computes on another device than the CPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return True
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None) or {}
    if any(platform != "cpu" for platform in backends):
        return True
    tf: Any = sys.modules.get("tensorflow")
    return tf is not None and hasattr(tf, "config") and bool(tf.config.list_logical_devices("GPU"))


def frameworks() -> list[str]:
    """Names of the frameworks that `synchronize` waits for here."""
    return [name for name in ("torch", "jax", "tensorflow") if name in sys.modules]
