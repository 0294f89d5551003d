"""How reads from storage end: with the program, by Ctrl-C, in a forked process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from conftest import environment
from helpers.lakes import DATA
from helpers.sites import Site, served

SETUP = """
import asyncio, signal, sys, threading, time, os
import fsspec
from fsspec.asyn import AsyncFileSystem
from fastfeed.storage.storage import ByteRange, Storage
reached = threading.Event()
class Hangs(AsyncFileSystem):
    protocol = "hangs"
    async def _cat_file(self, path, start=None, end=None, **more):
        reached.set()
        await asyncio.sleep(3600)
class Blocks(fsspec.AbstractFileSystem):
    protocol = "blocks"
    def cat_file(self, path, start=None, end=None, **more):
        reached.set()
        time.sleep(3600)
for one in (Hangs, Blocks):
    fsspec.register_implementation(one.protocol, one)
spans = [ByteRange(f"{sys.argv[1]}://a", i, i + 10) for i in range(300)]
store = Storage()
"""

EXIT = """
found = store.fetch(spans)
assert reached.wait(20)
print("reading", flush=True)
{}
"""


@pytest.mark.parametrize(
    ("kind", "how", "code"),
    [
        ("blocks", "sys.exit(3)", 3),
        ("hangs", "raise KeyError('user')", 1),
        pytest.param("hangs", "", 0, marks=pytest.mark.slow),
        pytest.param("blocks", "del found, store", 0, marks=pytest.mark.slow),
    ],
)
def test_the_interpreter_may_end_in_the_middle(python, kind, how, code):
    done = python(SETUP + EXIT.format(how), kind)
    assert (done.returncode, done.stdout) == (code, "reading\n"), done.stderr
    assert done.stderr == "" or (code == 1 and done.stderr.rstrip().endswith("KeyError: 'user'"))
    assert "pending" not in done.stderr


INTERRUPT = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without
def tell():
    assert reached.wait(20)
    print("reading", flush=True)
threading.Thread(target=tell).start()
try:
    store.read(spans)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("kind", ["hangs", "blocks"])
def test_ctrl_c_while_waiting(kind):
    with subprocess.Popen(
        [sys.executable, "-c", SETUP + INTERRUPT, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        child.send_signal(signal.SIGINT)
        try:
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, out, err) == (0, "interrupted\n", "")


FORK = """
import os, sys, warnings
import fsspec
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import ByteRange, Storage
warnings.simplefilter("ignore", DeprecationWarning)  # of fork, where there are threads
fsspec.filesystem("memory").pipe_file("/x", b"0123456789")
spans = [ByteRange(sys.argv[1], i, i + 10) for i in range(100)] + [ByteRange("memory://x")]
store = Storage(in_flight=8, policy=RetryPolicy(hedge=False))
assert all(len(data) == 10 for data in store.read(spans))
found = store.fetch(spans)
child = os.fork()
if child == 0:
    ok = all(len(data) == 10 for data in store.read(spans))
    store = found = None
    os._exit(7 if ok else 1)
assert all(len(pending.result(20)) == 10 for pending in found)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert all(len(data) == 10 for data in store.read(spans))
print("both")
"""


def test_a_forked_child_reads_by_connections_and_threads_of_its_own(python):
    pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")
    with served(Site({"/a.bin": DATA})) as site:
        done = python(FORK, f"{site.url}/a.bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "both\n", "")
    assert 8 < site.connections <= 16
