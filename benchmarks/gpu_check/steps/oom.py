"""Out of memory on purpose: the error says what to do, and the feed continues when there is room
again.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check.parts.setting import Wrong
from benchmarks.gpu_check.steps.feeds import endless, feed, threads_here
from fastfeed.backends.options import GpuDecode
from fastfeed.errors import DeviceMemory


def run(context: Any) -> None:
    setting = context.setting()
    folder, threads = next(iter(setting.sets.values())), threads_here(context.stand_in)[-1]
    wrong = []
    ways: dict[str, Any] = (
        {"to_torch": "cpu"}
        if context.stand_in
        else {
            "to_torch": "cpu",
            "decode on the GPU": GpuDecode(),
            "decode by nvJPEG": GpuDecode("nvjpeg"),
        }
    )
    for name, decode in ways.items():
        found = (
            _stand_in(feed(folder, 8, threads))
            if context.stand_in
            else _full(feed(folder, 256, threads, decode))
        )
        context.note(name, found)
        if not found["DeviceMemory"]:
            wrong.append(f"{name}: no DeviceMemory error, but {found['said']}")
        if not found["after"]:
            wrong.append(f"{name}: no batch came after memory was free again")
    if wrong:
        raise Wrong(wrong, context.figures)


def _full(made: Any) -> dict[str, Any]:
    """Fill the GPU, all but 100 MB, and take batches of 154 MB."""
    import torch

    with made:
        batches = endless(made.to_torch("cuda"))
        next(batches)
        batches.close()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        filling = torch.empty(max(1, free - 100_000_000), dtype=torch.uint8, device="cuda")
        found = _taken(made, "cuda")
        del filling
        torch.cuda.empty_cache()
        return found | {"after": _taken(made, "cuda")["said"] == ""}


def _stand_in(made: Any) -> dict[str, Any]:
    """PyTorch's own error, raised in place of a copy."""
    import torch

    def refuse(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 148.00 MiB. (made by hand)"
        )

    real = torch.Tensor.to
    with made:
        torch.Tensor.to = refuse  # type: ignore[method-assign]
        try:
            found = _taken(made, "cpu")
        finally:
            torch.Tensor.to = real  # type: ignore[method-assign]
        return found | {"after": _taken(made, "cpu")["said"] == ""}


def _taken(made: Any, device: str) -> dict[str, Any]:
    batches = endless(made.to_torch(device))
    try:
        kept = [next(batches) for _ in range(4)]
        return {"DeviceMemory": False, "said": "" if kept else "no batch"}
    except Exception as error:
        return {
            "DeviceMemory": isinstance(error, DeviceMemory),
            "said": f"{type(error).__name__}: {error}"[:500],
        }
    finally:
        batches.close()
