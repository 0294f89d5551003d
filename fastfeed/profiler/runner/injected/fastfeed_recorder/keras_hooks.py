"""Steps of Keras: the end of a batch in `fit`, on any backend."""

from __future__ import annotations

import functools
import sys
from typing import Any

_MODULES = (
    "keras.src.callbacks.callback_list",
    "keras.src.callbacks",
    "keras.callbacks",
    "tf_keras.src.callbacks",
)


class _Fit:
    """The source of all steps of `fit`."""


def callbacks(window: Any) -> dict[str, Any]:
    """Functions to call after the import of a module, by its names in Keras 2 and 3."""
    fit = _Fit()
    return {name: lambda module: _count_batches(module, window, fit) for name in _MODULES}


def backend() -> str:
    """The framework that Keras runs on."""
    keras = sys.modules.get("keras")
    name = (
        keras.backend.backend()
        if keras is not None and hasattr(keras.backend, "backend")
        else "tensorflow"
    )
    return name if name in ("torch", "jax") else "tensorflow"


def _count_batches(module: Any, window: Any, fit: _Fit) -> None:
    owner = getattr(module, "CallbackList", None)
    if owner is None or hasattr(owner, "_fastfeed_counted"):
        return
    owner._fastfeed_counted = fit
    window.imported("keras")
    initialize = owner.__init__

    @functools.wraps(initialize)
    def initialize_and_count(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        end_batch = self.on_train_batch_end  # an instance may have replaced that of its class

        def end_and_count(*args: Any, **kwargs: Any) -> Any:
            result = end_batch(*args, **kwargs)
            if not window.closed:
                window.step_ended(fit, backend(), priority=2)
            return result

        self.on_train_batch_end = end_and_count

    owner.__init__ = initialize_and_count
