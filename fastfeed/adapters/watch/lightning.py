"""A Lightning callback that logs how long training waits for its data."""

from __future__ import annotations

import importlib
from typing import Any

from fastfeed.adapters.watch.steps import StepWatch
from fastfeed.errors import MissingExtra

__all__ = ["callback"]


def callback(watch: StepWatch) -> Any:
    """See StepWatch.to_lightning.

    Takes `lightning`, or `pytorch_lightning` where that is the one.
    """
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            lightning: Any = importlib.import_module(name)
            break
        except ImportError:
            continue
    else:
        raise MissingExtra("to_lightning needs Lightning: pip install lightning")

    class FeedWatch(lightning.Callback):
        """Logs feed_wait and feed_rate."""

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            watch.begin()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            self._log(pl_module, watch.step())

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._log(pl_module, watch.end())

        def _log(self, pl_module: Any, values: dict[str, float]) -> None:
            if values:
                pl_module.log_dict(values, prog_bar=True)

    return FeedWatch()
