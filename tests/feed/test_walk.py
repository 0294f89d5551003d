"""The files from a sample id to its pixels, as fastfeed/README.md lists them."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import numpy as np
from PIL import Image

import fastfeed as ff

PACKAGE = Path(ff.__file__).parent
BUILDER = str(PACKAGE / "feed/batch/builder.py")
KEEP_COUNT = ("feed/batch/pending_batch.py", "feed/batch/annotations.py", "ops/base.py")
KEEP_COUNT += ("feed/faults/quarantine.py", "sampling/", "runtime/")


def entered(frame, files):
    file = frame.f_code.co_filename
    caller = frame
    while caller is not None and caller.f_code.co_filename != BUILDER:
        caller = caller.f_back
    if caller is not None and file.startswith(str(PACKAGE)):
        files.add(Path(file).relative_to(PACKAGE).as_posix())


def test_twelve_files_from_a_sample_id_to_its_pixels(tmp_path):
    text = (PACKAGE / "README.md").read_text("utf-8")
    (block,) = re.findall(r"goes through twelve files.*?```text\n(.*?)```", text, re.S)
    listed = [line.split()[0] for line in block.splitlines()]
    (tmp_path / "a").mkdir()
    for number in range(4):
        Image.fromarray(np.full((16, 16, 3), 60 * number, np.uint8)).save(
            tmp_path / f"a/{number}.jpg"
        )
    files: set[str] = set()

    def profile(frame, event, argument):
        if event == "call":
            entered(frame, files)

    ops = [ff.RandomResizedCrop(8), ff.RandomFlip(), ff.Normalize.imagenet()]
    source = ff.ImageFolder(tmp_path)
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        with ff.Feed(source, ops, batch=4, threads=1, prefetch=0) as feed:
            list(feed)
            files.clear()  # of the first batch: also what is loaded once
            list(feed)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert len(listed) == 12
    assert {file for file in files if not file.startswith(KEEP_COUNT)} == set(listed)
