"""What one H200 and 16 cores must reach, and whether results show that they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Results = dict[str, dict[str, Any]]  # figures by step
_MARKED = "ImageNet-size images/s"


def _at(figures: Any, *path: str) -> Any:
    for name in path:
        figures = figures.get(name) if isinstance(figures, dict) else None
    return figures


def _hybrid(all: Results) -> tuple[bool, str] | None:
    found = (
        _at(all, "hybrid", "imagenet", "finals") or _at(all, "hybrid", "imagenet", "singly") or {}
    )
    rates = [
        of["images_per_second"]
        for name, of in found.items()
        if name.startswith(("hybrid", "nvjpeg"))
    ]
    # nvJPEG's backend is one: the native extension has what the engine does not take
    rates += [
        row["images_per_second"]
        for row in (_at(all, "engine", "imagenet") or {}).values()
        if "error" not in row
    ]
    return (max(rates) >= 25_000, f"{max(rates):,.0f}") if rates else None


def _kernel(all: Results) -> tuple[bool, str] | None:
    rates = [
        row["images_per_second"] for row in (_at(all, "kernel", "imagenet, plain") or {}).values()
    ]
    return (max(rates) >= 15_000, f"{max(rates):,.0f}") if rates else None


def _resnets(all: Results) -> list[tuple[str, Any]]:
    """(threads, its row) of ResNet-50, however it was fed."""
    steps = [all.get(step, {}) for step in ("train-torch", "train-torch-gpu")]
    named = [
        rows for found in steps for name, rows in found.items() if name.startswith("resnet50, ")
    ]
    return [pair for rows in named if "error" not in rows for pair in rows.items()]


def _real(all: Results) -> tuple[bool, str] | None:
    ratios = [
        (row["real / synthetic"], int(threads))
        for threads, row in _resnets(all)
        if threads.isdigit() and int(threads) <= 4  # others say why there are none
    ]
    if not ratios:
        return None
    best, threads = max(ratios)
    return best >= 0.98, f"{best:.3f} with {threads} threads"


def _copies(all: Results) -> tuple[bool, str] | None:
    hidden = _at(all, "overlap", "a feed, decoded by the native extension", "hidden")
    return None if hidden is None else (hidden >= 0.99, f"{hidden:.1%}")


def _verdicts(all: Results) -> tuple[bool, str] | None:
    right = {name: _at(all, "profile", name, "right") for name in ("starved", "healthy")}
    if None in right.values():
        return None
    return all_true(right), ", ".join(
        f"{name}: {'right' if was else 'wrong'}" for name, was in right.items()
    )


def _faults(all: Results) -> tuple[bool, str] | None:
    found = all.get("faults")
    if not found or "state" not in found:
        return None
    return found["state"] == "ok", (
        "every path" if found["state"] == "ok" else str(found.get("reason"))[:200]
    )


def all_true(values: dict[str, Any]) -> bool:
    """Every one of them."""
    return all(values.values())


MARKS: dict[str, Callable[[Results], tuple[bool, str] | None]] = {
    f"hybrid >= 25,000 {_MARKED}": _hybrid,
    f"kernel alone >= 15,000 {_MARKED}": _kernel,
    "real / synthetic >= 0.98 for ResNet-50 with at most 4 threads": _real,
    "copies hidden >= 99 %": _copies,
    "a verdict that is right both times": _verdicts,
    "1 % bad files on every GPU path: named exactly, nothing lost": _faults,
}


def judged(results: dict[str, dict[str, Any] | None]) -> dict[str, str]:
    """mark -> met, missed or not measured, and the figure.

    What a stand-in found is never a mark.
    """
    there = {
        name: found for name, found in results.items() if found and not found.get("stand_in", False)
    }
    figures: Results = {name: found.get("figures", {}) for name, found in there.items()}
    if there.get("faults", {}).get("state") in ("ok", "failed") and figures.get("faults"):
        figures["faults"] = figures["faults"] | {
            k: there["faults"].get(k) for k in ("state", "reason")
        }
    said = {}
    for name, judge in MARKS.items():
        found = judge(figures)
        said[name] = (
            "not measured" if found is None else f"{'met' if found[0] else 'missed'}: {found[1]}"
        )
    return said
