"""What only POSIX or Linux has is used in one place, and without it the plain ways of everything
work.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fastfeed"
ELSEWHERE = re.compile(
    r"\b(import"
    r" (fcntl|resource|msvcrt|pwd|grp)\b|os\.(fork|register_at_fork|pread|pwrite|memfd_create|sched_\w+|"
    r"statvfs|getuid|geteuid|uname|posix_\w+|O_CLOEXEC|O_NONBLOCK|O_NOFOLLOW|O_BINARY|sysconf)\b|"
    r"hasattr\(os, |select\.e?poll\b|signal\.(SIGKILL|SIGHUP|SIGQUIT|pthread_\w+)|"
    r"ctypes\.CDLL\(None)"
)
LINUX = {  # what runs on Linux alone, and is not imported elsewhere
    "preprocess/workers/lifeline.py": "in a worker process, which no other system starts",
    "preprocess/workers/worker.py": "a worker process",
    **dict.fromkeys(
        ("feed/helper_process/client.py", "feed/helper_process/server.py"),
        "the helper process: the producer asks for shared memory first",
    ),
    **dict.fromkeys(
        ("live/", "cli/watch.py", "runtime/live_folder.py", "runtime/live_page.py"),
        "`fastfeed watch`: a feed runs without its page",
    ),
    "profiler/runner/": "`fastfeed profile` says that it needs Linux",
}

# in a process of its own: the standard library and other packages first, which know each system
# themselves
WITHOUT = """
import asyncio, builtins, concurrent.futures, ctypes, importlib, io, itertools, json, logging, mmap, os, pathlib
import multiprocessing.connection, platform, random, select, shutil, signal, socket, sqlite3, subprocess, sys
import tarfile, tempfile, threading, uuid, zipfile
import fsspec, fsspec.asyn, fsspec.implementations.local, google_crc32c, numpy, PIL.Image, PIL.ImageFile, rich
import rich.progress, typer, typer.testing

class Blocked:
    def find_spec(self, name, *_):
        if name in ("fcntl", "resource", "msvcrt", "pwd", "grp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocked())
OF = {
    os: "fork forkpty register_at_fork memfd_create pread preadv pwrite pwritev sched_getaffinity sched_setaffinity "
        "statvfs fstatvfs getuid geteuid getgid posix_fadvise posix_spawn posix_spawnp pidfd_open sysconf wait waitpid "
        "killpg setsid O_CLOEXEC O_NONBLOCK O_DIRECTORY O_NOFOLLOW O_ASYNC getpriority nice fchmod mkfifo "
        "RTLD_NOLOAD MFD_CLOEXEC getloadavg uname",
    signal: "SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE SIGALRM pthread_sigmask pthread_kill sigtimedwait "
            "sigwaitinfo setitimer siginterrupt SIG_BLOCK SIG_UNBLOCK SIG_SETMASK",
    socket: "AF_UNIX SOCK_SEQPACKET SCM_RIGHTS MSG_NOSIGNAL MSG_CMSG_CLOEXEC CMSG_SPACE send_fds recv_fds",
    select: "poll epoll",
    mmap: "MAP_SHARED MAP_PRIVATE PROT_READ PROT_WRITE MAP_ANONYMOUS",
}
for module, names in OF.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

class CDLL(ctypes.CDLL):
    def __init__(self, name, *args, **more):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *args, **more)

ctypes.CDLL = CDLL
opened, os_open, stat = io.open, os.open, os.stat

def no_proc(call):
    def checked(path, *args, **more):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *args, **more)
    return checked

builtins.open = io.open = no_proc(io.open)
os.open, os.stat = no_proc(os.open), no_proc(os.stat)
os.kill = None  # on Windows it would end the process
shutil.disk_usage = lambda path: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)  # of `statvfs` here
signal.Signals = type("Signals", (), {"__iter__": lambda _: iter(())})()
subprocess.Popen.__init__ = lambda *_, **__: (_ for _ in ()).throw(AssertionError("a process is started"))
sys.path.insert(0, "tests")
"""


def test_one_place():
    """Of what not every system has, fastfeed/system is the place."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = [
        f"fastfeed/{name}:{number}: {line.strip()}"
        for name, path in sorted(paths.items())
        if not name.startswith(("system/", *LINUX))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert found == []


