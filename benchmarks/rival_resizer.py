"""img2dataset's Resizer in a process of its own, for it must not run in threads: python
rival_resizer.py SIDE FILES...

Runs in an environment that has img2dataset; `wandb`, which it imports and does not use here, is
stood in for. Says "ready"; for each line it is sent, does all files once and answers with their
number and the processor time they took.
"""

import io
import sys
import time
import types

sys.modules.setdefault("wandb", types.ModuleType("wandb"))

import cv2  # noqa: E402
from img2dataset.resizer import Resizer  # noqa: E402

cv2.setNumThreads(1)
side, paths = int(sys.argv[1]), sys.argv[2:]
blobs = [open(path, "rb").read() for path in paths]  # noqa: SIM115  a process that ends soon
# as its README advises: keep_ratio makes the short side `side`; the interpolation for shrinking is
# its default, area
resizer = Resizer(
    image_size=side,
    resize_mode="keep_ratio",
    resize_only_if_bigger=True,
    encode_quality=90,
    encode_format="jpg",
    skip_reencode=False,
)
out = open(1, "w", closefd=False)  # noqa: SIM115
out.write("ready\n")
out.flush()
for _ in sys.stdin:
    busy = time.process_time()
    done = 0
    for blob in blobs:
        *_, error = resizer(io.BytesIO(blob))
        done += not error
    out.write(f"{done} {time.process_time() - busy}\n")
    out.flush()
