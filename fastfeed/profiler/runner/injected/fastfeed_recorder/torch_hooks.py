"""Steps of PyTorch: each step of an optimizer ends one."""

from __future__ import annotations

import functools
import sys
from typing import Any

from fastfeed_recorder import nvtx


def callbacks(window: Any) -> dict[str, Any]:
    """Functions to call after the import of a module, by its name."""
    table = {"torch.optim.optimizer": lambda module: _count_steps(module, window)}
    if window.plan.recorder == "nvtx":
        table["torch.utils.data.dataloader"] = _mark_loaders
    return table


def _count_steps(module: Any, window: Any) -> None:
    window.imported("torch")

    torch = sys.modules["torch"]

    def step_ended(optimizer: Any, args: Any, kwargs: Any) -> None:
        if (
            torch.compiler.is_compiling()
        ):  # a compiled step does not call hooks; they must not be compiled into it
            return
        if not window.closed:
            window.step_ended(optimizer, "torch")

    if not hasattr(module, "register_optimizer_step_post_hook"):
        raise RuntimeError("PyTorch 2.1 or later is needed to count the steps of its optimizers")
    module.register_optimizer_step_post_hook(step_ended)


def _mark_loaders(module: Any) -> None:
    """NVTX ranges of waits for the DataLoader, which PyTorch itself does not emit."""
    nvtx.load()
    iterator = module._BaseDataLoaderIter
    fetch = iterator.__next__

    @functools.wraps(fetch)
    def fetch_in_range(self: Any) -> Any:
        with nvtx.pushed(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
            return fetch(self)

    iterator.__next__ = fetch_in_range
