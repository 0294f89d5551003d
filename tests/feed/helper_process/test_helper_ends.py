"""How a feed with a helper process ends: closed, dropped, interrupted, killed, forked.

No process may be left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import environment
from helpers.feeds import ours
from helpers.helper_feeds import LONG, Stuck, appears, ended, gone, helper, side

from fastfeed.errors import FeedClosed
from fastfeed.feed.session import FeedSession

pytestmark = pytest.mark.slow


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Without the collector: what is dropped must go by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_closing_ends_the_helper():
    data = side()
    next(iter(data))
    pid = helper(data)
    data.close()
    assert gone(pid)
    assert not ours()


def test_dropping_a_feed_ends_the_helper(no_garbage):
    data = side()
    for _ in data:
        break
    pid = helper(data)
    del data
    assert gone(pid)
    assert not ours()


def test_a_walk_outlives_its_feed(no_garbage):
    data = side()
    walk = data.batches()
    next(walk)
    pid = helper(data)
    del data
    assert len(list(walk)) == 4
    del walk
    assert gone(pid)


def test_a_feed_whose_place_holds_it_is_collected():
    def begun() -> int:
        data = side()
        next(FeedSession.of(data).placed(lambda batch: (data, batch)))
        return helper(data)

    pid = begun()
    gc.collect()
    assert gone(pid)


def test_an_exception_in_user_code_leaves_nothing(no_garbage):
    pids = []

    def train() -> None:
        data = side()
        for _ in data:
            pids.append(helper(data))
            raise KeyError("user's own")

    with contextlib.suppress(KeyError):
        train()
    assert gone(pids[0])
    assert not ours()


def test_a_feed_that_was_never_asked_starts_nothing():
    data = side()
    data.seek(1, 2)
    data.batches().close()
    assert FeedSession.of(data).producer._client is None
    data.close()


def test_a_closed_feed_says_so():
    data = side()
    walk, other = iter(data), data.batches()
    next(walk)
    next(other)
    data.close()
    data.close()
    for use in (
        lambda: next(walk),
        lambda: next(other),
        lambda: next(iter(data)),
        lambda: next(data.batches()),
    ):
        with pytest.raises(FeedClosed):
            use()


def test_a_closed_walk_says_so():
    with side() as data:
        walk = data.batches()
        next(walk)
        walk.close()
        assert walk.closed
        with pytest.raises(FeedClosed, match="these batches were closed"):
            next(walk)
        assert len(list(data)) == 5


@pytest.mark.parametrize("which", ["feed", "walk"])
def test_closing_lets_a_waiting_consumer_go(tmp_path, which):
    errors: list[str] = []
    data = side(Stuck(tmp_path))
    walk = data.batches()

    def consume() -> None:
        try:
            next(walk)
        except FeedClosed as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    appears(tmp_path / "asked")
    pid = helper(data)
    {"feed": data.close, "walk": walk.close}[which]()
    consumer.join(LONG)
    assert errors == ["the feed was closed while waiting for a batch"]
    data.close()
    assert gone(pid), "although its threads were in reads that do not return"


def test_an_iteration_that_is_over_may_be_asked_again():
    with side() as data:
        walk = data.batches()
        assert len(list(walk)) == 5
        assert next(walk, None) is None
        assert next(walk, None) is None


PARENT = """
import os, sys
import numpy as np, fastfeed as ff
feed = ff.Feed(ff.Arrays(np.zeros((64, 8, 8, 3), "uint8")), [], batch=4, threads=2, side_process=True)
walk, aside = iter(feed), feed.batches(3)
next(walk), next(aside)
from fastfeed.feed.session import FeedSession
print(FeedSession.of(feed).producer._client.process.pid, flush=True)
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise KeyError('user')", 1), ("del feed; del walk", 0)],
)
def test_the_interpreter_may_end_in_the_middle(python, how, code):
    done = python(PARENT + how)
    assert done.returncode == code, done.stderr
    assert ended(int(done.stdout))
    assert done.stderr == "" or (code == 1 and done.stderr.rstrip().endswith("KeyError: 'user'"))


def start(code: str) -> tuple[subprocess.Popen[str], int]:
    """A program that prints the process of its helper, and both of them."""
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    assert child.stdout is not None
    return child, int(child.stdout.readline())


def test_a_helper_ends_when_its_parent_is_killed():
    child, pid = start(PARENT + "import time; time.sleep(600)")
    child.kill()
    child.communicate()
    assert ended(pid)


def test_a_helper_ends_even_if_a_forked_process_holds_its_socket():
    child, pid = start(
        PARENT
        + "import warnings, time; warnings.simplefilter('ignore'); os.fork(); time.sleep(600)"
    )
    child.kill()
    child.wait()
    assert ended(pid)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


INTERRUPTED = (
    "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    + PARENT.replace("print(", "report = lambda: print(")
    + """
from fastfeed.feed.session import FeedSession
try:
    report()
    {}
except KeyboardInterrupt:
    print(FeedSession.of(feed).producer._client.process.poll(), len(list(feed)), flush=True)
    feed.close()
"""
)


@pytest.mark.parametrize("at", ["time.sleep(600)", "[None for _ in feed.batches(0, 0, None)]"])
def test_ctrl_c_goes_to_the_trainer_alone(at):
    child, pid = start(INTERRUPTED.format(at))
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to both
    out, err = child.communicate(timeout=LONG)
    assert (child.returncode, out.split()[0], err) == (0, "None", "")
    assert ended(pid)


FORK = """
child = os.fork()
if child == 0:
    for use in (lambda: next(walk), lambda: next(feed.batches())):
        try:
            use()
        except ff.errors.FeedClosed as error:
            print(error, flush=True)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert len(list(walk)) == 15, "the parent continues"
feed.close()
"""


def test_a_forked_child_is_told_instead_of_hanging(python):
    done = python("import warnings; warnings.simplefilter('ignore')\n" + PARENT + FORK)
    assert done.returncode == 0, done.stderr
    told = (
        "this feed was started before fork(), its helper process belongs to the parent; create the"
        " feed in the child\n"
    )
    assert done.stdout.split("\n", 1)[1] == told * 2
    assert done.stderr == ""


def test_a_feed_made_before_fork_and_not_started_works_in_the_child(python):
    code = PARENT.split("walk, aside")[0]
    done = python(
        code + "import warnings; warnings.simplefilter('ignore')\nchild = os.fork()\n"
        "print(len(list(feed)), flush=True)\nfeed.close()\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    assert (done.stdout, done.stderr) == ("16\n16\n", "")


def test_starting_and_closing_in_a_hurry():
    for _ in range(3):
        with side() as data:
            consumer = threading.Thread(target=take, args=(data.batches(),))
            consumer.start()
            while (
                FeedSession.of(data).producer._client is None
                or FeedSession.of(data).producer._client.process is None
            ):
                consumer.join(0.01)
            pid = helper(data)
        consumer.join(LONG)
        assert gone(pid)


def take(walk: Any) -> None:
    with contextlib.suppress(FeedClosed):
        next(walk)
