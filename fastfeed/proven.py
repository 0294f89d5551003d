"""Whether the code for GPUs has run on one: the one place that knows.

It was written from documentation and installed sources. Once a page of benchmarks/results shows that it ran, put the
page's name into `GPU_PAGE`: the note then disappears from docstrings and from `print(feed)`.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["EXPERIMENTAL", "GPU_PAGE", "gpu_note", "runs_on_gpu"]

GPU_PAGE = ""  # such as "gpu.md"
EXPERIMENTAL = "experimental: not run on a GPU yet"
_SENTENCE = "GPU support is experimental: it has not been run on a GPU yet."

_Documented = TypeVar("_Documented", bound=Any)


def gpu_note(text: str, gpu: bool = True) -> str:
    """The text, and what is known of GPUs, if it is about one."""
    return text if GPU_PAGE or not gpu else f"{text} ({EXPERIMENTAL})"


def runs_on_gpu(documented: _Documented) -> _Documented:
    """Decorator of a class or function that runs on GPUs, or starts what does: its docstring says what is known."""
    if not GPU_PAGE and documented.__doc__:
        summary, _, rest = documented.__doc__.partition("\n\n")
        # as the other lines, or `help` shows them indented
        indent = rest[: len(rest) - len(rest.lstrip())] or ("    " if "." not in documented.__qualname__ else " " * 8)
        documented.__doc__ = f"{summary.rstrip()}\n\n{indent}{_SENTENCE}\n\n{rest}"
    return documented
