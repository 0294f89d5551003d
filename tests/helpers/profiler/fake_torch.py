"""A stand-in for PyTorch as far as the injected recorder knows it, which is imported in no time;
`install(folder)`.

Its profiler writes the names of marks, so a test can see which steps were recorded.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

_MODULES = {
    "__init__": "from torch import autograd, compiler, cuda, optim, profiler",
    "compiler": "def is_compiling(): return False",
    "cuda": "def is_initialized(): return False",
    "optim/__init__": "from torch.optim.optimizer import Optimizer",
    "optim/optimizer": (
        """
        hooks = []

        def register_optimizer_step_post_hook(hook):
            hooks.append(hook)

        class Optimizer:
            def step(self):
                for hook in hooks:
                    hook(self, (), {})
    """
    ),
    "utils/__init__": "",
    "utils/data/__init__": "from torch.utils.data.dataloader import DataLoader",
    "utils/data/dataloader": (
        """
        class _BaseDataLoaderIter:
            def __init__(self, data):
                self.data = iter(data)

            def __next__(self):
                return next(self.data)

        class DataLoader:
            def __init__(self, data):
                self.data = data

            def __iter__(self):
                return _BaseDataLoaderIter(self.data)
    """
    ),
    "autograd/__init__": (
        """
        from torch.autograd import profiler

        def _profiler_enabled():
            return profiler.active is not None

        def _enable_record_function(enable):
            pass
    """
    ),
    "autograd/profiler": (
        """
        active = None  # marks of the profiler at work

        def _prepare_profiler():
            pass

        def _enable_profiler():
            global active
            if active is not None:
                raise RuntimeError("Profiler is already enabled on this thread")
            active = []

        def _disable_profiler():
            global active
            marks, active = active, None
            return marks

        class record_function:
            def __init__(self, name):
                self.name = name

            def __enter__(self):
                active.append(self.name)

            def __exit__(self, *error):
                pass
    """
    ),
    "profiler": (
        """
        import enum, json, os
        from torch.autograd import profiler

        class ProfilerActivity(enum.Enum):
            CPU = 0

        class profile:
            def __init__(self, activities=(), with_stack=False):
                pass

            def start(self):
                if os.environ.get("FAILS"):
                    raise OSError("no room for a buffer")
                profiler._prepare_profiler()
                profiler._enable_profiler()

            def stop(self):
                self.marks = profiler._disable_profiler()

            def export_chrome_trace(self, path):
                with open(path, "w") as file:
                    json.dump(self.marks, file)

            def __enter__(self):
                self.start()

            def __exit__(self, *error):
                self.stop()
    """
    ),
}


def install(folder: Path) -> Path:
    """Make the package `torch` in a folder for PYTHONPATH."""
    for name, text in _MODULES.items():
        path = folder / "torch" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder
