"""Steps of TensorFlow's and Keras's loops: calls that apply gradients."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

from fastfeed_recorder.keras_hooks import backend

_FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"


class _Calls(threading.local):
    """Functions that this thread runs, outermost first; of all threads, those that train."""

    def __init__(self, training: weakref.WeakSet[Any]) -> None:
        self.active: list[Any] = []
        self.training = training


def callbacks(window: Any) -> dict[str, Any]:
    """Functions to call after the import of a module, by its name."""
    calls = _Calls(weakref.WeakSet())
    return {
        "tensorflow": lambda _: window.imported("tensorflow"),
        _FUNCTIONS: lambda module: _count_functions(module.Function, window, calls),
        "keras.src.optimizers.base_optimizer": lambda module: _count_updates(
            module.BaseOptimizer, "apply", window, calls
        ),
        "tf_keras.src.optimizers.optimizer": lambda module: _count_updates(
            module.Optimizer, "apply_gradients", window, calls
        ),
    }


def _count_functions(function: Any, window: Any, calls: _Calls) -> None:
    call = function.__call__

    @functools.wraps(call)
    def call_and_count(self: Any, *args: Any, **kwargs: Any) -> Any:
        if window.closed:
            return call(self, *args, **kwargs)
        calls.active.append(self)
        try:
            result = call(self, *args, **kwargs)
        finally:
            calls.active.remove(self)
        if not calls.active and self in calls.training:
            window.step_ended(self, "tensorflow")
        return result

    function.__call__ = call_and_count


def _count_updates(optimizer: Any, name: str, window: Any, calls: _Calls) -> None:
    apply = getattr(optimizer, name)

    @functools.wraps(apply)
    def apply_and_count(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = apply(self, *args, **kwargs)
        if window.closed:
            return result
        if calls.active:
            calls.training.add(calls.active[0])
        elif backend() != "jax":  # there it is traced, and its function counted
            window.step_ended(self, backend())
        return result

    setattr(optimizer, name, apply_and_count)