def run_without(code: str, folder: Path) -> str:
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT + textwrap.dedent(code), str(folder)]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def test_feed(tmp_path):
    """Files, shards and their index, a bad file, a list of it, a saved state."""
    out = run_without(
        """
        from helpers.photos import folder
        import fastfeed as ff
        from fastfeed.errors import ConfigError
        root = pathlib.Path(sys.argv[1])
        source = ff.ImageFolder(folder(root / "photos", {"a": 5, "b": 4}))
        (root / "photos" / "a" / "bad.jpg").write_bytes(b"<html>")
        source = ff.ImageFolder(root / "photos")
        ops = [ff.RandomResizedCrop(24), ff.ColorJitter(0.4, 0.4, 0.4), ff.RandAugment(), ff.Normalize.imagenet()]
        with ff.Feed(source, ops, batch=4, seed=3, threads=2, quarantine=root / "bad.jsonl") as feed:
            for batch, _ in zip(feed, range(4)):
                assert batch.images.shape == (4, 24, 24, 3)
            assert feed.stats().bad
            print(feed.state())
        try:
            ff.Feed(source, ops, batch=4, side_process=True)
        except ConfigError as error:
            assert "side_process=True needs Linux" in str(error), error
        else:
            raise AssertionError("side_process")
        with tarfile.open(root / "s.tar", "w") as tar:
            for path in sorted((root / "photos" / "b").iterdir()):
                tar.add(path, path.stem + ".jpg")
                (root / "x.cls").write_text("1")
                tar.add(root / "x.cls", path.stem + ".cls")
        shards = ff.TarShards(str(root / "s.tar"))
        with ff.Feed(shards, [ff.CenterCrop(24)], batch=4, threads=2) as feed:
            assert next(iter(feed)).images.any(axis=(1, 2, 3)).all()
            assert not feed.stats().bad, feed.stats()
        print("feed works")
        """,
        tmp_path,
    )
    assert "feed works" in out


def test_preprocess_on_an_executor(tmp_path):
    """Threads here; and what a process of the driver's own pool does first, which is to end with
    the driver.
    """
    run_without(
        """
        from concurrent.futures import ThreadPoolExecutor
        from helpers.photos import folder
        from fastfeed.preprocess.job.job import run
        from fastfeed.preprocess.model.recipe import Recipe, Scaling
        from fastfeed.preprocess.workers.lifeline import end_with, identity
        root = pathlib.Path(sys.argv[1])
        folder(root / "photos", {"a": 5, "b": 4})
        end_with([identity(os.getppid())])
        with ThreadPoolExecutor(2) as pool:
            run(str(root / "photos"), str(root / "shards"), Recipe(Scaling(32)), engine=pool)
        assert len(list((root / "shards").glob("*.tar"))) == 1
        """,
        tmp_path,
    )


@pytest.mark.parametrize("live", [pytest.param("off", marks=pytest.mark.slow), ""])
def test_a_feed_without_its_page_is_no_warning(tmp_path, live):
    out = run_without(
        f"""
        import logging
        os.environ["FASTFEED_LIVE"] = {live!r}
        logging.basicConfig(level=logging.INFO)
        import numpy as np, fastfeed as ff
        from fastfeed.feed.session import FeedSession
        with ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=4) as feed:
            list(feed)
            print(FeedSession.of(feed).live.problem)
        """,
        tmp_path,
    )
    assert "WARNING" not in out and "has no attribute" not in out
    assert ("FASTFEED_LIVE is off" if live else "needs Linux or macOS") in out


def test_preprocess_and_analyze(tmp_path):
    out = run_without(
        """
        from helpers.photos import folder
        root = pathlib.Path(sys.argv[1])
        folder(root / "photos", {"a": 5, "b": 4})
        sys.path.insert(0, "packaging")
        import smoke
        smoke.trace(root / "trace.json")
        from fastfeed.cli import main
        for arguments in (
            ["preprocess", root / "photos", root / "shards", "--size", "32", "--workers", "2"],
            ["analyze", root / "trace.json"],
            ["doctor"],
        ):
            sys.argv[1:] = map(str, arguments)
            try:
                main()
            except SystemExit as error:
                assert not error.code, (arguments, error.code)
        assert len(list((root / "shards").glob("*.tar"))) == 1
        """,
        tmp_path,
    )
    assert "images are processed in threads of this one" in out
    assert "input" in out
