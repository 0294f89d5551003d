"""A feed in a process that was forked from the one which made it."""

from __future__ import annotations

FORK = """
import os, threading
import numpy as np, fastfeed as ff
from fastfeed.errors import FeedClosed
feed = ff.Feed(ff.Arrays(np.zeros((64, 8, 8, 3), "uint8")), [], batch=4, threads=2)
walk = iter(feed)
next(walk)
child = os.fork()
if child == 0:
    try:
        next(walk)
    except FeedClosed as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 7, status
assert len(list(walk)) == 15, "the parent continues"
feed.close()
"""


def test_a_forked_child_is_told_instead_of_hanging(python):
    done = python("import warnings; warnings.simplefilter('ignore')\n" + FORK)
    assert done.returncode == 0, done.stderr
    text = (
        "this feed was started before fork(), its threads are missing here; create the feed in the"
        " child, or pass num_workers=0 if this is a worker of a DataLoader\n"
    )
    assert done.stdout == text
