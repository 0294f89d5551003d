"""A callback for Hugging Face's Trainer that adds to its log how long training waits for its
data.
"""

from __future__ import annotations

import importlib
from typing import Any

from fastfeed.adapters.watch.steps import StepWatch
from fastfeed.errors import MissingExtra

__all__ = ["callback"]


def callback(watch: StepWatch) -> Any:
    """See StepWatch.to_transformers."""
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise MissingExtra(
            "to_transformers needs Transformers: pip install transformers"
        ) from error

    class FeedWatch(transformers.TrainerCallback):
        """Adds feed_wait and feed_rate to the logs of training."""

        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            watch.begin()

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            watch.end()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            watch.step()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs is not None and "loss" in logs:
                logs.update(watch.values)
                # a copy that the Trainer has made of logs
                state.log_history[-1].update(watch.values)

    return FeedWatch()
