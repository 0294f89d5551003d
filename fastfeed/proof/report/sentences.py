"""The sentences that every report shows."""

from __future__ import annotations

import math

from fastfeed.printable import printable
from fastfeed.profiler.model.causes import STARVED
from fastfeed.proof.step_costs import StepCosts, word

PARTS = {
    "step": "the trainer itself, with a batch that is on the device already",
    "copy": "handing a batch over and copying it to the device",
    "contention": "the feed's threads take CPU time from the trainer",
    "preparation": "waiting for batches whose files are in the page cache",
    "fetch": "waiting for storage",
    "loading": "waiting for the loader, and its use of the trainer's cores",
}
MODES = {
    "resident": "one batch, on the device",
    "cached": "finished batches in host memory",
    "busy": "the same, while the feed decodes in parallel",
    "warm": "real batches, files in the page cache",
    "cold": "real batches, files not in the page cache",
    "real": "real batches",
}
_TOO_MANY = 100  # times as long


def percent(share: float) -> str:
    """Format a share: 0.123 is "12.3 %"."""
    value = round(100 * share, 1 if abs(share) < 0.9995 else 0) + 0.0  # no "-0.0"
    return f"{value:.1f} %" if abs(share) < 0.9995 else f"{value:,.0f} %"


def ms(ns: float) -> str:
    """Milliseconds, to three digits or so."""
    value = ns / 1e6
    digits = next((n for n, least in enumerate((1e4, 100, 1)) if abs(value) >= least), 3)
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # no "-0.000"


def rate(images: float) -> str:
    """Format a number of images per second."""
    return (
        f"{images:,.0f}" if images >= 100 else f"{images:.1f}" if images >= 10 else f"{images:.2f}"
    )


def shown(name: str) -> str:
    """A name as a terminal or a page may show it."""
    return printable(name, None)


def faster(gain: float) -> str:
    """Gain in images per second, in words."""
    return f"be {1 + gain:.1f} times as fast" if gain >= 1 else f"be {percent(gain)} faster"


def headline(proof: StepCosts) -> str:
    """Largest gain that a faster feed could bring, as a sentence."""
    real = proof.real
    resident = proof.steps["resident"]
    low, high = (max(0.0, end / real.ns) for end in (proof.input.low, proof.input.high))
    found = (
        f"A step takes {ms(real.ns)} ms, of which its input costs {percent(proof.input_share)} "
        f"({percent(low)} to {percent(high)})"
    )
    if word(proof) == "not_starved":
        return (
            f"{found}: with an infinitely fast feed, training could {faster(proof.gain)} at most."
        )
    if word(proof) == "unsure":
        return f"{found}: too little is known to say. {longer(proof)}"
    return (
        f"{found}: with an infinitely fast feed, training could {faster(proof.gain)} at most,"
        f" {ms(resident.ns)} ms per step instead of {ms(real.ns)}."
    )


def longer(proof: StepCosts) -> str:
    """Advice on how long to measure; widths fall with the square root of the time."""
    half = (proof.input.high - proof.input.low) / 2
    distance = max(abs(proof.input.ns - STARVED * proof.real.ns), 0.01 * proof.real.ns)
    times = math.ceil((half / distance) ** 2)
    if times > _TOO_MANY:
        return "The machine is too noisy for this: measure when nothing else runs on it."
    return f"Measure {max(2, times)} times as long, or when nothing else runs on this machine."


def cannot(proof: StepCosts) -> str:
    """Limit that no feed can pass, as a sentence."""
    mode = "resident" if proof.steps["resident"].ns < proof.real.ns else proof.slowest
    left = percent(1.0 - proof.input_share) if proof.input_share >= 0.0005 else ""
    limit = (
        f"{ms(proof.steps[mode].ns)} ms per step, {rate(proof.images_per_second(mode))} images/s"
    )
    own = f"the other {left}" if left else "all of it"
    return f"No feed can make it faster than {limit}: {own} is the trainer itself."
