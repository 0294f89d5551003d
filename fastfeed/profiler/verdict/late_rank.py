"""Sentences about the rank that the others wait for, and the change that helps it."""

from __future__ import annotations

from fastfeed.profiler.model.format import duration, one_line, percent
from fastfeed.profiler.model.result import LateRank

_SLOWER = 1.1  # times the median rank's kernels: more than boards of one model differ


def late_rank_name(late: LateRank) -> str:
    """Label of the late rank without its GPU, or words for one that changes."""
    return "a late rank that changes from step to step" if _changes(late) else _short(late.label)


def late_rank_sentence(late: LateRank) -> str:
    """The wait for the late rank inside collectives, and the reason for it."""
    waited = duration(late.waited_ns)
    if _changes(late):
        return (
            f"ranks waited {duration(late.waited_ns / late.share)} for each other inside"
            f" collectives; the late one changes from step to step, most often {_short(late.label)}"
            f" ({percent(late.share, 0)})"
        )
    why = late.cause.title if late.cause is not None else "unknown reason"
    if _is_slower(late):
        why = f"its kernels take {late.kernels:.2f} times as long"
    return (
        f"others waited {waited} inside collectives for {one_line(late.label, 60)}, which was late:"
        f" {why}"
    )


def late_rank_advice(late: LateRank) -> tuple[str, str]:
    """The change to make, and the end of the sentence "... is waiting for"."""
    label = _short(late.label)
    title = late.cause.title if late.cause is not None else ""
    if _is_slower(late):
        end = f"whose kernels take {late.kernels:.2f} times as long as those of the median rank."
        change = (
            f"Check the GPU of {label}, whose kernels take {late.kernels:.2f} times as long: a"
            " thermal or power limit, another model (nvidia-smi -q -d PERFORMANCE,CLOCK), or larger"
            " batches."
        )
    elif late.changes:
        often = f"most often {label} ({percent(late.share, 0)})."
        change = "Make steps equally long on all ranks: the late one changes from step to step,"
        change += f" mostly because of {title}."
        if late.cause is None:
            change = (
                "Give all ranks equal work in each step (samples of one size, or bucketed by length"
                " or cost): no rank is slow in general, the late one changes from step to step."
            )
        return change, f"a rank that changes from step to step, {often}"
    elif late.cause is None:
        end = "which is late for a reason that is not recorded."
        change = f"Find out why {label} is late: nothing recorded explains it. Compare its steps"
        change += " with the others'."
    else:
        end = f"which is late: {title}."
        change = f"Make {label} as fast as the others: it is late because of {title}."
    return change, f"{label}, {end}"


def _changes(late: LateRank) -> bool:
    return late.changes and not _is_slower(late)


def _is_slower(late: LateRank) -> bool:
    """True if its kernels are slower than the others', without another cause."""
    return late.cause is None and late.kernels is not None and late.kernels >= _SLOWER


def _short(label: str) -> str:
    return label.split(" (", 1)[0]
