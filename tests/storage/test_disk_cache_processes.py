"""Cache in many processes: right bytes, never above the limit, whichever process is killed, and at
any point.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from conftest import environment
from helpers.caches import BLOCK, audit, content, fill, whole

from fastfeed.storage.disk_cache import Cache

LIMIT = 40 * BLOCK
SETUP = """
import os, random, shutil, signal, sys, threading
from helpers.caches import BLOCK, audit, content, fill, whole
from fastfeed.storage.disk_cache import Cache
folder, limit = sys.argv[1], int(sys.argv[2])
cache = Cache(folder, limit, chunk=5000)
def objects(rng):
    uri = str(rng.randrange(30))
    return uri, 1 + len(uri) * 4000 + int(uri) * 331
"""
HAMMER = """
rng = random.Random(int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
hits = 0
for i in range(400):
    uri, size = objects(rng)
    start, stop = sorted((rng.randrange(size + 1), rng.randrange(size + 1)))
    blob = content(uri, size)
    found = cache.get(uri, "1", start, stop, size)
    hits += found is not None
    if found is None:
        fetched = {}
        for number, first, last in cache.missing(uri, "1", start, stop, size):
            fetched[number] = blob[first:last]
            cache.put(uri, "1", number, fetched[number], size)
        found = cache.get(uri, "1", start, stop, size, fetched)
    assert found is None or found == blob[start:stop], (uri, start, stop)
    if i % 20 == 0:
        now = audit(folder)
        assert now.counted == now.found <= limit, now
print(hits, cache.counts["evicted"], cache.counts["unstored"], flush=True)
"""


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(code, *args)` runs a program during the test, and ends it afterwards."""
    env, started = environment(), []

    def run(code: str, *args: object) -> subprocess.Popen[str]:
        command, pipe = (
            [sys.executable, "-W", "error", "-c", SETUP + code, *map(str, args)],
            subprocess.PIPE,
        )
        started.append(
            subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, env=env, start_new_session=True
            )
        )
        return started[-1]

    yield run
    for program in started:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@pytest.mark.slow
def test_four_processes(tmp_path, start):
    """Each range is exact or missing; what is counted is what is there, at every moment, and within
    the limit.
    """
    ranks = [start(HAMMER, tmp_path, LIMIT, seed) for seed in range(4)]
    for rank in ranks:
        assert rank.stdout.readline() == "ready\n"
    for rank in ranks:  # all go at once
        rank.stdin.write("\n")
        rank.stdin.flush()
    numbers = [[int(n) for n in rank.communicate(timeout=60)[0].split()] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4
    hits, evicted, unstored = (sum(column) for column in zip(*numbers, strict=True))
    assert hits > 100 and evicted > 100 and unstored == 0
    end = audit(tmp_path)
    assert end.counted == end.found <= LIMIT and end.drafts == 0


KILLED = """
STEPS = ["open", "write", "pwrite", "ftruncate", "utime", "replace", "unlink", "close"]
at = 0

def deadly(function):
    real = getattr(os, function)
    def call(*args, **kwargs):
        global at
        at -= 1
        if at == 0 and function == "write":
            real(args[0], args[1][: len(args[1]) // 2])
        if at == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call

def run(step):
    global at
    at = step
    for function in STEPS:
        setattr(os, function, deadly(function))
    for uri in "abcde":
        fill(cache, uri, 7000)  # 2 chunks, 3 blocks: from the third object on, others make room
    os._exit(0)

survived, step, drafts = 0, 1, 0
while not survived:
    fill(cache, "first", 10)
    child = os.fork()
    if not child:
        run(step)
    survived = os.waitpid(child, 0)[1] == 0
    now = audit(folder)
    assert now.found <= now.counted and now.found <= limit, (step, now)
    drafts += now.drafts
    for uri in "abcde":
        assert whole(cache, uri, 7000) in (None, content(uri, 7000)), (step, uri)
    for uri in "xyz":  # the limit is met: what the dead left is removed
        assert fill(cache, uri, 7000) == whole(cache, uri, 7000), (step, uri)
    now = audit(folder)
    assert now.counted == now.found <= limit and not now.drafts, (step, now)
    shutil.rmtree(folder)
    step += 1
print(step, drafts)
"""


def test_killed_at_any_step(tmp_path, start):
    """A process that puts objects is killed before its first system call, then before its second,
    and so on.
    """
    killed = start(KILLED, tmp_path, 8 * BLOCK)
    steps, drafts = map(int, killed.communicate(timeout=60)[0].split())
    assert killed.returncode == 0
    assert steps > 150, "it was killed at as many places"
    assert drafts > 15, "and often while it was writing"


FORKING = """
stop = threading.Event()
def put(seed):
    rng = random.Random(seed)
    while not stop.is_set():
        fill(cache, *objects(rng))
threads = [threading.Thread(target=put, args=(seed,), daemon=True) for seed in range(3)]
for thread in threads:
    thread.start()
children = []
for i in range(40):
    child = os.fork()
    if not child:
        rng = random.Random(i)
        for _ in range(3):
            uri, size = objects(rng)
            assert fill(cache, uri, size) == content(uri, size)
            assert whole(cache, uri, size) in (None, content(uri, size))
        if i < 3:
            signal.pause()  # keeps its copies of everything that was open
        os._exit(0)
    if i < 3:
        children.append(child)
    else:
        assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()

write, writing, go = os.write, threading.Event(), threading.Event()
def slow(fd, data):
    writing.set()
    go.wait()
    return write(fd, data)
os.write = slow
thread = threading.Thread(target=fill, args=(cache, "slow", 100), daemon=True)
thread.start()
writing.wait()
child = os.fork()
if not child:
    fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    os._exit(any(os.readlink(fd).startswith(folder) for fd in fds if os.path.lexists(fd)))
assert os.waitpid(child, 0)[1] == 0, "the child holds files of the cache"
go.set()
thread.join()
os.write = write

for i in range(30):
    fill(cache, str(i), 8000)
now = audit(folder)
assert now.counted == now.found <= limit and not now.drafts, now
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print("done")
"""


def test_forks_while_threads_write(tmp_path, start):
    """No lock is inherited shut, and no copy of a descriptor keeps one."""
    forking = start(FORKING, tmp_path, LIMIT)
    assert forking.communicate(timeout=60)[0] == "done\n"
    assert forking.returncode == 0


def test_a_later_run_finds_what_was_kept(tmp_path, start):
    start("print(len(fill(cache, 'x', 12000)))", tmp_path, LIMIT).communicate(timeout=60)
    cache = Cache(tmp_path, LIMIT, chunk=5000)
    assert whole(cache, "x", 12000) == content("x", 12000)
    assert fill(cache, "y", 100) == whole(cache, "y", 100)
    assert audit(tmp_path).chunks == 4
