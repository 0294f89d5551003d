"""Draw the pictures of docs/augmentations.md: python docs/augmentations/draw.py"""

import subprocess
import sys
import tempfile
from pathlib import Path

from fastfeed.cli.show.ops import FAMILIES
from fastfeed.demo.photos import photograph

HERE = Path(__file__).parent
PHOTOGRAPHS = (
    ("pyramid", 6),
    ("lighthouse", 2),
    ("dome", 5),
    ("skyline", 4),
)  # the first is drawn, others mixed in

with tempfile.TemporaryDirectory() as folder:
    for i, (name, index) in enumerate(PHOTOGRAPHS):
        (Path(folder) / f"{i}-{name}.jpg").write_bytes(photograph("train", name, index))
    for family in FAMILIES:
        out = HERE / f"{family}.webp"
        command = ["show", folder, "--ops", family, "--size", "92", "--out", str(out)]
        subprocess.run(
            [sys.executable, "-c", "from fastfeed.cli import main; main()", *command], check=True
        )
