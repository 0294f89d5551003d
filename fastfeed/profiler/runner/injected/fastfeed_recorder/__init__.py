"""Recorder inside the program: counts training steps, profiles some of them.

It runs in the program's own Python, where fastfeed need not be installed: it imports the standard
library alone, and no framework before the program does. Python 3.9 or later.
"""

from __future__ import annotations

import os

__all__ = ["begin"]


def begin() -> None:
    """Wait for the program to import a framework, and record its steps."""
    from fastfeed_recorder import (
        after_import,
        jax_hooks,
        keras_hooks,
        tensorflow_hooks,
        torch_hooks,
    )
    from fastfeed_recorder.plan import VARIABLE, Log, RecordingPlan
    from fastfeed_recorder.window import RecordingWindow

    after_import.install_named(os.environ.get(after_import.VARIABLE))
    if not os.environ.get(VARIABLE):
        return
    plan = RecordingPlan.from_environment()
    log = Log(plan.log)
    log.write("python")
    window = RecordingWindow(plan, log)
    callbacks = {}
    for hooks in (torch_hooks, jax_hooks, tensorflow_hooks, keras_hooks):
        callbacks.update(hooks.callbacks(window))
    after_import.install(callbacks, window.attempt)
