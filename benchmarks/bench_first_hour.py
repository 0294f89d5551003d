"""How long does a newcomer wait?

README's first program, a report of a trace, and shards of a folder, as commands.

Each is run in a process of its own, on 160 photographs of five classes. Installing is not measured.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rounds import DATA, arguments, finish

ROOT = Path(__file__).resolve().parents[1]
TRACE = DATA / "traces" / "kineto" / "tb_resnet50_nw0_span1.pt.trace.json.gz"
LIMIT_S = {"first training": 300, "why is my GPU idle": 120, "shards of a folder": 120}  # asked


def main() -> None:
    options = arguments(__doc__, rounds=3)
    seconds: dict[str, list[float]] = {name: [] for name in LIMIT_S}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copytree(DATA / "flowers5" / "train", place / "photos")
        (place / "first.py").write_text(first_program((ROOT / "README.md").read_text()))
        fastfeed = str(Path(sys.executable).with_name("fastfeed"))
        commands = {
            "first training": [sys.executable, "first.py"],
            "why is my GPU idle": [fastfeed, "analyze", str(TRACE)],
            "shards of a folder": [fastfeed, "preprocess", "photos", "shards", "--size", "512"],
        }
        for _ in range(options.rounds):
            for name, command in commands.items():
                shutil.rmtree(place / "shards", ignore_errors=True)
                begin = time.perf_counter()
                subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
                seconds[name].append(round(time.perf_counter() - begin, 1))
        photographs = len(list(place.glob("photos/*/*.jpg")))
    rows: list[dict[str, Any]] = [
        {
            "step": name,
            "median_s": statistics.median(times),
            "rounds_s": times,
            "asked_s": LIMIT_S[name],
        }
        for name, times in seconds.items()
    ]
    finish(
        "How long does a newcomer wait?", {"photographs": photographs, "rows": rows}, options.out
    )


def first_program(readme: str) -> str:
    """The first block of Python."""
    block = re.search(r"^```python\n(.*?)^```", readme, re.M | re.S)
    assert block, "README begins with a program"
    return block[1]


if __name__ == "__main__":
    main()
