"""Advice on the parts of a run that are not steady training."""

from __future__ import annotations

from fastfeed.profiler.model.causes import INPUT_CAUSES
from fastfeed.profiler.model.format import percent
from fastfeed.profiler.model.result import DeviceResult, Phase

__all__ = ["PHASES", "epoch_change", "phase_change"]

# titles in reports
PHASES = {
    "epoch_start": "start of an epoch",
    "validation": "validation",
    "checkpoint": "checkpoint",
    "warm_up": "warm-up",
}
_MUCH = 0.2  # of a phase: idle for input


def epoch_change(device: DeviceResult) -> str:
    """The change for waits at the starts of epochs."""
    single = device.metrics.get("single_process")
    if single:
        return (
            "Load batches in workers that stay: DataLoader(num_workers=4, persistent_workers=True)."
        )
    names = [name for name in device.names if "dataloader.py(" in name]
    stays = any(name.endswith("_reset") for name in names) and not any(
        "_get_iterator" in name for name in names
    )
    if single is not None and not stays:  # PyTorch's loader, whose workers are not known to stay
        return (
            "persistent_workers=True: the workers stay, and load the next epoch's batches as soon"
            " as one is asked for."
        )
    return (
        "Keep the loader's workers from one epoch to the next, or start the next epoch's batches"
        " before this one ends."
    )


def phase_change(device: DeviceResult, phase: Phase) -> str:
    """Advice on one phase, as a sentence."""
    if phase.kind == "epoch_start":
        return epoch_change(device)
    waited = sum(phase.period.causes.get(cause, 0) for cause in INPUT_CAUSES) / max(
        phase.period.budget.window, 1
    )
    if phase.kind == "validation":
        if waited >= _MUCH:
            return (
                f"Idle for input {percent(waited, 0)} of this time: give the loader of validation"
                " more workers, and keep them (persistent_workers=True)."
            )
        return "Validate less often, on larger batches, or on a part of the data."
    if phase.kind == "checkpoint":
        return "Save asynchronously, or less often."
    return "Paid once per run, and no part of the verdict."
