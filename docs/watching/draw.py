"""Draws the pictures of docs/watching.md: python docs/watching/draw.py

Two ranks on two GPUs whose figures are made up: the tests' feeds and their stand-in for NVML. The web page needs
Chromium.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from helpers.fake_nvml import FakeNvml
from helpers.live_pages import Trainer
from helpers.profiler.browser import browser, found
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from fastfeed.live.nvml import Gpus
from fastfeed.live.screen import screen
from fastfeed.live.serve import Server
from fastfeed.live.watch import View, Watch

HERE = Path(__file__).parent
THEME = TerminalTheme(
    (15, 18, 22), (230, 233, 237),
    [
        *((0, 0, 0), (255, 123, 114), (74, 194, 107), (217, 165, 32)),
        *((88, 166, 255), (194, 151, 255), (86, 211, 219), (230, 233, 237)),
    ],
)  # fmt: skip


def view() -> View:
    """The end of four minutes, in the middle of which one rank began to starve."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [Trainer(Path(folder), rank, name="imagenet", steps=5004) for rank in (0, 1)]
        gpus = Gpus(FakeNvml(devices=2, gpm={2: 64.0, 10: 31.0, 40: 0.0, 21: 1300.0}))
        watch = Watch([folder], None, gpus, clock=lambda: ranks[1].now)
        for second in range(240):
            ranks[0].now = ranks[1].now
            ranks[1].train(1, 0.004 if second < 110 else min(0.31, 0.02 * (second - 110)), 2 if second < 110 else 0)
            ranks[0].train(1, 0.003)
            last = watch.look()
    return last


def terminal(shown: View, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    console.print(screen(shown, width))
    return console.export_svg(title="fastfeed watch", theme=THEME, unique_id=f"watch{width}")


def main() -> None:
    """All pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    shown = view()
    for width in (80, 160):
        (folder / f"terminal{width}.svg").write_text(terminal(shown, width))
    if found() is None:
        print("no Chromium: the web page is not drawn", file=sys.stderr)
        return
    server = Server("127.0.0.1", 0, "--web")
    server.view = shown
    try:
        with browser() as chrome:
            for name, width, dark in (
                ("desk", 1000, False),
                ("desk_dark", 1000, True),
                ("phone", 390, False),
                ("phone_dark", 390, True),
            ):
                with chrome.tab(server.url + "/", width, dark=dark, touch=width < 600) as tab:
                    tab.wait("document.querySelector('article') !== null")
                    (folder / f"web_{name}.png").write_bytes(tab.picture())
    finally:
        server.close()


if __name__ == "__main__":
    os.environ.setdefault("FASTFEED_LIVE", tempfile.gettempdir())
    main()
