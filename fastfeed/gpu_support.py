"""The paths of the code for GPUs that have not yet run on one, listed in this module only.

It was written from documentation and installed sources. Once a page of benchmarks/results shows
that a path ran on a GPU, and ran soundly, its line below is deleted: the note then disappears from
docstrings and from `print(feed)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

GPU_PAGE = "benchmarks/results/gpu.md"
PATHS = ("dali", "feed", "jax", "keras", "nvjpeg", "ranks", "tensorflow", "torch")
_NOT_RUN = ("not run on a GPU yet", "it has not been run on a GPU yet")
# path -> in a few words, in half a sentence
EXPERIMENTAL: dict[str, tuple[str, str]] = {
    "dali": (
        "crashed once on a GPU",
        (
            "on its first GPU the pixels were right and the bad files were named, but one process"
            " crashed once"
        ),
    ),
    "feed": ("in parts", "not all of it has been run on a GPU"),
    "jax": _NOT_RUN,
    "keras": _NOT_RUN,
    "nvjpeg": _NOT_RUN,
    "ranks": _NOT_RUN,
    "tensorflow": _NOT_RUN,
}

_Documented = TypeVar("_Documented", bound=Any)


def gpu_note(text: str, path: str) -> str:
    """The text with the status of this path on GPUs, if it is experimental."""
    return f"{text} (experimental: {EXPERIMENTAL[path][0]})" if path in EXPERIMENTAL else text


def runs_on_gpu(path: str) -> Callable[[_Documented], _Documented]:
    """Decorator that adds the status of GPU support to a class's or function's docstring."""

    def decorate(documented: _Documented) -> _Documented:
        if path in EXPERIMENTAL and documented.__doc__:
            summary, _, rest = documented.__doc__.partition("\n\n")
            # as the other lines, or `help` shows them indented
            indent = rest[: len(rest) - len(rest.lstrip())]
            indent = indent or ("    " if "." not in documented.__qualname__ else " " * 8)
            sentence = f"GPU support is experimental: {EXPERIMENTAL[path][1]}."
            documented.__doc__ = f"{summary.rstrip()}\n\n{indent}{sentence}\n\n{rest}"
        return documented

    return decorate
