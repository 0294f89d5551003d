"""Runs a job again and again, each time in a process of its own that has imported all it needs:
python job_driver.py SRC DST. Each line of input starts one; it prints that process's number, and
how it ended.
"""

from __future__ import annotations

import os
import sys

from fastfeed.preprocess.job.job import run
from fastfeed.preprocess.model.recipe import Packing, Recipe, Scaling

RECIPE = Recipe(Scaling(64), packing=Packing(samples=4))


def main() -> None:
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                status = 0 if run(sys.argv[1], sys.argv[2], RECIPE, workers=2).complete else 3
            finally:
                os._exit(status)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
