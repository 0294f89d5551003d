"""The executor's calls: what they refuse, and that nothing a caller does crashes the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg

from fastfeed.decode.executor import Executor
from fastfeed.ops import Decode
from fastfeed.runtime.extension import is_built
from fastfeed.runtime.thread_pool import CancelToken

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")

NEVER = threading.Event()


def kernel() -> Any:
    return Executor(None, 1).native


def program(**fields: Any) -> dict[str, Any]:
    """Of pixels that are left as they are."""
    size = {"height": 4, "width": 4, "out_height": 4, "out_width": 4, "channels": 3, "views": 1}
    rest = {
        "encoded": False,
        "whole": False,
        "filter": 0,
        "enlarge": 1.5,
        "max_pixels": 0,
        "border": 0,
        "matte": (0, 0, 0),
    }
    return (
        size
        | rest
        | {"fill": (0, 0, 0), "layers": (), "table": None, "planar": False, "noise": None}
        | fields
    )


def render(out: np.ndarray, samples: int = 2, stop: Any = NEVER, **fields: Any) -> int:
    native = kernel()
    images = np.zeros((samples, 4, 4, 3), np.uint8)
    codes, spans = np.empty(samples, np.int8), np.empty((samples, 5), np.int64)
    return native.Executor(1).render(
        native.Program(program(**fields)),
        native.Samples.of_images(images, np.arange(samples)),
        np.zeros(samples, bool),
        *(None, None, None),
        (),
        out,
        codes,
        spans,
        stop,
    )


@pytest.mark.parametrize("threads", [0, -1, 2**31 - 1])
def test_a_number_of_threads_that_no_machine_has_is_refused(threads):
    with pytest.raises(ValueError, match="threads must be in"):
        kernel().Executor(threads)


@pytest.mark.parametrize(
    "out",
    [np.zeros((), np.uint8), np.zeros((1, 4, 4, 3), np.uint8), np.zeros((2, 4, 4, 1), np.uint8)],
    ids=["no rows", "too few rows", "rows too short"],
)
def test_a_batch_of_another_shape_is_refused(out):
    with pytest.raises(ValueError, match="out"):
        render(out)


def test_a_batch_that_is_not_aligned_is_refused():
    table = np.arange(768, dtype=np.float32).tobytes()
    aligned = np.zeros(2 * 4 * 4 * 3 * 4 + 4, np.uint8)
    with pytest.raises(ValueError, match="aligned"):
        render(aligned[1:-3].view(np.float32).reshape(2, 4, 4, 3), table=table)


def test_a_program_whose_sizes_overflow_is_refused():
    with pytest.raises(ValueError, match="smaller images"):
        kernel().Program(
            program(height=2**24, width=2**24, out_height=2**24, out_width=2**24, views=65536)
        )


def test_images_that_do_not_lie_behind_each_other_are_refused():
    images = np.zeros((4, 8, 8, 3), np.uint8)[:, :, ::2]
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        kernel().Locations(4).images(None, images, np.arange(4))


def test_pixels_put_with_a_size_that_no_image_has_are_refused():
    samples = kernel().Samples.of_images(np.zeros((1, 4, 4, 3), np.uint8), np.arange(1))
    with pytest.raises(ValueError, match="sides"):
        samples.put(0, b"abc", 10**9, -1, -1)


def test_an_error_while_asking_for_a_stop_is_raised_after_the_threads_have_ended():
    class Raises:
        def is_set(self) -> bool:
            raise KeyboardInterrupt

    out = np.zeros((64, 4, 4, 3), np.uint8)
    with pytest.raises(KeyboardInterrupt):
        render(out, 64, Raises(), wait_ns=20_000_000)
    render(out, 64)


def test_a_cancel_token_is_read_without_asking_python():
    class Unasked(CancelToken):
        def is_set(self) -> bool:
            raise AssertionError("asked with the interpreter's lock")

    outer = CancelToken()
    stop = Unasked(CancelToken(outer))
    out = np.full((1000, 4, 4, 3), 7, np.uint8)
    outer.set()
    render(out, len(out), stop, wait_ns=20_000_000)
    assert out[-1].all(), "left out"


def test_samples_that_a_stop_left_out_are_not_called_bad():
    stop = threading.Event()
    stop.set()
    executor = Executor(Decode(), 2)
    samples = executor.borrow([jpeg(1)] * 20_000, stop)
    assert not samples.bad
    assert set(samples.codes.tolist()) <= {0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")
def test_no_tasks_of_python_end_at_once():
    executor = Executor(Decode(), 1)
    assert executor.start_python([], NEVER)._done.wait(10)
    executor.close()


def test_a_forked_child_reads_with_memory_of_its_own(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(jpeg(1))
    script = f"""
import os, threading, time
import numpy as np
from fastfeed.decode.executor import Executor
from fastfeed.ops import Decode
from fastfeed.runtime.addresses import WholeFiles
name = np.frombuffer(b{os.fsencode(path)!r}, np.uint8)
files = WholeFiles(b"", name, np.array([len(name)]), np.zeros(64, np.int64), None)
executor, never = Executor(Decode(), 2), threading.Event()
stop = threading.Event()
def read():
    while not stop.is_set():
        executor.read(files, 1 << 30, never)
threads = [threading.Thread(target=read) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(20):
    time.sleep(0.01)
    child = os.fork()
    if child == 0:
        codes = []
        first = [threading.Thread(target=lambda: codes.append(executor.read(files, 1 << 30, never).codes.any()))
                 for _ in range(4)]  # at once
        for thread in first: thread.start()
        for thread in first: thread.join()
        os._exit(0 if codes == [False] * 4 else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    if ended[0] == 0:
        os.kill(child, 9)
    assert ended == (child, 0), ended
stop.set()
for thread in threads: thread.join()
""".replace(f"b{os.fsencode(path)!r}", repr(os.fsencode(path)))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_process_ends_while_a_daemon_thread_makes_a_batch():
    script = """
import threading, time
import numpy as np
import test_executor
out = np.zeros((500, 4, 4, 3), np.uint8)
waiting = {"wait_ns": 20_000_000}
threading.Thread(target=test_executor.render, args=(out, 500), kwargs=waiting, daemon=True).start()
time.sleep(0.3)
"""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
