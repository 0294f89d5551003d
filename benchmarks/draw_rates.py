"""Draws `docs/rates.svg`, the plot in README, from `results/decode.json`: images per second of
fastfeed and others.

python benchmarks/draw_rates.py
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PICTURE = ROOT / "benchmarks/results/decode.json", ROOT / "docs/rates.svg"
PANELS = {
    "imagenet-sample, random crop": "ImageNet-size JPEGs, random resized crop",
    "photos-large, random crop": "Photographs of 6 to 21 megapixels, random resized crop",
    "photos-large, whole image": "The same photographs, whole image",
}
NAMES = {
    "fastfeed kernel": "fastfeed",
    "jpeg_limit": "libjpeg-turbo, in C",
    "fastfeed pillow": "Pillow",
    "pyvips thumbnail": "pyvips",
    "DALI fused": "DALI",
    "tf.data": "tf.data",
}
WIDTH, LEFT, RIGHT, ROW, BAR, HEAD, GAP = 760, 140, 60, 24, 14, 30, 16  # pixels
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.head { font-weight: 600 }
.rate { font-variant-numeric: tabular-nums }
.note { font-size: 12px; fill: #59636e }
.ours { fill: #1f6feb }
.other { fill: #afb8c1 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note { fill: #9198a1 }
  .ours { fill: #58a6ff }
  .other { fill: #57606a }
}
"""


def picture(measured: dict[str, Any]) -> str:
    """The SVG: a panel per task, a bar per library, from the fastest to the slowest."""
    parts: list[str] = []
    top = 0
    for key, heading in PANELS.items():
        rates = {
            NAMES[name]: row["images_per_second"]
            for name, row in measured["result"][key].items()
            if name in NAMES
        }
        parts.append(f'<text class="head" x="0" y="{top + 16}">{escape(heading)}</text>')
        top += HEAD
        for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
            length = (WIDTH - LEFT - RIGHT) * rate / max(rates.values())
            kind = "ours" if name == "fastfeed" else "other"
            bar, middle = top + (ROW - BAR) // 2, top + ROW // 2 + 4
            parts += [
                f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>',
                (
                    f'<rect class="{kind}" x="{LEFT}" y="{bar}" width="{length:.0f}" height="{BAR}"'
                    ' rx="2"/>'
                ),
                f'<text class="rate" x="{LEFT + length + 8:.0f}" y="{middle}">{rate:,.0f}</text>',
            ]
            top += ROW
        top += GAP
    cores, cpu = measured["machine"]["cores"], measured["machine"]["cpu"]
    note = (
        f"Images per second to 224 x 224 pixels, {cores} threads on {cores} cores ({cpu}), medians."
        " Longer is better."
    )
    parts.append(f'<text class="note" x="0" y="{top + 12}">{escape(note)}</text>')
    size = f'width="{WIDTH}" height="{top + 22}" viewBox="0 0 {WIDTH} {top + 22}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}'
        f' role="img">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(json.loads(RESULTS.read_text())))
    print(PICTURE)
