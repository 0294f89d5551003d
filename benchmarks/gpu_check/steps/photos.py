"""Two sets of photographs, made here: ImageNet-size, and 12 megapixels.

Steps after this one use them.
"""

from __future__ import annotations

import shutil
from typing import Any

from benchmarks.gpu_check.parts import photos
from benchmarks.gpu_check.parts.setting import Setting


def run(context: Any) -> None:
    import os

    from benchmarks.gpu_check.parts import bare

    bare.fill()
    folder = context.work / "photos"
    shutil.rmtree(folder, ignore_errors=True)
    partial = context.work / "photos.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    told = Setting(False, context.stand_in, len(os.sched_getaffinity(0)), partial, None)
    for name, figures in photos.run(told).items():
        context.note(name, figures)
    partial.rename(folder)
